"""Arenas of all versions, and of versions to come: what is read of them, and what is written."""

from __future__ import annotations

import ctypes

import pytest

import markerjit.abi as abi
from markerjit.abi import CONTROL, Control, Geometry, MarkerEntry, Part, PatchEntry, Sizes, lay_out
from markerjit.arena.arena import Arena
from markerjit.arena.journal import Journal
from markerjit.arena.mapped import Arenas, Probes
from markerjit.arena.store import MemoryStore
from markerjit.arena.units import Units
from markerjit.errors import Refused, Unsupported
from markerjit.model import Mode, RemoteAddress
from markerjit.ring.types import HEAD, HEAD_OF_16
from markerjit.session.status import arena_status
from markerjit.session.target import Seen, Target
from tests.support.arena_images import VERSIONS, load_image
from tests.support.made_arena import BASE, PID, SparseMemory, control_block

SIZES = Sizes(cpus=2, ring_size=4096, max_markers=8, max_patches=64, max_edits=8, ring_stride=4096)


def test_there_is_an_image_of_every_version_from_four_on() -> None:
    assert list(VERSIONS) == list(range(4, abi.VERSION + 1))


# ---- versions that there were --------------------------------------------------------------------


@pytest.mark.parametrize("version", VERSIONS)
def test_the_marker_that_is_on_in_an_arena_of_a_version_is_found(version: int) -> None:
    arena = load_image(version).arena()

    on = [entry for entry in arena.markers.entries() if entry.since]

    assert arena.version == version
    assert arena.is_current is (version == abi.VERSION)
    assert [entry.name for entry in on] == [b"truth_loop"]
    (entry,) = on
    assert list(Mode)[entry.mode - 1] is Mode.JUMP
    assert entry.by > 0
    assert arena.counters.of(int(entry.id)).hits > 0
    assert arena.counters.of(int(entry.id)).lost == 0
    assert arena.markers.at(arena.markers.address(int(entry.id))) == entry.id
    assert arena.markers.with_hash(int(entry.name_hash)) == [entry.id]
    assert Journal(arena).left() is None
    assert arena.trap_installed


@pytest.mark.parametrize("version", VERSIONS)
def test_the_status_of_an_arena_of_a_version_says_whose_it_is(version: int) -> None:
    arena = load_image(version).arena()

    status = arena_status(arena, locked=False)

    assert status.version == version
    assert status.owner.pid == arena.markers.entry(0).by
    assert (status.reader, status.writer, status.abandoned) == (None, None, False)
    assert status.to_mend is None


@pytest.mark.parametrize("version", VERSIONS)
def test_the_breakpoint_that_was_taken_away_in_a_version_is_known(version: int) -> None:
    image = load_image(version)
    arena = image.arena()
    part = arena.geometry.patches
    table = b"".join(data for offset, data in image.pieces if part.offset <= offset < part.end)
    words = memoryview(table).cast("Q").tolist()
    address, body = next((a, b) for a, b in zip(words[::4], words[1::4], strict=True) if a)
    at = RemoteAddress(address)

    assert arena.patches.look().had(at, RemoteAddress(body))
    assert not arena.patches.look().has_planted(at, RemoteAddress(body))
    arena.patches.mark(planted=[at])
    assert arena.patches.look().has_planted(at, RemoteAddress(body))
    arena.patches.forget([at])
    assert not arena.patches.look().has_planted(at, RemoteAddress(body))
    assert arena.patches.look().had(at, RemoteAddress(body))


@pytest.mark.parametrize("version", VERSIONS)
def test_a_marker_of_a_version_is_switched_off_and_nothing_else_changes(version: int) -> None:
    arena = load_image(version).arena()
    before = arena.markers.entry(0)

    arena.markers.note_switched(0, None)

    after = arena.markers.entry(0)
    assert (after.since, after.by, after.mode, after.held) == (0, 0, 0, 0)
    for name, *_ in MarkerEntry._fields_:
        if name not in ("since", "by", "mode", "held"):
            assert bytes(memoryview(before))[field(name)] == bytes(memoryview(after))[field(name)]


