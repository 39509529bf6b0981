"""From a record's payload to the values of its fields.

The layout is that of the recorder (record.c): eight bytes for each argument, and after a string's
word its bytes, padded to eight. A payload that does not fit its fields raises BadRecord; it comes
from a process that may be half dead.
"""

from __future__ import annotations

import struct

from markerjit.errors import MarkerError
from markerjit.model import CType, Field, FieldType, TypeClass, Value
from markerjit.ring.layout import STRING_CUT, STRING_NULL

_U64 = struct.Struct("<Q")
_F64 = struct.Struct("<d")


class BadRecord(MarkerError):
    """A record does not fit the fields of its marker."""


def decode(payload: bytes, args: tuple[CType, ...], fields: tuple[Field, ...]) -> dict[str, Value]:
    """The fields by name. A NULL string is None; one that was cut ends in '…'."""
    words, texts = _split(payload, args, fields)
    return {field.name: _value(field, words[field.arg], texts.get(field.arg)) for field in fields}


def _split(
    payload: bytes, args: tuple[CType, ...], fields: tuple[Field, ...]
) -> tuple[list[bytes], dict[int, bytes]]:
    textual = {field.arg for field in fields if field.type in (FieldType.STRING, FieldType.BYTES)}
    words: list[bytes] = []
    texts: dict[int, bytes] = {}
    at = 0
    for index in range(len(args)):
        word = payload[at : at + 8]
        at += 8
        if index in textual and len(word) == 8:
            length = _U64.unpack(word)[0] & 0xFFFFFFFF
            texts[index] = payload[at : at + length]
            at += (length + 7) & ~7
        words.append(word)
    if at != len(payload):
        raise BadRecord(f"a record of {len(payload)} bytes where its marker needs {at}")
    return words, texts


def _value(field: Field, word: bytes, text: bytes | None) -> Value:
    if text is not None:
        return _text(field, _U64.unpack(word)[0], text)
    if field.ctype.type_class is TypeClass.FLOAT:
        return float(_F64.unpack(word)[0])
    if field.ctype.type_class is TypeClass.BOOL:
        return word[0] != 0
    # An argument narrower than a register is only defined in its own bytes.
    signed = field.ctype.type_class is TypeClass.SIGNED
    number = int.from_bytes(word[: field.ctype.size], "little", signed=signed)
    if field.type is FieldType.CHAR:
        return chr(number & 0xFF)
    return number


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
