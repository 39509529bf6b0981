"""Streams of events out of several rings, with a clock that the test moves.

Their parts have tests of their own: test_rings.py, test_drain.py, test_ring.py, test_timeline.py.
"""

from __future__ import annotations

import struct

import pytest

from markerjit.arena.arena import Arena
from markerjit.errors import TargetGone
from markerjit.events.feed import StreamStatistics
from markerjit.events.stream import EventStream
from markerjit.ring.types import Time
from markerjit.trace.batch import Batch
from tests.support.heads import head_of
from tests.support.made_arena import PID
from tests.support.made_streams import (
    GEOMETRY,
    MINUTE_NS,
    FakeTime,
    Target,
    numbers,
    open_feed,
    open_stream,
    types_of,
)


@pytest.fixture
def target(clock: FakeTime) -> Target:
    return Target()


# ---- order ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [(), (0,), (1, 2), (0, 1, 2, 3, 4)])
def test_events_of_all_rings_come_in_order_of_time(
    target: Target, clock: FakeTime, shared: tuple[int, ...]
) -> None:
    stream = open_stream(target)
    start = clock.tsc()
    for number, (cpu, offset) in enumerate([(2, 30), (0, 10), (0, 40), (1, 20), (2, 50)]):
        target.record(cpu, start + offset, shared=number in shared)
    clock.pass_ns(5_000_000)

    events = stream.poll()

    assert numbers(events) == [(start + offset) % 1000 for offset in (10, 20, 30, 40, 50)]
    assert [event.cpu for event in events] == [0, 1, 2, 0, 2]
    assert [event.tid for event in events] == [50, 51, 52, 50, 52]
    assert all(event.name == "get" for event in events)
    assert all(0 <= event.time - MINUTE_NS <= 17 for event in events)


def test_events_of_several_markers_come_in_order_of_time(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target)
    text = struct.pack("<II8s", 3, 0, b"abc")
    for time, marker in enumerate([1, 3, 2, 1, 2, 3]):
        target.record(time % 3, clock.tsc() + time, marker, text if marker == 3 else None)
    clock.pass_ns(5_000_000)

    names = [event.name for event in stream.poll()]

    assert names == ["get", "text", "put", "get", "put", "text"]


def test_what_is_later_than_the_poll_is_kept_for_the_next_one(
    target: Target, clock: FakeTime
) -> None:
    stream = open_stream(target)
    clock.pass_ns(5_000_000)
    now = clock.tsc()
    target.record(0, now + 1)
    target.record(0, now - 1)

    first = stream.poll()
    target.record(1, now)  # of another ring, earlier than what was kept
    clock.pass_ns(5_000_000)
    second = stream.poll()

    assert numbers(first) == [(now - 1) % 1000]
    assert numbers(second) == [now % 1000, (now + 1) % 1000]


def test_drain_delivers_what_was_kept(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target)
    clock.pass_ns(5_000_000)
    target.record(0, clock.tsc() + 100)

    assert stream.poll() == []
    assert len(stream.drain()) == 1
    assert stream.drain() == []


def test_events_of_the_same_time_keep_the_order_of_their_ring(
    target: Target, clock: FakeTime
) -> None:
    stream = open_stream(target)
    for number in range(5):
        target.record(0, 1, payload=number.to_bytes(8, "little"))

    assert numbers(stream.drain()) == [0, 1, 2, 3, 4]


def test_a_search_up_to_a_moment_of_another_feed_keeps_back_what_is_later(
    target: Target, clock: FakeTime
) -> None:
    feed, other = open_feed(target), open_feed(Target())
    clock.pass_ns(5_000_000)
    moment = other.now()
    assert moment == clock.tsc()
    target.record(0, moment - 1)
    target.record(0, moment)
    clock.pass_ns(5_000_000)

    feed.find(moment)
    assert numbers(feed.hand_out()) == [(moment - 1) % 1000]
    feed.find(None)
    assert numbers(feed.hand_out()) == [moment % 1000]


# ---- times of other kinds ------------------------------------------------------------------------


