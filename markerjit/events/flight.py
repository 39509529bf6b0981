"""A flight recorder: rings that keep the newest events, with nobody reading, and a picture of them.

The picture is taken while the target writes on, and also when it is gone: its arena is a memfd, and
lives for as long as somebody has it open.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import NamedTuple

from markerjit.arena.arena import Arena
from markerjit.arguments import check_callable, check_is, check_mapping
from markerjit.events.losses import losses, losses_before
from markerjit.events.rings import Rings
from markerjit.remote.native import clock_pair
from markerjit.ring.batch import Batch
from markerjit.ring.clock import Calibration
from markerjit.ring.timeline import Timeline
from markerjit.ring.types import RecordType, Time


class Kept(NamedTuple):
    """Of one marker, since it was switched on: events in the picture, older ones that were
    overwritten, and those that were never recorded."""

    events: int
    overwritten: int
    lost: int


class Picture(NamedTuple):
    """What the rings held at one moment, in order of time."""

    batch: Batch
    clock: Calibration
    kept: Mapping[str, Kept]


class Flight:
    """The flight recorder of one process. `known` tells what was ever recorded there; `types` are
    those that are on, or were recorded since the flight began."""

    def __init__(self, arena: Arena, known: Callable[[], Mapping[int, RecordType]]) -> None:
        check_is("arena", arena, Arena)
        check_callable("known", known)
        self._arena = arena
        self._known = known
        self._timeline = Timeline(clock_pair, time.time_ns() - time.monotonic_ns())
        self.types = self._flown()

    def __repr__(self) -> str:
        return f"<Flight of {self._arena.pid}, {len(self.types)} markers>"

    def picture(self) -> Picture:
        """What is in the rings now. Nothing is taken out, and nobody is stopped.

        Rings are looked at one after the other, and each reaches as far back as it is large: where
        little is recorded on a CPU, the picture begins earlier there.
        """
        self.types = self._flown()
        # Before the copy: what is recorded meanwhile is not taken for overwritten.
        since = {id: self._since(id) for id in self.types}
        found = Rings(self._arena, self.types).picture(packets=True)
        columns = found.columns
        events = Counter({one.type.id: len(one.time) for one in columns})
        kept: dict[str, Kept] = {}
        for type_ in self.types.values():
            before = kept.get(type_.marker, Kept(0, 0, 0))
            both = zip(before, _kept(since[type_.id], events[type_.id]), strict=True)
            kept[type_.marker] = Kept(*map(sum, both))
        lost = losses(self._arena, self.types) - losses_before(self._arena, self.types)
        return Picture(Batch(found.packets, columns, dict(lost)), self._clock(), kept)

    def _flown(self) -> dict[int, RecordType]:
        """They share their kind of time; what has another is of an earlier trace."""
        found: dict[int, RecordType] = {}
        known = self._known()
        check_mapping("known", known, int, RecordType)
        for id, type_ in known.items():
            entry = self._arena.marker_entry(id)
            if entry.counted and (entry.since or any(self._since(id))):
                first = next(iter(found.values()), type_)
                if (type_.time, type_.tid) == (first.time, first.tid):
                    found[id] = type_
        return found

    def _clock(self) -> Calibration:
        clock = next((type_.time for type_ in self.types.values()), Time.TSC)
        self._timeline.update()
        return self._timeline.calibration(clock, time.sleep)

    def _since(self, id: int) -> tuple[int, int]:
        """Records, and events lost, since the flight began."""
        entry, counts = self._arena.marker_entry(id), self._arena.counts(id)
        passed = sum(one.passed for one in counts) - entry.passed_before
        lost = sum(one.lost for one in counts) - entry.lost_before
        return max(0, passed), max(0, lost)


def _kept(since: tuple[int, int], there: int) -> Kept:
    passed, lost = since
    return Kept(there, max(0, passed - there), lost)
