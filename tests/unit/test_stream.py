"""Streams of events out of several rings, with a clock that the test moves.

The rings are an arena's bytes in a list; the counter runs at three ticks a nanosecond.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from markerjit import stream as stream_module
from markerjit.elf import parse_format
from markerjit.errors import TargetGone
from markerjit.model import CType, Event, TypeClass
from markerjit.patch.arena import Counted
from markerjit.ring.layout import RING_CONSUMED, RING_DATA, Geometry
from markerjit.stream import Clock, Decoder, EventStream, StreamStatistics

GEOMETRY = Geometry(rings=3, ring_size=4096, max_markers=4, max_sites=4, max_edits=4)
INT = CType(TypeClass.SIGNED, 4)
DECODERS = {
    1: Decoder("get", (INT,), parse_format("n %d", (INT,))),
    2: Decoder("put", (), ()),
}
MINUTE_NS = 60_000_000_000


class FakeTime:
    """clock_pair() and time.sleep(): both readings grow only when a test says so, or sleeps."""

    def __init__(self) -> None:
        self.now_ns = MINUTE_NS
        self.slept: list[float] = []

    def pair(self) -> tuple[int, int]:
        return self.tsc(), self.now_ns

    def tsc(self) -> int:
        return 3 * self.now_ns + 7

    def pass_ns(self, nanoseconds: int) -> None:
        self.now_ns += nanoseconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_ns(round(seconds * 1e9))


class FakeArena:
    """Geometry, store and counters: what a stream asks an arena for."""

    def __init__(self) -> None:
        self.geometry = GEOMETRY
        self.store = self
        self.data = bytearray(GEOMETRY.size)
        self.lost = {1: 0, 2: 0}
        self.gone = False

    def read(self, offset: int, size: int) -> bytes:
        if self.gone:
            raise TargetGone(7)
        return bytes(self.data[offset : offset + size])

    def write(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data

    def counted(self, marker: int) -> Counted:
        if self.gone:
            raise TargetGone(7)
        return Counted(100, self.lost[marker])

    def record(self, cpu: int, time: int, marker: int = 1, payload: bytes | None = None) -> None:
        """Append a record. Rings are never full here."""
        head = GEOMETRY.ring_offset(cpu)
        position = int.from_bytes(self.data[head : head + 8], "little")
        payload = (time % 1000).to_bytes(8, "little") if payload is None else payload
        size = 24 + len(payload)
        words = [position << 16 | size // 8, time, 50 + cpu | marker << 32]
        record = b"".join(word.to_bytes(8, "little") for word in words) + payload
        at = head + RING_DATA + position
        self.data[at : at + size] = record
        self.write(head, (position + size).to_bytes(8, "little"))


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    fake = FakeTime()
    monkeypatch.setattr(stream_module, "clock_pair", fake.pair)
    monkeypatch.setattr(stream_module.time, "sleep", fake.sleep)
    return fake


@pytest.fixture
def arena(clock: FakeTime) -> FakeArena:
    return FakeArena()


def open_stream(
    arena: FakeArena, alive: Callable[[], bool] = lambda: True, poll_s: float = 0.02
) -> EventStream:
    return EventStream(arena, DECODERS, alive=alive, poll_s=poll_s)  # type: ignore[arg-type]


def numbers(events: list[Event]) -> list[int]:
    return [int(event.fields["n"]) for event in events]  # type: ignore[arg-type]


# ---- the clock -----------------------------------------------------------------------------------


def test_counter_is_translated_by_two_readings(clock: FakeTime) -> None:
    translated = Clock()
    clock.pass_ns(1_000_000_000)

    assert translated.update() == clock.tsc()
    assert translated.nanoseconds(clock.tsc()) == clock.now_ns
    assert translated.nanoseconds(clock.tsc() - 3 * 500) == clock.now_ns - 500
    assert translated.nanoseconds(clock.tsc() + 3 * 500) == clock.now_ns + 500


def test_counter_from_long_before_and_long_after_is_exact(clock: FakeTime) -> None:
    translated = Clock()
    clock.pass_ns(10_000_000)
    translated.update()
    day_ns = 86_400_000_000_000

    for distance in (-30_000_000_000, day_ns):
        wanted = clock.now_ns + distance
        assert translated.nanoseconds(3 * wanted + 7) == wanted


def test_two_readings_that_are_too_close_are_taken_apart(clock: FakeTime) -> None:
    translated = Clock()
    clock.pass_ns(1)

    translated.update()

    assert clock.slept == [0.002]
    assert translated.nanoseconds(clock.tsc()) == clock.now_ns


def test_readings_that_are_apart_are_not_waited_for(clock: FakeTime) -> None:
    translated = Clock()
    clock.pass_ns(2_000_000)

    translated.update()
    translated.update()

    assert clock.slept == []


def test_counter_of_another_rate_than_the_one_before_follows_the_last_reading(
    clock: FakeTime,
) -> None:
    """The longer the baseline, the better the rate: it is taken from the first reading on."""
    translated = Clock()
    clock.pass_ns(4_000_000)
    translated.update()
    clock.pass_ns(4_000_000_000)
    translated.update()

    assert translated.nanoseconds(clock.tsc() - 3) == clock.now_ns - 1


# ---- order ---------------------------------------------------------------------------------------


def test_events_of_all_rings_come_in_order_of_time(arena: FakeArena, clock: FakeTime) -> None:
    stream = open_stream(arena)
    start = clock.tsc()
    for cpu, offset in [(2, 30), (0, 10), (0, 40), (1, 20), (2, 50)]:
        arena.record(cpu, start + offset)
    clock.pass_ns(5_000_000)

    events = stream.poll()

    assert numbers(events) == [(start + offset) % 1000 for offset in (10, 20, 30, 40, 50)]
    assert [event.cpu for event in events] == [0, 1, 2, 0, 2]
    assert [event.tid for event in events] == [50, 51, 52, 50, 52]
    assert all(event.name == "get" for event in events)
    assert all(0 <= event.time - MINUTE_NS <= 17 for event in events)


def test_what_is_later_than_the_poll_is_kept_for_the_next_one(
    arena: FakeArena, clock: FakeTime
) -> None:
    stream = open_stream(arena)
    clock.pass_ns(5_000_000)
    now = clock.tsc()
    arena.record(0, now + 1)
    arena.record(0, now - 1)

    first = stream.poll()
    arena.record(1, now)  # of another ring, earlier than what was kept
    clock.pass_ns(5_000_000)
    second = stream.poll()

    assert numbers(first) == [(now - 1) % 1000]
    assert numbers(second) == [now % 1000, (now + 1) % 1000]


def test_drain_delivers_what_was_kept(arena: FakeArena, clock: FakeTime) -> None:
    stream = open_stream(arena)
    clock.pass_ns(5_000_000)
    arena.record(0, clock.tsc() + 100)

    assert stream.poll() == []
    assert len(stream.drain()) == 1
    assert stream.drain() == []


def test_events_of_the_same_time_keep_the_order_of_their_ring(
    arena: FakeArena, clock: FakeTime
) -> None:
    stream = open_stream(arena)
    for number in range(5):
        arena.record(0, 1, payload=number.to_bytes(8, "little"))

    assert numbers(stream.drain()) == [0, 1, 2, 3, 4]


# ---- beginning and end ---------------------------------------------------------------------------


def test_a_stream_begins_with_what_happens_from_now_on(arena: FakeArena, clock: FakeTime) -> None:
    arena.record(0, clock.tsc())
    arena.lost[1] = 5

    stream = open_stream(arena)
    arena.lost[1] = 7

    assert stream.drain() == []
    assert stream.statistics() == StreamStatistics(0, 2, 0, 0)


def test_iteration_ends_when_it_is_stopped_with_what_is_there(
    arena: FakeArena, clock: FakeTime
) -> None:
    stream = open_stream(arena)
    arena.record(0, clock.tsc())
    seen = []
    for event in stream:
        seen.append(event)
        if len(seen) == 1:
            arena.record(1, clock.tsc() + 1_000_000_000)
            stream.stop()

    assert len(seen) == 2


def test_iteration_ends_with_the_target_and_takes_its_last_events(
    arena: FakeArena, clock: FakeTime
) -> None:
    lives = iter([True, True, False])

    def alive() -> bool:
        if not (now := next(lives)):  # it records once more and ends
            arena.record(0, clock.tsc() + 10**12)
        return now

    stream = open_stream(arena, alive, poll_s=0.125)

    assert len(list(stream)) == 1
    assert clock.slept.count(0.125) == 2


def test_iteration_does_not_wait_while_there_are_events(arena: FakeArena, clock: FakeTime) -> None:
    stream = open_stream(arena, poll_s=0.125)
    clock.pass_ns(5_000_000)
    for time in range(3):
        arena.record(0, time)
    batches = stream.batches()

    assert len(next(batches)) == 3
    stream.stop()
    assert list(batches) == []
    assert 0.125 not in clock.slept


def test_an_arena_that_is_gone_with_its_target_ends_the_stream_and_keeps_its_numbers(
    arena: FakeArena, clock: FakeTime
) -> None:
    stream = open_stream(arena)
    clock.pass_ns(5_000_000)
    arena.record(0, clock.tsc() - 1)
    arena.record(0, clock.tsc() + 10)
    arena.lost[2] = 4
    seen = [*stream.poll()]
    arena.gone = True

    seen += list(stream)

    assert len(seen) == 2
    assert stream.statistics() == StreamStatistics(2, 4, 0, 0)


# ---- what is left out, and counted ---------------------------------------------------------------


def test_records_of_markers_that_nobody_asked_for_are_left_out(
    arena: FakeArena, clock: FakeTime
) -> None:
    stream = open_stream(arena)
    arena.record(0, 1, marker=3)
    arena.record(0, 2, marker=2, payload=b"")

    assert [event.name for event in stream.drain()] == ["put"]
    assert stream.statistics().events == 1


def test_records_that_do_not_fit_their_marker_are_counted(
    arena: FakeArena, clock: FakeTime
) -> None:
    stream = open_stream(arena)
    arena.record(0, 1, payload=bytes(16))
    arena.record(0, 2, marker=2)
    arena.record(0, 3)

    assert len(stream.drain()) == 1
    assert stream.statistics() == StreamStatistics(1, 0, 2, 0)


def test_a_ring_that_makes_no_sense_is_counted_and_the_others_are_read(
    arena: FakeArena, clock: FakeTime
) -> None:
    stream = open_stream(arena)
    arena.write(GEOMETRY.ring_offset(1) + RING_CONSUMED, (1 << 40).to_bytes(8, "little"))
    arena.record(0, 1)

    assert len(stream.drain()) == 1
    assert stream.statistics() == StreamStatistics(1, 0, 0, 1)


def test_losses_are_those_of_the_markers_of_the_stream(arena: FakeArena, clock: FakeTime) -> None:
    stream = open_stream(arena)
    arena.lost.update({1: 3, 2: 4, 3: 1000})

    stream.poll()

    assert stream.statistics().lost == 7


def test_fields_are_told_by_the_name_of_the_marker(arena: FakeArena, clock: FakeTime) -> None:
    stream = open_stream(arena)

    assert stream.fields == {"get": DECODERS[1].fields, "put": ()}
