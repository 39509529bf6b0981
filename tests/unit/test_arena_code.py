"""Room for code and data of ours in an arena: recorders, units, and the callers of units."""

from __future__ import annotations

import pytest

import markerjit.abi as abi
from markerjit.abi import (
    CODE_SIZE,
    DATA_SIZE,
    PAGE,
    RUNTIME_SIZE,
    UnitEntry,
)
from markerjit.arena.arena import Arena
from markerjit.arena.units import Unit
from markerjit.errors import MarkerError
from markerjit.model import RemoteAddress
from tests.support.made_arena import BASE, geometry_of, make_arena
from tests.support.made_arena import FULL_PAGES as GEOMETRY

DATA = GEOMETRY.data.offset


# ---- code and data -------------------------------------------------------------------------------


def test_code_is_put_one_piece_behind_the_other() -> None:
    arena = make_arena()
    first = arena.code.place(100)
    assert first == BASE + RUNTIME_SIZE, "the place of the runtime is never given away"
    arena.code.put(first, b"\x90" * 100)

    second = arena.code.place(10)

    assert second == first + 128
    assert arena.code.place(10, align=4096) == BASE + RUNTIME_SIZE + 4096
    assert arena.store.read(RUNTIME_SIZE, 101) == b"\x90" * 100 + b"\0"
    assert arena.code.place(CODE_SIZE - RUNTIME_SIZE - 128) is not None
    assert arena.code.place(CODE_SIZE - RUNTIME_SIZE - 127) is None


# ---- units: what their table does not have is free -----------------------------------------------


def put_unit(arena: Arena, code_size: int = 100, data_size: int = 100) -> Unit:
    """Put a unit into an arena, where there is place for it; of its bytes only the first are
    written."""
    code, data = arena.code.place_for_unit(code_size), arena.code.place_for_data(data_size)
    assert code is not None
    assert data is not None
    arena.code.write(code, b"\x90" * 100)
    arena.code.write_data(data, b"\1" * 100)
    entry = UnitEntry(code=code - BASE, code_size=code_size, data=data - BASE, data_size=data_size)
    return arena.units.add(entry)


def test_units_come_from_the_end_and_recorders_from_the_begin() -> None:
    arena = make_arena()

    first = put_unit(arena, 100, 100)

    assert first.code == (CODE_SIZE - 128, CODE_SIZE - 28)
    assert first.data == (DATA, DATA + 100)
    assert arena.code.place_for_unit(10) == BASE + CODE_SIZE - 192
    assert arena.code.place_for_data(10, align=PAGE) == BASE + DATA + PAGE
    assert arena.code.place_for_data(10) == BASE + DATA + 128
    assert arena.code.place_for_data(DATA_SIZE - 128) is not None
    assert arena.code.place_for_data(DATA_SIZE - 127) is None
    assert arena.code.place(10) == BASE + RUNTIME_SIZE
    assert arena.code.place(CODE_SIZE - RUNTIME_SIZE - 128) is not None
    assert arena.code.place(CODE_SIZE - RUNTIME_SIZE - 127) is None


def test_places_are_given_away_one_after_the_other() -> None:
    arena = make_arena()
    units = [put_unit(arena, 1000, 1000) for _ in range(3)]
    arena.units.give_back(units[1])
    places = arena.code.places()

    small, large, other = places.take(900, 64), places.take(5000, 64), places.take(10, 64)

    assert small == units[1].code.start + BASE + 1024 - 960
    assert large == units[2].code.start + BASE - 5000 // 64 * 64 - 64
    assert other == small - 64
    assert places.take(CODE_SIZE, 64) is None


def test_what_is_given_back_is_taken_again() -> None:
    arena = make_arena()
    first, second, third = (put_unit(arena, 1000, 1000) for _ in range(3))

    arena.units.give_back(second)

    assert [unit.number for unit in arena.units.all()] == [first.number, third.number]
    assert put_unit(arena, 900, 900).code.start >= second.code.start
    arena.units.give_back(arena.units.all()[-1])
    arena.units.give_back(first)
    assert put_unit(arena, 2000, 2000).code.start >= second.code.start, "two pieces are one"