def test_a_monotonic_time_is_the_time_and_what_is_later_is_kept(
    target: Target, clock: FakeTime
) -> None:
    stream = open_stream(target, time=Time.MONOTONIC)
    target.record(0, clock.now_ns - 5)
    target.record(0, clock.now_ns + 5)

    assert [event.time for event in stream.poll()] == [MINUTE_NS - 5]
    clock.pass_ns(100)
    assert [event.time for event in stream.poll()] == [MINUTE_NS + 5]
    assert clock.slept == []


def test_a_coarse_time_is_behind_by_a_tick_at_most(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target, time=Time.COARSE)
    target.record(0, clock.now_ns - 9_000_000)

    assert stream.poll() == []
    clock.pass_ns(2_000_000)
    assert len(stream.poll()) == 1


def test_without_a_time_all_comes_at_once_and_is_numbered(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target, time=Time.NONE)
    for number in (7, 8, 9):
        record = struct.pack("<IIq", head_of(1, 2), 50, number)
        place = GEOMETRY.ring_offset(0) + 16 * (number - 7)
        target.store.write(place, record)
    target.store.write(GEOMETRY.head_offset(0), (48).to_bytes(8, "little"))

    events = stream.poll()

    assert [(event.time, event.fields["n"]) for event in events] == [(0, 7), (1, 8), (2, 9)]


# ---- beginning and end ---------------------------------------------------------------------------


def test_a_stream_begins_with_what_happens_from_now_on(target: Target, clock: FakeTime) -> None:
    target.record(0, clock.tsc())
    target.record(1, clock.tsc(), shared=True)
    target.lose(1, 5)

    stream = open_stream(target)
    target.lose(1, 2)

    assert stream.drain() == []
    assert stream.statistics() == StreamStatistics(0, 2, 0, 0)


def test_a_stream_may_go_on_where_another_reader_has_stopped(
    target: Target, clock: FakeTime
) -> None:
    first = open_stream(target)
    target.record(0, 1)
    assert len(first.drain()) == 1
    target.lose(1, 5)
    target.record(0, 2)
    target.record(1, 3, shared=True)
    target.lose(2, 6)

    second = open_stream(target, resume=True)

    assert numbers(second.drain()) == [2, 3]
    assert second.statistics().lost == 11, "since the markers were switched on"


def test_a_stream_that_was_finished_has_taken_all_and_leaves_the_rings_to_others(
    target: Target, clock: FakeTime
) -> None:
    stream = EventStream(feed := open_feed(target))
    target.record(0, 1)
    target.record(1, 2, shared=True)
    target.lose(1, 3)

    feed.finish()
    target.record(0, 3)
    target.lose(1, 4)

    assert stream.keep()
    assert numbers(stream.drain()) == [1, 2]
    assert stream.drain() == []
    assert stream.statistics() == StreamStatistics(2, 3, 0, 0)


def test_what_a_finished_stream_has_taken_is_there_as_it_was_recorded_too(
    target: Target, clock: FakeTime
) -> None:
    stream = EventStream(feed := open_feed(target))
    target.record(0, 1)

    feed.finish()

    batch = stream.rest(packets=True, columns=False)
    assert batch
    assert [len(packet.data) for packet in batch.packets] == [24]
    assert stream.statistics().events == 1


