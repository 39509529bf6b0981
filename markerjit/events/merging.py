"""The events of several processes in one order of time, while they stream.

All processes are on one machine, so their time stamp counters are one clock, and no calibration
comes between two events. All streams are polled up to the same moment; later events wait.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from markerjit.arguments import check_all, check_int, check_is, check_seconds
from markerjit.errors import BadArgument
from markerjit.events.feed import TICK_NS, Feed
from markerjit.events.stream import SLICE, EventStream, feeds_of
from markerjit.model import Event
from markerjit.printable import counted
from markerjit.ring.types import Time
from markerjit.tuples import NamedTuple, brief

if TYPE_CHECKING:
    from markerjit.ring.batch import Columns


_ONE_TIME = "the same for all streams, and not none: else there is no order"


class Merged(NamedTuple):
    """An event, and the number of the stream that it came from."""

    stream: int
    event: Event

    def __repr__(self) -> str:
        return brief(self)


class Merger:
    """Merges streams as `merge` does, a step at a time, for a caller that does something else in
    between.

    A step takes time for the events that it returns, however many are in the rings: the others wait
    as columns of numbers. Raises BadArgument as `merge` does.
    """

    def __init__(self, streams: Sequence[EventStream]) -> None:
        check_all("streams", streams, EventStream)
        times = {stream.time for stream in streams}
        if len(times) > 1 or (len(streams) > 1 and Time.NONE in times):
            kinds = ", ".join(sorted(map(str, times)))
            raise BadArgument("time", kinds, _ONE_TIME)
        self._feeds: dict[int, Feed] = {}
        self._going: dict[int, Feed] = {}
        self._over_at: dict[int, int] = {}
        self._first: EventStream | None = None
        self._count = 0
        for stream in streams:
            self.add(stream)

    def __repr__(self) -> str:
        return f"<Merger of {counted(self._count, 'stream')}>"

    def add(self, stream: EventStream) -> int:
        """Add a stream whose events are all later than the last poll, and return its number. Raises
        BadArgument as `merge` does."""
        check_is("stream", stream, EventStream)
        (feed,) = feeds_of([stream])
        self._first = self._first or stream
        if stream is not self._first:
            if stream.time is not self._first.time or stream.time is Time.NONE:
                raise BadArgument("time", stream.time, _ONE_TIME)
            stream.use_clock_of(self._first)
        number, self._count = self._count, self._count + 1
        self._feeds[number] = self._going[number] = feed
        return number

    def take_finished(self) -> list[int]:
        """The numbers of the streams that have ended and whose events were all handed out. They are
        not polled again."""
        finished = [
            number
            for number, feed in self._feeds.items()
            if number not in self._going and not feed.waiting
        ]
        for number in finished:
            del self._feeds[number]
        return finished

    @property
    def waiting(self) -> int:
        """Number of events that were taken out of the rings and not handed out yet."""
        return sum(feed.waiting for feed in self._feeds.values())

    @property
    def over(self) -> bool:
        """Whether no more events will come."""
        return not self._going and not self.waiting

    def poll(self, most: int) -> list[Merged]:
        """The next events in order of time, about `most` of them or fewer. Renews the leases of the
        rings."""
        check_int("most", most, 1)
        self._keep_or_find()
        return self.hand_out(most)

    def poll_columns(self, most: int) -> list[list[Columns]]:
        """The events that `poll` would return, as `hand_out_columns` has them."""
        check_int("most", most, 1)
        self._keep_or_find()
        return self.hand_out_columns(most)

    def find_rest(self) -> None:
        """Have all remaining events ready to be handed out."""
        for feed in self._feeds.values():
            feed.find(None)

    def hand_out(self, most: int) -> list[Merged]:
        """Events that are ready, about `most` of them or fewer."""
        share, until = self._share(most)
        events = [
            Merged(number, event)
            for number, feed in self._feeds.items()
            for event in feed.hand_out(share, until=until)
        ]
        if len(self._feeds) > 1:
            events.sort(key=lambda merged: merged.event.time)
        return events

    def hand_out_columns(self, most: int) -> list[list[Columns]]:
        """The events that `hand_out` would return, as columns. The events of a list have one order
        of time, and come behind those of the list before."""
        share, until = self._share(most)
        handed = [feed.hand_out_columns(share, until=until) for feed in self._feeds.values()]
        if len(handed) == 1:
            return handed[0]
        joined = [columns for batches in handed for batch in batches for columns in batch]
        return [joined] if joined else []

    def _share(self, most: int) -> tuple[int | None, int | None]:
        """The number of events of each stream, or the time up to which all of them are due."""
        check_int("most", most, 1)
        most = max(1, most // max(1, len(self._feeds)))
        if len(self._feeds) == 1:
            return most, None
        due = [time for feed in self._feeds.values() if (time := feed.due(most)) is not None]
        return (None, min(due)) if due else (most, None)

    def _keep_or_find(self) -> None:
        if self.waiting:
            for feed in self._going.values():
                feed.keep()
        elif self._going:
            self._find()

    def _find(self) -> None:
        now = time.monotonic_ns()
        for number, feed in self._going.items():
            if number not in self._over_at and feed.is_over():
                self._over_at[number] = now
        if not self._first:
            return
        until = feeds_of([self._first])[0].now()
        if not all(feed.take() for feed in self._going.values()):
            return  # a stop has come: what was taken waits for what was not
        for number, feed in list(self._going.items()):
            feed.make_ready(until)
            # All of its events are before `until` by now: see Feed.now.
            if now - self._over_at.get(number, now) > TICK_NS:
                feed.note_losses()
                del self._going[number]


def merge(streams: Sequence[EventStream], *, poll_s: float = 0.02) -> Iterator[list[Merged]]:
    """The events of all streams in order of time, in lists of a thousand or so, until each
    stream was stopped, or its process has ended.

    Raises BadArgument for several streams whose kinds of time differ, or are "none".
    """
    check_seconds("poll_s", poll_s)
    merger = Merger(streams)
    while not merger.over:
        events = merger.poll(SLICE)
        if events:
            yield events
        elif not merger.over:
            time.sleep(poll_s)
