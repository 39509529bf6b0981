"""Columns made of events, for readers of formats that hold events. Needs numpy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.errors import BadTrace
from markerjit.model import Event, Field, FieldType
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.types import TEXT_COLUMNS, RecordType, TextState, number_code
from markerjit.trace.kinds import EventOfKind, fits

if TYPE_CHECKING:
    from markerjit.ring.batch import Column


class Collector:
    """Makes columns of events of these types. Raises BadTrace for an event that fits none."""

    def __init__(self, types: Iterable[RecordType]) -> None:
        # By the fields, too: sites of one marker may have different formats.
        self._types: dict[tuple[str, ...], list[RecordType]] = {}
        for kind in types:
            key = (kind.marker, *(field.name for field in kind.fields))
            self._types.setdefault(key, []).append(kind)

    def columns(self, events: Iterable[Event]) -> list[Columns]:
        """The columns of these events, in the order of the first event of each type."""
        return [columns for columns, _ in self.columns_with_events(events)]

    def columns_with_events(
        self, events: Iterable[Event]
    ) -> Iterator[tuple[Columns, Sequence[Event]]]:
        """The columns of these events, with the events of each in the order of its rows."""
        by_type: dict[int, tuple[RecordType, list[Event]]] = {}
        for event in events:
            kind = self._type_of(event)
            by_type.setdefault(kind.id, (kind, []))[1].append(event)
        for kind, of_kind in by_type.values():
            yield _columns(kind, of_kind)

    def _type_of(self, event: Event) -> RecordType:
        kinds = self._types.get((event.name, *event.fields))
        if kinds is None:
            raise BadTrace(f"an event of {event.name} has fields that its marker does not have")
        if len(kinds) == 1:
            return kinds[0]
        if isinstance(event, EventOfKind) and event.kind in kinds:
            return event.kind
        values = [*event.fields.values()]
        return next((kind for kind in kinds if all(map(fits, kind.fields, values))), kinds[0])


def _columns(kind: RecordType, events: Sequence[Event]) -> tuple[Columns, Sequence[Event]]:
    try:
        ordered = sorted(events, key=lambda event: event.time)
        columns = Columns(
            kind,
            np.array([event.time for event in ordered], np.int64).astype(np.uint64),
            np.array([event.cpu for event in ordered], np.uint16),
            np.array([event.tid for event in ordered], np.uint32),
            {
                field.name: _column(field, [event.fields[field.name] for event in ordered])
                for field in kind.fields
            },
        )
        return columns, ordered
    except (TypeError, ValueError, OverflowError) as error:
        raise BadTrace(f"an event of {kind.marker} does not fit its marker: {error}") from error


def _column(field: Field, values: Sequence[Any]) -> Column:
    if field.type in TEXT_COLUMNS:
        return make_texts(values)
    if field.type is FieldType.FLOAT:
        return np.array([float(value) for value in values], np.float64)
    classes = set(map(type, values))
    if field.type is FieldType.CHAR:
        codes = [ord(value) for value in values]
        if max(codes) > 0xFF:
            raise ValueError(f"{field.name} is not a character of one byte")
        return np.array(codes).astype(number_code(field))
    if classes != {bool if field.type is FieldType.BOOL else int}:
        raise TypeError(f"{field.name} is not always {field.type}")
    return np.array(values, np.bool_ if field.type is FieldType.BOOL else number_code(field))


def make_texts(values: Iterable[str | bytes | None]) -> Texts:
    """A column of these texts."""
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
