"""A stream of events out of an arena's rings, decoded and in order of time.

Rings are polled. What is later than the moment at which a poll began is kept back for the next one,
because another ring, read before, may still get something earlier. A thread that is held up in the
middle of recording delivers its event late; its time is right all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from markerjit.errors import TargetGone
from markerjit.model import CType, Event, Field
from markerjit.patch.arena import Arena
from markerjit.quiesce.native import clock_pair
from markerjit.ring.decode import BadRecord, decode
from markerjit.ring.reader import Record, RingReader

_SHORTEST_BASELINE_NS = 2_000_000


class Decoder(NamedTuple):
    """How to read the records of one marker."""

    name: str
    args: tuple[CType, ...]
    fields: tuple[Field, ...]


class StreamStatistics(NamedTuple):
    """What a stream has seen: events delivered, events lost in full rings, records that made no
    sense, and how often a ring did not."""

    events: int
    lost: int
    bad_records: int
    damaged_rings: int


class Clock:
    """From the time stamp counter to CLOCK_MONOTONIC, by two readings of both.

    The counter is taken to be invariant and the same on all CPUs, as Linux requires of one that is
    its clock source ("tsc").
    """

    def __init__(self) -> None:
        self._first = self._last = clock_pair()

    def update(self) -> int:
        """Read both again; returns the counter."""
        self._last = clock_pair()
        if self._last[1] - self._first[1] < _SHORTEST_BASELINE_NS:
            time.sleep(_SHORTEST_BASELINE_NS / 1e9)
            self._last = clock_pair()
        return self._last[0]

    def nanoseconds(self, counter: int) -> int:
        """CLOCK_MONOTONIC when the counter stood so."""
        ticks = self._last[0] - self._first[0]
        elapsed = self._last[1] - self._first[1]
        return self._last[1] + (counter - self._last[0]) * elapsed // ticks


class EventStream:
    """Iterate over it for events, until `stop` is called or the target ends.

    `poll_s` is how long to wait when the rings were empty. `renew` says that somebody reads, and
    returns False when another reader has taken our place. `target_ended` and `dispossessed` say why
    the stream ended.
    """

    def __init__(
        self,
        arena: Arena,
        decoders: Mapping[int, Decoder],
        *,
        alive: Callable[[], bool],
        renew: Callable[[], bool] = lambda: True,
        poll_s: float = 0.02,
    ) -> None:
        self.poll_s = poll_s
        self.target_ended = False
        self.dispossessed = False
        self._renew = renew
        self._arena = arena
        self._decoders = decoders
        self._alive = alive
        self._clock = Clock()
        self._rings = [
            RingReader(arena.store, arena.geometry, cpu) for cpu in range(arena.geometry.rings)
        ]
        self._lost_before = self._lost_now = self._count_lost()
        self._held: list[Record] = []
        self._events = 0
        self._bad = 0
        self._stopped = False
        for ring in self._rings:
            ring.discard()

    def __iter__(self) -> Iterator[Event]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Event]]:
        """The same events, a list for each poll that found some."""
        while not self._stopped:
            self.target_ended = not self._alive()
            events = self.poll()
            if events:
                yield events
            if self.target_ended or self.dispossessed:
                break
            if not events:
                time.sleep(self.poll_s)
        events = self.drain() if self.keep() else []
        if events:
            yield events

    @property
    def fields(self) -> dict[str, tuple[Field, ...]]:
        """The fields of each marker, by its name."""
        return {decoder.name: decoder.fields for decoder in self._decoders.values()}

    def stop(self) -> None:
        """End the iteration after what is in the rings now. May be called from a signal handler."""
        self._stopped = True

    def keep(self) -> bool:
        """Keep the rings for us, without looking into them: for who is busy elsewhere for seconds.
        False when another reader has them now."""
        try:
            self.dispossessed = self.dispossessed or not self._renew()
        except TargetGone:  # says nothing about the rings
            self.target_ended = True
        return not self.dispossessed

    def poll(self) -> list[Event]:
        """The events since the last poll, in order of time. Keeps the rings for us."""
        return self._take(self._clock.update()) if self.keep() else []

    def drain(self) -> list[Event]:
        """All that is left in the rings, also what a poll would keep back."""
        self._clock.update()
        return self._take(None)

    def statistics(self) -> StreamStatistics:
        """What has been seen so far."""
        return StreamStatistics(
            self._events,
            self._lost_now - self._lost_before,
            self._bad,
            sum(ring.damaged for ring in self._rings),
        )

    def _take(self, until: int | None) -> list[Event]:
        records = self._held
        try:
            for ring in self._rings:
                records.extend(ring.poll())
            self._lost_now = self._count_lost()
        except TargetGone:  # and its arena is out of reach with it
            self._stopped = self.target_ended = True
        records.sort(key=lambda record: record.time)
        if until is not None:
            self._held = [record for record in records if record.time >= until]
            records = records[: len(records) - len(self._held)]
        else:
            self._held = []
        events = [event for event in map(self._decode, records) if event]
        self._events += len(events)
        return events

    def _decode(self, record: Record) -> Event | None:
        decoder = self._decoders.get(record.marker)
        if decoder is None:
            return None  # switched on before, by somebody else
        try:
            fields = decode(record.payload, decoder.args, decoder.fields)
        except BadRecord:
            self._bad += 1
            return None
        when = self._clock.nanoseconds(record.time)
        return Event(when, record.cpu, record.tid, decoder.name, fields)

    def _count_lost(self) -> int:
        return sum(self._arena.counted(marker).lost for marker in self._decoders)
