"""A stream of events out of an arena's rings, decoded and in order of time.

The rings are polled one after the other. Records later than the start of a poll are kept back for
the next poll, because a ring that was read before may still get an earlier one. A thread that is
interrupted in the middle of recording delivers its event late, with the right time.

Events come as `Event`s, or by the thousand as columns of numbers (`record_batches`), for files.
numpy is imported when the first records are decoded: by then the markers are on.

    claim.py    whether the rings and the markers are still ours
    losses.py   how many events were lost
    order.py    records that are kept back, and records that are ready
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from markerjit.arena.arena import Arena
from markerjit.arguments import (
    check_all,
    check_callable,
    check_flag,
    check_int,
    check_is,
    check_mapping,
    check_seconds,
)
from markerjit.errors import TargetGone
from markerjit.events.claim import Claim
from markerjit.events.losses import LossCount
from markerjit.events.order import KeptBack, Ready
from markerjit.events.rings import Found, Rings
from markerjit.model import Event, Field
from markerjit.patch.holds import Held
from markerjit.patch.plan import LeftOut
from markerjit.remote.native import clock_pair
from markerjit.ring.batch import Batch, Columns, Packet
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.raw import always
from markerjit.ring.timeline import Timeline
from markerjit.ring.types import RecordType, Time, fields_by_marker

TICK_NS = 10_000_000
"""CLOCK_MONOTONIC_COARSE is never further behind: a kernel has at least 100 ticks a second."""
SLICE = 1000
"""Events that are made at a time."""
_FINISHING_NS = NS // 5


class StreamStatistics(NamedTuple):
    """The counts of a stream.

    events          events delivered
    lost            events lost, because their ring was full
    bad_records     records that made no sense
    damaged_rings   how often a ring made no sense
    taken           markers that others have taken from the stream
    """

    events: int
    lost: int
    bad_records: int
    damaged_rings: int
    taken: tuple[str, ...] = ()


class EventStream:
    """Iterate over it for events, until `stop` is called or the target ends.

    types           the types that may come out of the rings, by the markers' ids
    alive           whether the target runs
    renew           renews the lease of the rings. Returns False once another reader has taken them
    is_ours         whether the rings are still ours, without renewing the lease
    poll_s          seconds to wait when the rings were empty
    resume          go on where an earlier reader stopped. Otherwise its records are dropped,
                    `dropped_bytes` of them
    first_clock     what both clocks read before, for a better calibration
    held            the markers that record for the stream
    target_ended    the stream ended because the target did
    unswitched      markers that matched and could not be switched on
    """

    def __init__(
        self,
        arena: Arena,
        types: Mapping[int, RecordType],
        *,
        alive: Callable[[], bool],
        renew: Callable[[], bool] = always,
        is_ours: Callable[[], bool] = always,
        poll_s: float = 0.02,
        resume: bool = False,
        dropped_bytes: int = 0,
        first_clock: tuple[int, int] | None = None,
        held: Held | None = None,
    ) -> None:
        check_is("arena", arena, Arena)
        check_mapping("types", types, int, RecordType)
        for name, function in (("alive", alive), ("renew", renew), ("is_ours", is_ours)):
            check_callable(name, function)
        check_seconds("poll_s", poll_s)
        check_flag("resume", resume)
        check_int("dropped_bytes", dropped_bytes, 0)
        if first_clock is not None:
            check_all("first_clock", first_clock, int)
        if held is not None:
            check_is("held", held, Held)
        self.poll_s = poll_s
        self.types = dict(types)
        self.target_ended = False
        self.unswitched: tuple[LeftOut, ...] = ()
        self._time = next((type_.time for type_ in types.values()), Time.TSC)
        self._arena = arena
        self._alive = alive
        self._claim = Claim(renew, held)
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        self._timeline = Timeline(clock_pair, wall_offset_ns, first_clock)
        self._rings = Rings(arena, self.types, is_ours=is_ours)
        self._losses = LossCount(arena, self.types, since_on=resume)
        self._kept_back = KeptBack()
        self._ready = Ready()
        self._stopped = self._finished = False
        self._packets: list[Packet] = []  # taken out of the rings, but not handed out
        self._records = 0  # in these
        self._events = 0
        self.dropped_bytes = dropped_bytes
        if resume:
            self._rings.resume()
        else:
            self._note_counts()
            self._rings.start()

    def __repr__(self) -> str:
        over = self._stopped or self._finished or self.target_ended or self.dispossessed
        state = "over" if over else "open"
        return f"<EventStream of {self._arena.pid}, {self._events} events, {state}>"

    def __iter__(self) -> Iterator[Event]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Event]]:
        """The same events, in lists of a thousand at most. Events of lists that were not asked for
        remain for `drain`."""
        while not self._stopped:
            over = self.is_over()
            events = self.poll(SLICE)
            if events:
                yield events
            if (over and not self.waiting) or self.dispossessed:
                break
            if not events:
                time.sleep(self.poll_s)
        self.find(None)
        while events := self.hand_out(SLICE):
            yield events

    def record_batches(self, *, packets: bool = False, columns: bool = True) -> Iterator[Batch]:
        """The records of each poll, as they were recorded (`packets`) and decoded (`columns`)."""
        while not self._stopped:
            over = self.is_over()
            batch = self.poll_batch(packets=packets, columns=columns)
            if batch:
                yield batch
            if over or self.dispossessed:
                break
            if not batch:
                time.sleep(self.poll_s)
        last = self.rest(packets=packets, columns=columns)
        if last:
            yield last

    @property
    def fields(self) -> dict[str, tuple[Field, ...]]:
        """The fields of each marker, by its name."""
        return fields_by_marker(self.types.values())

    @property
    def time(self) -> Time:
        """The clock that the events' times come from."""
        return self._time

    @property
    def left_out(self) -> int:
        """Number of events that were recorded and are of none of the types."""
        return self._rings.left_out

    def is_over(self) -> bool:
        """Whether nothing more will come than what is in the rings now."""
        self.target_ended = self.target_ended or not self._alive()
        return self._stopped or self.target_ended or self.dispossessed or self.all_taken

    @property
    def dispossessed(self) -> bool:
        """Whether the stream ended because another reader has taken the rings."""
        return self._claim.dispossessed

    @property
    def all_taken(self) -> bool:
        """Whether the stream ended because others have taken all of its markers."""
        return self._claim.all_taken

    def stop(self) -> None:
        """End the iteration after the events that are in the rings now. Safe to call from a signal
        handler."""
        self._stopped = True

    def keep(self) -> bool:
        """Renew the lease of the rings without reading them. A caller that is busy elsewhere for
        seconds must call this meanwhile. Returns False once another reader has taken the rings from
        us."""
        if not self._finished:
            try:
                self._claim.renew()
            except TargetGone:  # says nothing about the rings
                self.target_ended = True
        return not self.dispossessed

    def look_for_taken(self) -> None:
        """Look now whether others have switched markers of the stream. Otherwise that is looked at
        a few times a second."""
        self._claim.look_for_taken()

    def let_go(self, taken: Sequence[str]) -> None:
        """Look for the last time: the caller switches the markers from here on. `taken` are markers
        that are known to belong to others already."""
        check_all("taken", taken, str)
        self._claim.let_go(taken)

    def poll(self, most: int | None = None) -> list[Event]:
        """The events since the last poll, in order of time: no more than `most`, the next ones by
        the next poll. Renews the lease of the rings."""
        _check_most(most)
        if self.waiting:
            self.keep()
        else:
            self.find(self.now())
        return self.hand_out(most)

    def poll_until(self, until: int | None) -> list[Event]:
        """The events before `until`, which is a `now` of this stream, or of a stream of another
        process with the same kind of time. Later events are kept back."""
        self.find(until)
        return self.hand_out()

    def drain(self) -> list[Event]:
        """All events that remain, also those that a poll would keep back."""
        self.find(None)
        return self.hand_out()

    def find(self, until: int | None) -> None:
        """Take the records out of the rings, and have those before `until` ready for `hand_out`;
        None: all of them. No events are made yet."""
        _check_moment(until)
        if until is None:
            self._timeline.update()
        self._ready.add(self._from_rings(until, packets=False, columns=True).columns)

    @property
    def waiting(self) -> int:
        """Number of events that are ready to be handed out."""
        return len(self._ready)

    def due(self, most: int) -> int | None:
        """The time up to which `most` events are ready, as recorded; None where no more than that
        are ready."""
        check_int("most", most, 1)
        return self._ready.due(most)

    def hand_out(self, most: int | None = None, *, until: int | None = None) -> list[Event]:
        """The next events that are ready: no more than `most`, and none later than `until`."""
        batches = self.hand_out_columns(most, until=until)
        return [event for columns in batches for event in self._as_events(columns)]

    def hand_out_columns(
        self, most: int | None = None, *, until: int | None = None
    ) -> list[list[Columns]]:
        """The same events as columns. The events of a list come behind those of the list before."""
        _check_most(most)
        _check_moment(until)
        batches = [*self._ready.take_each(most, until)]
        self._events += sum(len(columns.time) for batch in batches for columns in batch)
        return batches

    def poll_batch(
        self, *, packets: bool = False, columns: bool = True, most: int | None = None
    ) -> Batch | None:
        """The records since the last poll, as `record_batches` has them; None where there are none.
        Columns have no more than `most` records, the next ones by the next poll."""
        check_flag("packets", packets)
        check_flag("columns", columns)
        _check_most(most)
        if self.waiting:
            self.keep()
            return self._next_batch([], most)
        until = self.now()
        return self._take(until, packets=packets, columns=columns, most=most)

    def rest(self, *, packets: bool = False, columns: bool = True) -> Batch | None:
        """All records that remain, also those that a poll would keep back."""
        self._timeline.update()
        batch = self._take(None, packets=packets, columns=columns)
        if not batch or not self.waiting:
            return batch
        from markerjit.ring.columns import merge_types

        parts = [*batch.columns]
        while more := self._next_batch([], None):
            parts += more.columns
        return batch._replace(columns=merge_types(parts))

    def finish(self) -> None:
        """Take the remaining records out of the rings, for `drain`. The rings belong to others from
        here on. Waits for a thread that is recording, but not for long."""
        until = time.monotonic_ns() + _FINISHING_NS
        last = False
        while self._rings.unread() and not last:
            last = time.monotonic_ns() > until
            new = self._rings.poll(packets=True, last=last)
            if not new.records:
                time.sleep(0.001)
            self._keep_back(new)
        self.note_losses()
        self._note_counts()
        self._finished = True

    def _note_counts(self) -> None:
        """Note the counts in the arena, so that losses before now are not those of a reader that
        resumes."""
        for marker in self.types:
            self._arena.counters.note_began(marker)

    def note_losses(self) -> None:
        """Read now how many events were lost. Otherwise that is read a few times a second."""
        self._losses.update()

    def statistics(self) -> StreamStatistics:
        """The counts so far."""
        return StreamStatistics(
            self._events,
            sum(self.lost().values()),
            self._rings.bad,
            self._rings.damaged,
            tuple(sorted(self._claim.taken)),
        )

    def lost(self) -> dict[tuple[int, str], int]:
        """Events lost since the stream began, by (cpu, marker), without zeros."""
        return self._losses.by_marker()

    def clock(self) -> Calibration:
        """The calibration for the times of the records that come next."""
        return self._timeline.calibration(self._time, time.sleep)

    def use_clock_of(self, other: EventStream) -> None:
        """Use the calibration of another stream, so that events of both have one order."""
        check_is("other", other, EventStream)
        self._timeline = other._timeline

    def now(self) -> int | None:
        """The time now, as records have it; None where they have no time."""
        counter = self._timeline.update()
        match self._time:
            case Time.TSC:
                return counter
            case Time.MONOTONIC:
                return time.monotonic_ns()
            case Time.COARSE:
                return time.monotonic_ns() - TICK_NS
        return None

    def _take(
        self, until: int | None, *, packets: bool, columns: bool, most: int | None = None
    ) -> Batch | None:
        """The records in the rings now; of columns those before `until`. None where there are
        none."""
        check_flag("packets", packets)
        check_flag("columns", columns)
        new = self._from_rings(until, packets=packets, columns=columns)
        if columns:
            self._ready.add(new.columns)
        else:
            self._events += new.records
        return self._next_batch(new.packets, most)

    def _from_rings(self, until: int | None, *, packets: bool, columns: bool) -> Found:
        """The records that were kept back and those in the rings; of columns those before `until`.
        Nothing where `stop` came meanwhile: then all of it is kept back, for the rest."""
        stopped = self._stopped
        new = Found(self._packets if packets else [], [], self._records)
        self._packets, self._records = [], 0
        try:
            if self.keep() and not self._finished:
                polled = self._rings.poll(
                    packets=packets, columns=columns, enough=lambda: self._stopped and not stopped
                )
                new = Found(
                    [*new.packets, *polled.packets], polled.columns, new.records + polled.records
                )
                if until is None:
                    self._losses.update()
                else:
                    self._losses.update_when_due()
        except TargetGone:  # and its arena is out of reach with it
            self._stopped = self.target_ended = stopped = True
        if self._stopped and not stopped:
            self._keep_back(new)
            return Found([], [], 0)
        self._kept_back.add(new.columns)
        return new._replace(columns=self._kept_back.release(until))

    def _keep_back(self, new: Found) -> None:
        """Keep these records for the rest."""
        self._kept_back.add(new.columns)
        self._packets += new.packets
        self._records += new.records

    def _next_batch(self, packets: Sequence[Packet], most: int | None) -> Batch | None:
        """Packets, and of the columns that are ready no more than `most` records."""
        columns: list[Columns] = self._ready.take(most)
        self._events += sum(len(part.time) for part in columns)
        return Batch(packets, columns, self.lost()) if columns or packets else None

    def _as_events(self, columns: Sequence[Columns]) -> list[Event]:
        if not columns:
            return []
        from markerjit.ring.to_events import events

        return events(columns, self.clock())


def _check_most(most: object) -> None:
    if most is not None:
        check_int("most", most, 1)


def _check_moment(until: object) -> None:
    if until is not None:
        check_int("until", until, 0, (1 << 64) - 1)
