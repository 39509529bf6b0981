"""All rings of an arena read together, as real recorders fill them; and an arena that lies."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from ctypes import c_char_p, c_uint64
from pathlib import Path

import pytest

from markerjit.abi import PAGE, MarkerEntry
from markerjit.events.rings import Polled, Rings
from markerjit.ring.batch import Columns
from markerjit.ring.types import FILLER, Options, RecordType, Time
from tests.support.heads import head_of
from tests.support.own_arena import CHARS, INT, LONG, WAYS, OwnArena, Slot, geometry_of, marker_id

UNCOUNTED = Options(counted=False)


@pytest.fixture(autouse=True)
def one_cpu() -> Iterator[int]:
    """So that one ring gets all events."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(allowed)})
    yield max(allowed)
    os.sched_setaffinity(0, allowed)


@pytest.fixture
def own(build: Path) -> OwnArena:
    return OwnArena(geometry_of(ring_size=4 * PAGE))


def rings_of(own: OwnArena) -> Rings:
    return Rings(own.arena, own.types)


def column(tables: list[Columns], field: str = "n") -> list[int]:
    """In order of time: a call that is interrupted records in another ring than those around it."""
    values: list[tuple[int, int]] = []
    for table in tables:
        values += zip(table.time.tolist(), table.fields[field].tolist(), strict=True)  # type: ignore[union-attr]
    return [value for _, value in sorted(values)]


def by_way(own: OwnArena, polled: Polled) -> tuple[list[int], set[int]]:
    """The numbers in rings of the arena's way of recording, and those in rings of the other: where
    a call goes that is interrupted."""
    mine, other = [], set()
    for packet in polled.packets:
        numbers = [word for _, _, word in struct.iter_unpack("<QQQ", packet.data)]
        if (packet.ring >= own.geometry.cpus) == (own.way == "shared"):
            mine += numbers
        else:
            other |= set(numbers)
    return mine, other


def hit(slot: Slot, count: int, start: int = 0) -> None:
    for number in range(start, start + count):
        slot.hit(c_uint64(number))


def test_records_come_as_columns_and_as_they_were(own: OwnArena, one_cpu: int) -> None:
    slot = own.marker("n %ld", LONG)
    rings = rings_of(own)
    hit(slot, 3)

    polled = rings.poll(packets=True)

    numbers, elsewhere = by_way(own, polled)
    assert sorted([*numbers, *elsewhere]) == column(polled.columns) == [0, 1, 2]
    assert {packet.cpu for packet in polled.packets} == {one_cpu}
    assert [cpu for columns in polled.columns for cpu in columns.cpu.tolist()] == [one_cpu] * 3
    assert polled.records == 3
    assert rings.poll(packets=True) == ([], [], 0)


@pytest.mark.parametrize("packets", [True, False])
@pytest.mark.parametrize("columns", [True, False])
def test_what_is_not_asked_for_is_counted_all_the_same(
    own: OwnArena, packets: bool, columns: bool
) -> None:
    slot = own.marker("n %ld", LONG, options=UNCOUNTED)
    rings = rings_of(own)
    hit(slot, 3)

    polled = rings.poll(packets=packets, columns=columns)

    assert (len(polled.packets), len(polled.columns), polled.records) == (packets, columns, 3)
    assert own.counted() == (3, 0)


def test_records_of_other_markers_are_left_out_but_counted(own: OwnArena) -> None:
    marker = own.marker("n %ld", LONG, options=UNCOUNTED)
    other = own.marker("s %s", CHARS, name="other", options=UNCOUNTED)
    types = {0: own.types[0]}
    rings = Rings(own.arena, types)
    for number in range(50):
        marker.hit(c_uint64(number))
        other.hit(c_char_p(b"x" * number))

    polled = rings.poll(packets=True)

    assert column(polled.columns) == [*range(50)]
    assert len(polled.packets[0].data) == 50 * 24
    assert (polled.records, rings.left_out, rings.damaged) == (50, 50, 0)
    assert own.counted() == own.counted("other") == (50, 0)