def field(name: str) -> slice:
    place = getattr(MarkerEntry, name)
    return slice(place.offset, place.offset + place.size)


def test_heads_in_the_rings_of_an_arena_are_divided_as_its_version_has_them() -> None:
    assert load_image(4).arena().division == HEAD_OF_16
    assert load_image(5).arena().division == HEAD


def test_an_arena_from_before_all_of_them_says_so() -> None:
    memory = SparseMemory(1 << 30)
    memory.write(RemoteAddress(BASE + CONTROL), control_block(lay_out(SIZES), version=3))

    with pytest.raises(Unsupported, match="version 3; this controller knows those from 4 on"):
        Arena(PID, BASE, MemoryStore(memory, BASE), 1 << 30)  # type: ignore[arg-type]


# ---- versions to come ----------------------------------------------------------------------------


def of_another(version: int, by: int) -> Arena:
    """An arena whose entries and control block are `by` bytes longer than ours."""
    geometry = lay_out(SIZES)
    longer = (abi.PART_MARKERS, abi.PART_PATCHES, abi.PART_UNITS)
    shapes = {
        number: (part.entry_size + by * (number in longer), part.entries)
        for number, part in enumerate(geometry.parts)
        if part.entries
    }
    other = abi.laid_out(geometry.cpus, geometry.ring_size, abi.TABLES, shapes)
    store = MemoryStore(SparseMemory(other.size), BASE)  # type: ignore[arg-type]
    size = ctypes.sizeof(Control) + by
    store.write(CONTROL, control_block(other, version=version, control_size=size))
    for offset in (part.offset for part in other.parts if part.entries):
        store.write(offset, bytes(8))
    store.write(CONTROL + ctypes.sizeof(Control), b"\xee" * 64)
    return Arena(PID, BASE, store, other.size)


def tails(arena: Arena, part: Part, known: int, count: int) -> list[bytes]:
    return [arena.store.read(part.at(i) + known, part.entry_size - known) for i in range(count)]


def test_a_longer_entry_is_read_and_written_and_its_tail_is_left_alone() -> None:
    arena = of_another(abi.VERSION + 1, 24)
    part, known = arena.geometry.markers, ctypes.sizeof(MarkerEntry)
    for number in range(3):
        entry = MarkerEntry(name_hash=number + 1, id=number, since=7, by=8, argc=2)
        arena.store.write(part.at(number), bytes(entry) + b"\xaa" * 24)
    arena.control.write("markers_used", 3)

    assert [entry.name_hash for entry in arena.markers.entries()] == [1, 2, 3]
    assert arena.markers.at(arena.markers.address(2)) == 2
    arena.markers.note_switched(1, None)
    assert [entry.since for entry in arena.markers.entries()] == [7, 0, 7]
    assert tails(arena, part, known, 3) == [b"\xaa" * 24] * 3
    assert arena.store.read(CONTROL + ctypes.sizeof(Control), 64) == b"\xee" * 64
    with pytest.raises(Refused, match=f"an arena of version {abi.VERSION + 1}, which a newer"):
        arena.refuse_newer()


def test_what_a_shorter_entry_does_not_have_is_zero_and_is_not_written() -> None:
    length = MarkerEntry.until_ns.offset
    arena = of_another(abi.VERSION, length - ctypes.sizeof(MarkerEntry))
    part = arena.geometry.markers
    for number in range(2):
        entry = bytes(MarkerEntry(name_hash=number + 1, id=number, question=7, until_ns=9))
        arena.store.write(part.at(number), entry[:length])
    arena.control.write("markers_used", 2)

    first, second = arena.markers.entries()

    assert (first.question, second.question) == (7, 7)
    assert (first.until_ns, second.until_ns) == (0, 0)
    assert second.name_hash == 2
    arena.markers.note_until(0, 9)
    assert arena.markers.entry(1).name_hash == 2


