"""What a session has to do before markers record, and after: the probe in C is in the arena and
fits, the rings are free and as large as was asked for; and nobody is left in a probe.

All of it is for who holds the target's lock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic, sleep
from typing import NamedTuple

from markerjit.abi import PROBE_COUNTED
from markerjit.arena.arena import Arena
from markerjit.errors import MemoryFault, Refused, UnexpectedBytes
from markerjit.events.rings import Rings, is_flying, is_recorded_into
from markerjit.model import Kind, Mode, RemoteAddress, Site
from markerjit.patch.holds import Hold, Holds, kept_by
from markerjit.patch.plan import SiteState, by_slot, is_entered
from markerjit.patch.wanted import COUNT, Wanted
from markerjit.probes.c.unit import Compiled
from markerjit.probes.recorders import check_fields
from markerjit.quiesce.strategy import default_strategy
from markerjit.remote.native import tsc_frequency
from markerjit.ring.counter import time_to_use
from markerjit.ring.types import Options, RecordType, Time
from markerjit.session.switching import Switching

_GRACE_S = 5
_TICKS = "mj_link_tick_ns"


class Counting(NamedTuple):
    """Sites that only count, and how each is on; and by whom, by the entry."""

    modes: Mapping[Site, Mode]
    by: Mapping[int, int]


class Readying(Switching):
    """The part of a session that makes recording possible, and ends it."""

    def _ready_to_record(
        self, pattern: str, wanted: Wanted, compiled: Compiled | None
    ) -> tuple[Arena, tuple[Site, ...]]:
        """The arena, and the runtime knows of the markers, but none is switched on."""
        sites = self._matching(pattern)
        check_fields([site.note for site in sites], wanted.options.fields or ())
        if compiled:
            self._load_probe(sites, wanted, compiled)
        arena = self._need_arena(sites, wanted)
        self._check_time(arena, wanted.options.time)
        self._tell_of_markers(sites, wanted)
        return arena, sites

    def _load_probe(self, sites: Sequence[Site], wanted: Wanted, compiled: Compiled) -> None:
        """Have a probe in C in the arena, if it fits all these markers."""
        from markerjit.probes.c.fits import check_fits

        for site in sites:
            if site.kind is Kind.SENTINEL:
                raise Refused(
                    f"{site.marker} ({site.source}) is compiled as sentinel: such a site calls "
                    "what its slot holds as it is, and cannot say when a thread is in a probe in C"
                )
            check_fits(compiled.source, compiled.function, site.note)
        if compiled.events and time_to_use(None) is not Time.TSC:
            raise Refused(
                "what a probe in C emits has the time of the time stamp counter, and this "
                "machine's kernel does not trust that"
            )
        self._need_arena(sites, wanted)
        assert self._recorders
        tick_hz = tsc_frequency() if _TICKS in compiled.needs else 0
        self._recorders.load(wanted.probe, compiled, tick_hz=tick_hz)

    def _has_probes_in_c(self) -> bool:
        """Whether any was ever put into the process."""
        return bool(self._arena and self._arena.current().data_used)

    def _may_be_entered(self, sites: Sequence[Site]) -> set[RemoteAddress]:
        """Slots that hold a probe in C, whose calls are counted."""
        if not self._has_probes_in_c():
            return set()
        states = self.states([site for site in sites if site.slot])
        return {state.site.slot for state in states if state.probe & PROBE_COUNTED}

    def _wait_until_left(self, slots: set[RemoteAddress]) -> None:
        """A grace period for probes in C. Their code stays, so a thread that does not come back is
        in nobody's way; but who reads what they count or emit would miss what it does."""
        deadline = monotonic() + _GRACE_S
        while any(is_entered(self._memory.read, slot) for slot in slots):
            if monotonic() > deadline:
                raise Refused(
                    "switched off; but a thread is still in its probe, and does not leave"
                )
            sleep(0.001)

    def _is_flying(self, arena: Arena) -> bool:
        """Whether a flight recorder is on. Who switched it off may have been killed before it was
        written down, and objects may have gone with their markers."""
        if is_flying(arena):
            modes = self._modes(arena, self._objects.sites)
            for entry in arena.entries():
                if entry.since and not modes.get(int(entry.id)):
                    arena.note_switched(int(entry.id), None)
        return is_flying(arena)

    def _refuse_while_flying(self, arena: Arena) -> None:
        if self._is_flying(arena):
            flown = self._flown_markers(arena)
            raise Refused(
                f"a flight recorder is on in process {self.pid}"
                + (f": {kept_by(arena, flown)}" if flown else "")
                + f"; markerjit dump {self.pid} -o FILE saves what it has, "
                f"markerjit off {self.pid} '*' ends it"
            )

    def _flown_markers(self, arena: Arena) -> dict[str, SiteState]:
        """The markers that a flight recorder keeps, and one site of each."""
        holds = Holds(arena)
        found: dict[str, SiteState] = {}
        for site in by_slot(self._objects.sites) if holds else ():
            with suppress(MemoryFault, UnexpectedBytes):  # somebody else's doing
                state = self._state(site)
                if holds.of(state) is Hold.FLIGHT:
                    found.setdefault(site.marker, state)
        return found

    def _refuse_other_flight(self, options: Options) -> None:
        """Records of one flight have the same time, or none had an order."""
        assert self._arena and self._recorders
        notes = [site.note for site in self._objects.sites]
        for id, type_ in self._recorders.types(notes).items():
            entry = self._arena.marker_entry(id)
            other = (type_.time, type_.tid) != (options.time, options.thread_id)
            if other and entry.counted and entry.since:
                raise Refused(
                    f"{type_.marker} is on and is recorded with time {type_.time}, "
                    f"{'with' if type_.tid else 'without'} the thread id; what joins it has to, too"
                )

    def _fit_rings(self, arena: Arena, *, keep: bool = False) -> None:
        """Make the rings as large as was asked for, if it was, and all of one size. Not where what
        is in them is to be kept, or something records into them; then that is said."""
        sizes = set(arena.ring_sizes())
        size = self._ring_size or max(sizes)
        if sizes == {size}:
            return
        if keep or is_recorded_into(arena):
            raise Refused(
                f"the rings of process {self.pid} have {max(sizes) >> 10} KiB and are in use; "
                "leave out --ring-size"
            )
        Rings(arena, {}).start()
        arena.resize_rings(size)

    def _counting(self, sites: Sequence[Site]) -> Counting:
        """Sites that are on and only count: somebody left them so, and finds them so again."""
        modes: dict[Site, Mode] = {}
        by: dict[int, int] = {}
        for state in self.states(sites):
            if state.mode and self._arena and state.probe == self._arena.count_probe:
                modes[state.site] = state.mode
                if (marker := self._arena.marker_at(state.data)) is not None:
                    by[marker] = int(self._arena.marker_entry(marker).by)
        return Counting(modes, by)

    def _names_by_entry(self, sites: Sequence[Site], wanted: Wanted) -> dict[int, str]:
        """The markers that these sites are switched to, by their entries."""
        names = {site.slot: site.marker for site in sites}
        return {
            marker: names[slots[0]] for marker, slots in self._slots_by_entry(sites, wanted).items()
        }

    def _still_ours(
        self, sites: Sequence[Site], wanted: Wanted, reading: int
    ) -> tuple[list[Site], set[str]]:
        """Of what a trace switched on, the sites that are bound to it still, and the markers that
        are on for somebody else now."""
        assert self._arena
        ours, taken = [], set()
        for state in self.states(self._still_there(sites)):
            marker = self._arena.marker_at(state.data)
            held = marker is not None and self._arena.marker_entry(marker).held == reading
            if held and self._is_bound(state, wanted):
                ours.append(state.site)
            elif state.mode:
                taken.add(state.site.marker)
        return ours, taken

    def _still_there(self, sites: Sequence[Site]) -> list[Site]:
        """Objects may have been unloaded since."""
        known = set(self._objects.sites)
        return [site for site in sites if site in known]

    def _count_again(self, sites: Sequence[Site], counting: Counting) -> set[Site]:
        """Those of the sites that were counting only count again; returns them. They were on all
        the time, and are again who switched them on's."""
        again = [site for site in sites if site in counting.modes]
        for mode in {counting.modes[site] for site in again}:
            of_mode = [site for site in again if counting.modes[site] is mode]
            self._switch(of_mode, Wanted(True, default_strategy(own=self._own), mode, COUNT))
        for marker, by in counting.by.items():
            if again and self._arena and self._arena.marker_entry(marker).since:
                self._arena.note_by(marker, by)
        return set(again)

    def _types(
        self, sites: Sequence[Site], wanted: Wanted, *, resume: bool = False
    ) -> dict[int, RecordType]:
        """What comes out of the rings, by the ids of the markers; with what was recorded before."""
        if not self._recorders:
            return {}
        types = self._recorders.types_of((site.note for site in sites), wanted)
        if resume:
            before = self._recorders.types(site.note for site in self._objects.sites)
            kind = (wanted.options.time, wanted.options.thread_id)
            types |= {id: one for id, one in before.items() if (one.time, one.tid) == kind}
        return types

    @staticmethod
    def _check_time(arena: Arena, time: Time) -> None:
        if time in (Time.MONOTONIC, Time.COARSE) and not arena.control.clock:
            raise Refused(
                f"process {arena.pid} has no vDSO that we know, so its clock would take a system "
                "call for each event; use the time stamp counter (tsc) or no time (none)"
            )