def test_what_the_runtime_counts_itself_is_not_counted_again(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG)
    hit(slot, 3)
    rings = rings_of(own)

    assert rings.waiting() == {}
    assert rings.poll().records == 3
    hit(slot, 2)
    rings.start()

    assert own.counted() == (5, 0)


def test_what_waits_is_counted_and_not_taken_out(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG, options=UNCOUNTED)
    rings = rings_of(own)
    hit(slot, 3)

    assert rings.waiting() == rings.waiting() == {0: 3}
    assert own.counted() == (0, 0)
    assert column(rings.poll().columns) == [0, 1, 2]


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_what_a_start_forgets_is_counted(build: Path, overwrite: bool, way: str) -> None:
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=way)
    slot = own.marker("n %ld", LONG, options=UNCOUNTED)
    hit(slot, 3)

    rings_of(own).start(overwrite=overwrite)

    assert own.counted() == (3, 0)
    assert rings_of(own).waiting() == {}


@pytest.mark.parametrize("way", WAYS)
def test_nothing_waits_in_rings_that_nobody_is_to_read(build: Path, way: str) -> None:
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=way)
    slot = own.marker("n %ld", LONG, options=UNCOUNTED)
    rings_of(own).start(overwrite=True)
    hit(slot, 3)

    assert rings_of(own).waiting() == {}


@pytest.mark.parametrize("way", WAYS)
def test_a_marker_of_which_the_runtime_was_told_later_is_in_nobodys_way(
    build: Path, way: str
) -> None:
    own = OwnArena(geometry_of(ring_size=4 * PAGE), way=way)
    marker = own.marker("n %ld", LONG)
    rings = Rings(own.arena, {0: own.types[0]})
    hit(marker, 1)
    rings.poll()
    late = own.marker("n %ld m %ld", LONG, LONG, name="late")
    for number in range(1, 50):
        late.hit(c_uint64(7), c_uint64(8))
        hit(marker, 1, start=number)

    assert column(rings.poll().columns) == [*range(1, 50)]
    assert (rings.left_out, rings.bad, rings.damaged) == (49, 0, 0)


def test_a_start_forgets_and_says_nothing_of_what_was_unread(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG)
    hit(slot, 3)
    rings = rings_of(own)
    assert rings.unread() == 72

    rings.start()
    assert rings.unread() == 0
    hit(slot, 2, start=10)

    assert column(rings.poll().columns) == [10, 11]


def test_another_reader_goes_on_where_one_has_stopped(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG)
    first = rings_of(own)
    hit(slot, 3)
    first.poll()
    hit(slot, 2, start=3)

    second = rings_of(own)
    second.resume()

    assert second.unread() == 48
    assert column(second.poll().columns) == [3, 4]


def test_rings_that_another_controller_has_resized_are_read_as_they_are(own: OwnArena) -> None:
    own = OwnArena(geometry_of(ring_size=4 * PAGE, ring_stride=16 * PAGE))
    slot = own.marker("n %ld", LONG)
    hit(slot, 100)
    seen_before = own.arena.geometry
    own.arena.rings.resize(8 * PAGE)
    own.arena.rings.geometry = seen_before
    rings = rings_of(own)
    rings.start()
    hit(slot, 1300)

    assert column(rings.poll().columns) == [*range(1300)]
    assert rings.damaged == 0


def test_numbers_of_records_without_a_time_go_on_from_poll_to_poll(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG, options=Options(Time.NONE))
    rings = rings_of(own)
    times = []
    for _ in range(3):
        hit(slot, 2)
        (columns,) = rings.poll().columns
        times.append(columns.time.tolist())

    assert times == [[0, 1], [2, 3], [4, 5]]


def test_a_picture_of_rings_that_are_overwritten_takes_nothing_out(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG)
    rings = rings_of(own)
    hit(slot, 5)
    rings.start(overwrite=True)
    hit(slot, 2000)

    first, other = rings.picture(packets=True), rings_of(own).picture(packets=True)

    assert column(first.columns) == column(other.columns)
    numbers, elsewhere = by_way(own, first)
    assert numbers == [n for n in range(numbers[0], 2000) if n not in elsewhere]
    assert len(numbers) > 300
    assert rings.unread() == 0, "nobody was to read them"
    assert own.counted() == (2005, 0)
    assert own.arena.rings.are_overwritten()


