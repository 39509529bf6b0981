"""Conversion of the time stamp counter to CLOCK_MONOTONIC, while both advance.

A line is drawn through two readings of both clocks. It is more accurate the further they are apart,
so it is redrawn from time to time. Each new line begins where the last one ended, so that times of
events never go backwards, and meets the true time a second later.

The counter is assumed to be invariant and the same on all CPUs, as Linux requires of its clock
source "tsc"; `doctor` reports where it is not. One clock advances without the other only while the
machine sleeps or a virtual machine migrates. A new line then begins at the true time.
"""

from __future__ import annotations

from collections.abc import Callable

from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import Time

_BASELINE_NS = 50_000_000
_AGAIN_NS = NS
_SLEPT_NS = NS // 2

ClockPair = tuple[int, int]
"""The time stamp counter and CLOCK_MONOTONIC in nanoseconds, at one moment."""


class Timeline:
    """The conversion for one trace. `read` reads both clocks; `first` is an earlier reading."""

    def __init__(
        self,
        read: Callable[[], ClockPair],
        wall_offset_ns: int,
        first: ClockPair | None = None,
    ) -> None:
        self._read = read
        self._wall_offset_ns = wall_offset_ns
        self._last = read()
        self._first = first or self._last
        self._drawn = self._last
        self._line: Calibration | None = None

    def update(self) -> int:
        """Read both clocks and return the counter."""
        self._last = self._read()
        return self._last[0]

    def calibration(self, time: Time, sleep: Callable[[float], None]) -> Calibration:
        """The calibration for times of this kind. Times in nanoseconds need no line."""
        if time is Time.TSC:
            return self.line(sleep)
        return Calibration(time, 0, 0, NS, self._wall_offset_ns)

    def line(self, sleep: Callable[[float], None]) -> Calibration:
        """The line at the last reading. Waits until the readings are far enough apart for it."""
        since = self._last[1] - self._first[1]
        if since < _BASELINE_NS:
            sleep((_BASELINE_NS - since) / NS)
            self.update()
        if self._line is None or self._last[1] - self._drawn[1] >= _AGAIN_NS:
            self._draw()
        assert self._line
        return self._line

    def _draw(self) -> None:
        counter, true_ns = self._last
        begins_ns, frequency = true_ns, self._frequency()
        if self._line:
            behind = true_ns - self._line.monotonic(counter)
            if abs(behind) < _SLEPT_NS:
                begins_ns = true_ns - behind
                # A line that is ahead by a microsecond takes a second and a microsecond.
                frequency = frequency * NS // (NS + behind)
            else:
                self._first, frequency = self._last, self._line.frequency_hz
        self._line = Calibration(Time.TSC, counter, begins_ns, frequency, self._wall_offset_ns)
        self._drawn = self._last

    def _frequency(self) -> int:
        ticks, elapsed = self._last[0] - self._first[0], self._last[1] - self._first[1]
        return max(1, ticks * NS // max(1, elapsed))