def test_a_record_that_is_never_finished_is_waited_for_a_moment_only(
    target: Target, clock: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = EventStream(feed := open_feed(target))
    target.record(0, 1, shared=True)
    place = GEOMETRY.head_offset(3)
    target.store.write(place, (64).to_bytes(8, "little"))  # reserved, and not written
    monkeypatch.setattr(clock, "monotonic_ns", lambda: clock.pass_ns(1_000_000) or clock.now_ns)

    feed.finish()

    assert numbers(stream.drain()) == [1]
    assert stream.statistics().damaged_rings == 1


def test_losses_from_before_the_markers_were_switched_on_are_not_those_of_a_stream_that_resumes(
    target: Target, clock: FakeTime
) -> None:
    target.lose(1, 5, ring=0)
    target.lose(1, 7, ring=4)  # the shared one of CPU 1
    target.arena.counters.note_began([1])
    target.lose(1, 2, ring=4)

    stream = open_stream(target, resume=True)
    target.lose(1, 1, ring=1)
    stream.drain()

    assert stream.lost() == {(1, "get"): 3}


def test_iteration_ends_when_it_is_stopped_with_what_is_there(
    target: Target, clock: FakeTime
) -> None:
    stream = open_stream(target)
    target.record(0, clock.tsc())
    seen = []
    for event in stream:
        seen.append(event)
        if len(seen) == 1:
            target.record(1, clock.tsc() + 1_000_000_000)
            stream.stop()

    assert len(seen) == 2
    assert stream.is_over()


def test_iteration_ends_with_the_target_and_takes_its_last_events(
    target: Target, clock: FakeTime
) -> None:
    lives = iter([True, True, False])

    def alive() -> bool:
        if not (now := next(lives)):  # it records once more and ends
            target.record(0, clock.tsc() + 10**12)
        return now

    stream = open_stream(target, alive=alive, poll_s=0.125)

    assert len(list(stream)) == 1
    assert stream.target_ended
    assert clock.slept.count(0.125) == 2


def test_iteration_does_not_wait_while_there_are_events(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target, poll_s=0.125)
    clock.pass_ns(5_000_000)
    for time in range(3):
        target.record(0, time)
    batches = stream.batches()

    assert len(next(batches)) == 3
    stream.stop()
    assert list(batches) == []
    assert 0.125 not in clock.slept


def test_iteration_ends_when_another_reader_has_the_rings_and_takes_nothing_more(
    target: Target, clock: FakeTime
) -> None:
    ours = [True]
    stream = open_stream(target, renew=lambda: ours[0])
    target.record(0, 1)
    batches = stream.batches()
    assert len(next(batches)) == 1

    ours[0] = False
    target.record(0, 2)

    assert list(batches) == []
    assert stream.dispossessed
    assert not stream.target_ended
    ours[0] = True
    assert not stream.keep(), "a reader that was replaced does not come back"


def test_a_lease_that_cannot_be_renewed_because_the_target_is_gone_ends_the_stream(
    target: Target, clock: FakeTime
) -> None:
    def renew() -> bool:
        raise TargetGone(PID)

    stream = open_stream(target, renew=renew)
    target.record(0, 1)

    assert len(list(stream)) == 1
    assert stream.target_ended
    assert not stream.dispossessed


def test_an_arena_that_is_gone_with_its_target_ends_the_stream_and_keeps_its_numbers(
    target: Target, clock: FakeTime
) -> None:
    stream = open_stream(target)
    clock.pass_ns(5_000_000)
    target.record(0, clock.tsc() - 1)
    target.record(0, clock.tsc() + 10)
    target.lose(2, 4)
    seen = [*stream.poll()]
    target.end()

    seen += list(stream)

    assert len(seen) == 2, "what was kept back was out of the ring already"
    assert stream.target_ended
    assert stream.statistics() == StreamStatistics(2, 4, 0, 0)


# ---- batches for files ---------------------------------------------------------------------------


def test_batches_have_the_records_as_they_were_and_as_columns(
    target: Target, clock: FakeTime
) -> None:
    stream = open_stream(target)
    target.record(0, 5, payload=struct.pack("<q", -9))
    target.record(2, 4, marker=2, shared=True)
    clock.pass_ns(5_000_000)

    batch = stream.poll_batch(packets=True)

    assert isinstance(batch, Batch)
    assert [(packet.cpu, packet.ring) for packet in batch.packets] == [(0, 0), (2, 5)]
    assert batch.packets[0].data == struct.pack("<IIQq", head_of(1, 3), 50, 5, -9)
    assert batch.packets[1].data == struct.pack("<IIQ", head_of(2, 2), 52, 4)
    assert {column.type.marker: column.time.tolist() for column in batch.columns} == {
        "get": [5],
        "put": [4],
    }
    assert stream.poll_batch(packets=True) is None


def test_packets_alone_are_counted_too(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target)
    for time in range(5):
        target.record(0, time)

    batch = stream.poll_batch(packets=True, columns=False)

    assert batch
    assert not batch.columns
    assert stream.statistics().events == 5


def test_batches_say_what_was_lost_so_far(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target)
    target.record(0, 1)
    target.lose(1, 3, ring=4)
    target.lose(2, 1, ring=0)

    batch = stream.rest()

    assert batch
    assert batch.lost == {(1, "get"): 3, (0, "put"): 1}


def test_streams_of_one_clock_tell_the_same_times(target: Target, clock: FakeTime) -> None:
    feeds = [open_feed(target)]
    clock.pass_ns(1_000_000)
    feeds.append(open_feed(Target()))
    first, second = map(EventStream, feeds)
    second.use_clock_of(first)
    clock.pass_ns(70_000_000)

    assert feeds[0].now() == feeds[1].now()
    assert first.clock() == second.clock()


@pytest.mark.parametrize("ahead", [1 << 33, (1 << 63) - (1 << 40)])
def test_what_seems_to_come_from_far_ahead_is_not_waited_for(
    target: Target, clock: FakeTime, ahead: int
) -> None:
    stream = open_stream(target)
    target.record(0, clock.tsc() - 1)
    target.record(0, clock.tsc() + ahead)
    target.record(0, clock.tsc() + 1000)

    assert len(stream.poll()) == 2
    clock.pass_ns(1_000_000)
    assert len(stream.poll()) == 1


# ---- what is left out, and counted ---------------------------------------------------------------


def test_records_of_markers_that_nobody_asked_for_are_left_out(
    target: Target, clock: FakeTime
) -> None:
    del (types := types_of())[1], types[3]
    stream = EventStream(open_feed(target, types=types))
    target.record(0, 1)
    target.record(0, 2, marker=2)
    target.record(0, 3, marker=3, payload=bytes(8))

    assert [event.name for event in stream.drain()] == ["put"]
    assert stream.statistics() == StreamStatistics(1, 0, 0, 0)


def test_records_that_do_not_fit_their_marker_are_counted(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target)
    target.record(0, 1, marker=3, payload=struct.pack("<II", 900, 0))
    target.record(0, 2)

    assert len(stream.drain()) == 1
    assert stream.statistics() == StreamStatistics(1, 0, 1, 0)


def test_a_ring_that_makes_no_sense_is_counted_and_the_others_are_read(
    target: Target, clock: FakeTime
) -> None:
    stream = open_stream(target)
    for ring in (1, 5):
        target.store.write(GEOMETRY.head_offset(ring), (1 << 40).to_bytes(8, "little"))
    target.record(0, 1)

    assert len(stream.drain()) == 1
    assert stream.statistics() == StreamStatistics(1, 0, 0, 2)


def test_losses_are_those_of_the_markers_of_the_stream(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target)
    for marker, count in enumerate((1000, 3, 4, 0)):
        target.lose(marker, count, ring=marker)

    stream.poll()

    assert stream.statistics().lost == 7


def test_losses_are_looked_at_now_and_then_and_at_the_end(target: Target, clock: FakeTime) -> None:
    """There may be hundreds of CPUs and markers."""
    stream = open_stream(target)
    stream.poll()
    target.lose(1, 3)

    stream.poll()
    assert stream.statistics().lost == 0
    clock.pass_ns(300_000_000)
    stream.poll()
    assert stream.statistics().lost == 3
    target.lose(1, 1)
    stream.drain()
    assert stream.statistics().lost == 4


def test_what_was_taken_out_is_noted_in_the_arena(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target)
    for time in range(5):
        target.record(0, time)
    target.record(1, 6, marker=2, shared=True)

    stream.drain()

    assert isinstance(target.arena, Arena)
    delivered = [target.arena.markers.entry(marker).delivered for marker in (1, 2, 3)]
    assert delivered == [5, 1, 0]


def test_fields_are_told_by_the_name_of_the_marker(target: Target, clock: FakeTime) -> None:
    stream = open_stream(target)

    assert stream.fields == {type_.marker: type_.fields for type_ in types_of().values()}
    assert stream.time is Time.TSC


def test_events_of_other_markers_are_counted_apart(target: Target, clock: FakeTime) -> None:
    del (types := types_of())[1]
    stream = EventStream(open_feed(target, types=types))
    for marker in (1, 2, 1):
        target.record(0, 5, marker)

    assert len(stream.drain()) == 1
    assert stream.left_out == 2


def test_a_stream_of_no_markers_has_no_events(target: Target, clock: FakeTime) -> None:
    stream = EventStream(open_feed(target, types={}))
    target.record(0, 1)

    assert stream.drain() == []
    assert stream.statistics() == StreamStatistics(0, 0, 0, 0)
