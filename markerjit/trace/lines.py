"""An event as a line, for people or as JSON, and a line as an event again.

JSON has no bytes and no nan: they are strings in it, and stay strings when it is read without
knowing better. Text has as much as it shows: not the type of a number, nor more digits of it.

Sites of one marker may have different formats. Files say of such events which type they have
(`Kinds`); where that is not known, a value is shown as the format does that it fits, or plainly.
"""

from __future__ import annotations

import contextlib
import json as json_module
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from markerjit.arguments import check_flag, check_is, check_mapping
from markerjit.elf import show
from markerjit.model import Event, Field, FieldType, TypeClass, Value
from markerjit.printable import printable
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import RecordType, Time
from markerjit.trace.header import checked

_TEXT = re.compile(
    r"(?:(\d\d):(\d\d):(\d\d)\.(\d{9})|#(\d+)) cpu(\d+) (\d+) (\S+)((?: .*)?)", re.DOTALL
)
_FIELD = re.compile(
    r""" ([^\s=]+)=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|<[0-9a-f ]*>"""
    r"""|[0-9a-f]{2}(?: [0-9a-f]{2}(?= |$))+|[^\s"'<]\S*)""",
    re.DOTALL,
)
"""Bytes of %*ph stand there without a mark on a terminal."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|([0-7]{3})|(.))", re.DOTALL)
_CONTROLS = re.compile("[\x7f-\x9f]")
"""Control characters that JSON lets stand in a string; a terminal takes U+009B for an escape."""
_PLAIN = {"n": "\n", "t": "\t", "r": "\r"}
_BASES = {"x": 16, "X": 16, "p": 16, "o": 8, "b": 2, "B": 2}
_WORDS: dict[str, Value] = {"(null)": None, "true": True, "false": False}
_INT, _SIGNED = FieldType.INT, TypeClass.SIGNED  # looking them up there is slow
_TEXT_TYPES = (FieldType.STRING, FieldType.BYTES)
_FITTING: dict[type, tuple[FieldType, ...]] = {
    int: (_INT, FieldType.POINTER),
    float: (FieldType.FLOAT,),
    bool: (FieldType.BOOL,),
    str: (*_TEXT_TYPES, FieldType.CHAR),
    bytes: (FieldType.BYTES,),
    type(None): _TEXT_TYPES,
}
"""Of which fields events have such values."""

DAY_NS = 86_400 * NS
KIND_MARK = "#"
"""In a file of text, between a marker's name and the number of its type where it has several."""


def line_formatter(
    fields: Mapping[str, Sequence[Field]], *, json: bool = False, clock: Calibration | None = None
) -> Callable[[Event], str]:
    """A function from an event to its line. Text shows each field as its marker's format does, and
    the time of day; `fields` are those of each marker, by its name. Without the trace's clock the
    difference to the time of day is taken as it is now. A line has no control characters, whatever
    the names of the markers are."""
    check_mapping("fields", fields, str, Sequence)
    check_flag("json", json)
    if clock is not None:
        check_is("clock", clock, Calibration)
    if json:
        return lambda event: _CONTROLS.sub(_as_json_escape, as_json(event))
    if clock is not None and clock.time is Time.NONE:
        return lambda event: printable(as_numbered_text(event, fields.get(event.name, ())))
    offset = wall_offset() if clock is None else clock.wall_offset_ns
    return lambda event: printable(as_text(event, fields.get(event.name, ()), offset))


def _as_json_escape(found: re.Match[str]) -> str:
    return f"\\u{ord(found[0]):04x}"


def fields_by_marker(types: Iterable[RecordType]) -> dict[str, tuple[Field, ...]]:
    """The fields of each marker; all that any of its sites has, where they differ."""
    found: dict[str, dict[str, Field]] = {}
    for kind in types:
        found.setdefault(kind.marker, {}).update((field.name, field) for field in kind.fields)
    return {marker: tuple(fields.values()) for marker, fields in found.items()}


def ambiguous(types: Iterable[RecordType]) -> frozenset[int]:
    """The numbers of the types that share their marker's name with another."""
    types = tuple(types)
    count = Counter(kind.marker for kind in types)
    return frozenset(kind.id for kind in types if count[kind.marker] > 1)


class EventOfKind(Event):
    """An event whose name does not say which type it has."""

    kind: RecordType

    def _replace(self, **changes: Any) -> EventOfKind:
        return _of_kind(super()._replace(**changes), self.kind)


def _of_kind(event: Event, kind: RecordType) -> EventOfKind:
    found = EventOfKind(*event)
    found.kind = kind
    return found


class Kinds:
    """The types of the events that are read from a file."""

    def __init__(self, types: Iterable[RecordType]) -> None:
        types = tuple(types)
        self._ambiguous = ambiguous(types)
        self._by_number = {kind.id: kind for kind in types}
        self._by_marker = {kind.marker: kind for kind in types if kind.id not in self._ambiguous}

    def find(self, marker: str, number: object = None) -> RecordType | None:
        """The type of an event, by its marker or by the number that stands with it; None where it
        is not known. Raises ValueError for a number that is not this marker's."""
        if number is None:
            return self._by_marker.get(marker)
        kind = self._by_number.get(number) if type(number) is int else None
        if kind is None or kind.marker != marker:
            raise ValueError(f"there is no such {marker}")
        return kind

    def marked(self, event: Event, kind: RecordType | None) -> Event:
        """The event, so that it knows its type if its name alone does not say it."""
        if kind is None or kind.id not in self._ambiguous:
            return event
        return _of_kind(event, kind)


