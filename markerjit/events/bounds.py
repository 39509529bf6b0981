"""The bounds of a stream: for how long, and for how many events.

What this does not do: end anything. A feed asks (feed.py).
"""

from __future__ import annotations

import time


class Bounds:
    """Seconds from `begin` on, and events. None is no bound."""

    def __init__(self, duration: float | None = None, limit: int | None = None) -> None:
        self._duration = duration
        self._limit = limit
        self._ends_at: float | None = None

    def begin(self) -> None:
        """The time runs from now on."""
        if self._duration is not None:
            self._ends_at = time.monotonic() + self._duration

    def are_reached(self, events: int) -> bool:
        """Whether the time is over, or so many events are enough."""
        return self.left_s(1) <= 0 or self.left(1, events) == 0

    def left(self, most: int | None, events: int) -> int | None:
        """How many more events there may be when there were so many, and `most` at most."""
        if self._limit is None:
            return most
        left = max(0, self._limit - events)
        return left if most is None else min(most, left)

    def left_s(self, most: float) -> float:
        """The seconds that are left, and `most` at most."""
        if self._ends_at is None:
            return most
        return min(most, max(0.0, self._ends_at - time.monotonic()))
