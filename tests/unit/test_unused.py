"""Which probes in C may make room for others: each reason for which one may not."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import markerjit.abi as abi
from markerjit.abi import PROBE_COUNTED, MarkerEntry, UnitEntry
from markerjit.arena.arena import Arena
from markerjit.arena.units import Unit
from markerjit.errors import MemoryFault
from markerjit.model import RemoteAddress
from markerjit.probes.unused import find_unused
from markerjit.proc.sharers import Sharer
from tests.support.made_arena import BASE, geometry_of, make_arena

SLOT, OTHER = RemoteAddress(0x1000), RemoteAddress(0x2000)


class Slots:
    """Slots in the memory of a target: probe, data, entered, left. What is read is written down."""

    def __init__(self, arena: Arena) -> None:
        data = arena.markers.address(0)
        self.words = {slot: [0, data, 3, 3] for slot in (SLOT, OTHER)}
        self.reads: list[tuple[int, int]] = []

    def read(self, address: RemoteAddress, size: int) -> bytes:
        slot, word = RemoteAddress(address & ~0xFFF), (address & 0xFFF) // 8
        if slot not in self.words:
            raise MemoryFault(address, size, "read", "not mapped")
        self.reads.append((slot, word))
        return self.words[slot][word].to_bytes(8, "little")


@pytest.fixture
def arena() -> Arena:
    return make_arena(geometry_of())


@pytest.fixture
def slots(arena: Arena) -> Slots:
    return Slots(arena)


def put_unit(arena: Arena) -> Unit:
    code, data = arena.code.place_for_unit(256), arena.code.place_for_data(256)
    assert code is not None
    assert data is not None
    entry = UnitEntry(code=code - BASE, code_size=256, data=data - BASE, data_size=256)
    unit = arena.units.add(entry)
    arena.units.note_callers(unit, [SLOT])
    return unit


def kept(
    arena: Arena,
    slots: Slots,
    *,
    emits: bool = False,
    sharer: Callable[[Arena], Sharer | None] = lambda arena: None,
    fence: Callable[[], bool] = lambda: True,
) -> list[str]:
    """Why units stay; none where all may go."""
    unused = find_unused(arena, slots.read, [SLOT], lambda unit: emits, sharer, fence)
    assert len(unused.units) + len(unused.kept) == len(arena.units.all())
    return list(unused.kept.values())


def test_what_nothing_uses_may_go_the_oldest_first(arena: Arena, slots: Slots) -> None:
    first, second = put_unit(arena), put_unit(arena)
    arena.units.give_back(first)
    third = put_unit(arena)

    emits, sharer = (lambda unit: False), (lambda arena: None)
    unused = find_unused(arena, slots.read, [SLOT], emits, sharer, lambda: True)

    assert [unit.number for unit in unused.units] == [second.number, third.number]
    assert unused.kept == {}


@pytest.mark.parametrize("at", [0, 255])
@pytest.mark.parametrize("slot", [SLOT, OTHER], ids=["seen", "only a caller"])
def test_what_a_slot_holds_stays(arena: Arena, slots: Slots, slot: RemoteAddress, at: int) -> None:
    unit = put_unit(arena)
    arena.units.note_callers(unit, [OTHER])
    slots.words[slot][0] = BASE + unit.code.start + at & ~PROBE_COUNTED | PROBE_COUNTED

    assert kept(arena, slots) == ["markers call it"]
    slots.words[slot][0] = BASE + unit.code.end
    assert kept(arena, slots) == []


def test_what_a_slot_holds_that_was_never_written_down_stays(arena: Arena, slots: Slots) -> None:
    unit = put_unit(arena)
    slots.words[OTHER][0] = BASE + unit.code.start

    emits, sharer = (lambda unit: False), (lambda arena: None)
    unused = find_unused(arena, slots.read, [SLOT, OTHER], emits, sharer, lambda: True)

    assert list(unused.kept.values()) == ["markers call it"]


def test_a_thread_that_is_inside_keeps_it(arena: Arena, slots: Slots) -> None:
    put_unit(arena)
    slots.words[SLOT][2] = 4

    assert kept(arena, slots) == ["a thread is in it"]
    slots.words[SLOT][3] = 4
    assert kept(arena, slots) == []


def count_calls(arena: Arena, ring: int, marker: int, entered: int, left: int) -> None:
    words = entered.to_bytes(8, "little") + left.to_bytes(8, "little")
    arena.store.write(arena.geometry.calls_offset(ring, marker), words)


def tell_of(arena: Arena, name: str, how: int) -> int:
    """A marker of this name, by its id; `how` it is recorded."""
    return arena.markers.find(name, f"{name} n %d", MarkerEntry(argc=1, size=how))


def test_a_thread_that_an_adapter_has_counted_keeps_it_wherever_it_leaves(
    arena: Arena, slots: Slots
) -> None:
    marker = tell_of(arena, "m", 24)
    put_unit(arena)
    count_calls(arena, 0, marker, 7, 2)
    count_calls(arena, 1, marker, 0, 4)

    assert kept(arena, slots) == ["a thread is in it"]
    count_calls(arena, 1, marker, 0, 5)
    assert kept(arena, slots) == []


def test_a_thread_that_came_when_its_marker_was_recorded_in_another_way_keeps_it(
    arena: Arena, slots: Slots
) -> None:
    """The slot has another entry of the same marker by now."""
    tell_of(arena, "m", 24)
    before, other = tell_of(arena, "m", 16), tell_of(arena, "other", 24)
    put_unit(arena)
    count_calls(arena, 0, other, 1, 0)
    assert kept(arena, slots) == []

    count_calls(arena, 0, before, 1, 0)
    assert kept(arena, slots) == ["a thread is in it"]


def test_there_is_a_barrier_between_the_slots_and_the_counters(arena: Arena, slots: Slots) -> None:
    put_unit(arena)
    put_unit(arena)
    fences = []

    def fence() -> bool:
        fences.append([word for _, word in slots.reads])
        return True

    assert kept(arena, slots, fence=fence) == []
    (before,) = fences
    assert set(before) == {0, 1}
    assert {word for _, word in slots.reads[len(before) :]} == {1, 2, 3}


def test_nothing_may_go_where_there_is_no_barrier(arena: Arena, slots: Slots) -> None:
    put_unit(arena)

    reasons = kept(arena, slots, fence=lambda: False)

    assert reasons == ["the kernel does not say whether a thread is in it"]


def test_there_is_no_barrier_where_nothing_may_go(arena: Arena, slots: Slots) -> None:
    unit = put_unit(arena)
    slots.words[SLOT][0] = BASE + unit.code.start

    def fence() -> bool:
        raise AssertionError

    assert kept(arena, slots, fence=fence) == ["markers call it"]


def test_the_slot_is_read_before_its_counters_and_who_left_before_who_entered(
    arena: Arena, slots: Slots
) -> None:
    put_unit(arena)

    kept(arena, slots)

    order = [word for slot, word in slots.reads if slot == SLOT]
    assert order == [0, 1, 1, 3, 2]


def test_a_slot_that_cannot_be_read_any_more_keeps_it(arena: Arena, slots: Slots) -> None:
    put_unit(arena)
    del slots.words[SLOT]

    assert kept(arena, slots) == ["an object that called it was unloaded"]


@pytest.mark.parametrize("data", [0, 8])
def test_a_slot_that_was_loaded_anew_keeps_it(arena: Arena, slots: Slots, data: int) -> None:
    put_unit(arena)
    slots.words[SLOT] = [0, data, 0, 0]

    assert kept(arena, slots) == ["an object that called it was loaded anew"]


@pytest.mark.parametrize("field", ["state", "order"])
def test_a_unit_whose_callers_are_not_known_stays(arena: Arena, slots: Slots, field: str) -> None:
    unit = put_unit(arena)
    value = {"state": abi.UNIT_KEPT, "order": 0}[field]
    place = arena.geometry.units.at(unit.number) + getattr(UnitEntry, field).offset
    arena.store.write(place, value.to_bytes(4, "little"))

    assert kept(arena, slots) == ["not all of its callers are known"]


def test_names_of_events_stay_while_anybody_may_want_them(arena: Arena, slots: Slots) -> None:
    put_unit(arena)
    head = arena.geometry.head_offset(0)

    assert kept(arena, slots, emits=True) == []
    arena.store.write(head, (64).to_bytes(8, "little"))
    (reason,) = kept(arena, slots, emits=True)
    assert reason.startswith("its events were not read")
    assert kept(arena, slots, emits=False) == []
    arena.store.write(head + abi.RING_LIMIT, abi.NO_LIMIT.to_bytes(8, "little"))
    (reason,) = kept(arena, slots, emits=True)
    assert reason.startswith("a flight recorder may have its events")


def test_another_process_keeps_all_and_is_looked_for_last(arena: Arena, slots: Slots) -> None:
    put_unit(arena)
    put_unit(arena)
    looked = []

    def sharer(arena: Arena) -> Sharer:
        looked.append(len(slots.reads))
        return Sharer(123, "process 123 is a child that may still run it")

    assert kept(arena, slots, sharer=sharer) == ["process 123 is a child that may still run it"] * 2
    assert looked == [len(slots.reads)], "once, and after all that was read"


def test_nobody_is_looked_for_where_nothing_may_go(arena: Arena, slots: Slots) -> None:
    put_unit(arena)
    slots.words[SLOT][2] = 4

    def sharer(arena: Arena) -> Sharer:
        raise AssertionError

    assert kept(arena, slots, sharer=sharer) == ["a thread is in it"]
