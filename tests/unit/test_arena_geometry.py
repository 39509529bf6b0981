"""What of the numbers in a control block is believed."""

from __future__ import annotations

import ctypes
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

import markerjit.abi as abi
from markerjit.abi import (
    ALIVE,
    CODE_SIZE,
    CONTROL,
    PAGE,
    RUNTIME_SIZE,
    TABLES,
    Control,
    Geometry,
    PartEntry,
    Sizes,
    checked_geometry,
    lay_out,
)
from markerjit.errors import Unsupported
from tests.support.made_arena import FULL_PAGES as GEOMETRY
from tests.support.made_arena import control_block, geometry_of

NUMBERS = ("arena_size", "cpus", "ring_size")
FIELDS = ("offset", "entry_size", "count")
NOT_COUNTED_BY = (
    abi.PART_EDITS, abi.PART_UNITS, abi.PART_ISLANDS, abi.PART_SCRATCH, abi.PART_DATA,
    abi.PART_CALLERS, abi.PART_SLOTS, abi.PART_AGGREGATES,
)  # fmt: skip
NAMES = {value: name for name, value in vars(abi).items() if name.startswith("PART_")}


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
    geometry = geometry_of(ring_size=size, ring_stride=stride)

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
    assert geometry.ring_offset(last + 1) == geometry.aggregates.offset
    assert geometry.aggregates.end == geometry.size
