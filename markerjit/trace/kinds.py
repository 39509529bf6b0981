"""The types of events that are read from a file.

Sites of one marker may have different formats, so several types may share its name. Files give the
number of the type with events of such a marker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any

from markerjit.frames import StackText
from markerjit.model import Event, Field, FieldType, Origin, TypeClass, Value
from markerjit.ring.types import RecordType

_INT, _SIGNED = FieldType.INT, TypeClass.SIGNED  # attributes of an enum are slow to look up
_TEXT_TYPES = (FieldType.STRING, FieldType.BYTES)
_FITTING: dict[type, tuple[FieldType, ...]] = {
    int: (_INT, FieldType.POINTER),
    float: (FieldType.FLOAT,),
    bool: (FieldType.BOOL,),
    StackText: (FieldType.STACK,),
    str: (*_TEXT_TYPES, FieldType.CHAR),
    bytes: (FieldType.BYTES,),
    type(None): (*_TEXT_TYPES, FieldType.STACK),
}
"""The types of fields that may have a value of each class."""
KIND_MARK = "#"
"""Separates a marker's name from the id of its type in text files, where it has several types."""


def ambiguous(types: Iterable[RecordType]) -> frozenset[int]:
    """The ids of the types that share their marker's name with another type."""
    types = tuple(types)
    count = Counter(kind.marker for kind in types)
    return frozenset(kind.id for kind in types if count[kind.marker] > 1)


class EventOfKind(Event):
    """An event whose name does not say which type it has."""

    kind: RecordType
    source: Origin

    @property
    def origin(self) -> Origin:
        """The origin of the event."""
        return self.source

    def of(self, origin: Origin) -> EventOfKind:
        """The same event with another origin."""
        return _of_kind(self, self.kind, origin)

    def _replace(self, **changes: Any) -> EventOfKind:
        return _of_kind(super()._replace(**changes), self.kind, self.source)

    def __reduce__(self) -> tuple[object, ...]:
        return _of_kind, (Event(*self), self.kind, self.source)


def _of_kind(event: Event, kind: RecordType, origin: Origin) -> EventOfKind:
    marked = EventOfKind(*event)
    marked.kind = kind
    marked.source = origin
    return marked


class Kinds:
    """The types of the events that are read from a file."""

    def __init__(self, types: Iterable[RecordType]) -> None:
        types = tuple(types)
        self._ambiguous = ambiguous(types)
        self._by_number = {kind.id: kind for kind in types}
        self._by_marker = {kind.marker: kind for kind in types if kind.id not in self._ambiguous}

    def find(self, marker: str, number: object = None) -> RecordType | None:
        """The type of an event, by its marker, or by the number in the file.

        Returns None where the type is not known. Raises ValueError where the number is not of a
        type of this marker.
        """
        if number is None:
            return self._by_marker.get(marker)
        kind = self._by_number.get(number) if type(number) is int else None
        if kind is None or kind.marker != marker:
            raise ValueError(f"there is no such {marker}")
        return kind

    def marked(self, event: Event, kind: RecordType | None) -> Event:
        """The event, with its type attached where the marker's name is ambiguous."""
        if kind is None or kind.id not in self._ambiguous:
            return event
        return _of_kind(event, kind, event.origin)


def fields_of(types: Iterable[RecordType], type_: FieldType) -> dict[int, tuple[str, ...]]:
    """The names of the fields that have this type, by the id of the record's type."""
    return {
        kind.id: tuple(field.name for field in kind.fields if field.type is type_) for kind in types
    }


def fits(field: Field, value: Value) -> bool:
    """Whether a field of this type can have this value."""
    if field.type not in _FITTING.get(type(value), ()):
        return False
    if field.type is not _INT:
        return True
    bits = field.ctype.size * 8
    if field.ctype.type_class is _SIGNED:
        return -1 <= value >> (bits - 1) <= 0  # type: ignore[operator]
    return value >> bits == 0  # type: ignore[operator]
