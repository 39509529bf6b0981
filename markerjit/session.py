"""A session: attached to a process, looking at its markers and switching them.

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.name, event.fields)

A session stops nobody until something is switched. Its methods either do all that they say or raise
a MarkerError and leave the target as it was. Not thread-safe; and where the target is our own
child, nobody in this process should wait for it while it is being stopped: to wait(2) a stop for us
looks like a change of the child.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

from markerjit.elf import parse_format
from markerjit.errors import (
    MarkerError,
    NoMarkers,
    NoSuchProcess,
    NotPermitted,
    Refused,
    TargetGone,
    Unsupported,
)
from markerjit.model import Mode, RemoteAddress, Site
from markerjit.patch.apply import EXPLAINED, Applied, apply, strategy_for
from markerjit.patch.arena import Arena
from markerjit.patch.inject import (
    DEFAULT_RING_SIZE,
    LARGEST_RING,
    create_arena,
    install_trap,
)
from markerjit.patch.plan import Binding, Plan, Refusal, SiteState, plan_off, plan_on
from markerjit.probes.record import recorder_taking, signature
from markerjit.quiesce.calls import BorrowedThread, Caller, OwnThread
from markerjit.quiesce.permission import (
    check_before_stopping,
    check_seccomp_of_threads,
    threads_blocking_sigtrap,
)
from markerjit.ring.layout import PAGE
from markerjit.sites.verify import verify
from markerjit.stream import Decoder, EventStream
from markerjit.view import View
from markerjit.x86.templates import SYSCALL

RECORD = "record"
COUNT = "count"

_ASK_AGAIN_S = 1.0
_TRY_AGAIN_S = 30


def attach(pid: int | None = None, *, ring_size: int = DEFAULT_RING_SIZE) -> Session:
    """Open a session with a process; without a pid with this one.

    `ring_size` is the bytes of records for each CPU, a power of two; it is used when the process
    has no arena yet. Raises NoSuchProcess, NotPermitted, Unsupported, NoMarkers.
    """
    return Session(os.getpid() if pid is None else pid, ring_size=ring_size)


class Session(View):
    """A view that can also switch markers and trace them. See the module."""

    def __init__(self, pid: int, *, ring_size: int = DEFAULT_RING_SIZE) -> None:
        if ring_size & ring_size - 1 or not PAGE <= ring_size <= LARGEST_RING:
            raise ValueError(f"a ring of {ring_size} bytes; a power of two from 4 KiB to 1 GiB")
        super().__init__(pid)
        self._ring_size = ring_size
        self._verified: set[Site] = set()
        self._ids: dict[Site, int] = {}
        self._asked: set[int] = set()
        self._asked_at = 0.0

    @property
    def quiescence(self) -> str:
        """How this session makes an edit safe, in words."""
        return EXPLAINED[strategy_for(self.pid)]

    def plan(
        self, pattern: str, *, on: bool = True, mode: Mode | None = None, probe: str = COUNT
    ) -> Plan:
        """What `enable` or `disable` would write now. Raises Refused with the reason.

        Where the runtime is not in the target yet, its addresses are missing in the plan. What is
        on by another mode is switched off before: then this is the second of two plans.
        """
        sites = self.sites(pattern)
        if not on:
            return self._plan(sites, on=False, mode=None, probe=probe)
        self._verify(sites)
        leaving, idle = self._other_modes(sites, mode)
        plan = self._plan_on(idle, mode, probe)
        if leaving:
            plan = plan._replace(title=f"{plan.title}, once what is on by another mode is off")
        return plan

    def enable(self, pattern: str, *, mode: Mode | None = None, probe: str = COUNT) -> Applied:
        """Switch markers on: all that match, at all their sites, or none. (What is on by another
        mode is switched off before; should the second step be refused, that stays off.)

        `probe` is "count" or "record" (use `trace` to read what that records). Raises
        UnknownMarker, Refused, UnexpectedBytes, NotPermitted, TargetGone.
        """
        with self._alone():
            return self._enable(self._matching(pattern), mode, probe)

    def disable(self, pattern: str) -> Applied:
        """Switch markers off, with the same promises and errors as `enable`."""
        with self._alone():
            return self._disable(self._matching(pattern))

    @contextmanager
    def trace(
        self, pattern: str, *, mode: Mode | None = None, poll_s: float = 0.02
    ) -> Iterator[EventStream]:
        """Record markers and stream the events; at the end they are off, however it ends.

        Those that were on and counting before count again. Raises what `enable` raises, and
        Refused while another controller reads the rings.
        """
        with self._alone():
            sites = self._matching(pattern)
            arena = self._need_arena(sites, mode)
            self._tell_of_markers(arena, sites)
            arena.claim_rings()
        try:
            decoders = self._decoders(arena, sites)
            stream = EventStream(arena, decoders, alive=self._memory.alive, poll_s=poll_s)
            with self._alone():
                counting = self._counting(sites)
                self._enable(sites, mode, RECORD)
            try:
                yield stream
            finally:
                with suppress(TargetGone, NoSuchProcess):
                    self._disable_for_sure(sites, pattern)
                    for earlier_mode, earlier_sites in counting.items():
                        with self._alone():
                            self._enable(earlier_sites, earlier_mode, COUNT)
        finally:
            with suppress(TargetGone):
                arena.release_rings()

    def _disable_for_sure(self, sites: Sequence[Site], pattern: str) -> None:
        """Nobody comes after us to try again, so we do, for half a minute, where that may help:
        another controller or tracer is at work, or a thread waits in the kernel."""
        deadline = time.monotonic() + _TRY_AGAIN_S
        while True:
            try:
                with self._alone():
                    self._disable(sites)
                return
            except (TargetGone, NoSuchProcess):
                raise
            except MarkerError as error:
                passing = isinstance(error, Refused) and error.try_again
                may_help = passing or isinstance(error, NotPermitted)
                if not may_help or time.monotonic() > deadline:
                    raise Refused(
                        f"{error}; STILL ON: markerjit off {self.pid} '{pattern}' ends it",
                        try_again=may_help,
                    ) from None
            time.sleep(0.05)

    def _counting(self, sites: Sequence[Site]) -> dict[Mode, list[Site]]:
        """Sites that are on and only count: somebody left them so, and finds them so again."""
        found: dict[Mode, list[Site]] = {}
        for state in self.states(sites):
            if state.mode and self._arena and state.probe == self._arena.count_probe:
                found.setdefault(state.mode, []).append(state.site)
        return found

    def _plan(self, sites: Sequence[Site], *, on: bool, mode: Mode | None, probe: str) -> Plan:
        self._verify(sites)
        states = self.states(sites)
        if on:
            return self._plan_on(states, mode, probe)
        return self._accept(plan_off(states, ours=self._probes))

    def _plan_on(self, states: Sequence[SiteState], mode: Mode | None, probe: str) -> Plan:
        bindings = self._bindings([state.site for state in states], probe)
        return self._accept(plan_on(states, bindings, mode=mode, ours=self._probes))

    def _accept(self, plan: Plan | Refusal) -> Plan:
        if isinstance(plan, Refusal):
            raise Refused(plan.reason, try_again=plan.try_again)
        self._refuse_shared(plan)
        return plan

    def _enable(self, sites: Sequence[Site], mode: Mode | None, probe: str) -> Applied:
        """Inside of `_alone`."""
        arena = self._need_arena(sites, mode)
        self._tell_of_markers(arena, sites)
        self._leave_other_modes(arena, sites, mode, probe)
        plan = self._plan(sites, on=True, mode=mode, probe=probe)
        self._prepare_traps(arena, plan)
        applied = apply(plan, self.pid, self._memory.fileno())
        self._note_switched(arena, {one.site: one.mode for one in self.states(sites)})
        return applied

    def _leave_other_modes(
        self, arena: Arena, sites: Sequence[Site], mode: Mode | None, probe: str
    ) -> None:
        """Switch off what is on by another mode: from one to the next a site's code is dormant.

        Only when switching on again by `mode` has been rehearsed.
        """
        leaving, idle = self._other_modes(sites, mode)
        if leaving:
            self._verify(sites)
            self._prepare_traps(arena, self._plan_on(idle, mode, probe))
            plan = self._accept(plan_off(leaving, ours=self._probes))
            apply(plan, self.pid, self._memory.fileno())

    def _other_modes(
        self, sites: Sequence[Site], mode: Mode | None
    ) -> tuple[list[SiteState], list[SiteState]]:
        """What is on by another mode than this, and all as they are once that is off."""
        states = self.states(sites)
        leaving = [one for one in states if mode and one.code_mode not in (None, mode)]
        return leaving, [one._replace(code_mode=None) if one in leaving else one for one in states]

    def _disable(self, sites: Sequence[Site]) -> Applied:
        """Inside of `_alone`."""
        plan = self._plan(sites, on=False, mode=None, probe=COUNT)
        applied = apply(plan, self.pid, self._memory.fileno())
        if self._arena:
            self._note_switched(self._arena, dict.fromkeys(sites))
        return applied

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else switches markers of the process meanwhile, and it may be stopped.

        Asked under the lock, because another controller's stop looks like a debugger.
        """
        with self._memory.locked() as got:
            if not got:
                raise Refused(
                    f"another controller is switching markers of process {self.pid}; try again",
                    try_again=True,
                )
            self._look_again()
            self._check_threads()
            yield

    def _check_threads(self) -> None:
        """May the process be stopped, and each of its threads? Threads that were asked less than a
        second ago are not asked again: with hundreds it would take longer than the stop."""
        check_before_stopping(self.pid)
        now = time.monotonic()
        if now - self._asked_at > _ASK_AGAIN_S:
            self._asked.clear()
            self._asked_at = now
        check_seccomp_of_threads(self.pid, self._asked)

    def _note_switched(self, arena: Arena, modes: Mapping[Site, Mode | None]) -> None:
        by_marker = {self._find_marker(arena, site): mode for site, mode in modes.items()}
        for marker, mode in by_marker.items():
            if marker is not None:
                arena.note_switched(marker, mode)

    def _verify(self, sites: Sequence[Site]) -> None:
        new = [site for site in sites if site not in self._verified]
        if new:
            verify(self._memory.read, new)
            self._verified.update(new)

    def _refuse_shared(self, plan: Plan) -> None:
        """A write into a shared mapping would change the file for everybody."""
        for edit in plan.edits:
            for mapping in self._maps:
                if mapping.start <= edit.address < mapping.end and mapping.shared:
                    raise Refused(
                        f"{edit.address:#x} is in a shared mapping of {mapping.path}: "
                        "writing there would change the file"
                    )

    def _prepare_traps(self, arena: Arena, plan: Plan) -> None:
        if not plan.traps:
            return
        blocking = threads_blocking_sigtrap(self.pid)
        if blocking:
            raise Refused(
                f"thread {blocking[0]} blocks SIGTRAP ({len(blocking)} do): a breakpoint would "
                "kill the process; use the mode that the site was compiled for"
            )
        arena.add_traps(plan.traps)
        install_trap(arena, self._caller())

    def _need_arena(self, sites: Sequence[Site], mode: Mode | None) -> Arena:
        """The arena, made if need be: but not before the plan has been made without it, so that
        nothing is put into a process for a switch that is refused."""
        if self._arena is None:
            self._plan(sites, on=True, mode=mode, probe=COUNT)
            owner = self._objects.owner
            if owner is None:
                raise NoMarkers(self._no_markers())
            self._arena = create_arena(
                self.pid, self._memory, self._caller(), owner, ring_size=self._ring_size
            )
            self._probes |= {self._arena.record_probe, self._arena.count_probe}
        return self._arena

    def _caller(self) -> Caller:
        if self.pid == os.getpid():
            return OwnThread()
        return BorrowedThread(self.pid, self._memory.fileno(), self._find_syscall())

    def _find_syscall(self) -> RemoteAddress:
        """A `syscall` instruction that a borrowed thread can use: the vDSO has one, or libc."""
        executable = [one for one in self._maps if one.executable and one.path != "[vsyscall]"]
        for mapping in sorted(executable, key=lambda one: one.path != "[vdso]"):
            at = self._memory.read(mapping.start, mapping.size).find(SYSCALL)
            if at >= 0:
                return RemoteAddress(mapping.start + at)
        raise Unsupported(f"process {self.pid} has no syscall instruction to borrow")

    def _bindings(self, sites: Sequence[Site], probe: str) -> dict[RemoteAddress, Binding] | None:
        arena = self._arena
        bindings: dict[RemoteAddress, Binding] = {}
        signatures: dict[RemoteAddress, str] = {}
        for site in sites:
            if not site.slot:
                continue
            wanted = signature(site.note)
            if signatures.setdefault(site.slot, wanted) != wanted:
                raise Refused(
                    f"{site.marker} has sites with different formats or types in one object "
                    f"({site.source}); give one of them another name"
                )
            if arena and site.slot not in bindings:
                address = arena.record_probe if probe == RECORD else arena.count_probe
                marker = self._find_marker(arena, site)
                if marker is None:
                    return None
                bindings[site.slot] = Binding(address, arena.entry_address(marker))
        return bindings if arena else None

    def _find_marker(self, arena: Arena, site: Site, *, tell: bool = False) -> int | None:
        """The marker's id, None when the runtime was not told of it. With `tell` it is, now: inside
        of `_alone`, since two controllers must not take the same place in the table."""
        known = self._ids.get(site)
        if known is None:
            note = site.note
            taking = recorder_taking(note.args, parse_format(note.format, note.args))
            if tell:
                known = arena.find_marker(note.name, signature(note), *taking)
            else:
                known = arena.known_marker(signature(note), taking.ops)
            if known is not None:
                self._ids[site] = known
        return known

    def _tell_of_markers(self, arena: Arena, sites: Sequence[Site]) -> None:
        for site in sites:
            if site.slot:
                self._find_marker(arena, site, tell=True)

    def _decoders(self, arena: Arena, sites: Sequence[Site]) -> dict[int, Decoder]:
        decoders = {}
        for site in sites:
            marker = self._find_marker(arena, site)
            if marker is not None:
                fields = parse_format(site.note.format, site.note.args)
                decoders[marker] = Decoder(site.marker, site.note.args, fields)
        return decoders
