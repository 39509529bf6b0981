"""Switching sites of a process: from a request to a plan, which is applied and written down.

    request -> states -> plan -> the runtime, if it is not there -> code -> entries

What this does not do: streams, flight recorders and their guarantees (trace.py, flight.py), or the
patterns that a session takes (session.py).
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from operator import is_
from typing import TYPE_CHECKING

from markerjit.abi import TRAP_INSTALLED
from markerjit.arena import lease
from markerjit.arena.arena import Arena
from markerjit.arena.deadlines import any_is_over, restore_deadlines, set_deadline
from markerjit.arena.journal import Journal
from markerjit.arena.mapped import Probes
from markerjit.arena.markers import Switched
from markerjit.arena.own_rings import close_own_rings, has_own_rings
from markerjit.arena.readable import forget_pages
from markerjit.errors import (
    ChangeFailed,
    MarkerError,
    MemoryFault,
    Refused,
    TargetGone,
    UnexpectedBytes,
)
from markerjit.model import Edit, Mode, RemoteAddress, Site
from markerjit.patch.apply import NOTHING, Applied, apply
from markerjit.patch.holds import is_recorded
from markerjit.patch.plan import Plan, addresses_of
from markerjit.patch.request import Record, Request
from markerjit.patch.slots import SLOT_UNMATCHED
from markerjit.patch.switchable import SiteState
from markerjit.printable import counted
from markerjit.probes.recorders import Recorders
from markerjit.proc.permission import threads_blocking_sigtrap
from markerjit.session.entries import Entries, slots_by_entry
from markerjit.session.planning import Planner, one_format
from markerjit.session.target import Target
from markerjit.session.turn import Turn, Turns
from markerjit.sites import Lots, NameKind, Objects, ProbeName
from markerjit.tuples import NamedTuple
from markerjit.uncollected import uncollected
from markerjit.x86.forms import RETURN

if TYPE_CHECKING:  # few sessions switch again, and a change is seldom left paused
    from markerjit.patch.prepared import Prepared
    from markerjit.session.again import Again
    from markerjit.session.unfinished import Settled


_ABOUT_STACKS = re.compile(r"\bstack\b")


Asked = tuple[object, ...]
"""The arguments of a switch, as they were given."""


class Done(NamedTuple):
    """A switch that was made: how the sites were before, the plan, what it has made of the entries,
    and what applying it took."""

    states: Sequence[SiteState]
    plan: Plan
    switched: Mapping[int, Switched]
    applied: Applied


class Ready(NamedTuple):
    """A switch that is ready to be applied. `recorders` is None for one off without an arena."""

    states: Sequence[SiteState]
    plan: Plan
    recorders: Recorders | None


class Remembered(NamedTuple):
    """A switch that may be made again while `objects` and the sites that have a stub, `opened`, are
    those of the process. It is `prepared` when it is: not before, since most sessions end with the
    first switch."""

    objects: Objects
    opened: Sequence[Site]
    done: Done
    prepared: Prepared | None = None


class Switcher:
    """Switches markers of one target. `ring_size` is that of an arena that it makes, and
    `breakpoints` is as for a Planner."""

    def __init__(
        self, target: Target, *, ring_size: int | None = None, breakpoints: bool = False
    ) -> None:
        self.target = target
        self.ring_size = ring_size
        self.planner = Planner(target, breakpoints=breakpoints)
        self.turns = Turns(target)
        self._made: Recorders | None = None
        self._known_objects = target.seen.objects
        self._searched: Objects | None = None
        self._remembered: dict[tuple[ProbeName, Request], Remembered] = {}
        self._with_stubs: dict[tuple[ProbeName, bool], tuple[object, ...]] = {}
        self._again: dict[Asked, Again] = {}

    @property
    def recorders(self) -> Recorders | None:
        """The recorders of the runtime in the process; None without the runtime."""
        arena = self.target.seen.arena
        if arena and (self._made is None or self._made.arena is not arena):
            self._made = Recorders(arena)
        return self._made

    @contextmanager
    def turn(
        self, *, repairing: bool = False, stepping: bool = False, leave_overdue: bool = False
    ) -> Iterator[Turn]:
        """A turn (turn.py), in which nothing is known any more of objects that went, no change is
        left paused, no marker records or adds up for a reader that is gone, and none is on whose
        deadline has passed. A repair does the last three itself, to say so. Nothing else is done in
        the middle of a change that is made in stages. `leave_overdue`: the caller does the last of
        them. The collector of cycles is off meanwhile."""
        with uncollected(), self.turns.take(repairing=repairing, stepping=stepping) as turn:
            self._forget_what_went(turn)
            if not repairing and not stepping:
                if turn.left_paused:
                    self.settle(turn)
                if self._may_have_left():
                    self.switch_off_for_the_gone(turn)
                    if not leave_overdue:
                        _try_to(self.switch_off_overdue, turn)
                    _try_to(self.free_aggregates, turn)
                    _try_to(self._refresh_stacks, turn)
            yield turn

    def _may_have_left(self) -> bool:
        """Whether anything may be left of a reader, a deadline or an aggregate, or stacks are
        walked, by one look: mostly the control block has none of them."""
        recorders = self.recorders
        if recorders is None:
            return False
        control = recorders.arena.control.now()
        reader = lease.reader_of(recorders.arena, control)
        is_left = reader or control.until_ns or control.aggregates_made
        return bool(is_left or control.stacks)

    def settle(self, turn: Turn) -> Settled:
        """Finish or take back the change that is open, if there is one."""
        turn.check()
        from markerjit.session.unfinished import settle

        return settle(turn, self.recorders, lambda plan: self.write(turn, plan))

    def _forget_what_went(self, turn: Turn) -> None:
        """Nothing that is known of an address holds when another object is there."""
        seen, before = turn.seen, self._known_objects
        if before is seen.objects:
            return
        self._known_objects = seen.objects
        self.planner.forget()
        self._remembered.clear()
        self._again.clear()
        if seen.arena:
            mapped = {address for lot in seen.sites.lots for address in lot.addresses}
            lots = before.sites.lots
            gone = [place for lot in lots for place in lot.addresses if place not in mapped]
            for arena in (seen.arena, *seen.arenas.beside):
                arena.patches.forget(gone)

    def switch_off_for_the_gone(self, turn: Turn) -> list[str]:
        """A reader that is gone, or lets its lease end, loses its probes: of these markers."""
        turn.check()
        recorders = self.recorders
        reader = lease.reader_of(recorders.arena) if recorders else None
        gone = reader is not None and reader.over and not lease.read_by_us(turn.target.pid)
        if not gone or not recorders:
            return []
        reading = int(recorders.arena.control.now().reading)
        recording = [site for site in turn.seen.sites if self._records(recorders, site, reading)]
        if recording:
            self.switch(turn, recording, self.planner.off())
        lease.end(recorders.arena)  # last: until then it is known that something is left
        return sorted({site.marker for site in recording})

    def switch_off_overdue(self, turn: Turn, *, early: ProbeName | None = None) -> list[str]:
        """Switch off the markers whose deadline has passed, and those that `early` is of and have
        one. Their names."""
        turn.check()
        if not self.recorders or not (early or any_is_over(self.recorders.arena)):
            return []
        from markerjit.session.overdue import switch_off_overdue

        off = self.planner.off()
        return switch_off_overdue(turn, lambda sites: self.switch(turn, sites, off), early)

    def free_aggregates(self, turn: Turn) -> list[str]:
        """The same for an aggregate: its markers are switched off, and its memory is free."""
        turn.check()
        arena = turn.seen.arena
        if not arena or not arena.aggregates.all():
            return []
        from markerjit.session.left_aggregates import left_aggregates

        left = left_aggregates(turn)
        if left.sites:
            self.switch(turn, left.sites, self.planner.off())
        for ticket in left.tickets:
            arena.aggregates.free(ticket)
        return sorted({site.marker for site in left.sites})

    def _records(self, recorders: Recorders, site: Site, reading: int) -> bool:
        """Whether it is on for this reading of the rings."""
        try:
            state = self.target.state(site)
        except MemoryFault:  # changed by another tool, and not in our way
            return False
        marker = recorders.arena.markers.at(state.data) if state.mode else None
        if marker is None or not is_recorded(recorders.arena, state):
            return False
        return bool(recorders.arena.markers.entry(marker).held == reading)

    # ---- switching -----------------------------------------------------------------------------

    def once_more(self, asked: Asked) -> Applied | None:
        """Make a switch that was made before, and noted by `note_asked`, in a short way (again.py).
        None where that is not possible: then nothing was done."""
        try:
            known = self._again.get(asked)
        except TypeError:  # no such argument is right, and the ordinary way says so
            return None
        return known.make() if known else None

    def note_asked(self, turn: Turn, asked: Asked, name: ProbeName, request: Request) -> None:
        """Have `once_more` make the switch that was just made, where that can be."""
        remembered = self._remembered.get((name, request))
        self._again.pop(asked, None)
        if remembered and remembered.prepared and self.recorders:
            from markerjit.session.again import again

            made = again(turn, self.turns, self.recorders.arena, remembered.prepared)
            if made:
                self._again[asked] = made

    def switch_again(self, turn: Turn, name: ProbeName, request: Request) -> Applied:
        """Switch all markers that match, whose stubs are there (`need_stubs`); as before, if it was
        done before and nothing came or went."""
        remembered = self._remembered.pop((name, request), None)
        if remembered and request.on and name.is_of_stubs:
            # What may be opened depends on the other sites that have the same bytes.
            shared = turn.target.sharing()
            if shared and any(state.site.address in shared for state in remembered.done.states):
                remembered = None
        is_as_before = (
            remembered
            and remembered.objects is turn.seen.objects
            and remembered.opened is turn.seen.opened
        )
        if remembered and is_as_before and self.recorders:
            prepared = remembered.prepared or self._prepare(turn, remembered.done)
            applied = prepared and self._repeat(turn, prepared, self.recorders)
            if applied:
                again = remembered._replace(prepared=prepared)
                self._remembered[name, request] = again
                return applied
        done = self.switch(turn, turn.target.matching(name), request)
        # The code of a question may be given back before the next time. No token is given twice.
        asks = request.on and request.probe.question is not None
        # What is on is another thing each time, and so may be what is left out.
        leaves_the_same = all(marker.lasts for marker in done.plan.left_out)
        is_the_same = name.kind is not NameKind.EVERYTHING and leaves_the_same
        if done.switched and done.plan.edits and is_the_same and not asks and not done.plan.carries:
            seen = turn.seen
            self._remembered[name, request] = Remembered(seen.objects, seen.opened, done)
        return done.applied

    def _prepare(self, turn: Turn, done: Done) -> Prepared | None:
        """A switch, prepared from what was read and planned the last time. None where that does not
        hold now: the first switch of a slot finds it empty, and no later one does."""
        for edit in done.plan.edits:
            if edit.old != edit.new:
                if turn.target.memory.read(edit.address, len(edit.old)) != edit.old:
                    return None
                break
        from markerjit.patch.prepared import prepare

        # A site without a stub is not looked at: it gets one only by a switch that is not repeated.
        left_out = {each.marker for each in done.plan.left_out}
        states = [
            state for state in done.states
            if state.site.marker not in left_out and not state.site.form.closed
        ]  # fmt: skip
        return prepare(done.plan, states, self.mapped_at(turn, done.plan), done.switched)

    def _repeat(self, turn: Turn, prepared: Prepared, recorders: Recorders) -> Applied | None:
        """Make a prepared switch. None where something is not as it was; then nothing was done."""
        entries, arena = Entries(turn, recorders), recorders.arena
        if not arena.patches.have_planted(prepared.planted):
            return None
        asks_for_trap = bool(prepared.plan.traps) and self._is_in_stop(arena, prepared.plan)
        self._enter_heads(turn, arena, prepared.plan, asks_later=asks_for_trap)
        slots = {id: switched.slots for id, switched in prepared.switched.items() if switched.mode}
        before = entries.before(slots, calls=False)
        set_deadline(arena, slots, 0)
        try:
            applied = self._apply(
                turn, prepared.plan, prepared.mapped, prepared.packed, prepared.changes,
                asks_for_trap=asks_for_trap,
            )  # fmt: skip
        except UnexpectedBytes:
            return None
        entries.note(prepared.switched, before)
        return applied

    def switch(
        self,
        turn: Turn,
        sites: Sequence[Site],
        request: Request,
        *,
        held: int = 0,
        until_ns: int = 0,
    ) -> Done:
        """Switch these sites. `held` is the reading of the rings that they are on for, 0: none, and
        `until_ns` the deadline by which they are to be off again, 0: none.

        They are read once and planned once. The first switch of a process is planned before the
        runtime is there, so that nothing is put into a process for a switch that is refused; the
        addresses are filled in when they are known.
        """
        states, plan, recorders = self.make_ready(turn, sites, request)
        if request.on and not plan.edits and not held:
            if recorders:
                set_deadline(recorders.arena, slots_by_entry(sites, request, recorders), until_ns)
            return Done(states, plan, {}, NOTHING._replace(left_out=plan.left_out))
        if recorders is None:  # a fork's child, whose markers are its parent's doing
            return Done(states, plan, {}, self.apply_plan(turn, plan))
        entries = Entries(turn, recorders)
        slots = slots_by_entry(sites, request, recorders)
        switched = entries.switched(states, plan, request, slots)
        before = entries.before(slots, calls=request.calls)
        called = {state.site.slot for state in states if state.site.address in plan.modes}
        noted = recorders.note_callers(request.probe, called)
        held_before = entries.hold(slots, held) if held else {}
        until_before = set_deadline(recorders.arena, slots, until_ns)
        try:
            applied = self.apply_plan(turn, plan)
        except MarkerError:
            if is_undone(recorders.arena):
                entries.hold_again(held_before)
                restore_deadlines(recorders.arena, until_before)
                # Where threads ran, one may have found the probe before it was taken back.
                if noted and plan.strategy.stops:
                    recorders.arena.units.forget_callers(noted)
            raise
        entries.note(switched, before, held=held)
        return Done(states, plan, switched, applied)

    def make_ready(self, turn: Turn, sites: Sequence[Site], request: Request) -> Ready:
        """Do all of a switch but writing code and slots: plan it, have the runtime in the process,
        tell it of the markers, and enter the heads."""
        turn.check()
        self._need_stash(turn, sites, request)
        states, recorders = self.target.states(sites), self.recorders
        if request.on and recorders and not request.replaces:
            self.refuse_replaced(recorders.arena, states)
        if request.on and not (recorders and recorders.arena.is_current):
            plan = self.planner.plan(states, request, None)
            recorders = made = self._make_arena(turn, traps=bool(plan.traps))
            tell_of_markers(turn, sites, request, made)
            plan = self.planner.complete(plan, states, request, made)
        else:
            if request.on and recorders:
                self._check_own_rings(turn, recorders.arena)
                tell_of_markers(turn, sites, request, recorders)
            plan = self.planner.plan(states, request, recorders)
        if recorders:
            self._need_stacks(turn, recorders.arena, request)
            self._enter_heads(turn, recorders.arena, plan)
            _note_breakpoints(recorders.arena, states)
            if plan.token:
                recorders.arena.control.write("stash_tokens", plan.token)
            self._count_unmatched_anew(states, plan)
        return Ready(states, plan, recorders)

    @staticmethod
    def refuse_replaced(arena: Arena, states: Sequence[SiteState]) -> None:
        """Raise Refused where a function is replaced. No file was loaded into most processes."""
        if arena.units.used:
            from markerjit.session.replaced import refuse_replaced

            refuse_replaced(arena, states)

    def write(self, turn: Turn, plan: Plan, mapped: bytes | None = None) -> Applied:
        """Apply a plan beside the journal, which stays as it is. `mapped`: lines of /proc/PID/maps
        that have to be the same still, if they were taken before."""
        mapped = self.mapped_at(turn, plan) if mapped is None else mapped
        target = turn.native_target(mapped, borrowing=plan.strategy.borrows)
        target.needs_sigtrap = bool(plan.traps)
        return apply(plan, target, None)

    def apply_plan(self, turn: Turn, plan: Plan) -> Applied:
        """Apply a plan, by way of the journal. Raises what `apply` raises."""
        if plan.edits:
            return self._apply(turn, plan, self.mapped_at(turn, plan))
        return NOTHING._replace(left_out=plan.left_out)

    def _apply(
        self,
        turn: Turn,
        plan: Plan,
        mapped: bytes,
        packed: bytearray | None = None,
        changes: int | None = None,
        *,
        asks_for_trap: bool = False,
    ) -> Applied:
        borrowing = plan.strategy.borrows or asks_for_trap
        target = turn.native_target(mapped, borrowing=borrowing)
        target.needs_sigtrap = bool(plan.traps)
        arena = turn.seen.arena
        if arena:
            forget_pages(turn.target.memory, arena)
            if asks_for_trap:
                target.trap, target.seen_trap = arena.trap_places
        journal = Journal(arena) if arena else None
        applied = apply(plan, target, journal, packed, changes, partial(self._copies, turn))
        self.turns.is_registered |= plan.strategy.borrows and not turn.target.own
        return applied

    @staticmethod
    def _copies(turn: Turn, edit: Edit) -> Mapping[int, int]:
        """Where a thread may go on that stands inside an edit."""
        if not turn.seen.opened:
            return {}
        from markerjit.session.copies import copies_inside  # decodes and assembles

        return copies_inside(turn.target, edit)

    @staticmethod
    def mapped_at(turn: Turn, plan: Plan) -> bytes:
        """The lines of /proc/PID/maps for the places of a plan."""
        starts = [mapping.start for mapping in turn.seen.maps]
        addresses, at = addresses_of(plan.edits), 0
        indices: list[int] = []
        while at < len(addresses):
            following = bisect_right(starts, addresses[at])
            indices.append(following - 1)
            is_last = following == len(starts)
            at = len(addresses) if is_last else bisect_left(addresses, starts[following], at)
        lines = turn.seen.maps_text.split("\n")
        return os.fsencode("".join(lines[at] + "\n" for at in indices if at >= 0))

    # ---- what the runtime needs before ---------------------------------------------------------

    def need_arena(self, turn: Turn, sites: Sequence[Site], request: Request) -> Recorders:
        """The recorders of the arena, which is made if need be: but not for a switch that would be
        refused."""
        if self.recorders and self.recorders.arena.is_current:
            self._check_own_rings(turn, self.recorders.arena)
            return self.recorders
        states = self.target.states(sites)
        plan = self.planner.plan(states, request, None)
        return self._make_arena(turn, traps=bool(plan.traps))

    def need_current_arena(self, turn: Turn) -> None:
        """Have an arena of our version in the process, for what is put there before a plan."""
        if self.recorders and self.recorders.arena.is_current:
            self._check_own_rings(turn, self.recorders.arena)
        else:
            self._make_arena(turn, traps=False)

    def need_stubs(self, turn: Turn, name: ProbeName, request: Request) -> None:
        """Before code that nobody prepared is switched on each site has a stub, or a reason why it
        cannot have one. Raises UnknownMarker, and what making stubs raises."""
        if not (request.on and name.is_of_stubs):
            return
        target, key = turn.target, (name, request.takes_breakpoints)
        known = self._with_stubs.get(key)
        if known and all(map(is_, known, _what_stubs_depend_on(target))):
            return  # the last time each had one, or a reason that lasts; nothing came or went since
        # These decode all of an object, and assemble.
        from markerjit.probes.fast import USUAL
        from markerjit.session.stubs import have_stubs, make_stubs

        sites = target.unprepared(name)
        way = request.probe.options if isinstance(request.probe, Record) else USUAL
        make_stubs(
            turn, sites, partial(self.need_current_arena, turn), way,
            breakpoints=request.takes_breakpoints,
        )  # fmt: skip
        if have_stubs(target, sites):
            self._with_stubs[key] = _what_stubs_depend_on(target)

    def _need_stash(self, turn: Turn, sites: Sequence[Site], request: Request) -> None:
        """Before an exit is switched on whose event needs its entry, there is the memory in which
        that keeps it. Raises Refused without room, and Unsupported where a filter forbids it."""
        arena = self.target.seen.arena
        if not request.on or arena is None or not arena.is_current:
            return
        lots = Lots.of(sites).lots  # of a hundred thousand sites none is made to be looked at
        exits = [site for lot in lots if lot.first.form.name == RETURN for site in lot.sites()]
        if not exits:
            return
        from markerjit.arena.needed import KEEPING
        from markerjit.arena.stash import make_stash, stash_of
        from markerjit.remote.filters import Filters
        from markerjit.session.carrying import needs_entry

        if not any(needs_entry(self.target, site, request) for site in exits):
            return
        if not stash_of(arena, self.target.seen.maps):
            filters = Filters(self.target.pid, lambda: KEEPING, trust=self.target.trusts_filters)
            filters.check(set())
            make_stash(arena, self.target.memory, turn.caller(), self.target.seen.maps)
            self.target.look()

    def _need_stacks(self, turn: Turn, arena: Arena, request: Request) -> None:
        """Before a question about stacks is asked there is the memory of what is needed to walk
        them. Raises Refused where that cannot be had."""
        question = request.probe.question if request.on else None
        if question and _ABOUT_STACKS.search(question.whole):
            from markerjit.arena.find import process_of
            from markerjit.arena.needed import UNLOCKED
            from markerjit.arena.stacks import make_stacks, stacks_of
            from markerjit.remote.filters import Filters

            if stacks_of(arena) is None:
                pid, trust = self.target.pid, self.target.trusts_filters
                Filters(pid, lambda: UNLOCKED, trust=trust).check(set())
                make_stacks(arena, process_of(arena, turn.caller()))
            self._refresh_stacks(turn)

    def _refresh_stacks(self, turn: Turn) -> None:
        """Where stacks are walked, by the tables of what is mapped now."""
        arena = turn.seen.arena
        if arena and arena.control.number("stacks"):
            from markerjit.arena.stacks import stacks_of

            stacks = stacks_of(arena)
            if stacks and not stacks.is_current(turn.seen.maps):
                stacks.refresh(turn.target.memory.read, turn.seen.maps)

    def _count_unmatched_anew(self, states: Sequence[SiteState], plan: Plan) -> None:
        """Exits that come on count from 0 the returns whose entries were not seen: nothing counts
        while they are off."""
        for state in states:
            comes = plan.modes.get(state.site.address) and not state.mode
            if comes and state.unmatched:
                self.target.memory.write(RemoteAddress(state.site.slot + SLOT_UNMATCHED), bytes(8))

    def _make_arena(self, turn: Turn, *, traps: bool) -> Recorders:
        """Put the runtime into the process. `traps` where it will have to handle breakpoints."""
        if traps:
            self._refuse_blocked_sigtrap()
        self._refuse_older_in_use()
        from markerjit.arena.create import DEFAULT_RING_SIZE, create_arena
        from markerjit.sites.vforks import may_share_memory

        seen = turn.seen
        memory = turn.target.memory
        arena = create_arena(
            turn.target.pid, memory, turn.caller(),
            maps=seen.maps, ring_size=self.ring_size or DEFAULT_RING_SIZE,
            own_rings=not may_share_memory(self.target.pid, memory.read, seen.maps),
        )  # fmt: skip
        self.target.note_arena(arena)
        self._searched = seen.objects
        self._made = Recorders(arena)
        return self._made

    def _refuse_older_in_use(self) -> None:
        """An arena of our own is put beside an older one when nothing of that is on any more."""
        older = self.target.seen.arena
        if older is None:
            return
        probes = Probes([older.base])
        states = self.target.states(self.target.seen.sites)
        on = sorted({state.site.marker for state in states if state.mode and state.probe in probes})
        if on:
            raise Refused(
                f"process {older.pid} holds an arena of version {older.version}, which an older "
                f"markerjit has made, and {on[0]} is on in it ({counted(len(on), 'marker')}); "
                f"markerjit off {older.pid} ends that, and then an arena of this version is "
                "put beside it"
            )

    def _check_own_rings(self, turn: Turn, arena: Arena) -> None:
        """An object that came after the arena was made may have children in our memory."""
        seen, memory = turn.seen, turn.target.memory
        if self._searched is seen.objects:
            return
        from markerjit.sites.vforks import may_share_memory

        pid = self.target.pid
        if has_own_rings(memory, arena) and may_share_memory(pid, memory.read, seen.maps):
            close_own_rings(memory, arena)
        self._searched = seen.objects

    def _enter_heads(
        self, turn: Turn, arena: Arena, plan: Plan, *, asks_later: bool = False
    ) -> None:
        """Before a head is opened the arena's table has it, and a breakpoint finds its handler.
        `asks_later`: what makes a breakpoint refused is asked when the plan is applied."""
        asks = bool(plan.traps) and not asks_later
        if asks:
            self._refuse_blocked_sigtrap()
        if plan.heads:
            arena.patches.put(plan.heads)
        if asks:
            from markerjit.arena.trap import install_trap

            install_trap(arena, turn.caller())

    def _is_in_stop(self, arena: Arena, plan: Plan) -> bool:
        """Whether a plan is applied while all threads stand, and our handler was put there before:
        then one of them is asked for it in that stop, which saves another one."""
        installed = arena.control.number("trap_installed") == TRAP_INSTALLED
        return installed and plan.strategy.stops and not self.target.own

    def _refuse_blocked_sigtrap(self) -> None:
        blocking = threads_blocking_sigtrap(self.target.pid)
        if blocking:
            raise Refused(
                f"thread {blocking[0]} blocks SIGTRAP ({len(blocking)} do): a breakpoint would "
                "kill the process; use the mode that the site was compiled for"
            )


def _what_stubs_depend_on(target: Target) -> tuple[object, ...]:
    """What is another value when sites may have got stubs, or may get others."""
    return target.seen.opened, target.seen.objects, target.unopenable


def _try_to(clean_up: Callable[[Turn], object], turn: Turn) -> None:
    """Where that cannot be done it is not in the way of what the turn was taken for: the next one
    tries again, and `status` says that something is left."""
    try:
        clean_up(turn)
    except (TargetGone, ChangeFailed):
        raise
    except MarkerError:
        pass


def is_undone(arena: Arena) -> bool:
    """Whether a switch that failed has left nothing: else its journal is open, for a repair."""
    return Journal(arena).owner() is None


def tell_of_markers(
    turn: Turn,
    sites: Sequence[Site],
    request: Request,
    recorders: Recorders,
    *,
    keep: Collection[int] = (),
) -> None:
    """Tell the runtime of the markers, and have code that records them where that is asked for.
    None is switched on by it. The code of the markers to `keep` is not given back for that."""
    turn.check()
    described = list(one_format(sites))
    if request.probe.question:  # together: the room of all is found before any is on
        from markerjit.session.unasked import give_back

        give = partial(give_back, turn, recorders.arena, keep)
        recorders.tell([site.signature for site in described], request.probe, give_back=give)
        return
    for preserving in (True, False):
        signatures = [site.signature for site in described if site.body.preserving is preserving]
        recorders.tell(signatures, request.probe, preserving=preserving)


def _note_breakpoints(arena: Arena, states: Sequence[SiteState]) -> None:
    """Write down the breakpoints that are in the code now, before anything is changed. One that a
    fork brought along is ours from now on, and one whose object was loaded anew has gone."""
    if arena.trap_installed:
        planted: list[RemoteAddress] = []
        removed: list[RemoteAddress] = []
        for state in states:
            stands = state.code_mode is Mode.INT3
            (planted if stands else removed).extend(state.lot.addresses)
        arena.patches.mark(planted, removed)