def test_an_arena_never_fills_with_units_that_are_given_back() -> None:
    arena = make_arena()

    for turn in range(50):
        unit = put_unit(arena, CODE_SIZE // 3 + turn, DATA_SIZE // 3)
        arena.units.give_back(unit)

    assert arena.units.used == 1
    assert arena.code.room == (CODE_SIZE - RUNTIME_SIZE, DATA_SIZE)


def test_units_are_in_the_order_in_which_they_came() -> None:
    arena = make_arena()
    first, second = put_unit(arena), put_unit(arena)
    arena.units.give_back(first)

    third = put_unit(arena)

    assert third.number == first.number
    assert [unit.entry.order for unit in arena.units.all()] == [2, 3]
    assert not arena.units.is_there(first)
    assert arena.units.is_there(second)


@pytest.mark.parametrize("killed_before", range(8))
def test_a_controller_that_dies_while_it_puts_a_unit_there_takes_no_room(
    killed_before: int,
) -> None:
    """Before any of the writes that make it."""
    arena = make_arena()
    put_unit(arena)
    room, write, writes = arena.code.room, arena.store.write, iter(range(100))

    def die(at: int, data: bytes) -> None:
        if next(writes) == killed_before:
            raise KeyboardInterrupt
        write(at, data)

    arena.store.write = die  # type: ignore[method-assign]
    try:
        put_unit(arena)
    except KeyboardInterrupt:
        units = 1
    else:
        units = 2
    arena.store.write = write  # type: ignore[method-assign]

    assert len(arena.units.all()) == units
    assert (arena.code.room == room) == (units == 1)
    assert put_unit(arena).entry.order > units
    assert killed_before < 6 or units == 2, "all of its writes are tried"


HOSTILE = [
    (0, 0), (0, 1 << 31), (CODE_SIZE - 1, 1), (CODE_SIZE + 7, 100), (RUNTIME_SIZE, 1),
    ((1 << 64) - 1, (1 << 32) - 1), (RUNTIME_SIZE + 100, 1 << 31), (DATA + 1, 1 << 20),
]  # fmt: skip


@pytest.mark.parametrize("first", HOSTILE)
@pytest.mark.parametrize("second", HOSTILE)
def test_no_place_is_outside_whatever_the_table_of_units_says(
    first: tuple[int, int], second: tuple[int, int]
) -> None:
    arena = make_arena()
    for number, (start, size) in enumerate((first, second)):
        entry = UnitEntry(
            code=start, code_size=size, data=start, data_size=size, state=abi.UNIT_READY
        )
        arena.store.write(GEOMETRY.units.at(number), bytes(entry))
    arena.control.write("units_used", 2)

    code, data = arena.code.place_for_unit(100), arena.code.place_for_data(100)

    for place in (code, arena.code.place(100)):
        assert place is None or RUNTIME_SIZE <= place - BASE <= CODE_SIZE - 100
    assert data is None or DATA <= data - BASE <= DATA + DATA_SIZE - 100
    assert all(0 <= size <= DATA_SIZE for size in arena.code.room)


# ---- who may call a unit -------------------------------------------------------------------------


def addresses(*numbers: int) -> list[RemoteAddress]:
    return [RemoteAddress(number) for number in numbers]


def test_callers_of_a_unit_are_known_until_it_goes() -> None:
    arena = make_arena()
    first, second = put_unit(arena), put_unit(arena)

    arena.units.note_callers(first, addresses(8, 16))
    arena.units.note_callers(second, addresses(8))
    arena.units.note_callers(first, addresses(24, 8))

    assert arena.units.callers(first) == [8, 16, 24]
    assert arena.units.callers(second) == [8]
    assert arena.control.now().callers_used == 4
    arena.units.give_back(first)
    third = put_unit(arena)
    assert third.number == first.number
    assert arena.units.callers(third) == []
    arena.units.note_callers(third, addresses(32, 40, 48))
    assert arena.control.now().callers_used == 4, "places of the one that went"


def test_callers_that_are_taken_back_are_those_that_were_new() -> None:
    arena = make_arena(geometry_of(max_callers=4))
    unit = put_unit(arena)
    arena.units.note_callers(unit, addresses(8))

    noted = arena.units.note_callers(unit, addresses(8, 16, 24))
    arena.units.forget_callers(noted)

    assert arena.units.callers(unit) == [8]
    arena.units.forget_callers(arena.units.note_callers(unit, addresses(*range(16, 80, 8))))
    assert not arena.units.all()[0].is_kept
    assert arena.units.callers(unit) == [8]
    arena.units.note_callers(unit, addresses(16, 24, 32))
    assert arena.units.callers(unit) == [8, 16, 24, 32]


def test_a_unit_whose_callers_have_no_room_is_kept() -> None:
    arena = make_arena(geometry_of(max_callers=4))
    unit = put_unit(arena)

    arena.units.note_callers(unit, addresses(8, 16, 24, 32))
    arena.units.note_callers(unit, addresses(8))
    assert not arena.units.all()[0].is_kept
    arena.units.note_callers(unit, addresses(40))

    assert arena.units.all()[0].is_kept


def test_code_that_did_not_arrive_takes_no_place() -> None:
    arena = make_arena()
    place = arena.code.place(4)
    assert place is not None
    arena.store.write = lambda at, data: None  # type: ignore[method-assign]

    with pytest.raises(MarkerError, match="did not arrive"):
        arena.code.put(place, b"\x90" * 4)
    assert arena.control.now().code_used == 0
