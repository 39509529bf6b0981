"""The arena: what of it is believed, and what stands in it. test_create_arena.py makes some."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import suppress
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

import markerjit.abi as abi
from markerjit.abi import (
    ALIVE,
    CODE_SIZE,
    CONTROL,
    DATA_SIZE,
    NO_LIMIT,
    PAGE,
    RUNTIME_SIZE,
    TABLES,
    Control,
    Geometry,
    Head,
    MarkerEntry,
    PartEntry,
    Sizes,
    UnitEntry,
    checked_geometry,
    lay_out,
)
from markerjit.arena import facts
from markerjit.arena import markers as markers_module
from markerjit.arena.arena import Arena
from markerjit.arena.facts import find_rseq_offset, find_tid_offset
from markerjit.arena.markers import fnv1a
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.arena.units import Unit
from markerjit.errors import MarkerError, Refused, TargetGone, Unsupported
from markerjit.memory import FakeMemory
from markerjit.model import Mode, RemoteAddress
from markerjit.remote.calls import Thread
from tests.support import made_arena
from tests.support.made_arena import BASE, SparseMemory, control_block

# Every table fills its pages exactly, so that one entry more needs a page more.
GEOMETRY = made_arena.geometry_of(
    cpus=2, ring_size=PAGE, max_markers=128, max_patches=256, max_edits=64, ring_stride=4 * PAGE
)
DATA = GEOMETRY.data.offset
NUMBERS = ("arena_size", "cpus", "ring_size")
FIELDS = ("offset", "entry_size", "count")
NOT_COUNTED_BY = (
    abi.PART_EDITS, abi.PART_UNITS, abi.PART_ISLANDS, abi.PART_SCRATCH, abi.PART_DATA,
    abi.PART_CALLERS,
)  # fmt: skip
NAMES = {value: name for name, value in vars(abi).items() if name.startswith("PART_")}


def make_arena(geometry: Geometry = GEOMETRY) -> Arena:
    return made_arena.make_arena(geometry)


def entry(ops: bytes = b"\1", limits: tuple[int, ...] = (), **facts: int) -> MarkerEntry:
    """How a marker is recorded, as find_marker wants it."""
    known = {"argc": len(ops), "size": 24, "time": 1, "tid": 1, "counted": 1}
    wanted = MarkerEntry(**{**known, **facts})
    wanted.ops[: len(ops)] = ops
    wanted.limits[: len(limits)] = limits
    return wanted


# ---- believing a control block -------------------------------------------------------------------


def checked(block: bytes, mapped_size: int = GEOMETRY.size) -> Geometry:
    return checked_geometry(Control.from_buffer_copy(block), mapped_size)


def with_part(number: int, **changed: int) -> bytes:
    """A control block with other numbers of one part."""
    control = Control.from_buffer_copy(control_block(GEOMETRY))
    for field, value in changed.items():
        setattr(control.parts[number], field, value)
    return bytes(control)


def test_a_control_block_as_it_should_be_is_believed() -> None:
    assert checked(control_block(GEOMETRY, owner_since=812)) == GEOMETRY


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("change", ["one more", "one less", "zero", "most"])
def test_every_number_of_a_control_block_is_checked(name: str, change: str) -> None:
    size = getattr(Control, name).size
    right = getattr(Control.from_buffer_copy(control_block(GEOMETRY)), name)
    wrong = {"one more": right + 1, "one less": right - 1, "zero": 0, "most": (1 << 8 * size) - 1}

    with pytest.raises(Unsupported, match="contradicts itself"):
        checked(control_block(GEOMETRY, **{name: wrong[change]}))


@pytest.mark.parametrize("number", NAMES, ids=NAMES.get)
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("change", ["one more", "one less", "most"])
def test_every_number_of_a_part_is_checked(number: int, field: str, change: str) -> None:
    """Of a table that the runtime does not count by any number is right that has room."""
    part = GEOMETRY.parts[number]
    right = part[FIELDS.index(field)]
    most = (1 << 8 * getattr(PartEntry, field).size) - 1
    wrong = {"one more": right + 1, "one less": right - 1, "most": most}
    block = with_part(number, **{field: wrong[change]})
    if number in NOT_COUNTED_BY and field != "offset" and change != "most":
        with suppress(Unsupported):
            check_parts(checked(block))
        return

    with pytest.raises(Unsupported, match="contradicts itself"):
        checked(block)


@pytest.mark.parametrize("number", [abi.PART_MARKERS, abi.PART_PATCHES])
@pytest.mark.parametrize("less", [1, 2, 16])
def test_tables_have_to_be_powers_of_two(number: int, less: int) -> None:
    """abi.h promises it: recorders shift by it, and one less is a mask, here and in the runtime."""
    count = GEOMETRY.parts[number].entries - less

    with pytest.raises(Unsupported, match="contradicts itself"):
        checked(with_part(number, count=count))


@pytest.mark.parametrize(
    ("size", "stride"),
    [(PAGE // 2, PAGE), (2 * PAGE, PAGE), (3 * PAGE, 4 * PAGE), (PAGE, PAGE + 8)],
)
def test_rings_that_do_not_fit_where_they_are_are_not_believed(size: int, stride: int) -> None:
    geometry = made_arena.geometry_of(ring_size=size, ring_stride=stride)

    with pytest.raises(Unsupported, match="contradicts itself"):
        checked(control_block(geometry), geometry.size)


@pytest.mark.parametrize("difference", [-PAGE, PAGE, 2 * PAGE])
def test_a_mapping_of_another_size_is_not_believed(difference: int) -> None:
    with pytest.raises(Unsupported, match="contradicts itself"):
        checked(control_block(GEOMETRY), GEOMETRY.size + difference)


@given(
    st.dictionaries(
        st.tuples(st.sampled_from(sorted(NAMES)), st.sampled_from(FIELDS)),
        st.integers(0, (1 << 64) - 1) | st.integers(0, GEOMETRY.size),
        min_size=1,
    )
)
def test_any_numbers_are_refused_or_fit_the_mapping(numbers: dict[tuple[int, str], int]) -> None:
    control = Control.from_buffer_copy(control_block(GEOMETRY))
    for (number, field), value in numbers.items():
        setattr(control.parts[number], field, value & (1 << 8 * getattr(PartEntry, field).size) - 1)
    try:
        geometry = checked_geometry(control, GEOMETRY.size)
    except Unsupported:
        return
    check_parts(geometry)


def check_parts(geometry: Geometry) -> None:
    """Parts are inside of the arena, and do not overlap."""
    end = TABLES
    for part in sorted(part for part in geometry.parts if part.entries):
        assert end <= part.offset
        end = part.end
    assert end <= geometry.size


@given(
    cpus=st.integers(1, 300),
    pages=st.integers(1, 1 << 12),
    markers=st.integers(1, 5000),
    patches_bits=st.integers(0, 16),
    edits=st.integers(0, 5000),
)
def test_parts_of_an_arena_follow_each_other_and_do_not_overlap(
    cpus: int, pages: int, markers: int, patches_bits: int, edits: int
) -> None:
    geometry = lay_out(Sizes(cpus, PAGE, markers, 1 << patches_bits, edits, pages * PAGE))
    last = geometry.rings - 1

    assert RUNTIME_SIZE < CODE_SIZE == CONTROL
    assert CONTROL + ctypes.sizeof(Control) <= ALIVE == CONTROL + PAGE
    assert ALIVE + PAGE == TABLES
    check_parts(geometry)
    assert geometry.marker_offset(markers) == geometry.markers.end
    assert geometry.count_offset(last, markers) == geometry.counts.end
    assert geometry.head_offset(last + 1) == geometry.parts[abi.PART_HEADS].end
    assert geometry.sums_offset(cpus) == geometry.parts[abi.PART_COMMITS].end
    assert all(part.offset % PAGE == 0 for part in geometry.parts)
    assert geometry.ring_offset(last + 1) == geometry.size


# ---- stores --------------------------------------------------------------------------------------


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest) -> Iterator[FileStore | MemoryStore]:
    if request.param == "file":
        one: FileStore | MemoryStore = FileStore(os.memfd_create("test"))
        one.resize(PAGE)  # type: ignore[union-attr]
    else:
        one = MemoryStore(FakeMemory({BASE: bytes(PAGE)}), BASE)
    yield one
    one.close()


def test_a_store_gives_back_what_was_written(store: FileStore | MemoryStore) -> None:
    store.write(PAGE - 4, b"last")
    store.write(0, b"first")

    assert store.read(0, 8) == b"first\0\0\0"
    assert store.read(PAGE - 8, 8) == b"\0\0\0\0last"
    assert store.read(7, 0) == b""


@pytest.mark.parametrize(("offset", "size"), [(PAGE, 1), (PAGE - 4, 8), (1 << 40, 8)])
def test_a_store_reads_all_or_is_an_error_of_the_house(
    store: FileStore | MemoryStore, offset: int, size: int
) -> None:
    with pytest.raises(MarkerError):
        store.read(offset, size)


# ---- markers -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data", "value"),
    [
        (b"", 0xCBF29CE484222325),
        (b"a", 0xAF63DC4C8601EC8C),
        (b"foobar", 0x85944171F73967E8),
        (bytes.fromhex("d56bb95342870836"), 1),  # hashes to 0, which means a free entry
    ],
)
def test_hash_is_fnv1a_but_never_zero(data: bytes, value: int) -> None:
    assert fnv1a(data) == value


def test_a_marker_is_made_once_whoever_asks() -> None:
    arena = make_arena()
    other = Arena(7, BASE, arena.store, GEOMETRY.size)  # type: ignore[arg-type]

    first = arena.markers.find("get", "get %s", entry(b"\3", (64,)))
    second = arena.markers.find("get", "get %d", entry(b"\1"))

    assert (first, second) == (0, 1)
    assert arena.markers.find("get", "get %s", entry(b"\3", (64,))) == 0
    assert other.markers.find("get", "get %d", entry(b"\1")) == 1
    assert other.markers.find("put", "put", entry(b"")) == 2
    assert other.markers.known("put", entry(b"\1")) is None
    assert [one.id for one in arena.markers.entries()] == [0, 1, 2]


@pytest.mark.parametrize(
    "other",
    [
        entry(b"\3", (65,)),
        entry(b"\4", (64,)),
        entry(b"\3\0", (64,)),
        entry(b"\3", (64,), size=32),
        entry(b"\3", (64,), time=2),
        entry(b"\3", (64,), tid=0),
        entry(b"\3", (64,), counted=0),
    ],
    ids=["limit", "op", "arguments", "size", "time", "thread", "counted"],
)
def test_a_marker_that_is_recorded_otherwise_is_another(other: MarkerEntry) -> None:
    arena = make_arena()
    arena.markers.find("get", "get %s", entry(b"\3", (64,)))

    assert arena.markers.known("get %s", other) is None
    assert arena.markers.find("get", "get %s", other) == 1
    assert arena.markers.known("get %s", entry(b"\3", (64,))) == 0


def test_an_entry_tells_the_runtime_how_to_take_the_arguments() -> None:
    arena = make_arena()

    arena.markers.find("x" * 70, "signature", entry(b"\1\3", (0, 64)))

    (one,) = arena.markers.entries()
    assert (one.argc, bytes(one.ops)[:3], list(one.limits)[:3]) == (2, b"\1\3\0", [0, 64, 0])
    assert (one.size, one.time, one.tid, one.counted, one.recorder) == (24, 1, 1, 1, 0)
    assert one.name == b"x" * 63
    assert one.name_hash == fnv1a(b"signature")
    assert bytes(arena.markers.entry(0)) == bytes(one)


def test_markers_are_known_by_where_their_entries_are() -> None:
    arena = make_arena()

    assert arena.markers.address(0) == BASE + GEOMETRY.markers.offset
    for marker in (0, 1, 127):
        assert arena.markers.at(arena.markers.address(marker)) == marker
    for place in (BASE, arena.markers.address(0) + 1, arena.markers.address(128), 0):
        assert arena.markers.at(RemoteAddress(place)) is None


def test_a_full_table_refuses_new_markers_and_finds_the_old() -> None:
    arena = make_arena()
    for number in range(GEOMETRY.max_markers):
        arena.markers.find("m", f"m{number}", entry())

    with pytest.raises(Refused, match="room for 128 markers"):
        arena.markers.find("m", "one more", entry())
    assert arena.markers.find("m", "m127", entry()) == 127


def test_a_number_of_markers_that_cannot_be_is_not_followed() -> None:
    arena = make_arena()
    arena.control.write("markers_used", 0xFFFFFFFF)

    assert len(list(arena.markers.entries())) == GEOMETRY.max_markers


def test_switching_is_written_down_and_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(markers_module.time, "time", lambda: 1234.5)
    arena = make_arena()
    arena.markers.find("get", "get %s", entry(b"\3", (64,)))
    (before,) = arena.markers.entries()

    arena.markers.note_switched(0, Mode.INT3)
    (on,) = arena.markers.entries()
    arena.markers.note_switched(0, None)
    (off,) = arena.markers.entries()

    assert (on.since, on.by, on.mode) == (1234, os.getpid(), list(Mode).index(Mode.INT3) + 1)
    assert bytes(on.ops) == bytes(before.ops)
    assert (on.id, on.name, on.name_hash) == (before.id, before.name, before.name_hash)
    assert bytes(off) == bytes(before)


def put_counts(arena: Arena, marker: int, *counts: tuple[int, int]) -> None:
    for ring, (passed, lost) in enumerate(counts):
        count = abi.Count(passed=passed, lost=lost)
        arena.store.write(GEOMETRY.count_offset(ring, marker), bytes(count))


def test_counters_are_added_up_over_the_rings() -> None:
    arena = make_arena()
    put_counts(arena, 3, (5, 1), (1 << 40, 2), (7, 0), (0, 4))

    assert arena.counters.of(3) == (12 + (1 << 40) + 7, 7)
    assert [one.lost for one in arena.counters.by_ring(3)] == [1, 2, 0, 4]
    assert arena.counters.of(2) == (0, 0)


def test_what_the_reader_took_out_are_hits_too() -> None:
    arena = make_arena()
    put_counts(arena, 3, (5, 1))

    arena.markers.note_delivered(3, 10)
    arena.markers.note_delivered(3, 1)

    assert arena.counters.of(3) == (17, 1)


def test_counters_are_written_down_before_a_marker_is_switched_on() -> None:
    arena = make_arena()
    put_counts(arena, 3, (5, 1), (6, 2))

    arena.counters.note_began(3)
    put_counts(arena, 3, (50, 10))

    one = arena.markers.entry(3)
    assert (one.passed_before, one.lost_before) == (11, 3)


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


def test_a_unit_whose_callers_have_no_room_is_kept() -> None:
    arena = make_arena(made_arena.geometry_of(max_callers=4))
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


def test_a_recorder_is_what_a_slot_gets_and_is_known_by() -> None:
    arena = make_arena()
    arena.entry.record = 0x990
    marker = arena.markers.find("get", "get", entry())
    data, general = arena.markers.address(marker), arena.record_probe(marker)
    assert arena.records(general, data)

    arena.markers.set_recorder(marker, RemoteAddress(BASE + 0x5000))

    assert arena.record_probe(marker) == BASE + 0x5000
    assert arena.records(RemoteAddress(BASE + 0x5000), data)
    assert arena.records(general, data), "somebody may have switched it on before"
    assert not arena.records(RemoteAddress(BASE + 0x5000), arena.markers.address(marker + 1))
    assert not arena.records(RemoteAddress(BASE + 0x5000), RemoteAddress(0))
    assert not arena.records(RemoteAddress(BASE), data)


# ---- rings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("pages", [1, 2, 4])
def test_rings_are_as_large_as_is_asked_for(pages: int) -> None:
    arena = make_arena()
    for ring in range(4):
        arena.store.write(GEOMETRY.head_offset(ring), (5 * PAGE + 800).to_bytes(8, "little"))

    arena.rings.resize(pages * PAGE)

    assert arena.geometry == GEOMETRY._replace(ring_size=pages * PAGE)
    assert arena.control.now().ring_size == pages * PAGE
    again = Arena(7, BASE, arena.store, GEOMETRY.size)  # type: ignore[arg-type]
    assert again.geometry == arena.geometry
    heads = [
        Head.from_buffer_copy(arena.store.read(GEOMETRY.head_offset(ring), 128))
        for ring in range(4)
    ]
    assert [one.mask for one in heads] == [pages * PAGE - 1] * 4
    assert [one.head for one in heads[:2]] == [5 * PAGE + 800] * 2
    lap = {1: 6, 2: 6, 4: 8}[pages] * PAGE
    assert [one.head for one in heads[2:]] == [lap] * 2, "no position comes again"
    for cpu in range(2):
        sums = arena.store.read(GEOMETRY.sums_offset(cpu), 8 * pages)
        wanted = (lap // pages).to_bytes(8, "little")
        assert sums == wanted * pages, "every page is free"


def test_rings_do_not_grow_over_their_room() -> None:
    arena = make_arena(made_arena.geometry_of(cpus=2, ring_stride=2 << 20))

    with pytest.raises(Refused, match="room for 2 MiB a CPU; restart the process"):
        arena.rings.resize(4 << 20)
    assert arena.geometry.ring_size == PAGE


def test_an_arena_knows_whether_its_rings_are_overwritten() -> None:
    arena = make_arena()
    assert not arena.rings.are_overwritten()

    place = GEOMETRY.head_offset(0) + abi.RING_LIMIT
    arena.store.write(place, NO_LIMIT.to_bytes(8, "little"))

    assert arena.rings.are_overwritten()


def test_an_arena_whose_process_has_ended_says_so() -> None:
    memory = SparseMemory(GEOMETRY.size)
    store = MemoryStore(memory, BASE)
    store.write(CONTROL, control_block(GEOMETRY))
    arena = Arena(7, BASE, store, GEOMETRY.size)

    memory.gone = True

    with pytest.raises(TargetGone):
        arena.counters.of(0)


def test_memory_that_is_given_back_reads_as_zeros_and_nothing_else_does() -> None:
    store = FileStore(os.memfd_create("test"))
    store.resize(3 * PAGE)
    store.write(0, b"x" * 3 * PAGE)

    store.release(PAGE, PAGE)

    assert store.read(0, 3 * PAGE) == b"x" * PAGE + bytes(PAGE) + b"x" * PAGE
    store.close()


# ---- where a thread's id stands ------------------------------------------------------------------


def tcb(*ids: tuple[int, int], size: int = 2 * PAGE) -> bytes:
    block = bytearray(size)
    for offset, tid in ids:
        block[offset : offset + 4] = tid.to_bytes(4, "little")
    return bytes(block)


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Threads of process 7 that have ended; all others are there, by the number that they have."""
    gone: set[int] = set()
    there = SimpleNamespace(exists=lambda path: int(path.rsplit("/", 1)[1]) not in gone)
    monkeypatch.setattr(facts, "os", SimpleNamespace(path=there))
    monkeypatch.setattr(facts, "tid_inside", lambda pid, tid: tid)
    return gone


