"""What the recorder needs to know of a marker: how to take each argument from the call.

The codes are MJ_OP_* of abi.h. They follow from the C types and the format: a `char *` is copied as
text only where the format says %s; with %p its value is recorded.
"""

from __future__ import annotations

from typing import NamedTuple

from markerjit.errors import BadNote
from markerjit.model import CType, Field, FieldType, Note, TypeClass
from markerjit.ring.layout import MAX_ARGS, OP_BYTES, OP_FP, OP_GP, OP_PREFIX, OP_STRING

MAX_STRING = 256
"""Bytes of a string that are recorded, where the format does not say less."""

_OP_OF_TEXT = {FieldType.STRING: OP_STRING, FieldType.BYTES: OP_BYTES}


class Taking(NamedTuple):
    """For each argument of the call, in order: how to take it, and the most bytes of its text."""

    ops: bytes
    limits: tuple[int, ...]


def recorder_taking(args: tuple[CType, ...], fields: tuple[Field, ...]) -> Taking:
    """How the recorder takes the arguments. Raises BadNote for too many."""
    if len(args) > MAX_ARGS:
        raise BadNote(f"{len(args)} arguments; the recorder takes {MAX_ARGS}")
    ops = [OP_FP if arg.type_class is TypeClass.FLOAT else OP_GP for arg in args]
    limits = [0] * len(args)
    for field in fields:
        if field.type in _OP_OF_TEXT:
            ops[field.arg] = _OP_OF_TEXT[field.type]
            if field.limit is not None and field.limit <= MAX_STRING:
                ops[field.arg] = OP_PREFIX
            limits[field.arg] = MAX_STRING if field.limit is None else min(field.limit, MAX_STRING)
    return Taking(bytes(ops), tuple(limits))


def signature(note: Note) -> str:
    """What makes a marker's records readable: sites that agree in it share a marker's entry."""
    return f"{note.name}\0{note.format}\0{' '.join(map(str, note.args))}"
