"""Switching markers of a process: looking again, planning, applying, writing down who did it.

All that changes a process happens inside of `_alone`: with the target's lock, after a new look at
what is mapped, and after asking whether the process may be stopped. A journal that is open there
belongs to a controller that is gone, and nothing is switched before it is mended (mend.py).

What this does not do: streams and what a session promises about them (session.py).
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from shlex import quote
from typing import NamedTuple

from markerjit.abi import LARGEST_RING, PAGE
from markerjit.arena import lease
from markerjit.arena.arena import Arena, Switched
from markerjit.arena.create import DEFAULT_RING_SIZE, create_arena, install_trap
from markerjit.arena.find import Probes
from markerjit.arena.journal import Journal
from markerjit.arena.own_rings import close_own_rings, has_own_rings
from markerjit.arguments import check_power_of_two
from markerjit.errors import (
    MarkerError,
    MemoryFault,
    NoMarkers,
    NoSuchProcess,
    Refused,
    TargetGone,
    UnexpectedBytes,
    Unsupported,
)
from markerjit.events.hits import before_switch, note_hits
from markerjit.memory import parse_maps, read_maps_text
from markerjit.model import Mode, RemoteAddress, Site
from markerjit.patch.apply import NOTHING, Applied, apply
from markerjit.patch.holds import Hold, Holds, is_recorded, kept_by, recorded_by, them
from markerjit.patch.plan import (
    Binding,
    Plan,
    Refusal,
    SiteState,
    by_slot,
    plan_off,
    plan_on,
)
from markerjit.patch.prepared import Prepared, prepare
from markerjit.patch.switchable import clashing_slots
from markerjit.patch.wanted import Wanted
from markerjit.probes.recorders import Recorders
from markerjit.proc.permission import (
    check_before_borrowing,
    check_before_stopping,
    check_seccomp_of_threads,
    threads_blocking_sigtrap,
    why_not,
)
from markerjit.quiesce.strategy import STRATEGIES, Strategy, default_strategy
from markerjit.remote import native
from markerjit.remote.calls import BorrowedThread, Caller, OwnThread
from markerjit.remote.gadgets import Gadgets, find_gadgets
from markerjit.session.view import View, command_of, files_of
from markerjit.sites import Objects
from markerjit.sites.verify import confirm
from markerjit.sites.vforks import may_share_memory

_ASK_AGAIN_S = 1.0


class Took(NamedTuple):
    """Markers that a switch takes from a trace, and those that it ends a flight recorder of."""

    taken: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


class Switching(View):
    """A view that can also switch markers. See the module; `Session` is the door."""

    def __init__(self, pid: int, *, ring_size: int | None = None) -> None:
        if ring_size is not None:
            check_power_of_two("ring_size", ring_size, PAGE, LARGEST_RING)
        super().__init__(pid)
        self._ring_size = ring_size
        self._own = pid == os.getpid()
        self._confirmed: set[RemoteAddress] = set()
        self._made: Recorders | None = None
        self._known_objects = self._objects
        self._searched: Objects | None = None
        self._asked: set[int] = set()
        self._asked_at = 0.0
        self._gadgets: tuple[str, Gadgets] | None = None
        self._prepared: dict[tuple[str, Wanted], Prepared] = {}

    # ---- alone ---------------------------------------------------------------------------------

    @contextmanager
    def _alone(self, *, mending: bool = False) -> Iterator[None]:
        """Nobody else switches markers of the process meanwhile, and it may be stopped.

        Asked under the lock, because another controller's stop looks like a debugger.
        """
        self._check_open()
        with self._memory.watched(), self._memory.locked() as got:
            if not got:
                writer = Journal(self._arena).owner() if self._arena else None
                raise Refused(
                    f"{writer or 'another controller'} is switching markers of process {self.pid}; "
                    "try again",
                    try_again=True,
                )
            self._look_again()
            self._refuse_unknown_runtime()
            self._forget_what_went()
            with self._known():
                self._check_threads()
            if not mending and self._arena:
                self._refuse_open_journal(self._arena)
                self._switch_off_for_the_gone(self._arena)
            try:
                yield
            except NoSuchProcess:
                raise TargetGone(self.pid) from None
            except TargetGone:
                raise
            except MarkerError as error:
                passing = isinstance(error, Refused) and error.try_again
                if (
                    passing
                    or self._own
                    or type(error) is MarkerError
                    or not self._objects_changed()
                ):
                    raise
                raise Refused(
                    f"an object of process {self.pid} was loaded or unloaded just now ({error}); "
                    "try again",
                    try_again=True,
                ) from None

    def _refuse_unknown_runtime(self) -> None:
        """What it knows of the markers, and who is at work there, we cannot know."""
        if self.runtime_problem:
            raise Unsupported(str(self.runtime_problem))

    def _objects_changed(self) -> bool:
        """Whether files were mapped or unmapped since we looked."""
        return files_of(parse_maps(read_maps_text(self.pid, why_not=why_not))) != self._files

    def _forget_what_went(self) -> None:
        """Nothing that is known of an address holds when another object is there."""
        before = self._known_objects
        if before is self._objects:
            return
        self._known_objects = self._objects
        self._confirmed.clear()
        self._prepared.clear()
        if self._arena:
            there = {site.address for site in self._objects.sites}
            gone = [site.address for site in before.sites if site.address not in there]
            self._arena.forget_traps(gone)

    def _check_threads(self) -> None:
        """May the process be stopped, and each of its threads? Threads that were asked less than a
        second ago are not asked again: with hundreds it would take longer than the stop."""
        check_before_stopping(self.pid)
        self._memory.check_writable()
        now = time.monotonic()
        if now - self._asked_at > _ASK_AGAIN_S:
            self._asked.clear()
            self._asked_at = now
        check_seccomp_of_threads(self.pid, self._asked)

    def _refuse_open_journal(self, arena: Arena) -> None:
        left = Journal(arena).left()
        if left:
            raise Refused(
                f"{left.owner} began a change of process {self.pid} and did not end it; "
                f"markerjit repair {self.pid} mends that"
            )

    def _switch_off_for_the_gone(self, arena: Arena) -> list[str]:
        """A reader that is gone, or lets its lease end, loses its probes: of these markers."""
        reader = lease.reader_of(arena)
        if reader is None or not reader.over or lease.read_by_us(self.pid):
            return []
        reading = int(arena.current().reading)
        recording = [site for site in self._objects.sites if self._records(arena, site, reading)]
        if recording:
            self._switch(recording, Wanted(False, default_strategy(own=self._own)))
        lease.end(arena)  # last: until then it is known that something is left
        return sorted({site.marker for site in recording})

    def _records(self, arena: Arena, site: Site, reading: int) -> bool:
        """Whether it is on for this reading of the rings."""
        try:
            state = self._state(site)
        except MemoryFault:  # somebody else's doing, and not in our way; as is an altered site
            return False
        marker = arena.marker_at(state.data) if state.mode else None
        if marker is None or not is_recorded(arena, state):
            return False
        return bool(arena.marker_entry(marker).held == reading)

    # ---- who holds a marker --------------------------------------------------------------------

    def _take(self, pattern: str, wanted: Wanted, *, force: bool = False) -> Took:
        """What a switch of these markers takes from others. Raises Refused where they are held, and
        it is not to be done by force. A flight recorder is ended by switching off, as it is meant
        to be."""
        holds = Holds(self._arena) if self._arena else None
        if not holds or not self._arena:
            return Took()
        held: dict[Hold, dict[str, SiteState]] = {Hold.TRACE: {}, Hold.FLIGHT: {}}
        for state in self.states(self._matching(pattern)):
            hold = holds.of(state)
            stays = hold is Hold.FLIGHT and wanted.on and self._is_bound(state, wanted)
            if hold and not stays:
                held[hold].setdefault(state.site.marker, state)
        traced, flown = held[Hold.TRACE], held[Hold.FLIGHT]
        if traced and holds.reader and not force:
            raise Refused(
                f"{recorded_by(self._arena, traced, holds.reader, command_of(holds.reader.pid))}; "
                f"end that, or {self._by_force(pattern, wanted)} takes {them(traced)}",
                try_again=True,
            )
        if flown and wanted.on and not force:
            raise Refused(
                f"{kept_by(self._arena, flown)}; markerjit dump {self.pid} -o FILE saves what it "
                f"has, and {self._by_force(pattern, wanted)} takes {them(flown)}"
            )
        return Took(tuple(traced), tuple(flown))

    def _is_bound(self, state: SiteState, wanted: Wanted) -> bool:
        """Whether a slot holds what it would hold if it was switched on so."""
        recorders, arena = self._recorders, self._arena
        marker = recorders.find(state.site.note, wanted.options) if recorders else None
        if marker is None or not recorders or not arena or arena.marker_at(state.data) != marker:
            return False
        return state.probe == recorders.probe(marker, wanted.probe)

    def _by_force(self, pattern: str, wanted: Wanted) -> str:
        """The command, to be pasted."""
        return f"markerjit {'on' if wanted.on else 'off'} {self.pid} {quote(pattern)} --force"

    # ---- planning ------------------------------------------------------------------------------

    def _strategy(self, name: str | None) -> Strategy:
        if name is None:
            return default_strategy(own=self._own)
        strategy = STRATEGIES.get(name) if isinstance(name, str) else None
        if strategy is None:
            names = ", ".join(STRATEGIES)
            raise ValueError(f"{name!r} is not a strategy of quiescence; there are {names}")
        return strategy

    def _plan(self, sites: Sequence[Site], wanted: Wanted) -> Plan:
        return self._plan_from(self.states(sites), wanted)

    def _plan_from(self, states: Sequence[SiteState], wanted: Wanted) -> Plan:
        problems = [state.problem for state in states if state.problem]
        if problems and (wanted.on or len(problems) == len(states)):
            raise problems[0]
        self._confirm([state.site for state in states if not state.problem])
        if wanted.on:
            bindings = self._bindings([state.site for state in states], wanted)
            plan = plan_on(
                states, bindings,
                mode=wanted.mode, ours=self._probes, strategy=wanted.strategy, own=self._own,
            )  # fmt: skip
        else:
            plan = plan_off(states, ours=self._probes, strategy=wanted.strategy, own=self._own)
        if isinstance(plan, Refusal):
            raise Refused(plan.reason, try_again=plan.try_again)
        self._refuse_shared(plan)
        return plan

    def _confirm(self, sites: Sequence[Site]) -> None:
        new = [site for site in sites if site.address not in self._confirmed]
        if new:
            confirm(self._memory.read, new)
            self._confirmed.update(site.address for site in new)

    def _refuse_shared(self, plan: Plan) -> None:
        """A write into a shared mapping would change the file for everybody."""
        shared = [mapping for mapping in self._maps if mapping.shared]
        for edit in plan.edits:
            for mapping in shared:
                if mapping.start <= edit.address < mapping.end:
                    raise Refused(
                        f"{edit.address:#x} is in a shared mapping of {mapping.path}: "
                        "writing there would change the file"
                    )

    def _bindings(
        self, sites: Sequence[Site], wanted: Wanted
    ) -> dict[RemoteAddress, Binding] | None:
        arena, recorders = self._arena, self._recorders
        if not arena or not recorders:
            return None
        bindings: dict[RemoteAddress, Binding] = {}
        for site in _one_format(sites):
            marker = recorders.find(site.note, wanted.options)
            if marker is None:
                return None
            probe = recorders.probe(marker, wanted.probe)
            bindings[site.slot] = Binding(probe, arena.entry_address(marker))
        return bindings

    # ---- switching, inside of `_alone` ---------------------------------------------------------

    def _switch_again(self, pattern: str, wanted: Wanted) -> Applied:
        """Switch all markers that match; as before, if it was done before and nothing came or
        went."""
        prepared = self._prepared.pop((pattern, wanted), None)
        if prepared and prepared.objects is self._objects and self._arena:
            slots = {id: one.slots for id, one in prepared.switched.items() if one.mode}
            before = before_switch(self._arena, slots, calls=None)
            try:
                applied = self._apply(
                    prepared.plan, prepared.mapped, prepared.packed, prepared.changes
                )
            except UnexpectedBytes:
                pass
            else:
                self._prepared[pattern, wanted] = prepared
                note_hits(self._arena, prepared.switched, before, self._calls)
                return applied
        sites = self._matching(pattern)
        states, plan, applied = self._switch(sites, wanted)
        if self._arena and plan.edits:
            mapped = self._mapped_at(plan)
            switched = self._switched(self._arena, states, wanted)
            prepared = prepare(self._objects, plan, states, mapped, switched)
            if prepared:
                self._prepared[pattern, wanted] = prepared
        return applied

    def _switch(
        self, sites: Sequence[Site], wanted: Wanted, *, held: int = 0
    ) -> tuple[list[SiteState], Plan, Applied]:
        """What it was, what was done, and what that took. `held`: the reading that it is for."""
        if wanted.on:
            self._need_arena(sites, wanted)
            self._tell_of_markers(sites, wanted)
        states = self.states(sites)
        plan = self._plan_from(states, wanted)
        if self._arena:
            if plan.traps:
                self._prepare_traps(self._arena, plan)
            self._note_breakpoints(self._arena, states)
        if wanted.on and not plan.edits and not held:
            return states, plan, NOTHING._replace(left_out=plan.left_out)
        if self._arena is None:  # a fork's child, whose markers are its parent's doing
            return states, plan, self._apply_edits(plan)
        slots = self._slots_by_entry(sites, wanted)
        calls = self._calls if wanted.calls else None
        before = before_switch(self._arena, slots, calls=calls)
        for marker in slots if held else ():  # killed after this, it is known for whom it records
            self._arena.note_held(marker, held)
        applied = self._apply_edits(plan)
        # Also where nothing had to be written: a controller may have been killed before its note.
        switched = self._switched(self._arena, states, wanted)
        note_hits(self._arena, switched, before, self._calls, held=held)
        return states, plan, applied

    def _apply_edits(self, plan: Plan) -> Applied:
        if plan.edits:
            return self._apply(plan, self._mapped_at(plan))
        return NOTHING._replace(left_out=plan.left_out)

    def _apply(
        self,
        plan: Plan,
        mapped: bytes,
        packed: bytearray | None = None,
        changes: int | None = None,
    ) -> Applied:
        target = self._target(mapped, borrowing=plan.strategy.borrows)
        target.needs_sigtrap = bool(plan.traps)
        journal = Journal(self._arena) if self._arena else None
        return apply(plan, target, journal, packed, changes)

    def _mapped_at(self, plan: Plan) -> bytes:
        """The lines of /proc/PID/maps for the places of a plan."""
        starts = [mapping.start for mapping in self._maps]
        wanted = sorted({bisect_right(starts, edit.address) - 1 for edit in plan.edits})
        lines = self._maps_text.split("\n")
        return os.fsencode("".join(lines[at] + "\n" for at in wanted if at >= 0))

    def _target(self, mapped: bytes = b"", *, borrowing: bool = False) -> native.NativeTarget:
        """The process as the native part needs it; `borrowing` where it may need a thread."""
        target = native.NativeTarget(
            pid=self.pid,
            pidfd=self._memory.pidfd,
            mem_fd=self._memory.fileno(),
            mapped=mapped,
            mapped_size=len(mapped),
        )
        if borrowing and not self._own:
            check_before_borrowing(self.pid)
            check_seccomp_of_threads(self.pid, set())  # all of them, however lately they were asked
            gadgets = self._find_gadgets()
            target.syscall_ret, target.sigreturn, target.pop_rax_ret = gadgets
            if self._arena:
                target.scratch = self._arena.scratch
        return target

    def _find_gadgets(self) -> Gadgets:
        if self._gadgets is None or self._gadgets[0] is not self._maps_text:
            found = find_gadgets(self._memory.read, self._maps)
            self._gadgets = self._maps_text, found
        return self._gadgets[1]

    def _caller(self) -> Caller:
        return OwnThread() if self._own else BorrowedThread(self._target(borrowing=True))

    def _prepare_traps(self, arena: Arena, plan: Plan) -> None:
        self._refuse_blocked_sigtrap()
        arena.add_traps(plan.traps)
        install_trap(arena, self._caller())

    @staticmethod
    def _note_breakpoints(arena: Arena, states: Sequence[SiteState]) -> None:
        """What stands there now, before anything is changed: a breakpoint that a fork brought along
        is ours from now on, and one whose object was loaded anew has gone."""
        if arena.trap_installed:
            for state in states:
                arena.note_planted(state.site.address, state.code_mode is Mode.INT3)

    def _refuse_blocked_sigtrap(self) -> None:
        blocking = threads_blocking_sigtrap(self.pid)
        if blocking:
            raise Refused(
                f"thread {blocking[0]} blocks SIGTRAP ({len(blocking)} do): a breakpoint would "
                "kill the process; use the mode that the site was compiled for"
            )

    def _need_arena(self, sites: Sequence[Site], wanted: Wanted) -> Arena:
        """The arena, made if need be: but not before the plan has been made without it, so that
        nothing is put into a process for a switch that is refused."""
        if self._arena is None:
            if self._plan(sites, wanted).traps:
                self._refuse_blocked_sigtrap()
            owner = self._objects.owner
            if owner is None:
                raise NoMarkers(self._no_markers())
            self._arena = create_arena(
                self.pid, self._memory, self._caller(), owner,
                ring_size=self._ring_size or DEFAULT_RING_SIZE,
                own_rings=not may_share_memory(self._memory.read, self._maps),
            )  # fmt: skip
            self._probes = Probes([*self._probes.bases, self._arena.base])
            self._searched = self._objects
        self._check_own_rings(self._arena)
        return self._arena

    def _check_own_rings(self, arena: Arena) -> None:
        """An object that came after the arena was made may have children in our memory."""
        if self._searched is self._objects:
            return
        if has_own_rings(self._memory, arena) and may_share_memory(self._memory.read, self._maps):
            close_own_rings(self._memory, arena)
        self._searched = self._objects

    # ---- who is on, by whom --------------------------------------------------------------------

    @property
    def _recorders(self) -> Recorders | None:
        if self._arena and (self._made is None or self._made.arena is not self._arena):
            self._made = Recorders(self._arena)
        return self._made

    def _tell_of_markers(self, sites: Sequence[Site], wanted: Wanted) -> None:
        if self._recorders:
            notes = [site.note for site in _one_format(sites)]
            self._recorders.tell(notes, wanted.options, wanted.probe)

    def _switched(
        self, arena: Arena, before: Sequence[SiteState], wanted: Wanted
    ) -> dict[int, Switched]:
        """What has become of the entries of these markers. How they are is looked at: one that is
        off is so in each of them."""
        sites = [state.site for state in before]
        slots = self._slots_by_entry(sites, wanted)
        gets = {slot: marker for marker, of in slots.items() for slot in of}
        was_on: dict[int, int] = {}
        for state in before:
            had = arena.marker_at(state.data)
            if had is None:
                continue
            if state.site.slot not in slots.setdefault(had, []):
                slots[had].append(state.site.slot)
            if state.mode and state.site.slot in gets:
                was_on.setdefault(gets[state.site.slot], had)
        modes = dict.fromkeys(slots) | self._modes(arena, sites)
        return {
            marker: Switched(
                mode,
                was_on.get(marker),
                tuple(slots.get(marker, ())),
                calling=wanted.calls and mode is not None,
            )
            for marker, mode in modes.items()
        }

    def _slots_by_entry(
        self, sites: Sequence[Site], wanted: Wanted
    ) -> dict[int, list[RemoteAddress]]:
        """The entries that the slots get; none where they are switched off."""
        found: dict[int, list[RemoteAddress]] = {}
        for site in by_slot(sites) if wanted.on and self._recorders else ():
            marker = self._recorders.find(site.note, wanted.options) if self._recorders else None
            if marker is not None:
                found.setdefault(marker, []).append(site.slot)
        return found

    def _modes(self, arena: Arena, sites: Sequence[Site]) -> dict[int, Mode | None]:
        """How each marker is, by its first site."""
        modes: dict[int, Mode | None] = {}
        for site in by_slot(sites):
            # It is switched already: an object that was unloaded since is no failure of that.
            with suppress(MemoryFault):
                state = self._state(site)
                marker = arena.marker_at(state.data)
                if marker is not None and not state.problem:
                    modes.setdefault(marker, state.mode)
        return modes


def _one_format(sites: Sequence[Site]) -> Iterator[Site]:
    """One site for each slot that one format describes: a plan leaves out the others."""
    clashing = clashing_slots(sites)
    return (site for site in by_slot(sites) if site.slot not in clashing)
