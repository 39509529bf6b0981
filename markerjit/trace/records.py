"""Records from one shape to another: columns to events, events to columns, and what the records of
a file without a header must have been.

Needs numpy. Raw bytes are read in ring/decode.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.errors import BadTrace
from markerjit.model import CType, Event, Field, FieldType, TypeClass, Value
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.columns import monotonic, order_of, rows_between
from markerjit.ring.to_events import events
from markerjit.ring.types import FILLER, TEXTS, RecordType, TextState, Time, number_code
from markerjit.trace.header import is_name
from markerjit.trace.lines import EventOfKind, fits

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

PIECE = 1 << 16
"""So many records are turned round at a time, so that memory stays flat."""


def to_events(batch: Sequence[Columns], clock: Calibration) -> Iterator[list[Event]]:
    """All records of a batch, in order of time, a list for each piece."""
    for piece in pieces(batch, clock):
        yield events(piece, clock)


def in_order(batch: Sequence[Columns], clock: Calibration) -> tuple[Array, Array]:
    """The times of a batch's records one behind the other, in nanoseconds, and their order: that
    of `events`."""
    times = np.concatenate([monotonic(columns.time, clock) for columns in batch])
    return times, order_of(batch)


def pieces(batch: Sequence[Columns], clock: Calibration) -> Iterator[list[Columns]]:
    """A batch in pieces of no more than PIECE records, no piece before one that is older."""
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
    """A column as events have it; only they know what becomes of a text that was cut."""
    count = len(column.states) if isinstance(column, Texts) else len(column)
    kind = RecordType(0, "", "", [field], time=Time.MONOTONIC)
    none = np.zeros(count, np.uint64)
    alone = Columns(kind, none, none, none, {field.name: column})
    clock = Calibration(Time.MONOTONIC, 0, 0, NS, 0)
    return [event.fields[field.name] for event in events([alone], clock)]


def showable(field: Field, texts: Texts) -> Texts:
    """Texts as viewers can have them: all valid UTF-8 and none of them cut without saying so.
    What is no text becomes hexadecimal digits. A text is NULL or WHOLE then."""
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
    """Whether all texts are UTF-8: together they are, and none begins inside of a character."""
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


class Collector:
    """Turns events into columns of these types. Raises BadTrace for an event that fits none."""

    def __init__(self, types: Iterable[RecordType]) -> None:
        # By its fields, too: sites of one marker may have different formats.
        self._types: dict[tuple[str, ...], list[RecordType]] = {}
        for kind in types:
            key = (kind.marker, *(field.name for field in kind.fields))
            self._types.setdefault(key, []).append(kind)

    def columns(self, some: Iterable[Event]) -> list[Columns]:
        """The columns of these events, in the order of each type's first."""
        by_type: dict[int, tuple[RecordType, list[Event]]] = {}
        for event in some:
            kind = self._type_of(event)
            by_type.setdefault(kind.id, (kind, []))[1].append(event)
        return [_columns(kind, found) for kind, found in by_type.values()]

    def _type_of(self, event: Event) -> RecordType:
        kinds = self._types.get((event.name, *event.fields))
        if kinds is None:
            raise BadTrace(f"an event of {event.name} has fields that its marker has not")
        if len(kinds) == 1:
            return kinds[0]
        if isinstance(event, EventOfKind) and event.kind in kinds:
            return event.kind
        values = [*event.fields.values()]
        return next((kind for kind in kinds if all(map(fits, kind.fields, values))), kinds[0])


def _columns(kind: RecordType, found: Sequence[Event]) -> Columns:
    try:
        ordered = sorted(found, key=lambda event: event.time)
        return Columns(
            kind,
            np.array([event.time for event in ordered], np.int64).astype(np.uint64),
            np.array([event.cpu for event in ordered], np.uint16),
            np.array([event.tid for event in ordered], np.uint32),
            {
                field.name: _column(field, [event.fields[field.name] for event in ordered])
                for field in kind.fields
            },
        )
    except (TypeError, ValueError, OverflowError) as error:
        raise BadTrace(f"an event of {kind.marker} does not fit its marker: {error}") from error


