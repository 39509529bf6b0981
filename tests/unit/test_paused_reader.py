"""A reader that is stopped in the middle of taking records out, for longer than its lease: when it
goes on, the rings are another's."""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterator
from ctypes import c_uint64
from pathlib import Path

import pytest

from markerjit.abi import PAGE, RING_LIMIT
from markerjit.arena.arena import Arena
from markerjit.events.rings import Polled, Rings
from markerjit.ring.raw import Store
from tests.support.own_arena import LONG, SHARED, WAYS, OwnArena, Slot, geometry_of


@pytest.fixture(autouse=True)
def _one_cpu() -> Iterator[None]:
    """So that one ring gets all events."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield
    os.sched_setaffinity(0, allowed)


class PausingStore:
    """The arena of a reader to which something happens once it has copied a ring's bytes."""

    def __init__(self, own: OwnArena, copies: int, meanwhile: Callable[[], None]) -> None:
        self._store: Store = own.store
        self._ring = own.geometry.ring_offset(0)
        self._left = copies
        self._meanwhile = meanwhile

    def read(self, offset: int, size: int) -> bytes:
        data = self._store.read(offset, size)
        if offset >= self._ring:
            self._left -= 1
            if not self._left:
                self._meanwhile()
        return data

    def write(self, offset: int, data: bytes) -> None:
        self._store.write(offset, data)


def arena_with(own: OwnArena, store: PausingStore) -> Arena:
    arena = copy.copy(own.arena)
    arena.store = store
    return arena


def hit(slot: Slot, numbers: range) -> None:
    for number in numbers:
        slot.hit(c_uint64(number))


def column(polled: Polled) -> list[int]:
    return [number for table in polled.columns for number in table.fields["n"].tolist()]


def limits(own: OwnArena) -> list[bytes]:
    places = (own.geometry.head_offset(ring) + RING_LIMIT for ring in range(own.geometry.rings))
    return [own.store.read(place, 8) for place in places]


@pytest.mark.parametrize(("way", "copies"), [*((way, 1) for way in WAYS), (SHARED, 2)])
def test_a_reader_that_was_paused_takes_nothing_from_the_next_one(
    build: Path, way: str, copies: int
) -> None:
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=way)
    slot = own.marker("n %ld", LONG)
    reader, numbers, taken = ["first"], [], []

    def meanwhile() -> None:
        reader[0] = "second"
        second.resume()
        numbers.extend(column(second.poll()))
        hit(slot, range(20, 300))
        numbers.extend(column(second.poll()))
        taken.extend(limits(own))

    first = Rings(
        arena_with(own, PausingStore(own, copies, meanwhile)), own.types,
        is_ours=lambda: reader[0] == "first",
    )  # fmt: skip
    second = Rings(own.arena, own.types)
    first.start()
    hit(slot, range(20))

    late = first.poll()
    assert limits(own) == taken
    hit(slot, range(300, 320))
    numbers.extend(column(second.poll()))

    assert (late.records, first.damaged) == (0, 0)
    assert numbers == [*range(320)]
    assert second.damaged == 0
    assert own.counted() == (320, 0)


def test_a_limit_that_another_reader_has_set_is_not_read_as_our_position(build: Path) -> None:
    """The arena's word is the target's, too."""
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=SHARED)
    slot = own.marker("n %ld", LONG)
    rings = Rings(own.arena, own.types)
    rings.start()
    stale = limits(own)
    hit(slot, range(10))
    rings.poll()
    for ring, limit in enumerate(stale):
        own.store.write(own.geometry.head_offset(ring) + RING_LIMIT, limit)
    hit(slot, range(10, 20))

    assert column(rings.poll()) == [*range(10, 20)]
