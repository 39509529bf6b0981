"""The guessed types of events, for a file without a header."""

from __future__ import annotations

from markerjit.errors import BadTrace
from markerjit.frames import StackText
from markerjit.model import CType, Event, Field, FieldType, TypeClass, Value
from markerjit.ring.types import TEXTS, RecordType, Time
from markerjit.trace.header import is_name

_TYPES_AT_MOST = 1 << 16
"""The most types. A file with more of them has data in place of names."""


class Guess:
    """Guesses the types of records from events.

    Events of one name with different fields have different types. Whole numbers are signed and have
    64 bits, unless a larger number occurs. A field that is a number in one event and a text in
    another is a text.
    """

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], list[_FieldValues]] = {}
        self._types: dict[tuple[str, ...], RecordType] = {}
        self._tid = False

    def look_at(self, event: Event) -> None:
        """Take one more event into account. Raises BadTrace where there are too many types."""
        key = (event.name, *event.fields)
        values = self._seen.get(key)
        if values is None:
            if len(self._seen) == _TYPES_AT_MOST or not all(map(is_name, event.fields)):
                raise BadTrace(
                    f"events of {event.name} have too many sorts of fields, or odd names"
                )
            values = self._seen[key] = [_FieldValues() for _ in event.fields]
        self._tid = self._tid or event.tid != 0
        for field, value in zip(values, event.fields.values(), strict=True):
            field.classes.add(type(value))
            if type(value) is int:
                field.least, field.most = min(field.least, value), max(field.most, value)

    def types(self, time: Time = Time.MONOTONIC) -> tuple[RecordType, ...]:
        """The types of all events given to `look_at`."""
        self._types = {
            (marker, *names): RecordType(
                index,
                marker,
                "",
                [
                    field.field(name, arg)
                    for arg, (name, field) in enumerate(zip(names, seen, strict=True))
                ],
                time=time,
                tid=self._tid,
            )
            for index, ((marker, *names), seen) in enumerate(self._seen.items())
        }
        return tuple(self._types.values())

    def fitted(self, event: Event) -> Event:
        """The event with values of its guessed type: a number becomes a text where others are."""
        kind = self._types.get((event.name, *event.fields))
        if kind is None or not kind.has_text:
            return event
        fields = {
            field.name: _as_text(value) if field.type in TEXTS else value
            for field, value in zip(kind.fields, event.fields.values(), strict=True)
        }
        return event._replace(fields=fields)


class _FieldValues:
    """The common properties of the values of a field."""

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
        if self.classes and self.classes <= {StackText, type(None)} and StackText in self.classes:
            return Field(name, FieldType.STACK, CType(TypeClass.UNSIGNED, 8), arg, "pB")
        text = FieldType.BYTES if bytes in self.classes else FieldType.STRING
        return Field(name, text, CType(TypeClass.CHARS, 8), arg, "s")


def _as_text(value: Value) -> str | bytes | None:
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value
