"""The arena: what of it is believed, and what stands in it. test_create_arena.py makes some."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.errors import MarkerError, Refused, Unsupported
from markerjit.memory import FakeMemory
from markerjit.model import Mode, RemoteAddress
from markerjit.patch import arena as arena_module
from markerjit.patch import inject
from markerjit.patch.arena import Arena, FileStore, MemoryStore, fnv1a
from markerjit.patch.inject import find_tid_offset
from markerjit.quiesce.calls import Thread
from markerjit.ring import layout
from markerjit.ring.layout import (
    CONTROL,
    PAGE,
    SCRATCH,
    SCRATCH_SIZE,
    Control,
    EditEntry,
    Geometry,
    TrapSite,
    checked_control,
)

# Every table fills its pages exactly, so that one entry more needs a page more.
GEOMETRY = Geometry(rings=2, ring_size=4096, max_markers=128, max_sites=256, max_edits=64)
BASE = RemoteAddress(0x7000_0000)
NUMBERS = (
    "arena_size", "rings", "ring_size", "max_markers", "max_sites", "max_edits",
    "markers", "counts", "sites", "journal_edits", "ring", "ring_stride",
)  # fmt: skip


def control_block(geometry: Geometry = GEOMETRY, **corrupted: int) -> bytes:
    facts = {
        "magic": layout.MAGIC,
        "version": layout.VERSION,
        "arena_size": geometry.size,
        **{name: getattr(geometry, name) for name in NUMBERS if name != "arena_size"},
    }
    return bytes(Control(**{**facts, **corrupted}))


def make_arena(geometry: Geometry = GEOMETRY) -> Arena:
    memory = FakeMemory({BASE: bytes(geometry.size)})
    memory.write(RemoteAddress(BASE + CONTROL), control_block(geometry))
    return Arena(7, BASE, MemoryStore(memory, BASE), geometry.size)


# ---- believing a control block -------------------------------------------------------------------


def test_a_control_block_as_it_should_be_is_believed() -> None:
    control, geometry = checked_control(control_block(owner_since=812), GEOMETRY.size)

    assert geometry == GEOMETRY
    assert control.owner_since == 812


@pytest.mark.parametrize("name", ["magic", "version", *NUMBERS])
@pytest.mark.parametrize("change", ["one more", "one less", "zero", "most"])
def test_every_number_of_a_control_block_is_checked(name: str, change: str) -> None:
    size = getattr(Control, name).size
    right = getattr(Control.from_buffer_copy(control_block()), name)
    wrong = {"one more": right + 1, "one less": right - 1, "zero": 0, "most": (1 << 8 * size) - 1}
    if name == "max_sites" and change == "one less":
        pytest.skip("fits the same page: see the next test")
    if name in ("max_markers", "max_edits") and change == "one less":
        pytest.skip("an arena with an entry less is one")
    if name == "max_edits" and change == "one more":
        wrong[change] += PAGE // ctypes.sizeof(EditEntry)  # one more fits the same page

    with pytest.raises(Unsupported):
        checked_control(control_block(**{name: wrong[change]}), GEOMETRY.size)


@pytest.mark.parametrize("sites", [255, 254, 129])
def test_a_number_of_sites_that_is_no_power_of_two_is_not_believed(sites: int) -> None:
    """abi.h promises one, and number - 1 is the mask of the hash table, here and in trap.c."""
    with pytest.raises(Unsupported):
        checked_control(control_block(max_sites=sites), GEOMETRY.size)


def test_a_page_behind_it_that_still_looks_like_a_part_is_no_contradiction() -> None:
    checked_control(control_block(), GEOMETRY.size + PAGE)


@pytest.mark.parametrize("difference", [-PAGE, 2 * PAGE])
def test_a_mapping_of_another_size_is_not_believed(difference: int) -> None:
    with pytest.raises(Unsupported, match="contradicts itself"):
        checked_control(control_block(), GEOMETRY.size + difference)


def test_an_arena_of_another_version_says_which() -> None:
    with pytest.raises(Unsupported, match=f"version 77, this controller speaks {layout.VERSION}"):
        checked_control(control_block(version=77), GEOMETRY.size)


@given(st.dictionaries(st.sampled_from(NUMBERS), st.integers(0, (1 << 64) - 1), min_size=1))
def test_any_numbers_are_refused_or_fit_the_mapping(numbers: dict[str, int]) -> None:
    cut = {name: v & (1 << 8 * getattr(Control, name).size) - 1 for name, v in numbers.items()}
    try:
        _, geometry = checked_control(control_block(**cut), GEOMETRY.size)
    except Unsupported:
        return
    assert geometry.size == GEOMETRY.size
    assert geometry.ring_offset(geometry.rings - 1) + geometry.ring_stride == geometry.size


@given(
    rings=st.integers(1, 300),
    ring_bits=st.integers(12, 24),
    markers=st.integers(1, 5000),
    sites_bits=st.integers(0, 16),
    edits=st.integers(0, 5000),
)
def test_parts_of_an_arena_follow_each_other_and_do_not_overlap(
    rings: int, ring_bits: int, markers: int, sites_bits: int, edits: int
) -> None:
    geometry = Geometry(rings, 1 << ring_bits, markers, 1 << sites_bits, edits)

    assert CONTROL + ctypes.sizeof(Control) <= SCRATCH
    assert geometry.markers >= SCRATCH + SCRATCH_SIZE
    assert geometry.marker_offset(markers) <= geometry.counts
    assert geometry.count_offset(rings - 1, markers) <= geometry.sites
    assert geometry.sites + (ctypes.sizeof(TrapSite) << sites_bits) <= geometry.journal_edits
    assert geometry.journal_edits + edits * ctypes.sizeof(EditEntry) <= geometry.ring
    starts = (
        geometry.markers, geometry.counts, geometry.sites,
        geometry.journal_edits, geometry.ring, geometry.size,
    )  # fmt: skip
    assert all(start % PAGE == 0 for start in starts)
    assert geometry.ring_offset(rings) == geometry.size


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

    first = arena.find_marker("get", "get %s", b"\3", (64,))
    second = arena.find_marker("get", "get %d", b"\1", (0,))

    assert (first, second) == (0, 1)
    assert arena.find_marker("get", "get %s", b"\3", (64,)) == 0
    assert other.find_marker("get", "get %d", b"\1", (0,)) == 1
    assert other.find_marker("put", "put", b"", ()) == 2
    assert [entry.id for entry in arena.entries()] == [0, 1, 2]


def test_an_entry_tells_the_runtime_how_to_take_the_arguments() -> None:
    arena = make_arena()

    arena.find_marker("x" * 70, "signature", b"\1\3", (0, 64))

    (entry,) = arena.entries()
    assert (entry.argc, bytes(entry.ops)[:3], list(entry.limits)[:3]) == (2, b"\1\3\0", [0, 64, 0])
    assert entry.name == b"x" * 63
    assert entry.name_hash == fnv1a(b"signature")
    assert arena.entry_address(0) == BASE + GEOMETRY.markers


def test_a_full_table_refuses_new_markers_and_finds_the_old() -> None:
    arena = make_arena()
    for number in range(GEOMETRY.max_markers):
        arena.find_marker("m", f"m{number}", b"", ())

    with pytest.raises(Refused, match="room for 128 markers"):
        arena.find_marker("m", "one more", b"", ())
    assert arena.find_marker("m", "m127", b"", ()) == 127


def test_a_number_of_markers_that_cannot_be_is_not_followed() -> None:
    arena = make_arena()
    arena.write_control("markers_used", 0xFFFFFFFF)

    assert len(list(arena.entries())) == GEOMETRY.max_markers


def test_switching_is_written_down_and_changes_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(arena_module.time, "time", lambda: 1234.5)
    arena = make_arena()
    arena.find_marker("get", "get %s", b"\3", (64,))
    (before,) = arena.entries()

    arena.note_switched(0, Mode.INT3)
    (on,) = arena.entries()
    arena.note_switched(0, None)
    (off,) = arena.entries()

    assert (on.since, on.by, on.mode) == (1234, os.getpid(), list(Mode).index(Mode.INT3) + 1)
    assert bytes(on.ops) == bytes(before.ops)
    assert (on.id, on.name, on.name_hash) == (before.id, before.name, before.name_hash)
    assert bytes(off) == bytes(before)


def test_counters_are_added_up_over_the_rings() -> None:
    arena = make_arena()
    for ring, (hits, lost) in enumerate([(5, 1), (1 << 40, 2)]):
        count = layout.Count(hits=hits, lost=lost)
        arena.store.write(GEOMETRY.count_offset(ring, 3), bytes(count))

    assert arena.counted(3) == (5 + (1 << 40), 3)
    assert arena.counted(2) == (0, 0)


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
    monkeypatch.setattr(inject, "os", SimpleNamespace(path=there))
    monkeypatch.setattr(inject, "tid_inside", lambda pid, tid: tid)
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
    monkeypatch.setattr(inject, "tid_inside", lambda pid, tid: tid - 800)
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
