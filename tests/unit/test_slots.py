"""Slots of sites that no compiler prepared: taken one by one, or many at once."""

from __future__ import annotations

import pytest

from markerjit.abi import SLOT_OWNER
from markerjit.arena.slots import Slots
from markerjit.model import RemoteAddress
from tests.support.made_arena import BASE, FULL_PAGES, SparseMemory, make_arena

OWNERS = [n * 7 + 1 for n in range(200)]


@pytest.fixture
def memory() -> SparseMemory:
    return SparseMemory(FULL_PAGES.size)


def slots_in(memory: SparseMemory) -> Slots:
    return Slots(memory, make_arena())  # type: ignore[arg-type]


def test_many_owners_get_the_slots_that_they_would_get_one_by_one(memory: SparseMemory) -> None:
    alone = slots_in(SparseMemory(FULL_PAGES.size))
    one_by_one = [alone.take(owner) for owner in (*OWNERS, *OWNERS[:5])]
    many = slots_in(memory)
    many.take(OWNERS[0])

    many.take_many([*OWNERS[:50], *OWNERS[:50]])
    many.take_many(OWNERS)

    again = slots_in(memory)
    for slots in (many, again):
        assert [slots.take(owner) for owner in (*OWNERS, *OWNERS[:5])] == one_by_one


def test_of_slots_nothing_but_the_owner_is_changed(memory: SparseMemory) -> None:
    slots = slots_in(memory)
    first = slots.take(OWNERS[0])
    memory.write(first, b"in use")
    step = FULL_PAGES.slots.entry_size

    slots.take_many(OWNERS)

    assert memory.read(first, 6) == b"in use"
    start = BASE + FULL_PAGES.slots.offset
    owners = [
        memory.read(RemoteAddress(start + number * step + SLOT_OWNER), 8)
        for number in range(len(OWNERS))
    ]
    assert [int.from_bytes(word, "little") for word in owners] == OWNERS
    assert not any(memory.read(RemoteAddress(start + step), SLOT_OWNER))
