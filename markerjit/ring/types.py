"""The layout of a marker's records: their fields, the offsets, and the meaning of the time.

A record is a header followed by the fields, in the order of the marker's arguments:

    head    u32   the index of the record's type in the arena (struct mj_marker) in the lower bits,
                  and the size of the whole record above it, in words of eight bytes (`Head`)
    tid     u32   0 where it is not recorded, or not known
    time    u64   as `Time` says; absent for Time.NONE
    fields        each number at a multiple of its own size; a text at a multiple of eight: u32
                  length, u32 state (`TextState`), and its bytes; the field after a text begins at
                  a multiple of eight again
    padding       up to a multiple of eight

A `float` is recorded as a double, as in a call with variable arguments. Records never wrap and
never cross a page of the ring. This module knows the layout; columns.py reads the records.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from markerjit.abi import WORDS_SHIFT
from markerjit.model import Field, FieldType, TypeClass
from markerjit.ring.brakes import NO_BRAKES, Brakes
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    import numpy as np

    IntOrArray = TypeVar("IntOrArray", int, np.ndarray[Any, np.dtype[Any]])

WORD = 8
HEAD_SIZE = 8
TIME_SIZE = 8


class Head(NamedTuple):
    """How the head of a record is divided: the marker's index has the lower `marker_bits` of 32,
    the size in words the others. Heads are ints, or arrays of uint32."""

    marker_bits: int

    @property
    def filler(self) -> int:
        """In the place of the index: the record is only the rest of a page. It is the largest
        number of `marker_bits`, so it is the mask of the index, too."""
        return (1 << self.marker_bits) - 1

    @property
    def most_words(self) -> int:
        """The largest size."""
        return (1 << 32 - self.marker_bits) - 1

    def marker(self, head: IntOrArray) -> IntOrArray:
        """The index of the marker."""
        return head & self.filler

    def words(self, head: IntOrArray) -> IntOrArray:
        """The size of the record, in words."""
        return head >> self.marker_bits

    def pack(self, marker: IntOrArray, words: IntOrArray) -> IntOrArray:
        """The head of a record of this marker and size."""
        return marker | words << self.marker_bits  # type: ignore[no-any-return]


HEAD = Head(WORDS_SHIFT)
"""Of the records in rings, and in the traces that are written."""
HEAD_OF_16 = Head(16)
"""Of the records in CTF traces that do not say how many bits an index has: they are older."""
FILLER = HEAD.filler

TEXTS = (FieldType.STRING, FieldType.BYTES)
"""The types of fields that are a text in a record."""
TEXT_COLUMNS = (*TEXTS, FieldType.STACK)
"""The types of fields that are a text everywhere else. For a stack, a record has its number."""
DEFAULT_TEXT = 256
"""The most bytes of a text that are recorded, unless the format has a smaller precision."""


class Time(Enum):
    """The source of a record's time."""

    TSC = "tsc"  # the time stamp counter
    MONOTONIC = "monotonic"  # CLOCK_MONOTONIC, nanoseconds
    COARSE = "coarse"  # CLOCK_MONOTONIC_COARSE: the time of the kernel's last tick
    NONE = "none"  # no time, only the order of the records of a CPU

    def __str__(self) -> str:
        return self.value


class Strings(Enum):
    """The way in which the texts of an event are read."""

    FAST = "fast"  # by plain loads from pages that could be read within the last millisecond
    CAREFUL = "careful"  # in a memory transaction (RTM), or by a system call for each text

    def __str__(self) -> str:
        return self.value


class Options(NamedTuple):
    """The parts of an event that a recorder writes, besides its marker.

    fields   names of fields; None means all fields of the marker
    text     the most bytes of a text
    counted  the recorder counts each execution, instead of the reader of the records. That costs
             some time, and is needed where there is no reader
    strings  the way in which texts are read
    waits    an event whose ring is full waits for the reader
    rsp      the program's stack pointer is recorded, too. Only of events whose code is a stub
    """

    time: Time = Time.TSC
    thread_id: bool = True
    fields: tuple[str, ...] | None = None
    text: int = DEFAULT_TEXT
    counted: bool = True
    strings: Strings = Strings.FAST
    waits: bool = False
    rsp: bool = False


class TextState(IntEnum):
    """The state of a recorded text: MJ_TEXT_* of abi.h."""

    WHOLE = 0
    CUT = 1  # only its beginning was recorded
    NULL = 2
    UNREADABLE = 3  # its pointer is not mapped


class Place(NamedTuple):
    """The place of a field in a record.

    `offset` is from the record's start, or -1 for a field behind a text, which has no fixed place.
    `code` is numpy's type code, "" for a text.
    """

    field: Field
    offset: int
    code: str


class RecordType:
    """A type of record: the marker, its recorded fields, and the source of the time.

    `id` is the index in the arena, `format` the marker's printf format. `brakes` say which of the
    events were recorded, where these are not all.
    """

    def __init__(
        self,
        id: int,
        marker: str,
        format: str,
        fields: Iterable[Field],
        *,
        time: Time = Time.TSC,
        tid: bool = True,
        brakes: Brakes = NO_BRAKES,
    ) -> None:
        self.id = id
        self.marker = marker
        self.format = format
        self.fields = tuple(fields)
        self.time = time
        self.tid = tid
        self.brakes = brakes

    @property
    def head_size(self) -> int:
        """The size in bytes of the header, with the time."""
        return HEAD_SIZE + (TIME_SIZE if self.time is not Time.NONE else 0)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """The places of the fields, in their order."""
        places = []
        at, fixed = self.head_size, True
        for field in self.fields:
            code = "" if field.type in TEXTS else number_code(field)
            size = int(code[1]) if code else WORD
            at = (at + size - 1) & -size
            places.append(Place(field, at if fixed else -1, code))
            at += size
            fixed = fixed and bool(code)
        return tuple(places)

    @property
    def has_text(self) -> bool:
        """Whether a field is a text, so that records differ in size."""
        return any(not place.code for place in self.places)

    @property
    def size(self) -> int:
        """The size in bytes of a record whose texts are empty."""
        at = self.head_size
        for _, _, code in self.places:
            size = int(code[1]) if code else WORD
            at = ((at + size - 1) & -size) + size
        return (at + WORD - 1) & -WORD


def fields_by_marker(types: Iterable[RecordType]) -> dict[str, tuple[Field, ...]]:
    """The fields of each marker, by its name. Where its sites differ, the fields of all."""
    by_marker: dict[str, dict[str, Field]] = {}
    for type_ in types:
        fields = by_marker.setdefault(type_.marker, {})
        fields.update((field.name, field) for field in type_.fields)
    return {marker: tuple(fields.values()) for marker, fields in by_marker.items()}


def has_stacks(types: Iterable[RecordType]) -> bool:
    """Whether records of one of these types have a stack."""
    return any(field.type is FieldType.STACK for type_ in types for field in type_.fields)


def number_code(field: Field) -> str:
    """numpy's type code of a number in a record, such as "i4"."""
    type_class, size = field.ctype
    match type_class:
        case TypeClass.SIGNED:
            return f"i{size}"
        case TypeClass.UNSIGNED | TypeClass.BOOL:
            return f"u{size}"
        case TypeClass.FLOAT:
            return "f8"
        case _:
            return "u8"
