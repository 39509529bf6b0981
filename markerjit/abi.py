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
CODE_SIZE = 2048 * PAGE
RUNTIME_SIZE = 4 * PAGE
CONTROL = CODE_SIZE
ALIVE = CONTROL + PAGE
SCRATCH = ALIVE + PAGE
SCRATCH_SIZE = 16 * PAGE
DATA = SCRATCH + SCRATCH_SIZE
DATA_SIZE = 8192 * PAGE
MAGIC = 0x74696A72656B726D
VERSION = 4
NAME = b"markerjit"
MAX_ARGS = 12
FILLER = 0xFFFF
MAX_RECORD = PAGE - 8
CPU_RDPID = 1
CPU_RTM = 2
JOURNAL_EMPTY = 0
JOURNAL_OPEN = 1

OP_SKIP = 0
OP_GP = 1
OP_FP = 2
OP_STRING = 3
OP_BYTES = 4
OP_PREFIX = 5
OP_RAW = 6
OP_SKIP_FP = 7
OP_SIZE_SHIFT = 4

TIME_NONE = 0
TIME_TSC = 1
TIME_MONOTONIC = 2
TIME_COARSE = 3

PROBE_COUNTED = 1

SEQUENCES = 3
RSEQ_SIGNATURE = 0x53053053
RSEQ_CPU = 4
RSEQ_SEQUENCE = 8
NO_LIMIT = (1 << 64) - 1

MOST_CPUS = 8192
MOST_MARKERS = 1 << 16
"""An id has 16 bits."""
MOST_SITES = 1 << 20
MOST_EDITS = 1 << 20
LARGEST_RING = 1 << 30
"""What a control block may claim at most, all of them: what is read is sized by it, and the target
can write there what it likes."""


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


