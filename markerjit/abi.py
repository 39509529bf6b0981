"""The arena as abi.h lays it out, mirrored with ctypes; a test compares every offset.

An arena is one piece of memory that the target made and shares with its controllers. This module
knows its structures, and lays out the parts of a new one. It neither creates nor trusts one:
`checked_geometry` compares the numbers in a control block with the size of what is really mapped.
How other versions looked is in arena/versions.py.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Mapping
from functools import lru_cache

from markerjit.errors import Unsupported
from markerjit.tuples import NamedTuple

PAGE = 4096
CODE_SIZE = 2048 * PAGE
RUNTIME_SIZE = 7 * PAGE
CONTROL = CODE_SIZE
ALIVE = CONTROL + PAGE
TABLES = ALIVE + PAGE
"""The offset of the first part in the control block's table of parts."""
SCRATCH_SIZE = 16 * PAGE
DATA_SIZE = 8192 * PAGE
MAGIC = 0x74696A72656B726D
VERSION = 9
PARTS = 16
(
    PART_MARKERS, PART_COUNTS, PART_PATCHES, PART_EDITS, PART_HEADS, PART_COMMITS, PART_RINGS,
    PART_UNITS, PART_ISLANDS, PART_SCRATCH, PART_DATA, PART_CALLERS, PART_READABLE,
    PART_CALLS, PART_SLOTS, PART_AGGREGATES,
) = range(16)  # fmt: skip
NAME = b"markerjit"
MAX_ARGS = 12
MAX_WORDS = 20
WORDS_SHIFT = 22
FILLER = (1 << WORDS_SHIFT) - 1
MAX_RECORD = PAGE - 8
CPU_RDPID = 1
CPU_RTM = 2
TRAP_NONE = 0
TRAP_INSTALLED = 1
TRAP_INSTALLING = 2
TRAP_NOT_YET = 1 << 63
CPU_TSC = 4
CPU_PKU = 8
CPU_XSAVE = 16
READABLE_BITS = 10
READABLE = 1 << READABLE_BITS
READABLE_TAG = 25
READABLE_WINDOW = 21
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
OP_SINCE = 8
SINCE_TICKS = 63
OP_SIZE_SHIFT = 4

TIME_NONE = 0
TIME_TSC = 1
TIME_MONOTONIC = 2
TIME_COARSE = 3

ASK_LENGTH, ASK_MISSING, ASK_EQUALS, ASK_STARTS, ASK_CONTAINS, ASK_SAME = range(6)
MAX_ASKED = 256
ASKS_NOTHING, ASKS_BEFORE_COUNT, ASKS_BEFORE_RECORD, ASKS_AGGREGATE = range(4)
MEMORY_WENT, MEMORY_LOST, MEMORY_LEFT = range(3)

AGGREGATES = 256
AGGREGATE_SIZE = 192
HASH_FACTOR, HASH_STEP = 0x9E3779B97F4A7C15, 0xD1342543DE82EF95
MAX_KEY_PARTS = 6
MAX_KEY_WORDS = 64
KEY_NUMBER, KEY_TEXT, KEY_CONSTANT, KEY_TEXT_AT = range(4)
VALUE_NONE, VALUE_SIGNED, VALUE_UNSIGNED, VALUE_FLOAT = range(4)
DOES_SUM, DOES_MIN, DOES_MAX, DOES_HIST, DOES_QUANTILES = 1, 2, 4, 8, 16
(
    MISSED_FULL,
    MISSED_LONG,
    MISSED_NAN,
    MISSED_UNREADABLE,
    MISSED_REPLACED,
    MISSED_FORGOTTEN,
    MISSED_ALONE,
    MISSED_END_LONG,
    MISSED_END_UNREADABLE,
    MISSED_UNSHOWN,
    MISSED_UNKNOWN,
    MISSED_UNSEEN,
) = range(12)
MISSED = 16
PLACE_FREE, PLACE_BUSY, PLACE_FULL = range(3)
PLACE_STATE = 3
PLACE_TAG = 48
PLACES_OF_KEY = 16
MAX_FIELD_PARTS = 12
HELD_WORDS, SLOW_WORDS = 3, 6
BLOCK_WORDS = 6
(
    BLOCK_ALLOCATIONS,
    BLOCK_ASKED,
    BLOCK_GIVEN,
    BLOCK_FAILED,
    BLOCK_FREES,
    BLOCK_THREADS,
    BLOCK_CPUS,
    BLOCK_LIFE,
    BLOCK_LONGEST,
    BLOCK_REUSED,
    BLOCK_UNTRACKED,
    BLOCK_LIVES,
) = range(12)
BLOCK_COUNTS = BLOCK_LIVES + 48
BLOCK_KEPT, BLOCK_JUMP = 1 << 63, 1 << 62
NO_SITE = 0xFFFF
STEP_FREE, STEP_MOVE, STEP_ALLOC, STEP_OUTER, STEP_MOVED, STEP_RESULT = range(1, 7)
BLOCK_UNSEEN, BLOCK_CONTINUED, BLOCK_OWN = 1, 2, 3
GIVES_ASKED, GIVES_GLIBC, GIVES_JEMALLOC = range(3)
SITE_STACK, SITE_MARKER = 1 << 63, 1 << 62

