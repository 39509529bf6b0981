"""A stream of events out of an arena's rings, decoded and in order of time.

Rings are polled. What is later than the moment at which a poll began is kept back for the next one,
because another ring, read before, may still get something earlier. A thread that is held up in the
middle of recording delivers its event late; its time is right all the same.

Events come as `Event`s, or by the thousand as columns of numbers (`record_batches`), for files.
numpy is imported when the first are decoded: by then the markers are on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

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
from markerjit.events.rings import Found, Rings, losses, losses_before
from markerjit.model import Event, Field
from markerjit.patch.holds import Held
from markerjit.patch.plan import LeftOut
from markerjit.remote.native import clock_pair
from markerjit.ring.batch import Batch, Columns, Packet
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.raw import always
from markerjit.ring.timeline import Timeline
from markerjit.ring.types import RecordType, Time

if TYPE_CHECKING:
    from markerjit.ring.columns import Slices

TICK_NS = 10_000_000
"""CLOCK_MONOTONIC_COARSE is never further behind: a kernel has at least 100 ticks a second."""
_FAR = 1 << 32
"""Ticks or nanoseconds, seconds anyway: what seems to come so much later than now is from another
clock, as in a time namespace, or is nonsense. It is not waited for."""
_LOSSES_NS = NS // 4
SLICE = 1000
"""So many events are made at a time."""
_FINISHING_NS = NS // 5


class StreamStatistics(NamedTuple):
    """What a stream has seen: events delivered, events lost in full rings, records that made no
    sense, and how often a ring did not; and markers that others have taken from it."""

    events: int
    lost: int
    bad_records: int
    damaged_rings: int
    taken: tuple[str, ...] = ()


class EventStream:
    """Iterate over it for events, until `stop` is called or the target ends.

    `types` are what may come out of the rings, by the markers' ids. `poll_s` is how long to wait
    when the rings were empty. `renew` says that somebody reads, and returns False when another
    reader has taken our place; `is_ours` only asks that. `target_ended` and `dispossessed` say why
    the stream ended, `unswitched` which markers matched and could not be switched on. With `resume`
    it goes on where an earlier reader stopped; otherwise what that left is dropped, `dropped_bytes`
    of it. `held` are the markers that record for it.
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
        self.dispossessed = False
        self.unswitched: tuple[LeftOut, ...] = ()
        self._time = next((type_.time for type_ in types.values()), Time.TSC)
        self._renew = renew
        self._arena = arena
        self._alive = alive
        wall_offset_ns = time.time_ns() - time.monotonic_ns()
        self._timeline = Timeline(clock_pair, wall_offset_ns, first_clock)
        self._rings = Rings(arena, self.types, is_ours=is_ours)
        self._lost_before = losses(arena, self.types)
        self._lost_now, self._lost_at = self._lost_before, 0
        self._held: dict[int, list[Columns]] = {}
        self._ready: list[Slices] = []
        self._stopped = self._finished = False
        self._left: list[Packet] = []
        self._left_records = 0
        self._events = 0
        self.dropped_bytes = dropped_bytes
        self._holding = held
        self._markers = held.markers if held else frozenset()
        self._taken: set[str] = set()
        self._looked_at = 0
        if resume:
            self._lost_before = losses_before(arena, self.types)
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
        """The same events, in lists of a thousand at most. Those of a list that was not asked for
        are there for `drain`."""
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
        """What each poll found, as it was recorded (`packets`) and decoded (`columns`)."""
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
        found: dict[str, dict[str, Field]] = {}
        for type_ in self.types.values():
            found.setdefault(type_.marker, {}).update((one.name, one) for one in type_.fields)
        return {marker: tuple(fields.values()) for marker, fields in found.items()}

    @property
    def time(self) -> Time:
        """Where the events' times come from."""
        return self._time

    @property
    def left_out(self) -> int:
        """Events that were found and are of none of the types."""
        return self._rings.left_out

    def is_over(self) -> bool:
        """Whether nothing more will come but what is in the rings now."""
        self.target_ended = self.target_ended or not self._alive()
        return self._stopped or self.target_ended or self.dispossessed or self.all_taken

    @property
    def all_taken(self) -> bool:
        """Whether others have taken all markers that recorded for us."""
        return bool(self._markers) and self._taken >= self._markers

    def stop(self) -> None:
        """End the iteration after what is in the rings now. May be called from a signal handler."""
        self._stopped = True

    def keep(self) -> bool:
        """Keep the rings for us, without looking into them: for who is busy elsewhere for seconds.
        False when another reader has them now, and has not waited until we had finished."""
        if self._finished:
            return not self.dispossessed
        try:
            self.dispossessed = self.dispossessed or not self._renew()
            if not self.dispossessed and time.monotonic_ns() - self._looked_at > _LOSSES_NS:
                self.look_for_taken()
        except TargetGone:  # says nothing about the rings
            self.target_ended = True
        return not self.dispossessed

    def look_for_taken(self) -> None:
        """Look whether others have switched markers of ours; else it is looked at a few times a
        second."""
        self._looked_at = time.monotonic_ns()
        if self._holding:
            self._taken |= self._holding.taken()

    def let_go(self, taken: Sequence[str]) -> None:
        """Look for the last time: what is switched from now on, we switch ourselves. `taken` are
        markers that are known to be others' already."""
        check_all("taken", taken, str)
        if self._holding:
            self.look_for_taken()
            self._taken.update(taken)
            self._holding = None

    def poll(self, most: int | None = None) -> list[Event]:
        """The events since the last poll, in order of time; at `most` so many, and the next ones by
        the next poll. Keeps the rings for us."""
        _check_most(most)
        if self.waiting:
            self.keep()
        else:
            self.find(self.now())
        return self.hand_out(most)

    def poll_until(self, until: int | None) -> list[Event]:
        """The same, up to a moment that `now` has told, of this stream or of one of another process
        with the same kind of time. What is later is kept back."""
        self.find(until)
        return self.hand_out()

    def drain(self) -> list[Event]:
        """All that is left in the rings, also what a poll would keep back."""
        self.find(None)
        return self.hand_out()

    def find(self, until: int | None) -> None:
        """Take out of the rings what is in them, and have it ready for `hand_out` up to a moment;
        None: all of it. Events are not made of it yet."""
        _check_moment(until)
        if until is None:
            self._timeline.update()
        self._get_ready(self._from_rings(until, packets=False, columns=True).columns)

    @property
    def waiting(self) -> int:
        """Events that are ready to be handed out."""
        return sum(map(len, self._ready))

    def due(self, most: int) -> int | None:
        """The time up to which `most` events wait, as recorded; None where there are no more."""
        check_int("most", most, 1)
        if self.waiting <= most:
            return None
        first = self._ready[0]
        return first.time(min(most, len(first)) - 1)

    def hand_out(self, most: int | None = None, *, until: int | None = None) -> list[Event]:
        """The next events that are ready: at `most` so many, and none later than `until`."""
        _check_most(most)
        _check_moment(until)
        events: list[Event] = []
        while self._ready and (most is None or len(events) < most):
            first = self._ready[0]
            count = len(first) if most is None else min(len(first), most - len(events))
            if until is not None:
                count = min(count, first.count_until(until))
            if count:
                events += self._as_events(first.take(count))
            if len(first):
                break
            self._ready.pop(0)
        self._events += len(events)
        return events

    def poll_batch(
        self, *, packets: bool = False, columns: bool = True, most: int | None = None
    ) -> Batch | None:
        """What is new, as `record_batches` has it; None when nothing is. Of columns at `most` so
        many records, and the next ones by the next poll."""
        check_flag("packets", packets)
        check_flag("columns", columns)
        _check_most(most)
        if self.waiting:
            self.keep()
            return self._next_batch([], most)
        until = self.now()
        return self._take(until, packets=packets, columns=columns, most=most)

    def rest(self, *, packets: bool = False, columns: bool = True) -> Batch | None:
        """All that is left, also what a poll would keep back."""
        self._timeline.update()
        batch = self._take(None, packets=packets, columns=columns)
        if not batch or not self._ready:
            return batch
        from markerjit.ring.columns import merge_types

        parts = [*batch.columns]
        while more := self._next_batch([], None):
            parts += more.columns
        return batch._replace(columns=merge_types(parts))

    def finish(self) -> None:
        """Take what is left out of the rings, for `drain`: from now on they are somebody else's.
        What a thread is recording is waited for, but not for long."""
        until = time.monotonic_ns() + _FINISHING_NS
        last = False
        while self._rings.unread() and not last:
            last = time.monotonic_ns() > until
            found = self._rings.poll(packets=True, last=last)
            if not found.records:
                time.sleep(0.001)
            self._leave(found)
        self.note_losses()
        self._note_counts()
        self._finished = True

    def _note_counts(self) -> None:
        """For who resumes: what was lost before is no part of it."""
        for marker in self.types:
            self._arena.note_counts(marker)

    def note_losses(self) -> None:
        """Look how many were lost until now; else it is looked at a few times a second."""
        with suppress(TargetGone):
            self._lost_now = losses(self._arena, self.types)
            self._lost_at = time.monotonic_ns()

    def statistics(self) -> StreamStatistics:
        """What has been seen so far."""
        return StreamStatistics(
            self._events,
            sum(self.lost().values()),
            self._rings.bad,
            self._rings.damaged,
            tuple(sorted(self._taken)),
        )

    def lost(self) -> dict[tuple[int, str], int]:
        """Events lost since the stream began, by (cpu, marker); only where there are some."""
        return dict(self._lost_now - self._lost_before)

    def clock(self) -> Calibration:
        """For the times of records that come next."""
        return self._timeline.calibration(self._time, time.sleep)

    def use_clock_of(self, other: EventStream) -> None:
        """Tell times as another stream does, so that events of both have one order."""
        check_is("other", other, EventStream)
        self._timeline = other._timeline

    def now(self) -> int | None:
        """Now, as records have it; None where they have no time."""
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
        """All that is recorded now; of columns what is before `until`. None if that is nothing."""
        check_flag("packets", packets)
        check_flag("columns", columns)
        found = self._from_rings(until, packets=packets, columns=columns)
        if columns:
            self._get_ready(found.columns)
        else:
            self._events += found.records
        return self._next_batch(found.packets, most)

    def _from_rings(self, until: int | None, *, packets: bool, columns: bool) -> Found:
        """What was left and what is in the rings; of columns what is before `until`. Nothing where
        we are stopped over it: then it is left, and comes with the rest."""
        found = Found(self._left if packets else [], [], self._left_records)
        self._left, self._left_records = [], 0
        stopped = self._stopped
        try:
            if self.keep() and not self._finished:
                new = self._rings.poll(
                    packets=packets, columns=columns, enough=lambda: self._stopped and not stopped
                )
                found = Found(
                    [*found.packets, *new.packets], new.columns, found.records + new.records
                )
                if until is None or time.monotonic_ns() - self._lost_at > _LOSSES_NS:
                    self.note_losses()
        except TargetGone:  # and its arena is out of reach with it
            self._stopped = self.target_ended = stopped = True
        if self._stopped and not stopped:
            self._leave(found)
            return Found([], [], 0)
        return found._replace(columns=self._in_order(found.columns, until))

    def _leave(self, found: Found) -> None:
        """For the rest."""
        for one in found.columns:
            self._held.setdefault(one.type.id, []).append(one)
        self._left += found.packets
        self._left_records += found.records

    def _get_ready(self, columns: Sequence[Columns]) -> None:
        if columns:
            from markerjit.ring.columns import Slices

            self._ready.append(Slices(columns))

    def _next_batch(self, packets: Sequence[Packet], most: int | None) -> Batch | None:
        """Of all that is ready at `most` so many records."""
        columns: list[Columns] = []
        if self._ready:
            first = self._ready[0]
            columns = first.take(len(first) if most is None else most)
            if not len(first):
                self._ready.pop(0)
        self._events += sum(len(one.time) for one in columns)
        return Batch(packets, columns, self.lost()) if columns or packets else None

    def _in_order(self, columns: Sequence[Columns], until: int | None) -> list[Columns]:
        """What was kept back and what is new, up to `until`; the rest is kept back."""
        for one in columns:
            self._held.setdefault(one.type.id, []).append(one)
        if not self._held:
            return []
        from markerjit.ring.columns import merge, take

        ready = []
        for marker, parts in list(self._held.items()):
            now = merge(parts)
            del self._held[marker]
            if until is not None:
                now, later = take(now, until)
                later, never = take(later, until + _FAR)
                now = merge([now, never]) if len(never.time) else now
                if len(later.time):
                    self._held[marker] = [later]
            if len(now.time):
                ready.append(now)
        return ready

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