def _column(field: Field, values: Sequence[Any]) -> Array | Texts:
    if field.type in TEXTS:
        return make_texts(values)
    if field.type is FieldType.FLOAT:
        return np.array([float(value) for value in values], np.float64)
    classes = set(map(type, values))
    if field.type is FieldType.CHAR:
        codes = [ord(value) for value in values]
        if max(codes) > 0xFF:
            raise ValueError(f"{field.name} is no character of a byte")
        return np.array(codes).astype(number_code(field))
    if classes != {bool if field.type is FieldType.BOOL else int}:
        raise TypeError(f"{field.name} is not always {field.type}")
    return np.array(values, np.bool_ if field.type is FieldType.BOOL else number_code(field))


def make_texts(values: Iterable[str | bytes | None]) -> Texts:
    """A column of texts."""
    encoded: list[bytes] = []
    states = bytearray()
    for value in values:
        states.append(TextState.NULL if value is None else TextState.WHOLE)
        text = value or b""
        if isinstance(text, str):
            text = text.encode("utf-8", "backslashreplace")
        encoded.append(text)
    offsets = np.zeros(len(encoded) + 1, np.int64)
    np.cumsum([len(text) for text in encoded], out=offsets[1:])
    return Texts(
        offsets, np.frombuffer(b"".join(encoded), np.uint8), np.frombuffer(bytes(states), np.uint8)
    )


class Guess:
    """What the records must have been, from events of a file that does not say. Events of a name
    with different fields are of different types. Whole numbers are signed and have 64 bits, unless
    one is larger; what is sometimes a number and sometimes a text is a text."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], list[_Seen]] = {}
        self._types: dict[tuple[str, ...], RecordType] = {}
        self._tid = False

    def look_at(self, event: Event) -> None:
        """One more event. Raises BadTrace where there are too many types."""
        key = (event.name, *event.fields)
        seen = self._seen.get(key)
        if seen is None:
            if len(self._seen) == FILLER or not all(map(is_name, event.fields)):
                raise BadTrace(
                    f"events of {event.name} have too many sorts of fields, or odd names"
                )
            seen = self._seen[key] = [_Seen() for _ in event.fields]
        self._tid = self._tid or event.tid != 0
        for field, value in zip(seen, event.fields.values(), strict=True):
            field.classes.add(type(value))
            if type(value) is int:
                field.least, field.most = min(field.least, value), max(field.most, value)

    def types(self, time: Time = Time.MONOTONIC) -> tuple[RecordType, ...]:
        """The types of all events that were seen."""
        self._types = {
            (marker, *names): RecordType(
                index,
                marker,
                "",
                [
                    one.field(name, arg)
                    for arg, (name, one) in enumerate(zip(names, seen, strict=True))
                ],
                time=time,
                tid=self._tid,
            )
            for index, ((marker, *names), seen) in enumerate(self._seen.items())
        }
        return tuple(self._types.values())

    def fitted(self, event: Event) -> Event:
        """An event as its type, which was guessed, has it: a number is a text where others are."""
        kind = self._types.get((event.name, *event.fields))
        if kind is None or not kind.has_text:
            return event
        fields = {
            field.name: _as_text(value) if field.type in TEXTS else value
            for field, value in zip(kind.fields, event.fields.values(), strict=True)
        }
        return event._replace(fields=fields)


class _Seen:
    """What a field has been, so far."""

    def __init__(self) -> None:
        self.classes: set[type] = set()
        self.least = self.most = 0

    def field(self, name: str, arg: int) -> Field:
        if self.classes == {bool}:
            return Field(name, FieldType.BOOL, CType(TypeClass.BOOL, 1), arg, "d")
        if self.classes == {int} and self.most < 1 << 63:
            return Field(name, FieldType.INT, CType(TypeClass.SIGNED, 8), arg, "d")
        if self.classes == {int} and self.least >= 0:
            return Field(name, FieldType.INT, CType(TypeClass.UNSIGNED, 8), arg, "u")
        if self.classes and self.classes <= {int, float} and float in self.classes:
            return Field(name, FieldType.FLOAT, CType(TypeClass.FLOAT, 8), arg, "g")
        text = FieldType.BYTES if bytes in self.classes else FieldType.STRING
        return Field(name, text, CType(TypeClass.CHARS, 8), arg, "s")


def _as_text(value: Value) -> str | bytes | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
