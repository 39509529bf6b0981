"""A flight recorder: rings without a reader that keep the newest events, and a picture of them.

The picture is taken while the target goes on writing, or after it has ended: its arena is a memfd,
which lives for as long as a process has it open.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping

from markerjit.arena.arena import Arena
from markerjit.arguments import check_callable, check_is, check_mapping
from markerjit.events.losses import losses, losses_before
from markerjit.events.rings import Rings
from markerjit.events.stacks import NamedStacks, Stacks
from markerjit.remote.native import clock_pair
from markerjit.ring.clock import Calibration
from markerjit.ring.timeline import Timeline
from markerjit.ring.types import RecordType, Time, has_stacks
from markerjit.trace.batch import Batch
from markerjit.tuples import NamedTuple, brief


class Kept(NamedTuple):
    """Numbers of one marker's events since it was switched on.

    events          events in the picture
    overwritten     older events
    lost            events that were not recorded
    """

    events: int
    overwritten: int
    lost: int


class Picture(NamedTuple):
    """The events in the rings at one moment, in order of time."""

    batch: Batch
    clock: Calibration
    kept: Mapping[str, Kept]

    def __repr__(self) -> str:
        return brief(self)


class Flight:
    """The flight recorder of one process.

    known   the types of all that was ever recorded there
    stacks  the stacks of the process
    types   those that are on, or were recorded since the flight began
    """

    def __init__(
        self,
        arena: Arena,
        known: Callable[[], Mapping[int, RecordType]],
        stacks: Stacks | None = None,
    ) -> None:
        check_is("arena", arena, Arena)
        check_callable("known", known)
        if stacks is not None:
            check_is("stacks", stacks, Stacks)
        self._arena = arena
        self._known = known
        self._stacks = stacks
        self._timeline = Timeline(clock_pair, time.time_ns() - time.monotonic_ns())
        self.types = self._flown()
        self._named: NamedStacks | None = None
        self._need_stacks()  # while the process is there

    def __repr__(self) -> str:
        return f"<Flight of {self._arena.pid}, {len(self.types)} markers>"

    def picture(self) -> Picture:
        """The events in the rings now. Nothing is taken out, and no thread is stopped.

        The rings are copied one after the other. Each reaches as far back as its size allows, so
        the picture begins earlier on a CPU where little is recorded.
        """
        self.types = self._flown()
        # Before the copy: events that are recorded meanwhile are not taken for overwritten.
        since = {id: self._since(id) for id in self.types}
        records = Rings(self._arena, self.types).picture(packets=True)
        columns = records.columns
        stacks = self._need_stacks()
        if stacks:
            stacks.note(columns)
            columns = stacks.with_texts(columns)
        events = Counter({part.type.id: len(part.time) for part in columns})
        kept: dict[str, Kept] = {}
        for type_ in self.types.values():
            before = kept.get(type_.marker, Kept(0, 0, 0))
            both = zip(before, _kept(since[type_.id], events[type_.id]), strict=True)
            kept[type_.marker] = Kept(*map(sum, both))
        lost = losses(self._arena, self.types) - losses_before(self._arena, self.types)
        clock, types = self._clock(), tuple(self.types.values())
        batch = Batch(records.packets, columns, dict(lost), clock, types, self._arena.pid)
        if stacks:
            batch = batch._replace(stacks=stacks.known)
        return Picture(batch, clock, kept)

    def _need_stacks(self) -> NamedStacks | None:
        """The texts of stacks, where records have some."""
        if self._named is None and self._stacks and has_stacks(self.types.values()):
            self._named = NamedStacks(self._stacks)
        return self._named

    def _flown(self) -> dict[int, RecordType]:
        """The types of this flight. They share their kind of time; a type with another is of an
        earlier trace."""
        flown: dict[int, RecordType] = {}
        known = self._known()
        check_mapping("known", known, int, RecordType)
        for id, type_ in known.items():
            entry = self._arena.markers.entry(id)
            if entry.counted and (entry.since or any(self._since(id))):
                first = next(iter(flown.values()), type_)
                if (type_.time, type_.tid) == (first.time, first.tid):
                    flown[id] = type_
        return flown

    def _clock(self) -> Calibration:
        clock = next((type_.time for type_ in self.types.values()), Time.TSC)
        self._timeline.update()
        return self._timeline.calibration(clock, time.sleep)

    def _since(self, id: int) -> tuple[int, int]:
        """Numbers of records and of lost events since the flight began."""
        entry, counts = self._arena.markers.entry(id), self._arena.counters.by_ring(id)
        passed = sum(count.passed for count in counts) - entry.passed_before
        lost = sum(count.lost for count in counts) - entry.lost_before
        return max(0, passed), max(0, lost)


def _kept(since: tuple[int, int], events: int) -> Kept:
    passed, lost = since
    return Kept(events, max(0, passed - events), lost)
