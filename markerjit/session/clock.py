"""The clocks at the start of a session."""

from __future__ import annotations

from time import CLOCK_BOOTTIME, clock_gettime

from markerjit.remote.native import clock_pair

_RECENT_S = 10


class EarlyClock:
    """The clocks when a session began: so its stream need not wait to see them move."""

    def __init__(self) -> None:
        self._pair, self._at = clock_pair(), clock_gettime(CLOCK_BOOTTIME)

    def pair(self) -> tuple[int, int] | None:
        """None if that is long ago: meanwhile the machine may have slept."""
        return self._pair if clock_gettime(CLOCK_BOOTTIME) - self._at < _RECENT_S else None
