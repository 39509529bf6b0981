"""A stream of events out of an arena's rings, decoded and in order of time: what a trace gives.

Events come as `Event`s, or by the thousand as columns of numbers (`record_batches`), for files. The
stream waits and iterates, and checks the arguments of its callers. Its feed reads the rings
(feed.py).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from markerjit.arena.waiting import Waits
from markerjit.arguments import check_all, check_flag, check_int, check_is, check_seconds
from markerjit.events.budget import Cut
from markerjit.events.feed import Feed, StreamStatistics
from markerjit.model import Event, Field
from markerjit.patch.plan import LeftOut
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType, Time, fields_by_marker
from markerjit.trace.batch import Batch

SLICE = 1000
"""Events that are made at a time."""


class EventStream:
    """Iterate over it for events, until `stop` is called, the target ends, or the trace has lasted
    or brought what it was to.

    poll_s          seconds to wait when the rings were empty
    dropped_bytes   bytes of an earlier reader's records, which were dropped at the start
    unswitched      markers that matched and could not be switched on
    """

    def __init__(
        self,
        feed: Feed,
        *,
        poll_s: float = 0.02,
        dropped_bytes: int = 0,
        unswitched: Sequence[LeftOut] = (),
    ) -> None:
        check_is("feed", feed, Feed)
        check_seconds("poll_s", poll_s)
        check_int("dropped_bytes", dropped_bytes, 0)
        check_all("unswitched", unswitched, LeftOut)
        self.poll_s = poll_s
        self.dropped_bytes = dropped_bytes
        self.unswitched = tuple(unswitched)
        self._feed = feed

    def __repr__(self) -> str:
        state = "over" if self._feed.has_ended else "open"
        return f"<EventStream of {self._feed.pid}, {self.statistics().events} events, {state}>"

    def __iter__(self) -> Iterator[Event]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Event]]:
        """The same events, in lists of a thousand at most. Events of lists that were not asked for
        remain for `drain`."""
        feed = self._feed
        while not feed.stopped:
            over = feed.is_over()
            events = self.poll(SLICE)
            if events:
                yield events
            if (over and not feed.waiting) or feed.dispossessed:
                break
            if not events:
                time.sleep(feed.bounds.left_s(self.poll_s))
        feed.find(None)
        while events := feed.hand_out(SLICE):
            yield events

    def record_batches(self, *, packets: bool = False, columns: bool = True) -> Iterator[Batch]:
        """The records of each poll, as they were recorded (`packets`) and decoded (`columns`)."""
        while not self._feed.stopped:
            over = self._feed.is_over()
            batch = self.poll_batch(packets=packets, columns=columns)
            if batch:
                yield batch
            if over or self._feed.dispossessed:
                break
            if not batch:
                time.sleep(self._feed.bounds.left_s(self.poll_s))
        last = self.rest(packets=packets, columns=columns)
        if last:
            yield last

    def poll(self, most: int | None = None) -> list[Event]:
        """The events since the last poll, in order of time: no more than `most`, the next ones by
        the next poll. Renews the lease of the rings."""
        _check_most(most)
        if self._feed.waiting:
            self._feed.keep()
        else:
            self._feed.find(self._feed.now())
        return self._feed.hand_out(most)

    def drain(self) -> list[Event]:
        """All events that remain, also those that a poll would keep back."""
        self._feed.find(None)
        return self._feed.hand_out()

    def poll_batch(
        self, *, packets: bool = False, columns: bool = True, most: int | None = None
    ) -> Batch | None:
        """The records since the last poll, as `record_batches` has them; None where there are none.
        Columns have no more than `most` records, the next ones by the next poll."""
        check_flag("packets", packets)
        check_flag("columns", columns)
        _check_most(most)
        return self._feed.poll_batch(packets=packets, columns=columns, most=most)

    def rest(self, *, packets: bool = False, columns: bool = True) -> Batch | None:
        """All records that remain, also those that a poll would keep back."""
        check_flag("packets", packets)
        check_flag("columns", columns)
        return self._feed.rest(packets=packets, columns=columns)

    def stop(self) -> None:
        """End the iteration after the events that are in the rings now. Safe to call from a signal
        handler."""
        self._feed.stop()

    def keep(self) -> bool:
        """Renew the lease of the rings without reading them. A caller that is busy elsewhere for
        seconds must call this meanwhile. Returns False once another reader has taken the rings from
        us."""
        return self._feed.keep()

    def is_over(self) -> bool:
        """Whether nothing more will come than what is in the rings now."""
        return self._feed.is_over()

    @property
    def target_ended(self) -> bool:
        """Whether the stream ended because the target did."""
        return self._feed.target_ended

    @property
    def dispossessed(self) -> bool:
        """Whether the stream ended because another reader has taken the rings."""
        return self._feed.dispossessed

    @property
    def all_taken(self) -> bool:
        """Whether the stream ended because others have taken all of its markers."""
        return self._feed.all_taken

    @property
    def pid(self) -> int:
        """The process."""
        return self._feed.pid

    @property
    def types(self) -> dict[int, RecordType]:
        """The types of the records, by the markers' ids."""
        return self._feed.types

    @property
    def fields(self) -> dict[str, tuple[Field, ...]]:
        """The fields of each marker, by its name."""
        return fields_by_marker(self._feed.types.values())

    @property
    def time(self) -> Time:
        """The clock that the events' times come from."""
        return self._feed.time

    @property
    def ring_size(self) -> int:
        """Bytes of each ring at the start."""
        return self._feed.ring_size

    @property
    def grown(self) -> int:
        """Bytes by which all rings together have grown since, while the stream fell behind."""
        return self._feed.grown

    @property
    def left_out(self) -> int:
        """Number of events that were recorded and are of none of the types."""
        return self._feed.left_out

    def lost(self) -> dict[tuple[int, str], int]:
        """Events lost since the stream began, by (cpu, marker), without zeros."""
        return self._feed.lost()

    @property
    def unmatched(self) -> int:
        """Returns of functions that gave no event, since their entries were not seen, as of calls
        that had begun before. Known when the stream has ended; 0 where the process has, too."""
        return self._feed.unmatched

    @property
    def held_back(self) -> int:
        """Events that were held back, since there were as many in a second as `at_most` says. They
        are not lost. Known when the stream has ended."""
        return self._feed.held_back

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What was done so far because the probes took more of the processor time than `budget`
        says: samples were made smaller, and at last the stream was ended."""
        return self._feed.cuts

    def waits(self) -> Waits:
        """The events that waited for us since the stream began, because their ring was full. None
        does unless the trace was asked to be lossless."""
        return self._feed.waits()

    def statistics(self) -> StreamStatistics:
        """The counts so far."""
        return self._feed.statistics()

    def clock(self) -> Calibration:
        """The calibration for the times of the records that come next."""
        return self._feed.clock()

    def use_clock_of(self, other: EventStream) -> None:
        """Use the calibration of another stream, so that events of both have one order."""
        check_is("other", other, EventStream)
        self._feed.use_clock_of(other._feed)


def feeds_of(streams: Sequence[EventStream]) -> list[Feed]:
    """The feeds of streams, which a merger reads itself."""
    return [stream._feed for stream in streams]


def _check_most(most: object) -> None:
    if most is not None:
        check_int("most", most, 1)