FIRST, SECOND = Thread(812, RemoteAddress(0x10000)), Thread(813, RemoteAddress(0x20100))


@pytest.mark.parametrize(
    ("first", "second", "offset"),
    [
        ([(0x2D0, 812)], [(0x2D0, 813)], 0x2D0),  # glibc
        ([(0x30, 812)], [(0x30, 813)], 0x30),  # musl
        ([(0x10, 812), (0x2D0, 812)], [(0x10, 813), (0x2D0, 813)], 0x2D0),  # a known one first
        ([(0x10, 812), (0x20, 812)], [(0x20, 813), (0x40, 813)], 0x20),  # what they have in common
        ([(0x40, 812), (0x50, 812)], [(0x50, 813), (0x40, 813)], 0x40),
        ([(0x10, 812)], [(0x20, 813)], -1),
        ([(0x12, 812)], [(0x12, 813)], -1),  # an int stands where an int may stand
        ([(0xFFC, 812)], [(0xFFC, 813)], 0xFFC),
        ([(0x1000, 812)], [(0x1000, 813)], -1),
        ([], [], -1),
    ],
)
def test_thread_id_is_found_where_all_threads_have_it(
    first: list[tuple[int, int]], second: list[tuple[int, int]], offset: int
) -> None:
    memory = FakeMemory({FIRST.fs_base: tcb(*first), SECOND.fs_base: tcb(*second)})

    assert find_tid_offset(memory, 7, [FIRST, SECOND]) == offset


