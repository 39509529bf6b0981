"""Rings that grow while they are written: the real runtime, in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from ctypes import c_int64
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.abi import PAGE, RING_MASK
from markerjit.events.rings import Rings
from markerjit.ring.raw import Growth
from markerjit.ring.types import Options
from tests.support.choice import examples
from tests.support.own_arena import LONG, SHARED, WAYS, OwnArena, Slot, geometry_of

STRIDE = 64 * PAGE
READ = Options(counted=False)
PER_PAGE = 100
"""Fewer records than a page of any ring has room for."""


@pytest.fixture(autouse=True)
def one_cpu() -> Iterator[None]:
    """So that one ring gets all events of a kind."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


class Written:
    """A marker whose events have the numbers 0, 1, 2 and so on, and a reader whose rings grow."""

    def __init__(self, way: str, *, most: int = 1 << 30, pages: int = 1) -> None:
        self.own = OwnArena(geometry_of(ring_size=pages * PAGE, ring_stride=STRIDE), way=way)
        self.slot: Slot = self.own.marker("n %ld", LONG, options=READ)
        self.growth = Growth(most, STRIDE)
        self.rings = Rings(self.own.arena, self.own.types, growth=self.growth)
        self.rings.start()
        self.hits = 0
        self.found: list[int] = []

    def hit(self, count: int) -> None:
        for _ in range(count):
            self.slot.hit(c_int64(self.hits))
            self.hits += 1

    def poll(self) -> None:
        for columns in self.rings.poll().columns:
            self.found += columns.fields["n"].tolist()

    @property
    def lost(self) -> int:
        return self.own.counted().lost

    def sizes(self) -> set[int]:
        """Of the rings, in pages, as their masks say."""
        return {size // PAGE for size in self.own.arena.rings.sizes()}


@pytest.mark.parametrize("way", WAYS)
def test_ring_that_is_more_than_half_full_grows_and_loses_nothing(build: Path, way: str) -> None:
    written = Written(way)

    for pages in (1, 2, 4, 8, 16, 32, 64):
        for _ in range(4):
            written.hit(pages * PER_PAGE)
            written.poll()

    assert written.lost == 0
    assert sorted(written.found) == [*range(written.hits)]
    assert max(written.sizes()) == STRIDE // PAGE
    assert (written.rings.damaged, written.rings.bad) == (0, 0)


def test_without_growth_the_same_loses(build: Path) -> None:
    written = Written(SHARED, most=0)

    for pages in (1, 2):
        written.hit(pages * PER_PAGE)
        written.poll()

    assert written.lost > 0
    assert written.sizes() == {1}


def test_ring_that_is_read_in_time_stays_as_it_is(build: Path) -> None:
    written = Written(SHARED, pages=4)

    for _ in range(50):
        written.hit(PER_PAGE)
        written.poll()

    assert written.sizes() == {4}
    assert written.rings.grown == 0


@pytest.mark.parametrize("most", [0, PAGE, 3 * PAGE, 8 * PAGE])
def test_all_rings_together_grow_no_further_than_they_may(build: Path, most: int) -> None:
    written = Written(SHARED, most=most)

    for _ in range(40):
        written.hit(20 * PER_PAGE)
        written.poll()

    first = written.own.geometry.rings * PAGE
    assert sum(written.own.arena.rings.sizes()) - first == written.growth.grown <= most
    assert written.growth.grown > most // 2 - PAGE
    assert len(set(written.found)) == len(written.found) == written.hits - written.lost


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=examples(20), deadline=None)
@given(st.lists(st.integers(0, 12 * PER_PAGE), max_size=25))
def test_each_event_comes_once_or_is_lost_however_it_is_read(
    build: Path, way: str, counts: list[int]
) -> None:
    written = Written(way)

    for count in counts:
        written.hit(count)
        written.poll()

    assert len(set(written.found)) == len(written.found) == written.hits - written.lost
    assert (written.rings.damaged, written.rings.bad) == (0, 0)


@pytest.mark.parametrize("way", WAYS)
def test_ring_grows_while_a_thread_writes_it(build: Path, way: str) -> None:
    written = Written(way)
    thread = threading.Thread(target=written.hit, args=[40_000])

    thread.start()
    while thread.is_alive():
        written.poll()
    thread.join()
    written.poll()

    assert max(written.sizes()) > 1
    assert len(set(written.found)) == len(written.found) == written.hits - written.lost
    assert (written.rings.damaged, written.rings.bad) == (0, 0)


def test_ring_whose_mask_makes_no_sense_does_not_grow(build: Path) -> None:
    written = Written(SHARED, pages=2)
    for ring in range(written.own.geometry.rings):
        place = written.own.geometry.head_offset(ring) + RING_MASK
        written.own.store.write(place, (PAGE - 1).to_bytes(8, "little"))

    written.hit(2 * PER_PAGE)
    written.poll()

    assert written.growth.grown == 0


def test_rings_are_as_large_as_before_after_a_resize(build: Path) -> None:
    written = Written(SHARED)
    rings = written.own.arena.rings
    for pages in (1, 2, 4):
        for _ in range(4):
            written.hit(pages * PER_PAGE)
            written.poll()
    assert max(written.sizes()) >= 4

    rings.resize(rings.first_size)
    again = Rings(written.own.arena, written.own.types)
    again.start()
    written.hit(PER_PAGE)

    assert written.sizes() == {1}
    assert again.poll().records == PER_PAGE
    assert again.damaged == 0
