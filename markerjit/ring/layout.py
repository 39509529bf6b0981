"""The arena as abi.h lays it out, mirrored with ctypes; a test compares every offset.

An arena is one piece of memory that the target made and shares with its controllers. This module
knows where everything in it is. It neither creates nor trusts one: `checked_control` compares the
numbers in a control block with the size of what is really mapped.
"""

from __future__ import annotations

import ctypes
from typing import NamedTuple

from markerjit.errors import Unsupported

PAGE = 4096
CODE_SIZE = 2 * PAGE
CONTROL = CODE_SIZE
SCRATCH = CONTROL + PAGE
SCRATCH_SIZE = 16 * PAGE
MAGIC = 0x74696A72656B726D
VERSION = 2
NAME = b"markerjit"
MAX_ARGS = 12
MAX_STRING = 4096
FILLER = 0xFFFF
STRING_CUT = 1 << 32
STRING_NULL = 1 << 33
RECORD_SIZE = 24
CPU_RDPID = 1
JOURNAL_EMPTY = 0
JOURNAL_OPEN = 1

OP_GP = 1
OP_FP = 2
OP_STRING = 3
OP_BYTES = 4
OP_PREFIX = 5


class Sigaction(ctypes.Structure):
    """The kernel's struct sigaction."""

    _fields_ = [
        ("handler", ctypes.c_uint64),
        ("flags", ctypes.c_uint64),
        ("restorer", ctypes.c_uint64),
        ("mask", ctypes.c_uint64),
    ]


class OwnerEntry(ctypes.Structure):
    """struct mj_owner."""

    _fields_ = [
        ("pid", ctypes.c_uint32),
        ("pid_namespace", ctypes.c_uint32),
        ("started", ctypes.c_uint64),
    ]


class JournalHead(ctypes.Structure):
    """struct mj_journal."""

    _fields_ = [
        ("state", ctypes.c_uint32),
        ("edits", ctypes.c_uint32),
        ("since", ctypes.c_uint64),
        ("owner", OwnerEntry),
    ]


class EditEntry(ctypes.Structure):
    """struct mj_edit."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("size", ctypes.c_uint8),
        ("step", ctypes.c_uint8),
        ("code", ctypes.c_uint8),
        ("again", ctypes.c_uint8),
        ("store", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 3),
        ("old_bytes", ctypes.c_uint8 * 16),
        ("new_bytes", ctypes.c_uint8 * 16),
    ]


class Control(ctypes.Structure):
    """struct mj_control."""

    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("cpu_flags", ctypes.c_uint32),
        ("runtime_id", ctypes.c_uint64),
        ("arena_size", ctypes.c_uint64),
        ("rings", ctypes.c_uint32),
        ("ring_size", ctypes.c_uint32),
        ("max_markers", ctypes.c_uint32),
        ("max_sites", ctypes.c_uint32),
        ("max_edits", ctypes.c_uint32),
        ("tid_offset", ctypes.c_int32),
        ("markers", ctypes.c_uint64),
        ("counts", ctypes.c_uint64),
        ("sites", ctypes.c_uint64),
        ("journal_edits", ctypes.c_uint64),
        ("ring", ctypes.c_uint64),
        ("ring_stride", ctypes.c_uint64),
        ("alive", ctypes.c_uint64),
        ("owner", OwnerEntry),
        ("owner_since", ctypes.c_uint64),
        ("old_trap", Sigaction),
        ("seen_trap", Sigaction),
        ("trap_installed", ctypes.c_uint32),
        ("markers_used", ctypes.c_uint32),
        ("reader", OwnerEntry),
        ("lease", ctypes.c_uint64),
        ("lease_ns", ctypes.c_uint64),
        ("journal", JournalHead),
    ]


class MarkerEntry(ctypes.Structure):
    """struct mj_marker."""

    _fields_ = [
        ("name_hash", ctypes.c_uint64),
        ("since", ctypes.c_uint64),
        ("by", ctypes.c_uint32),
        ("id", ctypes.c_uint16),
        ("argc", ctypes.c_uint8),
        ("mode", ctypes.c_uint8),
        ("ops", ctypes.c_uint8 * MAX_ARGS),
        ("limits", ctypes.c_uint16 * MAX_ARGS),
        ("reserved", ctypes.c_uint8 * 4),
        ("name", ctypes.c_char * 64),
    ]


class Count(ctypes.Structure):
    """struct mj_count."""

    _fields_ = [("hits", ctypes.c_uint64), ("lost", ctypes.c_uint64)]


class TrapSite(ctypes.Structure):
    """struct mj_trap_site."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("body", ctypes.c_uint64),
        ("pushed", ctypes.c_uint64),
        ("gone", ctypes.c_uint64),
    ]