def test_a_thread_that_has_ended_meanwhile_is_not_asked(ended: set[int]) -> None:
    memory = FakeMemory({FIRST.fs_base: tcb((0x2D0, 812)), SECOND.fs_base: tcb()})

    assert find_tid_offset(memory, 7, [FIRST, SECOND]) == -1
    ended.add(SECOND.tid)
    assert find_tid_offset(memory, 7, [FIRST, SECOND]) == 0x2D0


def test_a_thread_knows_itself_by_its_number_in_its_own_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(facts, "tid_inside", lambda pid, tid: tid - 800)
    memory = FakeMemory({FIRST.fs_base: tcb((0x2D0, 12), (0x30, 812))})

    assert find_tid_offset(memory, 7, [FIRST]) == 0x2D0


def test_a_thread_control_block_may_end_with_its_page() -> None:
    at_end = Thread(812, RemoteAddress(0x10000 + PAGE - 0x400))
    memory = FakeMemory({0x10000: bytes(PAGE - 0x400) + tcb((0x2D0, 812), size=0x400)})

    assert find_tid_offset(memory, 7, [at_end]) == 0x2D0


def test_no_thread_or_none_with_a_base_is_no_place() -> None:
    assert find_tid_offset(FakeMemory(), 7, []) == -1
    assert find_tid_offset(FakeMemory(), 7, [FIRST]) == -1
    assert find_tid_offset(FakeMemory(), 7, [Thread(812, RemoteAddress(0))]) == -1


