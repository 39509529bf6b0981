"""The flight recorder of a process: the rings keep the newest events, and no reader empties them.

It begins when the first marker is switched on so, others may join it, and it ends when the last one
is switched off. While it is on no trace may have the rings.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from markerjit.arena.arena import Arena
from markerjit.arena.lease import is_flying, read_by_us, reader_of
from markerjit.errors import MarkerError, MemoryFault, Refused, UnexpectedBytes
from markerjit.events.flight import Flight
from markerjit.events.rings import Rings
from markerjit.patch.apply import NOTHING, Applied
from markerjit.patch.holds import Hold, Holds, kept_by
from markerjit.patch.plan import by_slot
from markerjit.patch.switchable import SiteState
from markerjit.probes.recorders import Recorders
from markerjit.ring.types import Options
from markerjit.session.entries import Entries
from markerjit.session.probes_in_c import may_be_entered, wait_until_left
from markerjit.session.recording import Recording, fit_rings, ready_to_record
from markerjit.session.switch import Switcher, is_undone
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.session.watch import Watch
from markerjit.sites import ProbeName


class FlightRecorder:
    """Of the process of a switcher; on or not."""

    def __init__(self, switcher: Switcher) -> None:
        self._switcher = switcher
        self._target: Target = switcher.target

    def begin(self, turn: Turn, name: ProbeName, recording: Recording) -> Applied:
        """Switch markers on for it; the first ones begin it. Raises Refused while a trace has the
        rings, and what switching raises."""
        switcher, pid = self._switcher, self._target.pid
        recorders, sites, left_out = ready_to_record(turn, switcher, name, recording)
        arena = recorders.arena
        reader = reader_of(arena)
        if reader and (not reader.over or read_by_us(pid)):
            raise Refused(f"{reader.owner} is tracing process {pid}; end that trace first")
        flying = self.is_on(turn, recorders)
        self._refuse_other(turn, recorders, recording.request.probe.options)
        fit_rings(turn, arena, switcher.ring_size, keep=flying)
        if not flying:
            Entries(turn, recorders).note_counts()
            Rings(arena, {}).start(overwrite=True)
        try:
            applied = switcher.switch(turn, sites, recording.request).applied
            return applied._replace(left_out=(*left_out, *applied.left_out))
        except MarkerError:
            if not flying and is_undone(arena):
                Rings(arena, {}).start()
            raise

    def end(self, turn: Turn, name: ProbeName) -> Applied:
        """Switch off those markers that it keeps still."""
        sites = turn.target.matching(name)
        kept = self.markers(turn.seen.arena) if turn.seen.arena else {}
        sites = tuple(site for site in sites if site.marker in kept)
        applied = NOTHING
        if sites:
            entered = may_be_entered(self._target, sites)
            applied = self._switcher.switch(turn, sites, self._switcher.planner.off()).applied
            wait_until_left(self._target, entered)
        return applied._replace(ended=tuple(sorted({site.marker for site in sites})))

    def flight(self) -> Flight:
        """The events that it has kept. Raises Refused if there is no flight recorder."""
        from markerjit.session.walked import WalkedStacks

        recorders = self._kept()
        signatures = [site.signature for site in self._target.seen.sites]
        stacks = WalkedStacks(self._switcher)
        return Flight(recorders.arena, partial(recorders.types, signatures), stacks)

    def watch(self) -> Watch:
        """For waiting beside it until the process ends. Raises Refused where there is none, or
        where the rings would end with the process."""
        arena = self._kept().arena
        return Watch(self.flight(), arena, self._target.memory.pidfd)

    def _kept(self) -> Recorders:
        """Of an arena whose rings are its own."""
        recorders = self._switcher.recorders
        if recorders and not recorders.arena.is_current:
            raise Refused(
                f"process {self._target.pid} holds an arena of version {recorders.arena.version}; "
                "what its rings keep is for the markerjit that made it"
            )
        if not recorders or not recorders.arena.rings.are_overwritten():
            raise Refused(
                f"process {self._target.pid} has no flight recorder; "
                f"markerjit flight start {self._target.pid} PATTERN starts one"
            )
        return recorders

    def is_on(self, turn: Turn, recorders: Recorders) -> bool:
        """Whether it is on; after writing down which markers are not."""
        if is_flying(recorders.arena):
            Entries(turn, recorders).note_gone()
        return is_flying(recorders.arena)

    def refuse_while_on(self, turn: Turn, recorders: Recorders) -> None:
        """Raise Refused while it is on."""
        if self.is_on(turn, recorders):
            kept, pid = self.markers(recorders.arena), self._target.pid
            raise Refused(
                f"a flight recorder is on in process {pid}"
                + (f": {kept_by(recorders.arena, kept)}" if kept else "")
                + f"; markerjit flight dump {pid} -o FILE saves what it has, "
                f"markerjit flight stop {pid} ends it"
            )

    def markers(self, arena: Arena) -> dict[str, SiteState]:
        """The markers that it keeps, and one site of each."""
        holds = Holds(arena)
        kept: dict[str, SiteState] = {}
        for site in by_slot(self._target.seen.sites) if holds else ():
            with suppress(MemoryFault, UnexpectedBytes):  # changed by another tool
                state = self._target.state(site)
                if holds.of(state) is Hold.FLIGHT:
                    kept.setdefault(site.marker, state)
        return kept

    @staticmethod
    def _refuse_other(turn: Turn, recorders: Recorders, options: Options) -> None:
        """Records of one flight have the same kind of time, or they could not be put in order."""
        signatures = [site.signature for site in turn.seen.sites]
        for id, type_ in recorders.types(signatures).items():
            entry = recorders.arena.markers.entry(id)
            other = (type_.time, type_.tid) != (options.time, options.thread_id)
            if other and entry.counted and entry.since:
                raise Refused(
                    f"{type_.marker} is on and is recorded with time {type_.time}, "
                    f"{'with' if type_.tid else 'without'} the thread id; record the others so, too"
                )
