"""The records of an arena's rings on their way to a stream, in order of time.

The rings are polled one after the other. Records later than the start of a poll are kept back for
the next poll, because a ring that was read before may still get an earlier one. A thread that is
interrupted in the middle of recording delivers its event late, with the right time.

numpy is imported when the first records are decoded: by then the markers are on. A feed checks none
of its arguments: a stream does (stream.py).

    claim.py    whether the rings and the markers are still ours
    losses.py   how many events were lost
    order.py    records that are kept back, and records that are ready
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from markerjit.abi import READER_NS
from markerjit.arena.arena import Arena
from markerjit.arena.waiting import Waiting, Waits
from markerjit.errors import TargetGone
from markerjit.events.bounds import Bounds
from markerjit.events.budget import Budget, Cut
from markerjit.events.claim import Claim
from markerjit.events.losses import LossCount
from markerjit.events.order import KeptBack, Ready
from markerjit.events.rings import Polled, Rings
from markerjit.events.stacks import NamedStacks, Stacks
from markerjit.model import Event
from markerjit.patch.holds import Held
from markerjit.remote.native import clock_pair
from markerjit.ring.batch import Columns, Packet
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.raw import Growth, always
from markerjit.ring.timeline import Timeline
from markerjit.ring.types import RecordType, Time, has_stacks
from markerjit.trace.batch import Batch
from markerjit.tuples import NamedTuple, brief

TICK_NS = 10_000_000
"""CLOCK_MONOTONIC_COARSE is never further behind: a kernel has at least 100 ticks a second."""
_FINISHING_NS = NS // 5
_NO_WAITS = Waits(0, 0)


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

    def __repr__(self) -> str:
        return brief(self)


class Feed:
    """Takes records out of the rings of one arena, and hands them out in order of time.

    types           the types that may come out of the rings, by the markers' ids
    alive           whether the target runs
    renew           renews the lease of the rings. Returns False once another reader has taken them
    is_ours         whether the rings are still ours, without renewing the lease
    resume          go on where an earlier reader stopped. Otherwise its records are dropped
    first_clock     what both clocks read before, for a better calibration
    held            the markers that record for the stream
    growth          room for the rings to grow by; without it they do not
    bounds          for how long, and for how many events
    stacks          the stacks of the process, where records have some
    waiting         for events that wait for the feed where their ring is full; None: none does
    pid             the process
    ring_size       bytes of each ring at the start
    time            the clock that the records' times come from
    stopped         whether the feed was stopped
    target_ended    whether the target has ended
    unmatched       returns that gave no event, since their entries were not seen: written at the
                    end of the stream
    held_back       events that brakes have held back, since the markers were switched on: written
                    at the end of the stream
    """

    def __init__(
        self,
        arena: Arena,
        types: Mapping[int, RecordType],
        *,
        alive: Callable[[], bool],
        renew: Callable[[], bool] = always,
        is_ours: Callable[[], bool] = always,
        resume: bool = False,
        first_clock: tuple[int, int] | None = None,
        held: Held | None = None,
        waiting: Waiting | None = None,
        growth: Growth | None = None,
        bounds: Bounds | None = None,
        stacks: Stacks | None = None,
    ) -> None:
        self.types = dict(types)
        self.pid = arena.pid
        self.time = next((type_.time for type_ in types.values()), Time.TSC)
        self.stopped = self.target_ended = False
        self.unmatched = self.held_back = 0
        self.bounds = bounds or Bounds()
        self._arena = arena
        self._alive = alive
        self._claim = Claim(renew, held)
        self._waiting = waiting
        self._waits_before = waiting.counts() if waiting else _NO_WAITS
        self._waits = _NO_WAITS
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        self._timeline = Timeline(clock_pair, wall_offset_ns, first_clock)
        self._rings = Rings(arena, self.types, is_ours=is_ours, growth=growth)
        self.ring_size = self._rings.size
        self._losses = LossCount(arena, self.types, since_on=resume)
        self._kept_back = KeptBack()
        self._ready = Ready()
        self._stacks = NamedStacks(stacks) if stacks and has_stacks(types.values()) else None
        self._finished = False
        self._packets: list[Packet] = []  # taken out of the rings, but not handed out
        self._records = 0  # in these
        self._events = 0
        if resume:
            self._rings.resume()
        else:
            self._note_counts()
            self._rings.start()
        self._budget = Budget(arena, self.types, self._rings.waiting)

    # ---- its end ---------------------------------------------------------------------------------

    def stop(self) -> None:
        """End the feed with the records that are in the rings now. Safe to call from a signal
        handler."""
        self.stopped = True

    def is_over(self) -> bool:
        """Whether nothing more will come than what is in the rings now."""
        if not self._finished:  # the target may be closed by now
            self.target_ended = self.target_ended or not self._alive()
        self.stopped = self.stopped or self.bounds.are_reached(self._events)
        return self.has_ended or self.all_taken

    @property
    def has_ended(self) -> bool:
        """Whether the feed is known to have ended, without a look at the target."""
        return self.stopped or self._finished or self.target_ended or self.dispossessed

    @property
    def dispossessed(self) -> bool:
        """Whether another reader has taken the rings."""
        return self._claim.dispossessed

    @property
    def all_taken(self) -> bool:
        """Whether other controllers have taken all of the markers."""
        return self._claim.all_taken

    def keep(self) -> bool:
        """Renew the lease of the rings without reading them. Returns False once another reader has
        taken the rings from us."""
        if not self._finished:
            try:
                self._claim.renew()
                self._budget.look()
            except TargetGone:  # says nothing about the rings
                self.target_ended = True
            self.stopped = self.stopped or self._budget.is_spent
        return not self.dispossessed

    @property
    def cuts(self) -> tuple[Cut, ...]:
        """What was done so far to keep to a budget."""
        return tuple(self._budget.cuts)

    def let_go(self, taken: Sequence[str]) -> None:
        """Look for the last time for markers that were taken: the caller switches the markers from
        here on. `taken` are markers that are known to belong to others already."""
        self._claim.let_go(taken)

    def finish(self) -> None:
        """Take the remaining records out of the rings, to be handed out later. The rings belong to
        others from here on. Waits for a thread that is recording, but not for long."""
        self.note_held_back()
        self._rings.stop_growing()
        until = time.monotonic_ns() + (READER_NS if self._waiting else _FINISHING_NS)
        last = False
        while (self._is_waited_for() or self._rings.unread()) and not last:
            last = time.monotonic_ns() > until
            new = self._rings.poll(packets=True, last=last)
            self._note_pass()
            if self._stacks:
                self._stacks.note(new.columns)
            if not new.records:
                time.sleep(0.001)
            self._keep_back(new)
        if self._waiting:
            self._waiting.forbid()
        self.note_losses()
        self._note_counts()
        self._finished = True

    # ---- events that wait for us -----------------------------------------------------------------

    def let_wait(self) -> None:
        """Events may wait for us, for a while from now on. Done whenever records are asked for."""
        if self._waiting and not self._finished and not self.dispossessed:
            with suppress(TargetGone):
                self._waiting.allow()

    def note_held_back(self) -> None:
        """Look how many events brakes have held back."""
        braked = [id for id, type_ in self.types.items() if type_.brakes.at_most]
        self.held_back = sum(map(self._arena.braking.held_back, braked))

    def waits(self) -> Waits:
        """The events that have waited since the feed began."""
        if self._waiting and not self._finished:
            with suppress(TargetGone):
                now, before = self._waiting.counts(), self._waits_before
                self._waits = Waits(now.events - before.events, now.ns - before.ns)
        return self._waits

    def _is_waited_for(self) -> bool:
        return self._waiting is not None and self._waiting.threads > 0

    def _note_pass(self) -> None:
        if self._waiting and not self.dispossessed:
            self._waiting.note_pass()

    # ---- records ---------------------------------------------------------------------------------

    def find(self, until: int | None) -> None:
        """Take the records out of the rings, and have those before `until` ready for `hand_out`;
        None: all of them. No events are made yet."""
        if self.take(last=until is None):
            self.make_ready(until)

    def take(self, *, last: bool = False) -> bool:
        """Take the records out of the rings, and keep them back. Returns False where `stop` came
        meanwhile: then there are more in the rings, which may be earlier ones."""
        self.let_wait()
        if last:
            self._timeline.update()
        new = self._taken(packets=False, columns=True, last=last)
        if new:
            self._kept_back.add(new.columns)
        return new is not None

    def make_ready(self, until: int | None) -> None:
        """Have those records ready for `hand_out` that were kept back and are before `until`; None:
        all of them."""
        self._ready.add(self._kept_back.release(until))

    @property
    def waiting(self) -> int:
        """Number of records that are ready to be handed out."""
        return self.bounds.left(len(self._ready), self._events) or 0

    def due(self, most: int) -> int | None:
        """The time up to which `most` records are ready, as recorded; None where no more than that
        are ready."""
        return self._ready.due(most)

    def hand_out(self, most: int | None = None, *, until: int | None = None) -> list[Event]:
        """The next events that are ready: no more than `most`, and none later than `until`."""
        batches = self.hand_out_columns(most, until=until)
        return [event for columns in batches for event in self._as_events(columns)]

    def hand_out_columns(
        self, most: int | None = None, *, until: int | None = None
    ) -> list[list[Columns]]:
        """The same events as columns. The events of a list come behind those of the list before."""
        self.let_wait()
        most = self.bounds.left(most, self._events)
        batches = [self._with_stacks(each) for each in self._ready.take_each(most, until)]
        self._events += sum(len(columns.time) for batch in batches for columns in batch)
        self.stopped = self.stopped or self.bounds.are_reached(self._events)
        return batches

    def poll_batch(self, *, packets: bool, columns: bool, most: int | None = None) -> Batch | None:
        """The records since the last poll; None where there are none. Columns have no more than
        `most` records, the next ones by the next poll."""
        self.let_wait()
        if self.waiting:
            self.keep()
            return self._next_batch([], most)
        until = self.now()
        return self._take(until, packets=packets, columns=columns, most=most)

    def rest(self, *, packets: bool, columns: bool) -> Batch | None:
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

    def _take(
        self, until: int | None, *, packets: bool, columns: bool, most: int | None = None
    ) -> Batch | None:
        """The records in the rings now; of columns those before `until`. None where there are
        none."""
        new = self._from_rings(until, packets=packets, columns=columns)
        if columns:
            self._ready.add(new.columns)
        else:
            self._events += new.records
        return self._next_batch(new.packets, most)

    def _from_rings(self, until: int | None, *, packets: bool, columns: bool) -> Polled:
        """The records that were kept back and those in the rings; of columns those before `until`.
        Nothing where `stop` came meanwhile."""
        new = self._taken(packets=packets, columns=columns, last=until is None)
        if new is None:
            return Polled([], [], 0)
        self._kept_back.add(new.columns)
        return new._replace(columns=self._kept_back.release(until))

    def _taken(self, *, packets: bool, columns: bool, last: bool) -> Polled | None:
        """The records in the rings, behind the packets that were kept back. None where `stop` came
        meanwhile: then all of it is kept back, for the rest."""
        stopped = self.stopped
        new = Polled(self._packets if packets else [], [], self._records)
        self._packets, self._records = [], 0
        try:
            if self.keep() and not self._finished:
                polled = self._rings.poll(
                    packets=packets,
                    columns=columns or self._stacks is not None,
                    enough=lambda: self.stopped and not stopped,
                )
                self._note_pass()
                if self._stacks:
                    self._stacks.note(polled.columns)
                if not columns:
                    polled = polled._replace(columns=[])
                new = Polled(
                    [*new.packets, *polled.packets], polled.columns, new.records + polled.records
                )
                if last:
                    self._losses.update()
                else:
                    self._losses.update_when_due()
        except TargetGone:  # and its arena is out of reach with it
            self.stopped = self.target_ended = stopped = True
        if self.stopped and not stopped:
            self._keep_back(new)
            return None
        return new

    def _keep_back(self, new: Polled) -> None:
        """Keep these records for the rest."""
        self._kept_back.add(new.columns)
        self._packets += new.packets
        self._records += new.records

    def _next_batch(self, packets: Sequence[Packet], most: int | None) -> Batch | None:
        """Packets, and of the columns that are ready no more than `most` records."""
        most = self.bounds.left(most, self._events)
        columns = self._with_stacks([] if most == 0 else self._ready.take(most))
        self._events += sum(len(part.time) for part in columns)
        self.stopped = self.stopped or self.bounds.are_reached(self._events)
        if not columns and not packets:
            return None
        clock = self.clock() if columns else None
        batch = Batch(packets, columns, self.lost(), clock, tuple(self.types.values()), self.pid)
        return batch._replace(stacks=self._stacks.fresh()) if self._stacks and packets else batch

    def _with_stacks(self, columns: list[Columns]) -> list[Columns]:
        """With the texts of stacks, where records have some."""
        return self._stacks.with_texts(columns) if self._stacks else columns

    def _as_events(self, columns: Sequence[Columns]) -> list[Event]:
        if not columns:
            return []
        from markerjit.ring.to_events import events

        return events(columns, self.clock(), self.pid)

    # ---- counts ----------------------------------------------------------------------------------

    def _note_counts(self) -> None:
        """Note the counts in the arena, so that losses before now are not those of a reader that
        resumes."""
        self._arena.counters.note_began(self.types)

    def note_losses(self) -> None:
        """Read now how many events were lost. Otherwise that is read a few times a second."""
        self._losses.update()
        self.waits()

    def lost(self) -> dict[tuple[int, str], int]:
        """Events lost since the feed began, by (cpu, marker), without zeros."""
        return self._losses.by_marker()

    @property
    def grown(self) -> int:
        """Bytes by which the rings have grown."""
        return self._rings.grown

    @property
    def left_out(self) -> int:
        """Number of events that were recorded and are of none of the types."""
        return self._rings.left_out

    def statistics(self) -> StreamStatistics:
        """The counts so far."""
        return StreamStatistics(
            self._events,
            sum(self.lost().values()),
            self._rings.bad,
            self._rings.damaged,
            tuple(sorted(self._claim.taken)),
        )

    # ---- time ------------------------------------------------------------------------------------

    def clock(self) -> Calibration:
        """The calibration for the times of the records that come next."""
        return self._timeline.calibration(self.time, time.sleep)

    def use_clock_of(self, other: Feed) -> None:
        """Use the calibration of another feed, so that events of both have one order."""
        self._timeline = other._timeline

    def now(self) -> int | None:
        """The time now, as records have it; None where they have no time."""
        counter = self._timeline.update()
        match self.time:
            case Time.TSC:
                return counter
            case Time.MONOTONIC:
                return time.monotonic_ns()
            case Time.COARSE:
                return time.monotonic_ns() - TICK_NS
        return None
