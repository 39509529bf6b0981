"""Lines of many records at once.

The lines are those that lines.py makes of single events. This is several times as fast, because the
part that all records of a marker have in common is formatted once.
"""

from __future__ import annotations

import json.encoder
import time
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.elf import show
from markerjit.model import Field, FieldType, TypeClass, Value
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import Time
from markerjit.trace.kinds import KIND_MARK
from markerjit.trace.lines import json_value
from markerjit.trace.records import in_order, values

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

quoted: Callable[[str], str] = json.encoder.encode_basestring
"""Returns a string as JSON, as json.dumps does without ensure_ascii."""

_CHARS = [quoted(chr(code)) for code in range(256)]


def json_lines(
    batch: Sequence[Columns], clock: Calibration, numbered: Container[int] = ()
) -> list[str]:
    """The line of each record, in order of time, as `as_json` makes it of the event.

    Records of the types `numbered` also have the number of their type, as "kind".
    """
    times, order = in_order(batch, clock)
    lines: list[str] = []
    for columns, when in zip(batch, split(times, batch), strict=True):
        kind = columns.type
        fields = [f"{literal(quoted(field.name))}: %s" for field in kind.fields]
        number = f'"kind": {kind.id}, ' if kind.id in numbered else ""
        template = (
            f'{{"time": %s, "cpu": %s, "tid": %s, "name": {literal(quoted(kind.marker))}, {number}'
            f'"fields": {{{", ".join(fields)}}}}}\n'
        )
        shown = [json_texts(field, columns.fields[field.name]) for field in kind.fields]
        lines += filled(template, when.tolist(), columns.cpu.tolist(), columns.tid.tolist(), *shown)
    return in_this(order, lines)


def text_lines(
    batch: Sequence[Columns],
    clock: Calibration,
    numbered: Container[int] = (),
    *,
    shift_s: int | None = None,
) -> list[str]:
    """The line of each record, in order of time, as `as_text` makes it of the event.

    Records of the types `numbered` have the number of their type behind the marker's name. The time
    of day is `shift_s` seconds ahead of UTC, or local time for None. Bytes of %*ph are between
    brackets, so that a reader can tell where they end.
    """
    times, order = in_order(batch, clock)
    lines: list[str] = []
    for columns, when in zip(batch, split(times, batch), strict=True):
        kind = columns.type
        fields = "".join(f" {literal(field.name)}=%s" for field in kind.fields)
        number = f"{KIND_MARK}{kind.id}" if kind.id in numbered else ""
        template = f"%s cpu%s %s {literal(kind.marker)}{number}{fields}\n"
        shown = [_shown(field, columns.fields[field.name]) for field in kind.fields]
        clocks = _times(when, clock, shift_s)
        lines += filled(template, clocks, columns.cpu.tolist(), columns.tid.tolist(), *shown)
    return in_this(order, lines)


def json_texts(field: Field, column: Array | Texts) -> list[str]:
    """Each value of a field as JSON."""
    if isinstance(column, Texts):
        return [_json_text(value) for value in values(field, column)]
    match field.type:
        case FieldType.CHAR:
            return [_CHARS[code] for code in column.astype(np.uint8).tolist()]
        case FieldType.BOOL:
            return ["true" if value else "false" for value in column.tolist()]
        case FieldType.FLOAT:
            texts = list(map(repr, column.tolist()))
            for row in np.flatnonzero(~np.isfinite(column)).tolist():
                texts[row] = f'"{texts[row]}"'
            return texts
        case _:
            return list(map(str, column.tolist()))


def filled(template: str, *columns: Sequence[object]) -> list[str]:
    """The template, filled with the values of each row."""
    return [template % row for row in zip(*columns, strict=True)]


def literal(text: str) -> str:
    """The text, escaped for a template."""
    return text.replace("%", "%%")


def split(rows: Array, batch: Sequence[Columns]) -> list[Array]:
    """What is there for all records of a batch, for each type."""
    return np.split(rows, np.cumsum([len(columns.time) for columns in batch])[:-1])


def in_this(order: Array, lines: list[str]) -> list[str]:
    """The lines in this order."""
    return [lines[row] for row in order.tolist()]


def _json_text(value: Value) -> str:
    if value is None:
        return "null"
    return quoted(str(json_value(value)))


def _shown(field: Field, column: Array | Texts) -> list[str]:
    """Each value of a field as its marker's format shows it."""
    if isinstance(column, Texts):
        if field.conversion == "ph":
            return [
                f"<{value.hex(' ')}>" if isinstance(value, bytes) else show(field, value)
                for value in values(field, column)
            ]
        return [
            f'"{value}"' if isinstance(value, str) and _is_plain(value) else show(field, value)
            for value in values(field, column)
        ]
    if field.type is not FieldType.INT:
        return [show(field, value) for value in values(field, column)]
    signed = field.ctype.type_class is TypeClass.SIGNED
    if field.conversion == "d" or (field.conversion == "u" and not signed):
        return list(map(str, column.tolist()))
    return [show(field, value) for value in column.tolist()]


def _is_plain(text: str) -> bool:
    """Whether a text needs no escapes. `show` checks each character, ten times as slowly."""
    return text.isprintable() and '"' not in text and "\\" not in text


def _times(times: Array, clock: Calibration, shift_s: int | None) -> list[str]:
    """The time of day of each record, or its number."""
    if clock.time is Time.NONE:
        return [f"#{number}" for number in times.tolist()]
    seconds, rest = np.divmod(times + clock.wall_offset_ns, NS)
    different, which = np.unique(seconds, return_inverse=True)
    shown = [_second(second, shift_s) for second in different.tolist()]
    return [
        f"{shown[index]}.{part:09d}"
        for index, part in zip(which.tolist(), rest.tolist(), strict=True)
    ]


def _second(second: int, shift_s: int | None) -> str:
    moment = time.localtime(second) if shift_s is None else time.gmtime(second + shift_s)
    return time.strftime("%H:%M:%S", moment)
