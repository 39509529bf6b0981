"""Arenas of other versions: where their fields and entries are.

    the same    everything
    older       it is read, switched off and repaired. Markers are switched on in an arena of our
                own, which is put beside it when nothing of the older one is on
    newer       it is read, as far as its table of parts says where things are

From version 5 on the control block has a table of parts, and structures only grow at their ends, so
a reader needs no more than the sizes of the entries. Version 4 had its parts at places that follow
from the control block, and two structures that were rearranged since: they are here.

What this does not do: decide what may be done with such an arena (session/).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TypeVar

import markerjit.abi as abi
from markerjit.abi import Control, Geometry, MarkerEntry
from markerjit.errors import Unsupported
from markerjit.tuples import NamedTuple

OLDEST = 4

T = TypeVar("T", bound=ctypes.Structure)


class Layout(NamedTuple):
    """The structures of a version whose fields are not where ours are, and where the search for a
    patch begins (of an address, in a table of so many entries less one)."""

    control: type[ctypes.Structure]
    marker: type[ctypes.Structure]
    patch_place: Callable[[int, int], int]


class _Control4(ctypes.Structure):
    """struct mj_control of version 4."""

    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("cpu_flags", ctypes.c_uint32),
        ("runtime_id", ctypes.c_uint64),
        ("arena_size", ctypes.c_uint64),
        ("cpus", ctypes.c_uint32),
        ("ring_size", ctypes.c_uint32),
        ("max_markers", ctypes.c_uint32),
        ("max_sites", ctypes.c_uint32),
        ("max_edits", ctypes.c_uint32),
        ("tid_offset", ctypes.c_int32),
        ("rseq_offset", ctypes.c_int32),
        ("pid", ctypes.c_uint32),
        ("part_offsets", ctypes.c_uint64 * 7),
        ("ring_stride", ctypes.c_uint64),
        ("clock", ctypes.c_uint64),
        ("owner", abi.OwnerEntry),
        ("owner_since", ctypes.c_uint64),
        ("old_trap", abi.Sigaction),
        ("seen_trap", abi.Sigaction),
        ("trap_installed", ctypes.c_uint32),
        ("markers_used", ctypes.c_uint32),
        ("code_used", ctypes.c_uint32),
        ("data_used", ctypes.c_uint32),
        ("reader", abi.OwnerEntry),
        ("lease_ns", ctypes.c_uint64),
        ("journal", abi.JournalHead),
        ("reading", ctypes.c_uint32),
    ]


_NOT_IN_4 = (
    *("to_stack", "asks", "question", "question_text", "question_size", "until_ns", "aggregate"),
    "more_ops",
)


class _Marker4(ctypes.Structure):
    """struct mj_marker of version 4, whose ids had 16 bits."""

    _fields_ = [
        (field[0], ctypes.c_uint16 if field[0] == "id" else field[1])
        for field in MarkerEntry._fields_
        if field[0] not in _NOT_IN_4
    ]


def _patch_place_4(address: int, mask: int) -> int:
    return (address * 0x9E3779B97F4A7C15 % (1 << 64) >> 32) & mask


CURRENT = Layout(Control, MarkerEntry, abi.patch_place)
_VERSION_4 = Layout(_Control4, _Marker4, _patch_place_4)


def layout_of(block: bytes) -> Layout:
    """How an arena with this control block is laid out.

    Raises Unsupported when it is not an arena of ours, or of a version that was never released.
    """
    control = Control.from_buffer_copy(block)
    if control.magic != abi.MAGIC:
        raise Unsupported("the mapping called markerjit is not an arena of ours")
    if control.version < OLDEST:
        raise Unsupported(
            f"the target holds an arena of version {control.version}; this controller knows those "
            f"from {OLDEST} on"
        )
    return _VERSION_4 if control.version == 4 else CURRENT


def control_of(block: bytes, layout: Layout) -> Control:
    """The control block as one of our version. Fields that it does not have are zero."""
    if layout is _VERSION_4:
        return _from_version_4(_Control4.from_buffer_copy(block))
    known = int(Control.from_buffer_copy(block).control_size)
    return Control.from_buffer_copy(block[:known].ljust(ctypes.sizeof(Control), b"\0"))


def converted(entry: ctypes.Structure, kind: type[T]) -> T:
    """The same entry as another structure, with the fields that both have."""
    made = kind()
    for name, *_ in entry._fields_:
        if hasattr(made, name):
            setattr(made, name, getattr(entry, name))
    return made


def _from_version_4(block: _Control4) -> Control:
    control = converted(block, Control)
    if not _is_possible(block):
        return control  # without parts, which is not believed
    rings = 2 * block.cpus
    shapes = {
        abi.PART_SCRATCH: (1, abi.SCRATCH_SIZE),
        abi.PART_DATA: (1, abi.DATA_SIZE),
        abi.PART_MARKERS: (ctypes.sizeof(_Marker4), block.max_markers),
        abi.PART_COUNTS: (abi.COUNT_SIZE, rings * block.max_markers),
        abi.PART_PATCHES: (abi.SMALLEST_PATCH, block.max_sites),  # struct mj_trap_site
        abi.PART_EDITS: (ctypes.sizeof(abi.EditEntry), block.max_edits),
        abi.PART_HEADS: (abi.RING_HEAD_SIZE, rings),
        abi.PART_COMMITS: (block.ring_stride // abi.PAGE * 8, block.cpus),
        abi.PART_RINGS: (block.ring_stride, rings),
    }
    geometry: Geometry = abi.laid_out(block.cpus, block.ring_size, abi.TABLES, shapes)
    tables = (number for number in shapes if number not in (abi.PART_SCRATCH, abi.PART_DATA))
    if list(block.part_offsets) == [geometry.parts[number].offset for number in tables]:
        control.parts = geometry.table()
    return control


def _is_possible(block: _Control4) -> bool:
    """Whether its numbers fit where a table of parts has them."""
    return bool(
        block.cpus <= abi.MOST_CPUS
        and block.max_markers <= abi.MOST_MARKERS
        and block.ring_stride <= abi.LARGEST_RING
    )