# ---- where a thread's struct rseq stands ---------------------------------------------------------


def glibc_thread(tid: int, fs_base: int, offset: int | None) -> Thread:
    return Thread(tid, RemoteAddress(fs_base), RemoteAddress(fs_base + offset if offset else 0))


def control_blocks(*threads: Thread) -> FakeMemory:
    """As glibc has them: the first and the third word are their own address."""
    own = {one.fs_base: one.fs_base.to_bytes(8, "little") for one in threads}
    return FakeMemory({at: word + bytes(8) + word + bytes(8) for at, word in own.items()})


@pytest.mark.parametrize("offset", [-0x40, 0x9C0, 0x20, -0xFE0])
def test_restartable_sequences_are_had_where_all_threads_have_them(offset: int) -> None:
    threads = [glibc_thread(812 + n, 0x10000 * (n + 1), offset) for n in range(3)]

    assert find_rseq_offset(FakeMemory(), threads) == offset


@pytest.mark.parametrize(
    "offsets",
    [
        (-0x40, -0x60),
        (None, None),
        (-0x48, -0x48),  # the kernel wants multiples of 32
        (-0x2000, -0x2000),  # too far to be a part of the control block
    ],
)
def test_restartable_sequences_in_other_places_are_not_used(offsets: tuple[int | None]) -> None:
    threads = [glibc_thread(812 + n, 0x10000 * (n + 1), one) for n, one in enumerate(offsets)]

    assert find_rseq_offset(control_blocks(*threads), threads) == 0


def test_a_thread_that_was_just_born_will_have_them_too() -> None:
    old, new = glibc_thread(812, 0x10000, -0x40), glibc_thread(813, 0x20000, None)

    assert find_rseq_offset(control_blocks(old, new), [old, new]) == -0x40


def test_a_thread_with_the_variables_of_another_has_none() -> None:
    """Made by clone(2) alone. What it would read is where the other runs."""
    old, raw = glibc_thread(812, 0x10000, -0x40), glibc_thread(813, 0x10000, None)

    assert find_rseq_offset(control_blocks(old), [old, raw]) == 0


def test_a_thread_that_is_not_the_librarys_has_none() -> None:
    """What it has in that place is not to be written to."""
    old, foreign = glibc_thread(812, 0x10000, -0x40), glibc_thread(813, 0x20000, None)

    assert find_rseq_offset(FakeMemory({0x20000: bytes(PAGE)}), [old, foreign]) == 0
    assert find_rseq_offset(FakeMemory(), [old, foreign]) == 0
    assert find_rseq_offset(FakeMemory(), []) == 0