class Restartable(ctypes.Structure):
    """struct mj_restartable, which is the kernel's struct rseq_cs."""

    _fields_ = [
        ("version", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("start", ctypes.c_uint64),
        ("length", ctypes.c_uint64),
        ("abort", ctypes.c_uint64),
    ]


class Control(ctypes.Structure):
    """struct mj_control."""

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
        ("markers", ctypes.c_uint64),
        ("counts", ctypes.c_uint64),
        ("sites", ctypes.c_uint64),
        ("journal_edits", ctypes.c_uint64),
        ("heads", ctypes.c_uint64),
        ("commits", ctypes.c_uint64),
        ("ring", ctypes.c_uint64),
        ("ring_stride", ctypes.c_uint64),
        ("clock", ctypes.c_uint64),
        ("owner", OwnerEntry),
        ("owner_since", ctypes.c_uint64),
        ("old_trap", Sigaction),
        ("seen_trap", Sigaction),
        ("trap_installed", ctypes.c_uint32),
        ("markers_used", ctypes.c_uint32),
        ("code_used", ctypes.c_uint32),
        ("data_used", ctypes.c_uint32),
        ("reader", OwnerEntry),
        ("lease_ns", ctypes.c_uint64),
        ("journal", JournalHead),
        ("reading", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("_pad", ctypes.c_uint64 * 2),  # the sequences are aligned to 32
        ("sequences", Restartable * SEQUENCES),
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
        ("size", ctypes.c_uint16),
        ("time", ctypes.c_uint8),
        ("tid", ctypes.c_uint8),
        ("recorder", ctypes.c_uint32),
        ("held", ctypes.c_uint32),
        ("passed_before", ctypes.c_uint64),
        ("lost_before", ctypes.c_uint64),
        ("delivered", ctypes.c_uint64),
        ("calls", ctypes.c_uint64),
        ("calls_before", ctypes.c_uint64),
        ("hits_before", ctypes.c_uint64),
        ("losses_before", ctypes.c_uint64),
        ("counted", ctypes.c_uint8),
        ("calling", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 6),
        ("name", ctypes.c_char * 64),
    ]


class Count(ctypes.Structure):
    """struct mj_count."""

    _fields_ = [("passed", ctypes.c_uint64), ("lost", ctypes.c_uint64)]


class TrapSite(ctypes.Structure):
    """struct mj_trap_site."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("body", ctypes.c_uint64),
        ("pushed", ctypes.c_uint64),
        ("gone", ctypes.c_uint32),
        ("planted", ctypes.c_uint32),
    ]


class SequenceEntry(ctypes.Structure):
    """Where a restartable sequence of the runtime is, as offsets from its start."""

    _fields_ = [
        ("start", ctypes.c_uint32),
        ("end", ctypes.c_uint32),
        ("abort", ctypes.c_uint32),
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
        ("record_event", ctypes.c_uint32),
        ("pass_", ctypes.c_uint32),
        ("turn", ctypes.c_uint32),
        ("lose", ctypes.c_uint32),
        ("fetch", ctypes.c_uint32),
        ("sequences", SequenceEntry * SEQUENCES),
    ]


class Head(ctypes.Structure):
    """struct mj_ring."""

    _fields_ = [
        ("head", ctypes.c_uint64),
        ("room", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
        ("mask", ctypes.c_uint64),
        ("_pad", ctypes.c_uint64 * 4),
        ("limit", ctypes.c_uint64),
        ("begun", ctypes.c_uint64),
        ("_rest", ctypes.c_uint64 * 6),
    ]


COUNT_SIZE = ctypes.sizeof(Count)
TURN_FULL = 1
"""What mj_turn returns where the reader is too far behind."""

RING_HEAD = 0
RING_ROOM = 8
RING_DATA = 16
RING_MASK = 24
RING_LIMIT = 64
RING_BEGUN = 72
RING_HEAD_SIZE = 128


class Geometry(NamedTuple):
    """How large the parts of an arena are, and so where each begins."""

    cpus: int
    ring_size: int
    max_markers: int
    max_sites: int
    max_edits: int
    ring_stride: int

    @property
    def rings(self) -> int:
        """A CPU's own, by its number, and then the shared ones."""
        return 2 * self.cpus

    @property
    def markers(self) -> int:
        return DATA + DATA_SIZE

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
    def heads(self) -> int:
        return _page_up(self.journal_edits + self.max_edits * ctypes.sizeof(EditEntry))

    @property
    def commits(self) -> int:
        return _page_up(self.heads + self.rings * RING_HEAD_SIZE)

    @property
    def ring(self) -> int:
        return _page_up(self.commits + self.cpus * (self.ring_stride // PAGE) * 8)

    @property
    def size(self) -> int:
        return self.ring + self.rings * self.ring_stride

    def count_offset(self, ring: int, marker: int) -> int:
        """Where the counters of a marker that go with a ring are."""
        return self.counts + (ring * self.max_markers + marker) * ctypes.sizeof(Count)

    def marker_offset(self, marker: int) -> int:
        """Where a marker's entry is."""
        return self.markers + marker * ctypes.sizeof(MarkerEntry)

    def head_offset(self, ring: int) -> int:
        """Where a ring's head is."""
        return self.heads + ring * RING_HEAD_SIZE

    def ring_offset(self, ring: int) -> int:
        """Where a ring's records are."""
        return self.ring + ring * self.ring_stride

    def sums_offset(self, cpu: int) -> int:
        """Where the committed bytes of the pages of a CPU's shared ring are added up."""
        return self.commits + cpu * (self.ring_stride // PAGE) * 8


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
        control.cpus, control.ring_size,
        control.max_markers, control.max_sites, control.max_edits, control.ring_stride,
    )  # fmt: skip
    stated = (
        control.arena_size, control.markers, control.counts, control.sites,
        control.journal_edits, control.heads, control.commits, control.ring,
    )  # fmt: skip
    derived = (
        geometry.size, geometry.markers, geometry.counts, geometry.sites,
        geometry.journal_edits, geometry.heads, geometry.commits, geometry.ring,
    )  # fmt: skip
    powers = all(
        _is_power_of_two(number)
        for number in (geometry.ring_size, geometry.max_markers, geometry.max_sites)
    )
    sane = powers and geometry.cpus > 0 and not geometry.ring_stride % PAGE
    sane = sane and geometry.cpus <= MOST_CPUS and geometry.max_markers <= MOST_MARKERS
    sane = sane and geometry.max_sites <= MOST_SITES and geometry.max_edits <= MOST_EDITS
    sane = sane and PAGE <= geometry.ring_size <= geometry.ring_stride <= LARGEST_RING
    if not sane or stated != derived or mapped_size != geometry.size:
        raise Unsupported("the arena's control block contradicts itself; restart the target")
    return control, geometry


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
