"""Records of every type, drawn by hypothesis and written field by field."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from hypothesis import strategies as st

from markerjit.model import CType, Field, FieldType, TypeClass
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import FILLER, TEXTS, RecordType, TextState, Time, number_code
from tests.support.heads import head_of

PAGE = 4096
INT, LONG = CType(TypeClass.SIGNED, 4), CType(TypeClass.SIGNED, 8)
CHARS, BOOL = CType(TypeClass.CHARS, 8), CType(TypeClass.BOOL, 1)
NANOSECONDS = Calibration(Time.MONOTONIC, 0, 0, NS, 0)
Text = tuple[bytes, int]
"""Its bytes and its state."""


class Record(NamedTuple):
    type: RecordType
    time: int
    tid: int
    values: tuple[Any, ...]


def encode(record: Record) -> bytes:
    """As types.py says that a record is."""
    type_, body = record.type, b""
    if type_.time is not Time.NONE:
        body = struct.pack("<Q", record.time)
    for field, value in zip(type_.fields, record.values, strict=True):
        if field.type in TEXTS:
            text, state = value
            body += bytes(-len(body) % 8) + struct.pack("<II", len(text), state) + text
            body += bytes(-len(text) % 8)
        else:
            code = number_code(field)
            body += bytes(-len(body) % int(code[1])) + np.array([value]).astype(code).tobytes()
    body += bytes(-len(body) % 8)
    return struct.pack("<II", head_of(type_.id, 1 + len(body) // 8), record.tid) + body


def write(records: Sequence[Record]) -> bytes:
    """Records in pages, with fillers."""
    data = bytearray()
    for record in records:
        encoded = encode(record)
        left = PAGE - len(data) % PAGE
        if left < len(encoded):
            data += struct.pack("<II", head_of(FILLER, left // 8), 0) + b"\xaa" * (left - 8)
        data += encoded
    return bytes(data)


def by_id(*types: RecordType) -> dict[int, RecordType]:
    return {type_.id: type_ for type_ in types}


NUMBERS = [
    *((FieldType.INT, CType(TypeClass.SIGNED, size), "d") for size in (1, 2, 4, 8)),
    *((FieldType.INT, CType(TypeClass.UNSIGNED, size), "u") for size in (1, 2, 4, 8)),
    *((FieldType.FLOAT, CType(TypeClass.FLOAT, size), "g") for size in (4, 8)),
    (FieldType.BOOL, BOOL, "d"),
    (FieldType.CHAR, INT, "c"),
    (FieldType.POINTER, CType(TypeClass.POINTER, 8), "p"),
]

KINDS = [*NUMBERS, (FieldType.STRING, CHARS, "s"), (FieldType.BYTES, CHARS, "s")]


def types_of(
    time: Time, tid: bool, kinds: list[Any], ids: Sequence[int] = (0, 3, 6)
) -> list[RecordType]:
    return [
        RecordType(
            ids[index], f"m{index}", "",
            [Field(f"f{number}", *kind[:2], number, kind[2]) for number, kind in enumerate(some)],
            time=time, tid=tid,
        )
        for index, some in enumerate(kinds)
    ]  # fmt: skip


type_sets = st.builds(
    types_of,
    st.sampled_from([Time.TSC, Time.NONE]),
    st.booleans(),
    st.lists(st.lists(st.sampled_from(KINDS), max_size=5), min_size=1, max_size=3),
    st.lists(
        st.integers(0, 9) | st.sampled_from([0xFFFF, 70_000, 3_000_000, FILLER - 1]),
        min_size=3,
        max_size=3,
        unique=True,
    ),
)


def values_of(field: Field) -> st.SearchStrategy[Any]:
    size = field.ctype.size * 8
    match field.type, field.ctype.type_class:
        case FieldType.STRING | FieldType.BYTES, _:
            return st.tuples(st.binary(max_size=20), st.sampled_from(TextState).map(int))
        case FieldType.BOOL, _:
            return st.booleans()
        case _, TypeClass.FLOAT:
            return st.floats()
        case _, TypeClass.SIGNED:
            return st.integers(-(1 << size - 1), (1 << size - 1) - 1)
    return st.integers(0, (1 << size) - 1)


@st.composite
def rings(draw: st.DrawFn) -> tuple[list[RecordType], list[list[Record]]]:
    """Types, and the records of one to three rings. Often many of them, and nearly in order."""
    types = draw(type_sets)
    tids = st.integers(0, (1 << 32) - 1)
    samples = [
        Record(type_, 0, draw(tids), tuple(draw(values_of(field)) for field in type_.fields))
        for type_ in types
        for _ in range(2)
    ]
    ring = st.lists(st.tuples(st.sampled_from(samples), st.integers(0, 40)), max_size=40)
    rings = []
    for steps in draw(st.lists(ring, min_size=1, max_size=3)):
        time, back = draw(st.sampled_from([0, (1 << 64) - 5000])), draw(st.sampled_from([0, 0, 5]))
        records = []
        for sample, step in steps * draw(st.sampled_from([1, 1, 3])):
            time = max(0, time + step - back)
            records.append(sample._replace(time=time))
        rings.append(records)
    return types, rings
