"""A line of text as an event again (lines.py makes the lines).

Text holds a value only as it was shown: without the type of a number, or further digits.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence

from markerjit.frames import StackText
from markerjit.model import Event, Field, FieldType, TypeClass, Value
from markerjit.ring.clock import NS
from markerjit.trace.header import checked
from markerjit.trace.kinds import KIND_MARK

_TEXT = re.compile(
    r"(?:(\d\d):(\d\d):(\d\d)\.(\d{9})|#(\d+)) cpu(\d+) (\d+) (\S.*?)((?: [^\s=]+=.*)?)", re.DOTALL
)
_FIELD = re.compile(
    r""" ([^\s=]+)=("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|<[0-9a-f ]*>"""
    r"""|[0-9a-f]{2}(?: [0-9a-f]{2}(?= |$))+|[^\s"'<]\S*)""",
    re.DOTALL,
)
"""Matches a field. On a terminal, bytes of %*ph are shown without brackets."""
_ESCAPE = re.compile(r"\\(?:u([0-9a-f]{4})|U([0-9a-f]{8})|([0-7]{3})|(.))", re.DOTALL)
_PLAIN = {"n": "\n", "t": "\t", "r": "\r"}
_BASES = {"x": 16, "X": 16, "p": 16, "o": 8, "b": 2, "B": 2}
_WORDS: dict[str, Value] = {"(null)": None, "true": True, "false": False}


def from_text(line: str, fields: Mapping[str, Sequence[Field]]) -> Event | None:
    """The event of a line of text; None for other lines.

    Its time is the nanoseconds since midnight, or its number. A field that is not among `fields`
    gets a type that fits the text of its value.
    """
    parts = _TEXT.fullmatch(line)
    if not parts:
        return None
    try:
        return _event_of(parts, fields)
    except (ValueError, OverflowError):
        return None


def _event_of(parts: re.Match[str], fields: Mapping[str, Sequence[Field]]) -> Event:
    hours, minutes, seconds, nanoseconds, number, cpu, tid, label, rest = parts.groups()
    when = (
        int(number)
        if number is not None
        else ((int(hours) * 60 + int(minutes)) * 60 + int(seconds)) * NS + int(nanoseconds)
    )
    fields_by_name = {field.name: field for field in fields.get(label, ())}
    values: dict[str, Value] = {}
    at = 0
    while at < len(rest):
        pair = _FIELD.match(rest, at)
        if not pair:
            raise ValueError("the line does not go on with a field")
        field = fields_by_name.get(pair[1])
        values[pair[1]] = from_shown(field, pair[2]) if field else _guessed(pair[2])
        at = pair.end()
    name, _, _ = label.partition(KIND_MARK)
    event = checked(Event(when, int(cpu), int(tid), name, values))
    return event if name == label else event._replace(name=label)


def from_shown(field: Field, text: str) -> Value:
    """The value of a field from its text, which `show` made. Raises ValueError."""
    if field.type is FieldType.STACK:
        value = _marked(text)
        return StackText.of_labels(value) if isinstance(value, str) else None
    return _marked(text) if _is_marked(text) else _number(field, text)


def _guessed(text: str) -> Value:
    if _is_marked(text):
        return _marked(text)
    if " " in text:
        return bytes.fromhex(text)
    with contextlib.suppress(ValueError):
        return int(text, 16 if text.startswith("0x") else 10)
    with contextlib.suppress(ValueError):
        return float(text)
    return text


def _is_marked(text: str) -> bool:
    """Whether the notation gives the type: a quoted text, bytes, or a word such as `true`."""
    return text in _WORDS or text[0] in "\"'<"


def _marked(text: str) -> Value:
    if text in _WORDS:
        return _WORDS[text]
    return bytes.fromhex(text[1:-1]) if text[0] == "<" else _unquote(text)


def _number(field: Field, text: str) -> Value:
    if field.type is FieldType.FLOAT:
        return float.fromhex(text) if field.conversion[-1] in "aA" else float(text)
    number = int(text, _BASES.get(field.conversion[-1], 10))
    bits = field.ctype.size * 8
    if field.ctype.type_class is TypeClass.SIGNED and number >> (bits - 1) == 1:
        number -= 1 << bits  # shown as its bits
    return number


def _unquote(text: str) -> str:
    return _ESCAPE.sub(_unescape, text[1:-1])


def _unescape(escape: re.Match[str]) -> str:
    short, long, octal, plain = escape.groups()
    if octal:
        return chr(int(octal, 8))
    if short or long:
        code = int(short or long, 16)
        return chr(code) if code <= 0x10FFFF else escape[0]
    return _PLAIN.get(plain, plain)