PROBE_COUNTED = 1
SLOT_SIZE = 64
SLOT_OWNER = 40
SLOT_TOKEN, SLOT_STASH = 48, 56
SLOT_UNMATCHED, SLOT_TAKES = 48, 56
TAKES_TIME = 1
MAX_STACK_DEPTH = 256
STACK_END = 16
STACK_FRAMES = (1 << STACK_END) - 1
STACK_EPOCH = 32
FRAME_EXACT = 1 << 63
FRAME_UNKNOWN = 1 << 62
END_OUTERMOST, END_NO_TABLE, END_DAMAGED, END_DEEPER, END_ELSEWHERE = range(5)
DIRECTORIES = 16
MAX_CODES = 8192
DIRECTORY_SIZE = MAX_CODES * 48
UNWINDS = 8192
STACK_PLACES = 1 << 17
STACK_WORDS = 1 << 22
STACK_TRIES = 16
STACKS_TABLES = PAGE
STACKS_DIRECTORIES = STACKS_TABLES + UNWINDS * 24
STACKS_PLACES = STACKS_DIRECTORIES + DIRECTORIES * DIRECTORY_SIZE
STACKS_WORDS = STACKS_PLACES + STACK_PLACES * 8
STACKS_RULES = STACKS_WORDS + STACK_WORDS * 8
STACKS_SIZE = STACKS_RULES + (256 << 20)
STACKS_RECENT_BITS = 13
STACKS_RECENT = STACKS_SIZE - (8 << STACKS_RECENT_BITS)
STACKS_RECENT_DIRECTORIES = 64
APART = 16 * PAGE
ISLANDS_SIZE = 256 << 20
SITE_ABOVE = 48
SITE_CALLED = 1 << 63
STASH_BITS = 12
STASH_PAGES = 1 << STASH_BITS
STASH_TRIES = 32
STASH_STRIDE_BITS = 7
STASH_STRIDE = 1 << STASH_STRIDE_BITS
STASH_ARGS = 9
STASH_KEPT = 9 * PAGE
STASH_SIZE = STASH_KEPT + STASH_PAGES * (PAGE // 8) * STASH_STRIDE
STASH_LOST = 24
STASH_TABLE = PAGE
STASH_SPREAD = 0x9E3779B97F4A7C15
RED_ZONE = 128
SHAPE_FLOATS = 8
CALL_WORDS = 24
"""The offset of the words of a preserving call from the stack pointer of the callee."""

SEQUENCES = 8
SEQUENCE_COUNT, SEQUENCE_ENTER, SEQUENCE_LEAVE = 3, 4, 5
SEQUENCE_ENTER_SAVING, SEQUENCE_LEAVE_SAVING = 6, 7
CELL_ADD, CELL_SET = range(2)
CELL_SEQUENCES = 2
READER_NS = 2_000_000_000
WAIT_NS = 10_000_000_000
RSEQ_SIGNATURE = 0x53053053
RSEQ_CPU = 4
RSEQ_SEQUENCE = 8
NO_LIMIT = (1 << 64) - 1

MOST_CPUS = 8192
MOST_MARKERS = 1 << 18
MOST_PATCHES = 1 << 20
MOST_EDITS = 1 << 20
MOST_UNITS = 1 << 16
MOST_ISLANDS = 1 << 12
MOST_CALLERS = 1 << 16
MOST_SLOTS = 1 << 16
MOST_AGGREGATE_PAGES = 1 << 26
LARGEST_RING = 1 << 30
LARGEST_ENTRY = 1 << 12
"""The most that a control block may claim, a constant for each number. Reads are sized by these
numbers, and the target can write anything there."""
SMALLEST_PATCH = 32
"""Bytes of an entry of the patches in the oldest version: fields behind an address are read and
written by their places alone."""


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
        ("since", ctypes.c_uint32),
        ("until", ctypes.c_uint32),
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
        ("early", ctypes.c_uint8),
        ("reserved", ctypes.c_uint8 * 2),
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


class PartEntry(ctypes.Structure):
    """struct mj_part."""

    _fields_ = [
        ("offset", ctypes.c_uint64),
        ("entry_size", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
    ]


_PART = struct.Struct("<QII")


class Control(ctypes.Structure):
    """struct mj_control."""

    _fields_ = [
        ("magic", ctypes.c_uint64),
        ("version", ctypes.c_uint32),
        ("control_size", ctypes.c_uint32),
        ("arena_size", ctypes.c_uint64),
        ("cpus", ctypes.c_uint32),
        ("ring_size", ctypes.c_uint32),
        ("parts", PartEntry * PARTS),
        ("runtime_id", ctypes.c_uint64),
        ("cpu_flags", ctypes.c_uint32),
        ("pid", ctypes.c_uint32),
        ("tid_offset", ctypes.c_int32),
        ("rseq_offset", ctypes.c_int32),
        ("clock", ctypes.c_uint64),
        ("owner", OwnerEntry),
        ("owner_since", ctypes.c_uint64),
        ("old_trap", Sigaction),
        ("seen_trap", Sigaction),
        ("trap_installed", ctypes.c_uint32),
        ("markers_used", ctypes.c_uint32),
        ("patches_used", ctypes.c_uint32),
        ("patches_changed", ctypes.c_uint32),
        ("units_used", ctypes.c_uint32),
        ("code_used", ctypes.c_uint32),
        ("data_used", ctypes.c_uint32),
        ("reading", ctypes.c_uint32),
        ("reader", OwnerEntry),
        ("lease_ns", ctypes.c_uint64),
        ("journal", JournalHead),
        ("callers_used", ctypes.c_uint32),
        ("_pad", ctypes.c_uint32 * 3),  # the sequences are aligned to 32
        ("sequences", Restartable * SEQUENCES),
        ("wait_until_ns", ctypes.c_uint64),
        ("passes", ctypes.c_uint32),
        ("waiting", ctypes.c_uint32),
        ("waits", ctypes.c_uint64),
        ("waited_ns", ctypes.c_uint64),
        ("until_ns", ctypes.c_uint64),
        ("_lines", ctypes.c_uint64 * 3),  # the sequences are aligned to 32
        ("cell_sequences", Restartable * CELL_SEQUENCES),
        ("aggregates_made", ctypes.c_uint64),
        ("questions_changed", ctypes.c_uint64),
        ("stash", ctypes.c_uint64),
        ("stash_tokens", ctypes.c_uint64),
        ("ns_per_tick", ctypes.c_uint64),
        ("stacks", ctypes.c_uint64),
        ("stacks_at", ctypes.c_uint64),
        ("_end", ctypes.c_uint64),
    ]


class MarkerEntry(ctypes.Structure):
    """struct mj_marker."""

    _fields_ = [
        ("name_hash", ctypes.c_uint64),
        ("since", ctypes.c_uint64),
        ("by", ctypes.c_uint32),
        ("id", ctypes.c_uint32),
        ("argc", ctypes.c_uint8),
        ("mode", ctypes.c_uint8),
        ("asks", ctypes.c_uint8),
        ("to_stack", ctypes.c_uint8),
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
        ("careful", ctypes.c_uint8),
        ("waits", ctypes.c_uint8),
        ("recorder_of_c", ctypes.c_uint32),
        ("name", ctypes.c_char * 64),
        ("question", ctypes.c_uint64),
        ("question_text", ctypes.c_uint32),
        ("question_size", ctypes.c_uint32),
        ("until_ns", ctypes.c_uint64),
        ("aggregate", ctypes.c_uint64),
        ("more_ops", ctypes.c_uint8 * (MAX_WORDS - MAX_ARGS)),
    ]


def ops_of(entry: MarkerEntry) -> bytes:
    """How each word of an event is recorded, for the most words that an event may have."""
    return bytes((*entry.ops, *entry.more_ops))


class AskedText(ctypes.Structure):
    """struct mj_asked_text."""

    _fields_ = [
        ("arg", ctypes.c_int8),
        ("op", ctypes.c_uint8),
        ("limit", ctypes.c_uint16),
        ("low", ctypes.c_uint16),
        ("high", ctypes.c_uint16),
    ]


class Asked(ctypes.Structure):
    """struct mj_asked."""

    _fields_ = [
        ("test", ctypes.c_uint8),
        ("careful", ctypes.c_uint8),
        ("size", ctypes.c_uint16),
        ("unused", ctypes.c_uint32),
        ("text", AskedText),
        ("other", AskedText),
    ]


class AggregateEntry(ctypes.Structure):
    """struct mj_aggregate."""

    _fields_ = [
        ("ticket", ctypes.c_uint64),
        ("key_words", ctypes.c_uint32),
        ("mask", ctypes.c_uint32),
        ("room", ctypes.c_uint32),
        ("words", ctypes.c_uint32),
        ("keys", ctypes.c_uint64),
        ("values", ctypes.c_uint64),
        ("stride", ctypes.c_uint64),
        ("owner", OwnerEntry),
        ("used", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("went", ctypes.c_uint64),
        ("held_words", ctypes.c_uint32),
        ("slow_words", ctypes.c_uint32),
        ("slow", ctypes.c_uint64),
        ("slow_room", ctypes.c_uint32),
        ("lost", ctypes.c_uint32),
        ("group_words", ctypes.c_uint32),
        ("group_mask", ctypes.c_uint32),
        ("slow_head", ctypes.c_uint64),
        ("slow_read", ctypes.c_uint64),
        ("tick_ns", ctypes.c_uint64),
        ("forget", ctypes.c_uint64),
        ("live", ctypes.c_uint64),
        ("most", ctypes.c_uint64),
        ("most_at", ctypes.c_uint64),
        ("spilled", ctypes.c_uint64),
    ]


class KeyPart(ctypes.Structure):
    """struct mj_key_part."""

    _fields_ = [
        ("kind", ctypes.c_uint8),
        ("words", ctypes.c_uint8),
        ("constant", ctypes.c_uint16),
        ("text", AskedText),
    ]


class Aggregation(ctypes.Structure):
    """struct mj_aggregation."""

    _fields_ = [
        ("marker", ctypes.c_uint64),
        ("does", ctypes.c_uint8),
        ("value", ctypes.c_uint8),
        ("careful", ctypes.c_uint8),
        ("parts", ctypes.c_uint8),
        ("key_words", ctypes.c_uint16),
        ("value_at", ctypes.c_uint16),
        ("part", KeyPart * MAX_KEY_PARTS),
        ("missing_at", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16 * 3),
    ]


class Pairing(ctypes.Structure):
    """struct mj_pairing."""

    _fields_ = [
        ("marker", ctypes.c_uint64),
        ("slower_ns", ctypes.c_uint64),
        ("ends", ctypes.c_uint8),
        ("time", ctypes.c_uint8),
        ("careful", ctypes.c_uint8),
        ("parts", ctypes.c_uint8),
        ("fields", ctypes.c_uint8),
        ("took_at", ctypes.c_uint8),
        ("key_words", ctypes.c_uint16),
        ("field_words", ctypes.c_uint16),
        ("missing_at", ctypes.c_uint16),
        ("step", ctypes.c_uint8),
        ("gives", ctypes.c_uint8),
        ("stack_at", ctypes.c_uint8),
        ("header_at", ctypes.c_uint8),
        ("group_parts", ctypes.c_uint16),
        ("group_words", ctypes.c_uint16),
        ("group_missing_at", ctypes.c_uint16),
        ("reserved", ctypes.c_uint16),
        ("part", KeyPart * (MAX_KEY_PARTS + MAX_FIELD_PARTS)),
    ]


class BlockEntry(ctypes.Structure):
    """struct mj_block."""

    _fields_ = [
        ("key", ctypes.c_uint64),
        ("time", ctypes.c_uint64),
        ("asked", ctypes.c_uint64),
        ("given", ctypes.c_uint64),
        ("where", ctypes.c_uint64),
        ("old", ctypes.c_uint64),
    ]


class Calls(ctypes.Structure):
    """struct mj_calls."""

    _fields_ = [("entered", ctypes.c_uint64), ("left", ctypes.c_uint64)]


class Count(ctypes.Structure):
    """struct mj_count."""

    _fields_ = [("passed", ctypes.c_uint64), ("lost", ctypes.c_uint64)]


class PatchEntry(ctypes.Structure):
    """struct mj_patch."""

    _fields_ = [
        ("address", ctypes.c_uint64),
        ("body", ctypes.c_uint64),
        ("slot", ctypes.c_uint64),
        ("gone", ctypes.c_uint8),
        ("mode", ctypes.c_uint8),
        ("size", ctypes.c_uint8),
        ("kind", ctypes.c_uint8),
        ("planted", ctypes.c_uint8),
        ("covers", ctypes.c_uint8),
        ("reach", ctypes.c_int8),
        ("reserved", ctypes.c_uint8),
        ("before", ctypes.c_uint8 * 16),
        ("after", ctypes.c_uint8 * 16),
    ]


class UnitEntry(ctypes.Structure):
    """struct mj_unit."""

    _fields_ = [
        ("code", ctypes.c_uint64),
        ("data", ctypes.c_uint64),
        ("about", ctypes.c_uint64),
        ("code_size", ctypes.c_uint32),
        ("data_size", ctypes.c_uint32),
        ("state", ctypes.c_uint32),
        ("order", ctypes.c_uint32),
        ("digest", ctypes.c_uint8 * 32),
    ]


class IslandEntry(ctypes.Structure):
    """struct mj_island."""

    _fields_ = [
        ("start", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
        ("used", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
    ]


class CallerEntry(ctypes.Structure):
    """struct mj_caller."""

    _fields_ = [("slot", ctypes.c_uint64), ("unit", ctypes.c_uint64)]


UNIT_FREE = 0
UNIT_READY = 1
UNIT_KEPT = 2
UNIT_REPLACES = 3


class SequenceEntry(ctypes.Structure):
    """Where a restartable sequence of the runtime is, as offsets from its start."""

    _fields_ = [("start", ctypes.c_uint32), ("end", ctypes.c_uint32), ("abort", ctypes.c_uint32)]


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
        ("record_block", ctypes.c_uint32),
        ("count_block", ctypes.c_uint32),
        ("call", ctypes.c_uint32),
        ("call_saving_vectors", ctypes.c_uint32),
        ("gate_record", ctypes.c_uint32),
        ("gate_pass", ctypes.c_uint32),
        ("gate_lose", ctypes.c_uint32),
        ("gate_ask", ctypes.c_uint32),
        ("sequences", SequenceEntry * SEQUENCES),
        ("gate_load", ctypes.c_uint32),
        ("gate_clock", ctypes.c_uint32),
        ("gate_aggregate", ctypes.c_uint32),
        ("cell_sequences", SequenceEntry * CELL_SEQUENCES),
        ("gate_pair", ctypes.c_uint32),
        ("stash_claim", ctypes.c_uint32),
        ("stash_find", ctypes.c_uint32),
        ("gate_stack", ctypes.c_uint32),
    ]


class Stash(ctypes.Structure):
    """struct mj_stash, without the table behind it."""

    _fields_ = [
        ("claim", ctypes.c_uint64),
        ("find", ctypes.c_uint64),
        ("ns_per_tick", ctypes.c_uint64),
        ("lost", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 4),
    ]


class Kept(ctypes.Structure):
    """struct mj_kept."""

    _fields_ = [
        ("token", ctypes.c_uint64),
        ("time", ctypes.c_uint64),
        ("args", ctypes.c_uint64 * STASH_ARGS),
        ("reserved", ctypes.c_uint64 * 5),
    ]


class Stacks(ctypes.Structure):
    """struct mj_stacks."""

    _fields_ = [
        ("directory", ctypes.c_uint64),
        ("counts", ctypes.c_uint64 * DIRECTORIES),
        ("rules_used", ctypes.c_uint64),
        ("words_room", ctypes.c_uint64),
        ("places_mask", ctypes.c_uint64),
        ("seen", ctypes.c_uint64),
        ("_to_line", ctypes.c_uint64 * 3),
        ("words_used", ctypes.c_uint64),
        ("lost", ctypes.c_uint64),
        ("_to_epochs", ctypes.c_uint64 * 6),
        ("epochs", ctypes.c_uint64 * DIRECTORIES),
    ]


class CodeEntry(ctypes.Structure):
    """struct mj_code."""

    _fields_ = [
        ("start", ctypes.c_uint64),
        ("stop", ctypes.c_uint64),
        ("rules", ctypes.c_uint64),
        ("bias", ctypes.c_uint64),
        ("mark", ctypes.c_uint64),
        ("value", ctypes.c_uint64),
    ]


class UnwindEntry(ctypes.Structure):
    """struct mj_unwind."""

    _fields_ = [
        ("digest", ctypes.c_uint64),
        ("offset", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
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
CALLS_SIZE = ctypes.sizeof(Calls)
TURN_FULL = 1
"""What mj_turn returns where the reader is too far behind."""

RING_HEAD = 0
RING_ROOM = 8
RING_DATA = 16
RING_MASK = 24
RING_LIMIT = 64
RING_BEGUN = 72
RING_HEAD_SIZE = 128


class Part(NamedTuple):
    """Where a part of an arena begins, and what it is made of: struct mj_part."""

    offset: int
    entry_size: int
    entries: int

    @property
    def size(self) -> int:
        """Bytes of all entries."""
        return self.entry_size * self.entries

    @property
    def end(self) -> int:
        """The offset behind the part."""
        return self.offset + self.size

    def at(self, index: int) -> int:
        """The offset of an entry."""
        return self.offset + index * self.entry_size


class Geometry(NamedTuple):
    """How large the parts of an arena are, and where each begins."""

    cpus: int
    ring_size: int
    size: int
    parts: tuple[Part, ...]

    @property
    def rings(self) -> int:
        """The number of rings: one for each CPU, in the order of CPUs, and then the shared
        rings."""
        return 2 * self.cpus

    @property
    def markers(self) -> Part:
        return self.parts[PART_MARKERS]

    @property
    def counts(self) -> Part:
        return self.parts[PART_COUNTS]

    @property
    def calls(self) -> Part:
        return self.parts[PART_CALLS]

    @property
    def patches(self) -> Part:
        return self.parts[PART_PATCHES]

    @property
    def edits(self) -> Part:
        return self.parts[PART_EDITS]

    @property
    def units(self) -> Part:
        return self.parts[PART_UNITS]

    @property
    def callers(self) -> Part:
        return self.parts[PART_CALLERS]

    @property
    def islands(self) -> Part:
        return self.parts[PART_ISLANDS]

    @property
    def scratch(self) -> Part:
        return self.parts[PART_SCRATCH]

    @property
    def data(self) -> Part:
        return self.parts[PART_DATA]

    @property
    def slots(self) -> Part:
        return self.parts[PART_SLOTS]

    @property
    def aggregates(self) -> Part:
        return self.parts[PART_AGGREGATES]

    @property
    def max_markers(self) -> int:
        return self.markers.entries

    @property
    def private_size(self) -> int:
        """Bytes from `alive` on that are private memory of the process: that page, what is known of
        the pages of the process, and slots."""
        last = max(self.parts[PART_READABLE].end, self.slots.end)
        return page_up(last) - ALIVE if last else PAGE

    @property
    def stacks_at(self) -> int:
        """Where in the memfd, behind the arena, the memory of stacks begins."""
        return page_up(self.size) + APART

    @property
    def islands_at(self) -> int:
        """Where the bytes of islands begin, behind that."""
        return page_up(self.stacks_at + STACKS_SIZE) + APART

    @property
    def ring_stride(self) -> int:
        """Room for each ring."""
        return self.parts[PART_RINGS].entry_size

    def count_offset(self, ring: int, marker: int) -> int:
        """Where the counters of a marker that go with a ring are."""
        return self.counts.at(ring * self.max_markers + marker)

    def calls_offset(self, ring: int, marker: int) -> int:
        """Where the calls of a marker's probes in C that go with a ring are counted."""
        return self.calls.at(ring * self.max_markers + marker)

    def marker_offset(self, marker: int) -> int:
        """Where a marker's entry is."""
        return self.markers.at(marker)

    def head_offset(self, ring: int) -> int:
        """Where a ring's head is."""
        return self.parts[PART_HEADS].at(ring)

    def ring_offset(self, ring: int) -> int:
        """Where a ring's records are."""
        return self.parts[PART_RINGS].at(ring)

    def sums_offset(self, cpu: int) -> int:
        """Where the committed bytes of the pages of a CPU's shared ring are added up."""
        return self.parts[PART_COMMITS].at(cpu)

    def table(self) -> ctypes.Array[PartEntry]:
        """The parts, as they stand in the control block."""
        return (PartEntry * PARTS)(*(PartEntry(*part) for part in self.parts))


class Sizes(NamedTuple):
    """How large a new arena is to be. `ring_stride`: room for each ring."""

    cpus: int
    ring_size: int
    max_markers: int
    max_patches: int
    max_edits: int
    ring_stride: int
    max_units: int = 1024
    max_islands: int = 256
    max_callers: int = 1 << 16
    max_slots: int = MOST_SLOTS
    aggregate_pages: int = 64


def lay_out(sizes: Sizes) -> Geometry:
    """Where the parts of an arena of this version are."""
    rings = 2 * sizes.cpus
    shapes = {
        PART_READABLE: (8, READABLE),  # first: it is mapped together with `alive`
        PART_SLOTS: (SLOT_SIZE, sizes.max_slots),  # and so are these
        PART_SCRATCH: (1, SCRATCH_SIZE),
        PART_DATA: (1, DATA_SIZE),
        PART_MARKERS: (ctypes.sizeof(MarkerEntry), sizes.max_markers),
        PART_COUNTS: (ctypes.sizeof(Count), rings * sizes.max_markers),
        PART_CALLS: (ctypes.sizeof(Calls), rings * sizes.max_markers),
        PART_PATCHES: (ctypes.sizeof(PatchEntry), sizes.max_patches),
        PART_EDITS: (ctypes.sizeof(EditEntry), sizes.max_edits),
        PART_UNITS: (ctypes.sizeof(UnitEntry), sizes.max_units),
        PART_ISLANDS: (ctypes.sizeof(IslandEntry), sizes.max_islands),
        PART_CALLERS: (ctypes.sizeof(CallerEntry), sizes.max_callers),
        PART_HEADS: (RING_HEAD_SIZE, rings),
        PART_COMMITS: (sizes.ring_stride // PAGE * 8, sizes.cpus),
        PART_RINGS: (sizes.ring_stride, rings),
        PART_AGGREGATES: (PAGE, sizes.aggregate_pages),
    }
    return laid_out(sizes.cpus, sizes.ring_size, TABLES, shapes)


def laid_out(
    cpus: int, ring_size: int, start: int, shapes: Mapping[int, tuple[int, int]]
) -> Geometry:
    """Parts of these entry sizes and counts one behind the other, each at a page."""
    parts = [Part(0, 0, 0)] * PARTS
    at = start
    for number, (entry_size, count) in shapes.items():
        parts[number] = Part(at, entry_size, count)
        at = page_up(parts[number].end)
    return Geometry(cpus, ring_size, at, tuple(parts))


def page_up(size: int) -> int:
    """The next multiple of a page."""
    return (size + PAGE - 1) & -PAGE


def checked_geometry(control: Control, mapped_size: int) -> Geometry:
    """Read a table of parts and believe only what fits the mapping.

    Raises Unsupported when it contradicts itself.
    """
    numbers = _PART.iter_unpack(bytes(control.parts))
    parts = tuple(Part(*part) for part in numbers)
    geometry = Geometry(int(control.cpus), int(control.ring_size), int(control.arena_size), parts)
    if geometry.size != mapped_size or not _is_sane(geometry):
        raise Unsupported(
            "the arena's control block contradicts itself: something has written over it"
        )
    return geometry


@lru_cache(maxsize=16)  # the arenas of a fleet are alike
def _is_sane(geometry: Geometry) -> bool:
    return _has_sane_sizes(geometry) and _has_room(geometry)


def _has_sane_sizes(geometry: Geometry) -> bool:
    """Whether all numbers are within bounds, and fit together."""
    commits, rings = geometry.parts[PART_COMMITS], geometry.parts[PART_RINGS]
    heads, stride = geometry.parts[PART_HEADS], geometry.ring_stride
    tables = (
        geometry.markers, geometry.counts, geometry.patches, geometry.edits, geometry.units,
        geometry.islands, geometry.callers, geometry.parts[PART_READABLE], geometry.calls,
    )  # fmt: skip
    bounded = (
        0 < geometry.cpus <= MOST_CPUS
        and 0 < geometry.max_markers <= MOST_MARKERS
        and 0 < geometry.patches.entries <= MOST_PATCHES
        and geometry.edits.entries <= MOST_EDITS
        and geometry.units.entries <= MOST_UNITS
        and geometry.islands.entries <= MOST_ISLANDS
        and geometry.callers.entries <= MOST_CALLERS
        and PAGE <= geometry.ring_size <= stride <= LARGEST_RING
        and all(part.entry_size <= LARGEST_ENTRY for part in (*tables, heads))
        and all(
            part.entry_size >= 8 and not part.entry_size % 8
            for part in (*tables, heads)
            if part.entries
        )
    )
    powers = (geometry.ring_size, geometry.max_markers, geometry.patches.entries)
    return (
        bounded
        and all(_is_power_of_two(number) for number in powers)
        and not stride % PAGE
        and (commits.entry_size, commits.entries) == (stride // PAGE * 8, geometry.cpus)
        and rings.entries == heads.entries == geometry.rings
        and heads.entry_size >= RING_HEAD_SIZE
        and geometry.patches.entry_size >= SMALLEST_PATCH
        and (not geometry.edits.entries or geometry.edits.entry_size >= ctypes.sizeof(EditEntry))
        and geometry.scratch.size >= SCRATCH_SIZE
        and geometry.counts.entries == geometry.rings * geometry.max_markers
        and geometry.counts.entry_size == COUNT_SIZE
        and geometry.calls[1:] in ((0, 0), (CALLS_SIZE, geometry.counts.entries))
        and geometry.parts[PART_READABLE][1:] in ((0, 0), (8, READABLE))
        and geometry.slots.entry_size in (0, SLOT_SIZE)
        and geometry.slots.entries <= MOST_SLOTS
        and geometry.aggregates.entry_size in (0, PAGE)
        and geometry.aggregates.entries <= MOST_AGGREGATE_PAGES
    )


def _has_room(geometry: Geometry) -> bool:
    """Whether the parts are in the arena, behind the control block, and each behind the one
    before."""
    end = TABLES
    for part in sorted(part for part in geometry.parts if part.entries):
        if part.offset < end or part.offset % PAGE:
            return False
        end = part.end
    return end <= geometry.size


def patch_place(address: int, mask: int) -> int:
    """first_place of trap.c: where the search for an address begins."""
    block = (address >> 10) * 0x9E3779B97F4A7C15 >> 32 & 0xFFFFFFFF
    return (block << 4 | address >> 6 & 15) & mask


def _is_power_of_two(number: int) -> bool:
    return number > 0 and number & (number - 1) == 0
