"""What an event costs the program, from the times between events.

Between two events that a thread records one right after the other, on one CPU, there is the rest of
the first one behind the point where its time is read, the start of the second one before that, and
the program's own code in between. So no such time is shorter than an event is expensive. Where a
program has functions that do next to nothing, the shortest of these times are the price, with some
instructions; where it has not, they are a bound from above that says less.

The price is the first percentile of these times: the very shortest may be wrong by the processor's
freedom to read the clock early. It is that of events whose code and rings are in the caches.

What this does not do: take the price out of the times of calls.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

LONGEST_NS = 1 << 14
"""A price that is larger says nothing of an event."""
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
        """What an event costs at most, in nanoseconds; None where too few were seen, or none close
        together."""
        counted = int(self._counts.sum())
        if counted < _FEWEST:
            return None
        place = int(np.searchsorted(np.cumsum(self._counts), counted * _PERCENT / 100))
        return place if place < LONGEST_NS else None