def test_a_picture_begins_where_the_recording_did(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG)
    hit(slot, 5)
    rings_of(own).start(overwrite=True)
    hit(slot, 2, start=20)

    assert column(rings_of(own).picture().columns) == [20, 21]


@pytest.mark.parametrize("size", [1, 2, 8, 16])
def test_rings_are_resized_and_go_on(build: Path, size: int) -> None:
    for way in ("restartable", "shared"):
        own = OwnArena(geometry_of(ring_size=4 * PAGE, ring_stride=16 * PAGE), way=way)
        slot = own.marker("n %ld", LONG)
        hit(slot, 300)
        own.arena.rings.resize(size * PAGE)
        rings = rings_of(own)
        rings.start()

        assert rings.poll().records == 0
        hit(slot, 3000)
        numbers, elsewhere = by_way(own, rings.poll(packets=True))
        per_page = PAGE // (24 if way == "restartable" else 32)
        assert numbers == [n for n in range(numbers[-1] + 1) if n not in elsewhere]
        assert size * per_page - per_page < len(numbers) <= size * per_page
        rings.start(overwrite=True)
        hit(slot, 3000)
        if size > 2:
            numbers, elsewhere = by_way(own, rings.picture(packets=True))
            assert numbers == [n for n in range(numbers[0], 3000) if n not in elsewhere]
            assert numbers[-1] >= 2999 - len(elsewhere)
        assert rings.damaged == 0


def test_a_commit_word_from_before_rings_were_resized_is_not_believed(build: Path) -> None:
    own = OwnArena(geometry_of(ring_size=4 * PAGE, ring_stride=16 * PAGE))
    slot = own.marker("n %ld", LONG)
    hit(slot, 3)
    own.arena.rings.resize(16 * PAGE)
    rings = rings_of(own)
    rings.start()

    for ring in range(own.geometry.cpus, own.geometry.rings):  # reserved, and nothing written
        head = own.geometry.head_offset(ring)
        position = int.from_bytes(own.store.read(head, 8), "little")
        own.store.write(head, (position + 96).to_bytes(8, "little"))

    assert rings.poll().records == 0
    assert rings.damaged == 0


# ---- an arena that lies --------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 8, 16, 0xFFFF])
def test_a_size_in_the_arena_is_not_believed_of_markers_that_are_asked_for(
    own: OwnArena, size: int, one_cpu: int
) -> None:
    own.marker("n %d m %ld s %s", INT, LONG, CHARS)
    rings = rings_of(own)
    place = own.geometry.marker_offset(0) + MarkerEntry.size.offset
    own.store.write(place, size.to_bytes(2, "little"))
    for words in (1, 2, 3, 4):
        record = head_of(0, words).to_bytes(8, "little") + bytes(8 * words - 8)
        ring = own.geometry.ring_offset(one_cpu)
        head = own.geometry.head_offset(one_cpu)
        position = int.from_bytes(own.store.read(head, 8), "little")
        own.store.write(ring + position, record)
        own.store.write(head, (position + len(record)).to_bytes(8, "little"))

        assert rings.poll().records == 0
    assert rings.damaged == 4


@pytest.mark.parametrize("marker", [1, 7, 0xFFFF, FILLER])
def test_an_id_in_the_arena_that_no_marker_has_is_come_through(own: OwnArena, marker: int) -> None:
    slot = own.marker("n %ld", LONG)
    entry = own.arena.markers.entry(0)
    entry.id, entry.size = marker, 0
    own.store.write(own.geometry.marker_offset(1), bytes(entry))
    own.arena.control.write("markers_used", 2)
    rings = rings_of(own)
    hit(slot, 500)

    assert column(rings.poll().columns) == [*range(500)]
    assert rings.damaged == 0


def test_types_that_the_arena_does_not_know_are_asked_for_in_vain(own: OwnArena) -> None:
    slot = own.marker("n %ld", LONG)
    stranger = RecordType(5, "stranger", "", ())
    rings = Rings(own.arena, {5: stranger})
    hit(slot, 3)

    assert rings.poll().records == 0
    assert marker_id(own, slot) == 0
