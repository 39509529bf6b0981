"""What a record of a marker looks like: which fields, where, and what its time means.

A record is one header and the fields, in the order of the marker's arguments:

    marker  u16   index of the record's type in the arena (struct mj_marker)
    words   u16   size of the whole record, in words of eight bytes
    tid     u32   0 where it is not recorded, or not known
    time    u64   as `Time` says; not there at all for Time.NONE
    fields        each number at a multiple of its own size; a text at a multiple of eight: u32
                  length, u32 state (`TextState`), and its bytes; what comes after a text begins at
                  a multiple of eight again
                  and at the end what fills it up to a multiple of eight

A `float` travels as a double, as it does in a call with variable arguments. Records never wrap and
never cross a page of the ring. This module knows the layout; it reads no record (columns.py).
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, IntEnum
from functools import cached_property
from typing import NamedTuple

from markerjit.model import Field, FieldType, TypeClass

WORD = 8
HEAD_SIZE = 8
TIME_SIZE = 8
FILLER = 0xFFFF
"""In the place of a marker's index: nothing but what was left of a page."""

TEXTS = (FieldType.STRING, FieldType.BYTES)
DEFAULT_TEXT = 256
"""Bytes of a text that are recorded, where the format does not say less."""


class Time(Enum):
    """Where the time of a record comes from."""

    TSC = "tsc"  # the time stamp counter
    MONOTONIC = "monotonic"  # CLOCK_MONOTONIC, nanoseconds
    COARSE = "coarse"  # CLOCK_MONOTONIC_COARSE: as of the last tick of the kernel
    NONE = "none"  # only the order in which a CPU recorded

    def __str__(self) -> str:
        return self.value


class Options(NamedTuple):
    """What is recorded of an event, besides its marker.

    fields   names; None is all that a marker has
    text     the most bytes of a text
    counted  each execution is counted when it happens, and not by who takes the records out: it
             costs some time, and is needed where nobody does
    """

    time: Time = Time.TSC
    thread_id: bool = True
    fields: tuple[str, ...] | None = None
    text: int = DEFAULT_TEXT
    counted: bool = True


class TextState(IntEnum):
    """What became of a text: MJ_TEXT_* of abi.h."""

    WHOLE = 0
    CUT = 1  # it is longer
    NULL = 2
    UNREADABLE = 3  # nothing is mapped where it points


class Place(NamedTuple):
    """A field of a record. `offset` counts from the record's start, and is -1 for a number behind a
    text, which has no fixed place; `code` is numpy's, "" for a text."""

    field: Field
    offset: int
    code: str


class RecordType:
    """One kind of record: a marker, which of its fields are recorded, and how.

    `id` is the index in the arena; `format` the marker's printf format; `limits` the most bytes of
    each text, in the order of the fields.
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
    ) -> None:
        self.id = id
        self.marker = marker
        self.format = format
        self.fields = tuple(fields)
        self.time = time
        self.tid = tid

    @property
    def head_size(self) -> int:
        """Bytes before the first field may begin."""
        return HEAD_SIZE + (TIME_SIZE if self.time is not Time.NONE else 0)

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where the fields are."""
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
        """Whether records differ in size."""
        return any(not place.code for place in self.places)

    @property
    def size(self) -> int:
        """Bytes of a record with texts of no length; of every record where there is no text."""
        at = self.head_size
        for _, _, code in self.places:
            size = int(code[1]) if code else WORD
            at = ((at + size - 1) & -size) + size
        return (at + WORD - 1) & -WORD


def fields_by_marker(types: Iterable[RecordType]) -> dict[str, tuple[Field, ...]]:
    """The fields of each marker, by its name: all fields of its sites, where they differ."""
    by_marker: dict[str, dict[str, Field]] = {}
    for type_ in types:
        fields = by_marker.setdefault(type_.marker, {})
        fields.update((field.name, field) for field in type_.fields)
    return {marker: tuple(fields.values()) for marker, fields in by_marker.items()}


def number_code(field: Field) -> str:
    """numpy's code of a number in a record, such as "i4"."""
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
