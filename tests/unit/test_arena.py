"""The arena: its stores, markers, counters and rings. test_create_arena.py makes some."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

import markerjit.abi as abi
from markerjit.abi import (
    CONTROL,
    NO_LIMIT,
    PAGE,
    Head,
    MarkerEntry,
)
from markerjit.arena import markers as markers_module
from markerjit.arena.arena import Arena
from markerjit.arena.hashes import fnv1a
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.errors import MarkerError, Refused, TargetGone
from markerjit.memory import FakeMemory
from markerjit.model import Mode, RemoteAddress
from tests.support.made_arena import BASE, SparseMemory, control_block, geometry_of, make_arena
from tests.support.made_arena import FULL_PAGES as GEOMETRY


def entry(ops: bytes = b"\1", limits: tuple[int, ...] = (), **facts: int) -> MarkerEntry:
    """How a marker is recorded, as find_marker wants it."""
    known = {"argc": len(ops), "size": 24, "time": 1, "tid": 1, "counted": 1}
    expected = MarkerEntry(**{**known, **facts})
    expected.ops[: len(ops)] = ops
    expected.limits[: len(limits)] = limits
    return expected


# ---- stores --------------------------------------------------------------------------------------


@pytest.fixture(params=["file", "memory"])
def store(request: pytest.FixtureRequest) -> Iterator[FileStore | MemoryStore]:
    if request.param == "file":
        store: FileStore | MemoryStore = FileStore(os.memfd_create("test"))
        store.grow(PAGE)  # type: ignore[union-attr]
    else:
        store = MemoryStore(FakeMemory({BASE: bytes(PAGE)}), BASE)
    yield store
    store.close()


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
    assert [entry.id for entry in arena.markers.entries()] == [0, 1, 2]


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

    (row,) = arena.markers.entries()
    assert (row.argc, bytes(row.ops)[:3], list(row.limits)[:3]) == (2, b"\1\3\0", [0, 64, 0])
    assert (row.size, row.time, row.tid, row.counted, row.recorder) == (24, 1, 1, 1, 0)
    assert row.name == b"x" * 63
    assert row.name_hash == fnv1a(b"signature")
    assert bytes(arena.markers.entry(0)) == bytes(row)


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


def test_many_markers_are_made_as_each_by_itself() -> None:
    arena, one_by_one = make_arena(), make_arena()
    ways = [entry(b"\3", (64,)), entry(b"\1"), entry(b"\1")]
    arena.markers.find("m1", "m1 %d", ways[1])
    one_by_one.markers.find("m1", "m1 %d", ways[1])
    asked = [(f"m{n % 40}", f"m{n % 40} %d", ways[n % 3]) for n in range(90)]

    numbers = arena.markers.find_many(asked)

    assert numbers == [one_by_one.markers.find(*each) for each in asked]
    assert [*map(bytes, arena.markers.entries())] == [*map(bytes, one_by_one.markers.entries())]
    assert Arena(7, BASE, arena.store, GEOMETRY.size).markers.find_many(asked) == numbers  # type: ignore[arg-type]
    assert arena.markers.find("m2", "m2 %d", entry(b"\1")) in numbers


def test_where_the_table_has_no_room_for_all_of_many_none_is_made() -> None:
    arena = make_arena()
    way = entry()
    arena.markers.find("m", "m", way)

    with pytest.raises(Refused, match="room for 128 markers"):
        arena.markers.find_many([("n", f"n{number}", way) for number in range(128)])

    assert arena.markers.used == 1
    assert arena.markers.known("n0", way) is None


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


def test_entries_that_are_near_to_each_other_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    arena = make_arena()
    for number in range(16):
        arena.markers.find(f"m{number % 4}", f"m{number % 4}", entry(b"\1", (number,)))
    hashes = [fnv1a(f"m{number}".encode()) for number in range(4)]
    assert arena.markers.with_hashes(hashes) == [
        [number, number + 4, number + 8, number + 12] for number in range(4)
    ]
    reads: list[int] = []
    read = arena.store.read
    monkeypatch.setattr(arena.store, "read", lambda at, size: reads.append(at) or read(at, size))

    entries = arena.markers.entries_of([15, 1, 5, 0])

    assert {marker: bytes(each) for marker, each in entries.items()} == {
        marker: bytes(arena.markers.entry(marker)) for marker in (0, 1, 5, 15)
    }
    assert len(reads) == 2 + 4  # nine others lie between two of them


def put_counts(arena: Arena, marker: int, *counts: tuple[int, int]) -> None:
    for ring, (passed, lost) in enumerate(counts):
        count = abi.Count(passed=passed, lost=lost)
        arena.store.write(GEOMETRY.count_offset(ring, marker), bytes(count))


def test_counters_are_added_up_over_the_rings() -> None:
    arena = make_arena()
    put_counts(arena, 3, (5, 1), (1 << 40, 2), (7, 0), (0, 4))

    assert arena.counters.of(3) == (12 + (1 << 40) + 7, 7)
    assert [counter.lost for counter in arena.counters.by_ring(3)] == [1, 2, 0, 4]
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

    arena.counters.note_began([3])
    put_counts(arena, 3, (50, 10))

    entry = arena.markers.entry(3)
    assert (entry.passed_before, entry.lost_before) == (11, 3)


def test_a_recorder_is_what_a_slot_gets_and_is_known_by() -> None:
    arena = make_arena()
    arena.entry.record = 0x990
    marker = arena.markers.find("get", "get", entry())
    data, general = arena.markers.address(marker), arena.record_probe(marker, preserving=False)
    assert arena.records(general, data)

    arena.markers.set_recorder(marker, RemoteAddress(BASE + 0x5000), preserving=False)
    arena.markers.set_recorder(marker, RemoteAddress(BASE + 0x6000), preserving=True)

    assert arena.record_probe(marker, preserving=False) == BASE + 0x5000
    assert arena.record_probe(marker, preserving=True) == BASE + 0x6000
    assert arena.records(RemoteAddress(BASE + 0x5000), data)
    assert arena.records(RemoteAddress(BASE + 0x6000), data)
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
    assert [head.mask for head in heads] == [pages * PAGE - 1] * 4
    assert [head.head for head in heads[:2]] == [5 * PAGE + 800] * 2
    lap = {1: 6, 2: 6, 4: 8}[pages] * PAGE
    assert [head.head for head in heads[2:]] == [lap] * 2, "no position comes again"
    for cpu in range(2):
        sums = arena.store.read(GEOMETRY.sums_offset(cpu), 8 * pages)
        expected = (lap // pages).to_bytes(8, "little")
        assert sums == expected * pages, "every page is free"


def test_rings_do_not_grow_over_their_room() -> None:
    arena = make_arena(geometry_of(cpus=2, ring_stride=2 << 20))

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
    store.grow(3 * PAGE)
    store.write(0, b"x" * 3 * PAGE)

    store.release(PAGE, PAGE)

    assert store.read(0, 3 * PAGE) == b"x" * PAGE + bytes(PAGE) + b"x" * PAGE
    store.close()
