"""The cost of an event in the program, from the times between events.

A thread records two events, one right after the other, on one CPU. The time between them has three
parts: the rest of the first event after it has read the clock, the program's own code, and the
start of the second event until it reads the clock. So no such time is shorter than the cost of an
event. In a program with functions that do next to nothing, the shortest of these times are the
cost and a few instructions. In any other program they are a looser upper bound.

The first percentile of these times is taken: the very shortest may be too short, since a processor
may read the clock early. It is the cost of events whose code and rings are in the caches.

What this does not do: subtract the cost from the times of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

LONGEST_NS = 1 << 14
"""A larger value says nothing about an event."""
_FEWEST = 1000
_PERCENT = 1


class Price:
    """The times between events so far."""

    def __init__(self) -> None:
        self._counts: Array = np.zeros(LONGEST_NS + 1, np.int64)

    def add(self, thread: Array, cpu: Array, time: Array) -> None:
        """Add events that are in the order of threads and time."""
        if len(time) < 2:
            return
        between = np.diff(time)
        together = (thread[1:] == thread[:-1]) & (cpu[1:] == cpu[:-1]) & (between >= 0)
        between = np.minimum(between[together], LONGEST_NS)
        self._counts += np.bincount(between, minlength=LONGEST_NS + 1)

    def event_ns(self) -> int | None:
        """An upper bound for the cost of an event, in nanoseconds; None where there were too few
        events, or none close together."""
        counted = int(self._counts.sum())
        if counted < _FEWEST:
            return None
        place = int(np.searchsorted(np.cumsum(self._counts), counted * _PERCENT / 100))
        return place if place < LONGEST_NS else None
