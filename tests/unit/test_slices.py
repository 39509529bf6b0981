"""Events a part at a time, in the order that they have together; and a stream that hands them out
so."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.events.merging import Merger
from markerjit.events.stream import EventStream
from markerjit.ring.columns import Slices
from markerjit.ring.decode import columns_of
from markerjit.ring.to_events import events
from markerjit.ring.types import RecordType, Time
from markerjit.ring.walk import least_words, walk
from tests.support.drawn_records import NANOSECONDS, Record, by_id, rings, write
from tests.support.made_streams import (
    TICKS_PER_NS,
    FakeTime,
    Target,
    numbers,
    open_feed,
    open_stream,
)


@pytest.fixture
def target(clock: FakeTime) -> Target:
    return Target()


@settings(deadline=None)
@given(rings(), st.integers(1, 7))
def test_parts_of_any_size_make_the_events_of_the_whole(
    made: tuple[list[RecordType], list[list[Record]]], most: int
) -> None:
    types, rings = by_id(*made[0]), made[1]
    least = least_words(types)
    walks = [walk(write(records), 0, least, cpu=c, ring=c) for c, records in enumerate(rings)]
    columns = columns_of(walks, types).columns
    if not columns:
        return
    slices, parts, left = Slices(columns), [], []

    while len(slices):
        left.append(len(slices))
        if columns[0].type.time is not Time.NONE:
            assert slices.count_until(slices.time(0)) >= 1
            assert slices.count_until(slices.time(len(slices) - 1)) == len(slices)
        parts += events(slices.take(most), NANOSECONDS)

    whole = events(columns, NANOSECONDS)
    assert [*map(repr, parts)] == [*map(repr, whole)]  # so that a NaN is one
    assert left == list(range(len(parts), 0, -most))


def test_what_was_not_handed_out_is_there_for_the_next_poll(
    target: Target, clock: FakeTime
) -> None:
    stream = EventStream(feed := open_feed(target))
    clock.pass_ns(5_000_000)
    for time in range(5):
        target.record(time % 2, time)

    assert numbers(stream.poll(2)) == [0, 1]
    assert (feed.waiting, stream.statistics().events) == (3, 2)
    target.record(0, 5)
    assert numbers(stream.poll(2)) == [2, 3]
    assert numbers(stream.drain()) == [4, 5]
    assert stream.statistics().events == 6


def test_stop_in_the_middle_of_a_poll_leaves_everything_for_the_rest(
    target: Target, clock: FakeTime
) -> None:
    stream: list[EventStream] = []

    def renew() -> bool:
        if target.armed:
            stream[0].stop()
        return True

    target.armed = False  # type: ignore[attr-defined]
    stream.append(open_stream(target, renew=renew))
    clock.pass_ns(5_000_000)
    for time in range(4):
        target.record(time % 2, time)

    target.armed = True  # type: ignore[attr-defined]
    assert stream[0].poll() == []
    assert numbers(stream[0].drain()) == [0, 1, 2, 3]


def test_merged_streams_share_what_is_asked_for_and_stay_in_order(
    target: Target, clock: FakeTime
) -> None:
    other = Target()
    streams = [open_stream(target), open_stream(other)]
    merger = Merger(streams)
    clock.pass_ns(5_000_000)
    for time in range(20):
        (target if time % 3 else other).record(time % 2, time)

    seen = []
    while batch := merger.poll(4):
        assert len(batch) <= 4
        seen += batch

    assert numbers([event for _, event in seen]) == list(range(20))
    assert merger.waiting == 0


@pytest.mark.parametrize("stopped_in", [0, 1])
def test_stop_in_the_middle_of_a_merged_poll_leaves_the_order_as_it_is(
    target: Target, clock: FakeTime, stopped_in: int
) -> None:
    """A signal stops all streams at once, while the rings of one of them are being read."""
    targets = [target, Target()]
    armed: list[int] = []
    streams: list[EventStream] = []

    def renewing(number: int) -> Callable[[], bool]:
        def renew() -> bool:
            if armed == [number]:
                for stream in streams:
                    stream.stop()
            return True

        return renew

    streams += [open_stream(each, renew=renewing(n)) for n, each in enumerate(targets)]
    merger = Merger(streams)
    clock.pass_ns(5_000_000)
    for number in range(8):
        targets[number % 2].record(number % 3, TICKS_PER_NS * number)

    armed.append(stopped_in)
    assert merger.poll(100) == []
    assert merger.take_finished() == []
    armed.clear()
    merger.find_rest()
    assert numbers([event for _, event in merger.hand_out(100)]) == [
        TICKS_PER_NS * number for number in range(8)
    ]
