"""Events that wait for the reader of a full ring: the real runtime, in this process, with a reader
in another thread."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_int64
from pathlib import Path

import pytest

from markerjit.abi import PAGE, READER_NS, RING_LIMIT, WAIT_NS
from markerjit.arena.waiting import Waiting
from markerjit.ring.types import Options, Time
from tests.support.own_arena import (
    LONG,
    SHARED,
    WAYS,
    OwnArena,
    Slot,
    geometry_of,
    numbers,
)
from tests.support.timing import Wait, joined, reaped, wait_until

WAITS = Options(waits=True, counted=False)
MANY = 400
"""More than a ring of one page holds."""


@pytest.fixture
def one_cpu() -> Iterator[None]:
    """So that one ring gets all events of a kind."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


@pytest.fixture(params=WAYS)
def own(request: pytest.FixtureRequest, build: Path, one_cpu: None) -> OwnArena:
    """Its rings have one page."""
    return OwnArena(geometry_of(ring_size=PAGE), way=request.param)


def fill(own: OwnArena, slot: Slot) -> int:
    """Hit a marker until its ring is full. Returns the number of events in the rings. A recorder
    that is interrupted goes to the shared ring, so that has no room either."""
    hits, wait = 0, Wait("a full ring")
    while not own.counted().lost:
        wait.left_s()
        slot.hit(c_int64(hits))
        hits += 1
    if own.way != SHARED:
        for ring in range(own.geometry.cpus, own.geometry.rings):
            own.store.write(own.geometry.head_offset(ring) + RING_LIMIT, bytes(8))
    return hits - 1


@contextmanager
def hitting(slot: Slot, first: int, count: int) -> Iterator[threading.Thread]:
    """Another thread hits a marker so often, with the numbers from `first` on."""

    def hit() -> None:
        for number in range(first, first + count):
            slot.hit(c_int64(number))

    thread = threading.Thread(target=hit)
    thread.start()
    yield thread
    joined(thread)


def test_nothing_waits_where_no_reader_allows_it(own: OwnArena) -> None:
    waiting = Waiting(own.arena)
    slot = own.marker("n %ld", LONG, options=WAITS)

    recorded = fill(own, slot)

    assert recorded > 0
    assert waiting.counts() == (0, 0)
    assert numbers(own.records()) == [*range(recorded)]


@pytest.mark.parametrize("clock", [Time.TSC, Time.MONOTONIC, Time.NONE])
def test_events_wait_for_a_reader_and_none_is_lost(own: OwnArena, clock: Time) -> None:
    waiting = Waiting(own.arena)
    slot = own.marker("n %ld", LONG, options=WAITS._replace(time=clock))
    values: list[int] = []

    waiting.allow()
    with hitting(slot, 0, MANY) as thread:
        while thread.is_alive():
            waiting.allow()
            values += numbers(own.records())
    values += numbers(own.records())

    assert values == [*range(MANY)]
    assert own.counted().lost == 0
    assert waiting.threads == 0


def test_the_thread_is_counted_while_it_waits_and_the_wait_afterwards(own: OwnArena) -> None:
    waiting = Waiting(own.arena)
    slot = own.marker("n %ld", LONG, options=WAITS)
    recorded = fill(own, slot)

    waiting.allow()
    with hitting(slot, recorded, 1) as thread:
        wait_until(lambda: waiting.threads == 1, "a thread that waits")
        begun = time.monotonic_ns()
        time.sleep(0.01)
        assert thread.is_alive()
        waited = time.monotonic_ns() - begun
        assert len(own.records()) == recorded
    (event,) = own.records()

    assert numbers([event]) == [recorded]
    assert own.counted().lost == 1  # from filling the ring
    assert waiting.threads == 0
    counts = waiting.counts()
    assert counts.events == 1
    assert counts.ns >= waited


def test_wait_ends_when_the_reader_ends_it(own: OwnArena) -> None:
    waiting = Waiting(own.arena)
    slot = own.marker("n %ld", LONG, options=WAITS)
    fill(own, slot)

    waiting.allow()
    with hitting(slot, 0, 1):
        wait_until(lambda: waiting.threads == 1, "a thread that waits")
        waiting.forbid()

    assert own.counted().lost == 2
    assert waiting.threads == 0


def test_wait_ends_for_a_reader_that_is_gone(own: OwnArena) -> None:
    waiting = Waiting(own.arena)
    slot = own.marker("n %ld", LONG, options=WAITS)
    fill(own, slot)

    begun = time.monotonic_ns()
    waiting.allow()
    slot.hit(c_int64(0))
    waited = time.monotonic_ns() - begun
    for _ in range(1000):
        slot.hit(c_int64(0))

    assert waited >= READER_NS
    assert own.counted().lost == 1 + 1 + 1000
    assert waiting.counts().events == 1  # the others have not waited
    assert waiting.counts().ns <= waited


@pytest.mark.parametrize("ahead_ns", [2 * READER_NS, 1 << 62])
def test_time_that_cannot_be_is_that_of_no_reader(own: OwnArena, ahead_ns: int) -> None:
    slot = own.marker("n %ld", LONG, options=WAITS)

    own.arena.control.write("wait_until_ns", time.monotonic_ns() + ahead_ns)
    fill(own, slot)

    assert Waiting(own.arena).counts() == (0, 0)


def test_marker_that_is_not_to_wait_does_not_beside_one_that_is(own: OwnArena) -> None:
    waiting = Waiting(own.arena)
    own.marker("n %ld", LONG, options=WAITS)
    slot = own.marker("n %ld", LONG, options=Options(counted=False), name="hasty")

    waiting.allow()
    for number in range(MANY):
        slot.hit(c_int64(number))

    assert own.counted("hasty").lost > 0
    assert waiting.counts() == (0, 0)


def test_event_gives_up_where_the_reader_cannot_empty_the_ring(build: Path, one_cpu: None) -> None:
    own = OwnArena(geometry_of(ring_size=PAGE), way=SHARED)
    waiting = Waiting(own.arena)
    slot = own.marker("n %ld", LONG, options=WAITS)
    recorded = fill(own, slot)

    # As where a signal handler records and has interrupted another recorder of its thread: the
    # first record of the ring is not finished, so that the reader takes nothing.
    waiting.allow()
    with hitting(slot, 0, 1) as thread:
        while thread.is_alive():
            waiting.allow()
            waiting.note_pass()
            time.sleep(0.001)

    assert own.counted().lost == 2
    assert waiting.counts().events == 1
    assert waiting.counts().ns < WAIT_NS
    assert len(own.records()) == recorded


def test_child_of_a_fork_does_not_wait(own: OwnArena) -> None:
    waiting = Waiting(own.arena)
    slot = own.marker("n %ld", LONG, options=WAITS)
    fill(own, slot)
    waiting.allow()

    child = os.fork()
    if not child:
        slot.hit(c_int64(0))
        os._exit(0)
    assert reaped(child) == 0

    assert waiting.counts() == (0, 0)
    assert own.counted().lost == 1
