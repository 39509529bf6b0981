"""Columns of records as events, each a Python object. This is the slow part of reading: it takes a
hundred times as long as sorting the columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise, repeat
from typing import TYPE_CHECKING

import numpy as np

from markerjit.frames import StackText
from markerjit.model import Event, Field, FieldType, Value, event_type
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import Calibration, origin_of
from markerjit.ring.columns import from_zero, monotonic, order_of
from markerjit.ring.types import TextState, Time

if TYPE_CHECKING:
    from markerjit.ring.batch import Column


def events(columns: Sequence[Columns], clock: Calibration, pid: int = 0) -> list[Event]:
    """The records of a process as events, those of all types in order of time. The time of a record
    without one (Time.NONE) is its number in its ring."""
    by_type = [event for part in columns for event in _events(part, clock, pid)]
    if len(columns) < 2:
        return by_type
    return [by_type[index] for index in order_of(columns).tolist()]


def _events(columns: Columns, clock: Calibration, pid: int) -> Iterator[Event]:
    type_ = columns.type
    kind = event_type(origin_of(clock, pid))
    times = columns.time if type_.time is Time.NONE else monotonic(columns.time, clock)
    names = [field.name for field in type_.fields]
    values = [_values(field, columns.fields[field.name]) for field in type_.fields]
    rows = zip(*values, strict=True) if values else repeat((), len(columns.time))
    fields = map(dict, map(zip, repeat(names), rows))
    rows = zip(
        times.tolist(), columns.cpu.tolist(), columns.tid.tolist(), repeat(type_.marker), fields
    )
    return map(tuple.__new__, repeat(kind), rows)  # Event(*row) takes half as long again


def _values(field: Field, column: Column) -> list[Value]:
    """The values that events have of a field."""
    if isinstance(column, Texts):
        return _text_values(field, column)
    if field.type is FieldType.CHAR:
        return [*column.astype(np.uint8).tobytes().decode("latin-1")]
    values: list[Value] = column.tolist()
    return values


def _text_values(field: Field, texts: Texts) -> list[Value]:
    if field.type is FieldType.STACK:
        return _stacks(texts)
    offsets, column = from_zero(texts.offsets, texts.data)
    data, spans = column.tobytes(), pairwise(offsets.tolist())
    values: list[Value]
    if field.conversion == "ph":  # %*ph: always bytes
        values = [data[start:end] for start, end in spans]
    elif field.type is FieldType.BYTES:
        values = [_printable(data[start:end]) for start, end in spans]
    elif data.isascii():
        text = data.decode()
        values = [text[start:end] for start, end in spans]
    else:
        values = [data[start:end].decode("utf-8", "backslashreplace") for start, end in spans]
    for index in np.flatnonzero(texts.states).tolist():
        value = values[index]
        match texts.states[index]:
            case TextState.NULL:
                values[index] = None
            case TextState.UNREADABLE:
                values[index] = "<unreadable>"
            case _ if isinstance(value, str) and field.limit is None:
                values[index] = value + "…"  # what the format itself cuts is whole
    return values


def _stacks(texts: Texts) -> list[Value]:
    offsets, column = from_zero(texts.offsets, texts.data)
    data = column.tobytes()
    return [
        None if state else StackText(data[start:end].decode("utf-8", "backslashreplace"))
        for (start, end), state in zip(pairwise(offsets.tolist()), texts.states, strict=True)
    ]


def _printable(data: bytes) -> str | bytes:
    """The bytes as a string, where all of it can be shown."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return text if text.isprintable() else data
