"""Records as the runtime writes them, made up from values, by the words of ring/types.py alone."""

from __future__ import annotations

import struct

from markerjit.elf import parse_format
from markerjit.model import CType, TypeClass
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType, TextState, Time
from markerjit.trace.sink import TraceInfo
from tests.support.heads import head_of

I8, I16, I32, I64 = (CType(TypeClass.SIGNED, size) for size in (1, 2, 4, 8))
U8, U16, U32, U64 = (CType(TypeClass.UNSIGNED, size) for size in (1, 2, 4, 8))
F32, F64 = CType(TypeClass.FLOAT, 4), CType(TypeClass.FLOAT, 8)
POINTER, CHARS = CType(TypeClass.POINTER, 8), CType(TypeClass.CHARS, 8)
BOOL = CType(TypeClass.BOOL, 1)

Text = tuple[bytes, TextState]


def whole(text: str | bytes) -> Text:
    """A text of which nothing is missing."""
    return (text.encode() if isinstance(text, str) else text), TextState.WHOLE


def make_type(
    id: int, marker: str, format: str, *args: CType, time: Time = Time.TSC, tid: bool = True
) -> RecordType:
    """A type from a marker's format and the C types of its arguments."""
    return RecordType(id, marker, format, parse_format(format, args), time=time, tid=tid)


def make_info(*types: RecordType, clock: Calibration) -> TraceInfo:
    """A trace of these types."""
    return TraceInfo(
        types=types,
        clock=clock,
        pid=812,
        command="/opt/kvserver --port 7",
        host="here",
        started_ns=1_700_000_000_000_000_000,
        sources={types[0].marker: "kv.c:12"} if types else {},
    )


def record(type_: RecordType, time: int, tid: int, *values: int | float | bytes | Text) -> bytes:
    """A record. A text is a pair, or the bytes of a whole one."""
    data = struct.pack("<Q", time) if type_.time is not Time.NONE else b""
    for field, value in zip(type_.fields, values, strict=True):
        type_class, size = field.ctype
        if isinstance(value, bytes | tuple):
            text, state = value if isinstance(value, tuple) else whole(value)
            data = _filled(data, 8) + struct.pack("<II", len(text), state) + text
            data = _filled(data, 8)
        elif type_class is TypeClass.FLOAT:
            data = _filled(data, 8) + struct.pack("<d", value)
        else:
            assert isinstance(value, int)
            size = 8 if type_class in (TypeClass.POINTER, TypeClass.CHARS) else size
            signed = type_class is TypeClass.SIGNED
            data = _filled(data, size) + value.to_bytes(size, "little", signed=signed)
    data = _filled(data, 8)
    return struct.pack("<II", head_of(type_.id, len(data) // 8 + 1), tid) + data


def _filled(data: bytes, size: int) -> bytes:
    return data + bytes(-len(data) % size)
