"""A trace's clock: it converts the time of a record to CLOCK_MONOTONIC and the time of day."""

from __future__ import annotations

from markerjit.errors import BadArgument
from markerjit.model import Origin
from markerjit.ring.types import Time
from markerjit.tuples import NamedTuple

NS = 1_000_000_000


class Calibration(NamedTuple):
    """A straight line from the counter to CLOCK_MONOTONIC, and the offset to the time since 1970.

    For Time.MONOTONIC and COARSE the counter is in nanoseconds already.

    counter, monotonic_ns   the same moment on both clocks
    frequency_hz            counts per second
    wall_offset_ns          time since 1970 minus CLOCK_MONOTONIC
    """

    time: Time
    counter: int
    monotonic_ns: int
    frequency_hz: int
    wall_offset_ns: int

    def monotonic(self, counter: int) -> int:
        """Nanoseconds of CLOCK_MONOTONIC."""
        if not isinstance(counter, int):
            raise BadArgument("counter", counter, "a whole number")
        if self.time is not Time.TSC:
            return counter
        return self.monotonic_ns + (counter - self.counter) * NS // self.frequency_hz


def origin_of(clock: Calibration, pid: int) -> Origin:
    """The origin of events of a process whose times this clock converts."""
    return Origin(pid, 0 if clock.time is Time.NONE else clock.wall_offset_ns)