def test_patches_of_longer_entries_keep_their_tails() -> None:
    arena = of_another(abi.VERSION + 1, 24)
    part, known = arena.geometry.patches, ctypes.sizeof(PatchEntry)
    index = abi.patch_place(0x1000, part.entries - 1)
    entry = PatchEntry(address=0x1000, body=0x2000, size=2)
    arena.store.write(part.at(index), bytes(entry) + b"\xaa" * 24)

    arena.patches.mark(planted=[RemoteAddress(0x1000)])

    assert arena.patches.look().has_planted(RemoteAddress(0x1000), RemoteAddress(0x2000))
    assert arena.store.read(part.at(index) + known, 24) == b"\xaa" * 24


@pytest.mark.parametrize("by", [0, 1])
def test_a_newer_arena_beside_one_of_ours_keeps_the_process_from_being_changed(by: int) -> None:
    target = Target.__new__(Target)
    ours, other = of_another(abi.VERSION, 0), of_another(abi.VERSION + by, 0)
    target.seen = Seen(arenas=Arenas(ours, (other,), Probes(), False))

    if by:
        with pytest.raises(Refused, match="which a newer"):
            target.refuse_unknown_runtime()
    else:
        target.refuse_unknown_runtime()


def test_the_longest_units_are_read_in_pieces() -> None:
    """The table may claim 256 MiB, and be nothing but a hole."""
    sizes: list[int] = []

    class Store:
        def read(self, offset: int, size: int) -> bytes:
            sizes.append(size)
            return bytes(size)

        def write(self, offset: int, data: bytes) -> None:
            raise AssertionError("nothing is written")

    geometry = lay_out(SIZES)
    units = Part(geometry.size, abi.LARGEST_ENTRY, abi.MOST_UNITS)
    parts = (*geometry.parts[: abi.PART_UNITS], units, *geometry.parts[abi.PART_UNITS + 1 :])
    control = of_another(abi.VERSION, 0).control
    control.write("units_used", abi.MOST_UNITS)

    assert Units(Store(), control, geometry._replace(parts=parts)).all() == []
    assert sum(sizes) == units.size
    assert max(sizes) <= 4 << 20


@pytest.mark.parametrize(
    ("part", "shape"),
    [
        (abi.PART_PATCHES, (24, 64)),
        (abi.PART_EDITS, (8, 64)),
        (abi.PART_SCRATCH, (1, abi.PAGE)),
        (abi.PART_SCRATCH, (0, 0)),
    ],
)
def test_a_part_that_is_too_small_for_what_is_written_there_is_not_believed(
    part: int, shape: tuple[int, int]
) -> None:
    """Otherwise a write would go into what is behind it; into the runtime's code, where the part
    is not there."""
    geometry = lay_out(SIZES)
    shapes = {
        number: (part.entry_size, part.entries)
        for number, part in enumerate(geometry.parts)
        if part.entries
    }
    other = abi.laid_out(geometry.cpus, geometry.ring_size, abi.TABLES, shapes | {part: shape})

    with pytest.raises(Unsupported, match="contradicts itself"):
        abi.checked_geometry(Control.from_buffer_copy(control_block(other)), other.size)


def test_an_older_arena_without_a_table_has_nothing_in_it() -> None:
    arena = load_image(4).arena()

    assert arena.units.all() == []
    with pytest.raises(Refused, match="room for 0 files"):
        arena.units.check_room()


def test_numbers_of_version_four_that_contradict_each_other_are_not_believed() -> None:
    image = load_image(4)
    for offset in range(64, 120, 8):  # where its parts were said to be
        arena = image.arena()
        arena.store.write(CONTROL + offset, (4096).to_bytes(8, "little"))
        with pytest.raises(Unsupported, match="contradicts itself"):
            Arena(PID, BASE, arena.store, image.size)  # type: ignore[arg-type]


def test_an_image_is_of_an_arena_as_it_is_made() -> None:
    geometry: Geometry = load_image(abi.VERSION).arena().geometry

    assert [part.entry_size for part in geometry.parts[:4]] == [
        part.entry_size for part in lay_out(SIZES).parts[:4]
    ]
