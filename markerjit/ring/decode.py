"""From a record's payload to the values of its fields.

The layout is that of the recorder (record.c): eight bytes for each argument, and after a string's
word its bytes, padded to eight. A payload that does not fit its fields raises BadRecord; it comes
from a process that may be half dead.

How a marker's payload is laid out is worked out once, when its first record comes: between strings
it is fixed, so each stretch of numbers is one `struct` call.
"""

from __future__ import annotations

import struct
from functools import lru_cache

from markerjit.errors import MarkerError
from markerjit.model import CType, Field, FieldType, TypeClass, Value
from markerjit.ring.layout import STRING_CUT, STRING_NULL

_WORD = 8
_TEXTUAL = (FieldType.STRING, FieldType.BYTES)
_NUMBERS = {
    TypeClass.SIGNED: {1: "b7x", 2: "h6x", 4: "i4x", 8: "q"},
    TypeClass.UNSIGNED: {1: "B7x", 2: "H6x", 4: "I4x", 8: "Q"},
    TypeClass.FLOAT: {4: "d", 8: "d"},  # a float travels as a double
    TypeClass.POINTER: {8: "Q"},
    TypeClass.CHARS: {8: "Q"},
    TypeClass.BOOL: {1: "?7x"},
}
"""struct's code for an argument: narrower than a register, it is only defined in its own bytes."""


class BadRecord(MarkerError):
    """A record does not fit the fields of its marker."""


def decode(payload: bytes, args: tuple[CType, ...], fields: tuple[Field, ...]) -> dict[str, Value]:
    """The fields by name. A NULL string is None; one that was cut ends in '…'."""
    return _layout(args, fields).decode(payload)


@lru_cache(maxsize=1024)
def _layout(args: tuple[CType, ...], fields: tuple[Field, ...]) -> _Layout:
    return _Layout(args, fields)


class _Layout:
    """The payload of one marker, as stretches of numbers with a string behind each but the last."""

    def __init__(self, args: tuple[CType, ...], fields: tuple[Field, ...]) -> None:
        by_arg = {field.arg: field for field in fields}
        self._stretches: list[tuple[struct.Struct, Field | None]] = []
        self._names = [by_arg[index].name if index in by_arg else "" for index in range(len(args))]
        self._chars = [field.name for field in fields if field.type is FieldType.CHAR]
        codes = "<"
        for index, arg in enumerate(args):
            field = by_arg.get(index)
            if field and field.type in _TEXTUAL:
                self._stretches.append((struct.Struct(codes + "Q"), field))
                codes = "<"
            else:
                codes += _NUMBERS[arg.type_class][arg.size]
        self._stretches.append((struct.Struct(codes), None))

    def decode(self, payload: bytes) -> dict[str, Value]:
        values: list[Value] = []
        at = 0
        try:
            for numbers, text in self._stretches:
                values += numbers.unpack_from(payload, at)
                at += numbers.size
                if text is not None:
                    word = values[-1]
                    assert isinstance(word, int)
                    length = word & 0xFFFFFFFF
                    values[-1] = _text(text, word, payload[at : at + length])
                    at += (length + _WORD - 1) & -_WORD
        except struct.error:
            at = -1
        if at != len(payload):
            raise BadRecord(f"a record of {len(payload)} bytes does not fit its marker")
        found = dict(zip(self._names, values, strict=True))
        found.pop("", None)  # arguments that are only a width or a length
        for name in self._chars:
            code = found[name]
            found[name] = chr(code & 0xFF) if isinstance(code, int) else code
        return found


def _text(field: Field, word: int, text: bytes) -> Value:
    if word & STRING_NULL:
        return None
    if field.type is FieldType.BYTES and not _is_text(text):
        return text
    shown = text.decode("utf-8", "backslashreplace")
    cut = word & STRING_CUT and field.limit is None  # what the format itself cuts is whole
    return shown + "…" if cut else shown


def _is_text(data: bytes) -> bool:
    try:
        return data.decode("utf-8").isprintable()
    except UnicodeDecodeError:
        return False
