"""The events of several processes in one order of time, while they stream.

All are on one machine, so their time stamp counters are one clock: no calibration stands between
two events. Each round all streams are polled up to one moment; what is later waits.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markerjit.arguments import check_all, check_seconds
from markerjit.errors import BadArgument
from markerjit.model import Event
from markerjit.ring.types import Time
from markerjit.stream import TICK_NS, EventStream


class Merged(NamedTuple):
    """An event, and the number of the stream that it came from."""

    stream: int
    event: Event


def merge(streams: Sequence[EventStream], *, poll_s: float = 0.02) -> Iterator[list[Merged]]:
    """The events of all streams in order of time, a list for each round that found some, until
    each stream was stopped, or its process has ended.

    The streams have to have the same kind of time, and one that counts (not "none"). Raises
    BadArgument.
    """
    check_all("streams", streams, EventStream)
    check_seconds("poll_s", poll_s)
    times = {stream.time for stream in streams}
    if len(times) > 1 or (len(streams) > 1 and Time.NONE in times):
        kinds = ", ".join(sorted(str(time) for time in times))
        raise BadArgument("time", kinds, "of one kind, and not none: else there is no common order")
    for stream in streams[1:]:
        stream.use_clock_of(streams[0])
    going = dict(enumerate(streams))
    over_at: dict[int, int] = {}
    while going:
        now = time.monotonic_ns()
        for number, stream in going.items():
            if number not in over_at and stream.is_over():
                over_at[number] = now
        until = streams[0].now()
        found = []
        for number, stream in list(going.items()):
            found += [Merged(number, event) for event in stream.poll_until(until)]
            # All that was to come is before `until` by now: see EventStream.now.
            if now - over_at.get(number, now) > TICK_NS:
                stream.note_losses()
                del going[number]
        found.sort(key=lambda one: one.event.time)
        if found:
            yield found
        elif going:
            time.sleep(poll_s)