class Entry(ctypes.Structure):
    """struct mj_entry, the first bytes of the runtime's code."""

    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("record", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("trap", ctypes.c_uint32),
        ("restorer", ctypes.c_uint32),
    ]


RING_RESERVED = 0
RING_CONSUMED = 64
RING_DATA = PAGE


class Geometry(NamedTuple):
    """How large the parts of an arena are, and so where each begins."""

    rings: int
    ring_size: int
    max_markers: int
    max_sites: int
    max_edits: int

    @property
    def markers(self) -> int:
        return SCRATCH + SCRATCH_SIZE

    @property
    def counts(self) -> int:
        return _page_up(self.markers + self.max_markers * ctypes.sizeof(MarkerEntry))

    @property
    def sites(self) -> int:
        used = self.rings * self.max_markers * ctypes.sizeof(Count)
        return _page_up(self.counts + used)

    @property
    def journal_edits(self) -> int:
        return _page_up(self.sites + self.max_sites * ctypes.sizeof(TrapSite))

    @property
    def ring(self) -> int:
        return _page_up(self.journal_edits + self.max_edits * ctypes.sizeof(EditEntry))

    @property
    def ring_stride(self) -> int:
        return PAGE + self.ring_size

    @property
    def size(self) -> int:
        return self.ring + self.rings * self.ring_stride

    def count_offset(self, ring: int, marker: int) -> int:
        """Where the counters of a marker on a CPU are."""
        return self.counts + (ring * self.max_markers + marker) * ctypes.sizeof(Count)

    def marker_offset(self, marker: int) -> int:
        """Where a marker's entry is."""
        return self.markers + marker * ctypes.sizeof(MarkerEntry)

    def ring_offset(self, ring: int) -> int:
        """Where a ring's head is; its records start RING_DATA later."""
        return self.ring + ring * self.ring_stride


def _page_up(size: int) -> int:
    return (size + PAGE - 1) & -PAGE


def checked_control(data: bytes, mapped_size: int) -> tuple[Control, Geometry]:
    """Read a control block and believe only what fits the mapping.

    Raises Unsupported when this is not an arena, is one of another version, or contradicts itself.
    """
    control = Control.from_buffer_copy(data)
    if control.magic != MAGIC:
        raise Unsupported("the mapping called markerjit is not an arena of ours")
    if control.version != VERSION:
        raise Unsupported(
            f"the target holds an arena of version {control.version}, this controller speaks "
            f"{VERSION}; use the markerjit that made it, or restart the target"
        )
    geometry = Geometry(
        control.rings, control.ring_size,
        control.max_markers, control.max_sites, control.max_edits,
    )  # fmt: skip
    stated = (
        control.arena_size, control.markers, control.counts,
        control.sites, control.journal_edits, control.ring, control.ring_stride,
    )  # fmt: skip
    derived = (
        geometry.size, geometry.markers, geometry.counts,
        geometry.sites, geometry.journal_edits, geometry.ring, geometry.ring_stride,
    )  # fmt: skip
    powers = _is_power_of_two(geometry.ring_size) and _is_power_of_two(geometry.max_sites)
    sane = 0 < geometry.rings <= 8192 and powers
    # While an arena is being made, the page behind it still looks like a part of it.
    fits = mapped_size in (geometry.size, geometry.size + PAGE)
    if not sane or stated != derived or not fits:
        raise Unsupported("the arena's control block contradicts itself; restart the target")
    return control, geometry


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
