"""Columns of records on their way to a file or to events: in order, in pieces, as values. Needs
numpy. Raw bytes are read in ring/decode.py; collect.py makes columns of events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.model import Event, Field, FieldType, Value
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.columns import monotonic, order_of, rows_between
from markerjit.ring.to_events import events
from markerjit.ring.types import RecordType, TextState, Time
from markerjit.trace.collect import make_texts

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

PIECE = 1 << 16
"""Records that are converted at a time, so that memory stays flat."""


def to_events(batch: Sequence[Columns], clock: Calibration) -> Iterator[list[Event]]:
    """All records of a batch, in order of time, a list for each piece."""
    for piece in pieces(batch, clock):
        yield events(piece, clock)


def in_order(batch: Sequence[Columns], clock: Calibration) -> tuple[Array, Array]:
    """The times of a batch's records in nanoseconds, one Columns behind the other, and their order:
    the order of `events`."""
    times = np.concatenate([monotonic(columns.time, clock) for columns in batch])
    return times, order_of(batch)


def pieces(batch: Sequence[Columns], clock: Calibration) -> Iterator[list[Columns]]:
    """A batch in pieces of no more than PIECE records. No record is older than those of the piece
    before."""
    batch = [columns for columns in batch if len(columns.time)]
    total = sum(len(columns.time) for columns in batch)
    if total <= PIECE:
        if batch:
            yield batch
        return
    order = order_of(batch)
    rank = np.empty_like(order)
    rank[order] = np.arange(total)
    ranks = np.split(rank, np.cumsum([len(columns.time) for columns in batch])[:-1])
    if clock.time is Time.NONE:  # a type's records are not in this order, but any other will do
        ranks = [np.sort(rank) for rank in ranks]
    edges = [np.searchsorted(rank, np.arange(0, total + PIECE, PIECE)).tolist() for rank in ranks]
    for low, high in zip(
        zip(*edges, strict=True), list(zip(*edges, strict=True))[1:], strict=False
    ):
        parts = [rows_between(*span) for span in zip(batch, low, high, strict=True)]
        yield [columns for columns in parts if len(columns.time)]


def values(field: Field, column: Array | Texts) -> list[Value]:
    """A column as events have it: they also mark texts that were cut."""
    count = len(column.states) if isinstance(column, Texts) else len(column)
    kind = RecordType(0, "", "", [field], time=Time.MONOTONIC)
    none = np.zeros(count, np.uint64)
    alone = Columns(kind, none, none, none, {field.name: column})
    clock = Calibration(Time.MONOTONIC, 0, 0, NS, 0)
    return [event.fields[field.name] for event in events([alone], clock)]


def showable(field: Field, texts: Texts) -> Texts:
    """Texts as viewers can show them: valid UTF-8, and marked where they were cut. Bytes that are
    not text become hexadecimal digits. The state of each text is NULL or WHOLE."""
    if _is_showable(field, texts):
        return texts
    return make_texts(
        value.hex() if isinstance(value, bytes) else value for value in text_values(field, texts)
    )


def text_values(field: Field, texts: Texts) -> list[str | bytes | None]:
    """`values` of texts."""
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
    """Whether all texts are UTF-8. They are where the whole is, and no text begins inside a
    character."""
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
