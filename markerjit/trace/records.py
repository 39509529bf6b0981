"""Columns of records for writers: in order, in pieces, as values. Needs numpy.

ring/decode.py makes columns of raw bytes; collect.py makes them of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.model import Event, Field, FieldType, Value
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.columns import Slices, monotonic, order_of, rows_between
from markerjit.ring.to_events import events
from markerjit.ring.types import RecordType, TextState, Time
from markerjit.trace.collect import make_texts

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

PIECE = 1 << 16
"""The most records that a writer converts at a time, which bounds memory."""


def to_events(batch: Sequence[Columns], clock: Calibration, pid: int = 0) -> Iterator[list[Event]]:
    """The events of a batch, in order of time, as a list for each piece."""
    for piece in pieces(batch, clock):
        yield events(piece, clock, pid)


def in_order(batch: Sequence[Columns], clock: Calibration) -> tuple[Array, Array]:
    """The times of a batch's records in nanoseconds, and their order, which is that of `events`.

    The times are in the order of the columns, one Columns after the other.
    """
    times = np.concatenate([monotonic(columns.time, clock) for columns in batch])
    return times, order_of(batch)


def split(rows: Array, batch: Sequence[Columns]) -> list[Array]:
    """An array with an entry for each record of a batch, as an array for each of its columns."""
    return np.split(rows, np.cumsum([len(columns.time) for columns in batch])[:-1])


def pieces(
    batch: Sequence[Columns], clock: Calibration, most: int = PIECE
) -> Iterator[list[Columns]]:
    """The batch in pieces of at most `most` records.

    No record is older than those of the previous piece.
    """
    batch = [columns for columns in batch if len(columns.time)]
    total = sum(len(columns.time) for columns in batch)
    if total <= most:
        if batch:
            yield batch
        return
    if clock.time is Time.NONE:  # a type's records are not in this order, so they are copied
        slices = Slices(batch)
        while len(slices):
            yield slices.take(most)
        return
    order = order_of(batch)
    rank = np.empty_like(order)
    rank[order] = np.arange(total)
    ranks = split(rank, batch)
    edges = [np.searchsorted(rank, np.arange(0, total + most, most)).tolist() for rank in ranks]
    for low, high in zip(
        zip(*edges, strict=True), list(zip(*edges, strict=True))[1:], strict=False
    ):
        parts = [rows_between(*span) for span in zip(batch, low, high, strict=True)]
        yield [columns for columns in parts if len(columns.time)]


def values(field: Field, column: Array | Texts) -> list[Value]:
    """The values of a column as in events, where texts that were cut are marked."""
    count = len(column.states) if isinstance(column, Texts) else len(column)
    kind = RecordType(0, "", "", [field], time=Time.MONOTONIC)
    zeros = np.zeros(count, np.uint64)
    columns = Columns(kind, zeros, zeros, zeros, {field.name: column})
    clock = Calibration(Time.MONOTONIC, 0, 0, NS, 0)
    return [event.fields[field.name] for event in events([columns], clock)]


def showable(field: Field, texts: Texts) -> Texts:
    """The texts as viewers can show them: valid UTF-8, and marked where they were cut.

    Bytes that are not text become hexadecimal digits. The state of each text is NULL or WHOLE.
    """
    if _is_showable(field, texts):
        return texts
    return make_texts(
        value.hex() if isinstance(value, bytes) else value for value in text_values(field, texts)
    )


def text_values(field: Field, texts: Texts) -> list[str | bytes | None]:
    """The values of texts, as `values` gives them."""
    return values(field, texts)  # type: ignore[return-value]


def _is_showable(field: Field, texts: Texts) -> bool:
    if (texts.states > TextState.NULL).any() or (texts.states == TextState.CUT).any():
        return False
    if field.conversion == "ph":
        return False
    data = texts.data[texts.offsets[0] : texts.offsets[-1]]
    if field.type is FieldType.BYTES:
        return bool(((data >= 0x20) & (data < 0x7F)).all())
    return is_utf8(texts)


def is_utf8(texts: Texts) -> bool:
    """Whether all texts are UTF-8.

    That is so if all of the data is, and no text begins inside a character.
    """
    data = texts.data[texts.offsets[0] : texts.offsets[-1]]
    if not (data >= 0x80).any():
        return True
    starts = texts.offsets[:-1][np.diff(texts.offsets) > 0]
    if ((texts.data[starts] & 0xC0) == 0x80).any():
        return False
    try:
        data.tobytes().decode()
    except UnicodeDecodeError:
        return False
    return True