def fields_of(types: Iterable[RecordType], type_: FieldType) -> dict[int, tuple[str, ...]]:
    """By type's number, its fields of this type."""
    return {
        kind.id: tuple(field.name for field in kind.fields if field.type is type_) for kind in types
    }


def fits(field: Field, value: Value) -> bool:
    """Whether an event can have this of a field."""
    if field.type not in _FITTING.get(type(value), ()):
        return False
    if field.type is not _INT:
        return True
    bits = field.ctype.size * 8
    if field.ctype.type_class is _SIGNED:
        return -1 <= value >> (bits - 1) <= 0  # type: ignore[operator]
    return value >> bits == 0  # type: ignore[operator]


def shown(field: Field, value: Value) -> str:
    """A value as its format shows it; one that does not fit, as it looks without a format."""
    if fits(field, value):
        return show(field, value)
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case _:
            return show(field, value)


def as_text(event: Event, fields: Sequence[Field], wall_offset_ns: int) -> str:
    """`time cpu tid marker field=value …`, the time of day with nanoseconds.

    `wall_offset_ns` is what to add to CLOCK_MONOTONIC to get the time since 1970.
    """
    return f"{time_of_day(event.time + wall_offset_ns)} {_behind_time(event, fields)}"


def time_of_day(time_ns: int) -> str:
    """Of a time since 1970, where we are."""
    seconds, rest = divmod(time_ns, NS)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest:09d}"


def as_numbered_text(event: Event, fields: Sequence[Field]) -> str:
    """The same of an event that was recorded without a time: `#number cpu …`."""
    return f"#{event.time} {_behind_time(event, fields)}"


def _behind_time(event: Event, fields: Sequence[Field]) -> str:
    values = event.fields
    if isinstance(event, EventOfKind):
        fields = event.kind.fields
    rest = "".join(
        f" {field.name}={shown(field, values[field.name])}"
        for field in fields
        if field.name in values
    )
    return f"cpu{event.cpu} {event.tid} {event.name}{rest}"


def as_json(event: Event) -> str:
    """One JSON object. What JSON has no value for becomes a string: bytes that are no text, as
    hexadecimal digits, and floats such as nan and inf."""
    return json_module.dumps(
        {
            "time": event.time,
            "cpu": event.cpu,
            "tid": event.tid,
            "name": event.name,
            "fields": {name: json_value(value) for name, value in event.fields.items()},
        },
        ensure_ascii=False,
    )


def json_value(value: Value) -> Value:
    """A field's value as JSON can have it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def from_text(line: str, fields: Mapping[str, Sequence[Field]]) -> Event | None:
    """The event of a line of text, its time the nanoseconds of its day, or its number; None if it
    is no such line. A field that is not among `fields` has the value that it looks like."""
    found = _TEXT.fullmatch(line)
    if not found:
        return None
    try:
        return _event_of(found, fields)
    except (ValueError, OverflowError):
        return None


def _event_of(found: re.Match[str], fields: Mapping[str, Sequence[Field]]) -> Event:
    hours, minutes, seconds, nanoseconds, number, cpu, tid, label, rest = found.groups()
    when = (
        int(number)
        if number is not None
        else ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * NS + int(nanoseconds)
    )
    known = {field.name: field for field in fields.get(label, ())}
    values: dict[str, Value] = {}
    at = 0
    while at < len(rest):
        one = _FIELD.match(rest, at)
        if not one:
            raise ValueError("it does not go on with a field")
        field = known.get(one[1])
        values[one[1]] = from_shown(field, one[2]) if field else _from_looks(one[2])
        at = one.end()
    name, _, _ = label.partition(KIND_MARK)
    event = checked(Event(when, int(cpu), int(tid), name, values))
    return event if name == label else event._replace(name=label)


def from_shown(field: Field, shown: str) -> Value:
    """The value of a field from how `show` shows it. Raises ValueError."""
    return _marked(shown) if _is_marked(shown) else _number(field, shown)


def _from_looks(shown: str) -> Value:
    if _is_marked(shown):
        return _marked(shown)
    if " " in shown:
        return bytes.fromhex(shown)
    with contextlib.suppress(ValueError):
        return int(shown, 16 if shown.startswith("0x") else 10)
    with contextlib.suppress(ValueError):
        return float(shown)
    return shown


def _is_marked(shown: str) -> bool:
    """Whether it says by itself what it is: a text, bytes, a word that stands for a value."""
    return shown in _WORDS or shown[0] in "\"'<"


def _marked(shown: str) -> Value:
    if shown in _WORDS:
        return _WORDS[shown]
    return bytes.fromhex(shown[1:-1]) if shown[0] == "<" else _unquote(shown)


def _number(field: Field, shown: str) -> Value:
    if field.type is FieldType.FLOAT:
        return float.fromhex(shown) if field.conversion[-1] in "aA" else float(shown)
    number = int(shown, _BASES.get(field.conversion[-1], 10))
    bits = field.ctype.size * 8
    if field.ctype.type_class is TypeClass.SIGNED and number >> (bits - 1) == 1:
        number -= 1 << bits  # shown as its bits
    return number


def _unquote(shown: str) -> str:
    return _ESCAPE.sub(_unescape, shown[1:-1])


def _unescape(found: re.Match[str]) -> str:
    short, long, octal, plain = found.groups()
    if octal:
        return chr(int(octal, 8))
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code <= 0x10FFFF else found[0]
    return _PLAIN.get(plain, plain)


def wall_offset() -> int:
    """The time since 1970 less CLOCK_MONOTONIC, nanoseconds, now."""
    return time.time_ns() - time.monotonic_ns()
