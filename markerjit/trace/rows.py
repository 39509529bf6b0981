"""Lines of many records at once: those that lines.py makes of single events, by column.

Every line of events that a trace prints or writes comes from here. The part that all records of a
marker have in common is made once, and each field of all records at once (cells.py). Only a text
that needs an escape, a float, and an integer in a rare notation is formatted by itself.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from json import dumps, encoder
from typing import TYPE_CHECKING

import numpy as np

from markerjit.arguments import check_all, check_flag, check_is, check_mapping
from markerjit.elf import show
from markerjit.frames import StackText
from markerjit.model import CType, Field, FieldType, TypeClass, Value
from markerjit.printable import printable
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.columns import from_zero, gathered
from markerjit.ring.types import RecordType, TextState, Time
from markerjit.trace import cells
from markerjit.trace.kinds import KIND_MARK
from markerjit.trace.lines import escape_controls, json_value
from markerjit.trace.records import in_order, is_utf8, pieces, split, values

if TYPE_CHECKING:
    from markerjit.ring.batch import Array
    from markerjit.trace.cells import Cells

_quoted: Callable[[str], str] = encoder.encode_basestring
"""Returns a string as JSON, as json.dumps does without ensure_ascii."""
_AT_ONCE = 1 << 13
"""The most lines that are made at a time: their table stays in the cache."""
_TABLE = 1 << 22
"""The most bytes of texts in such a table, unless a single text has more."""
_HEXADECIMAL = ("p", "x", "#x")
_SPECIAL = np.array([code < 0x20 or chr(code) in '"\\\x7f' for code in range(256)])
"""The bytes of ASCII that have an escape in a line of text or of JSON."""


def event_lines(
    columns: Sequence[Columns],
    clock: Calibration,
    *,
    json: bool = False,
    pids: Mapping[RecordType, int] | None = None,
) -> bytes:
    """The lines that `trace` prints of these records, in order of time, in UTF-8.

    clock   the clock of the records
    json    JSON in place of text
    pids    the process that records of a type came from, for lines of several processes. Those of
            its types begin with it, and it must have all types of the columns
    """
    check_all("columns", columns, Columns)
    check_is("clock", clock, Calibration)
    check_flag("json", json)
    if pids is not None:
        check_mapping("pids", pids, RecordType, int)
    return (json_lines if json else text_lines)(columns, clock, pids=pids)


def json_lines(
    batch: Sequence[Columns],
    clock: Calibration,
    numbered: Container[int] = (),
    *,
    pids: Mapping[RecordType, int] | None = None,
) -> bytes:
    """The line of each record, in order of time, as `line_formatter` makes it of the event.

    Records of the types `numbered` also have the number of their type, as "kind". Records of types
    that are among `pids` begin with the process that they came from.
    """

    def parts(columns: Columns, times: Array) -> Iterator[bytes | Cells]:
        kind = columns.type
        pid = f'"pid": {pids[kind]}, ' if pids else ""
        number = f'"kind": {kind.id}, ' if kind.id in numbered else ""
        yield f'{{{pid}"time": '.encode()
        yield cells.decimal(times)
        yield b', "cpu": '
        yield cells.decimal(columns.cpu)
        yield b', "tid": '
        yield cells.decimal(columns.tid)
        yield f', "name": {in_json(kind.marker)}, {number}"fields": {{'.encode()
        separator = ""
        for field in kind.fields:
            yield f"{separator}{in_json(field.name)}: ".encode()
            yield json_cells(field, columns.fields[field.name])
            separator = ", "
        yield b"}}\n"

    return _lines(batch, clock, parts)


def text_lines(
    batch: Sequence[Columns],
    clock: Calibration,
    numbered: Container[int] = (),
    *,
    pids: Mapping[RecordType, int] | None = None,
    shift_s: int | None = None,
    bracketed: bool = False,
) -> bytes:
    """The line of each record, in order of time, as `line_formatter` makes it of the event.

    Records of the types `numbered` have the number of their type behind the marker's name. Records
    of types that are among `pids` begin with the process that they came from. The time of day is
    `shift_s` seconds ahead of UTC, or local time for None. With `bracketed`, bytes of %*ph are
    between brackets, so that a reader can tell where they end.
    """

    def parts(columns: Columns, times: Array) -> Iterator[bytes | Cells]:
        kind = columns.type
        if pids:
            yield f"{pids[kind]} ".encode()
        yield from _time_cells(times, clock, shift_s)
        yield b" cpu"
        yield cells.decimal(columns.cpu)
        yield b" "
        yield cells.decimal(columns.tid)
        number = f"{KIND_MARK}{kind.id}" if kind.id in numbered else ""
        yield f" {printable(kind.marker)}{number}".encode()
        for field in kind.fields:
            yield f" {printable(field.name)}=".encode()
            yield text_cells(field, columns.fields[field.name], bracketed=bracketed)
        yield b"\n"

    return _lines(batch, clock, parts)


def _lines(
    batch: Sequence[Columns],
    clock: Calibration,
    parts: Callable[[Columns, Array], Iterator[bytes | Cells]],
) -> bytes:
    longest = sum(
        int(np.diff(column.offsets).max(initial=0))
        for columns in batch
        for column in columns.fields.values()
        if isinstance(column, Texts)
    )
    at_once = max(1, min(_AT_ONCE, _TABLE // max(longest, 1)))
    lines = []
    for piece in pieces(batch, clock, at_once):
        times, order = in_order(piece, clock)
        tables = [
            cells.table([*parts(columns, when)], len(when))
            for columns, when in zip(piece, split(times, piece), strict=True)
        ]
        lines.append(cells.packed(tables, order))
    return b"".join(lines)


def _time_cells(times: Array, clock: Calibration, shift_s: int | None) -> Iterator[bytes | Cells]:
    """The time of day of each record, or its number."""
    if clock.time is Time.NONE:
        yield b"#"
        yield cells.decimal(times)
        return
    since_1970 = times + clock.wall_offset_ns
    seconds = since_1970 // NS
    firsts = np.append(0, np.flatnonzero(seconds[1:] != seconds[:-1]) + 1)
    shown = cells.texts_of([_second(second, shift_s) for second in seconds[firsts].tolist()])
    yield np.repeat(shown, np.diff(firsts, append=len(times)), axis=0)
    yield b"."
    yield cells.nanoseconds(since_1970 - seconds * NS)


def _second(second: int, shift_s: int | None) -> str:
    moment = time.localtime(second) if shift_s is None else time.gmtime(second + shift_s)
    return time.strftime("%H:%M:%S", moment)


def json_cells(field: Field, column: Array | Texts) -> bytes | Cells:
    """Each value of a field as JSON."""
    if isinstance(column, Texts):
        if field.type is FieldType.STACK:
            return _of_stacks(field, column, stack_in_json)
        return of_texts(field, column, _json_text, marks=b'""', spaced=False)
    match field.type:
        case FieldType.CHAR:
            return _JSON_CHARS[column.astype(np.uint8)]
        case FieldType.BOOL:
            return _BOOLS[column.astype(np.intp)]
        case FieldType.FLOAT:
            texts = list(map(repr, column.tolist()))
            for row in np.flatnonzero(~np.isfinite(column)).tolist():
                texts[row] = f'"{texts[row]}"'
            return cells.texts_of(texts)
        case _:
            return cells.decimal(column)


def text_cells(field: Field, column: Array | Texts, *, bracketed: bool) -> bytes | Cells:
    """Each value of a field as its marker's format shows it."""
    conversion = field.conversion
    if isinstance(column, Texts):
        if field.type is FieldType.STACK:
            return _of_stacks(field, column, lambda value: show(field, value))
        raw_marks = b"<>" if bracketed else b"\0\0"

        def shown(value: Value) -> str:
            if bracketed and conversion == "ph" and isinstance(value, bytes):
                return f"<{show(field, value)}>"
            return show(field, value)

        marks = raw_marks if conversion == "ph" else b'""'
        return of_texts(field, column, shown, marks=marks, spaced=True)
    match field.type:
        case FieldType.CHAR:
            return _TEXT_CHARS[column.astype(np.uint8)]
        case FieldType.BOOL:
            return _BOOLS[column.astype(np.intp)]
        case FieldType.FLOAT if conversion[-1] not in "aA":
            return cells.texts_of([format(value, conversion) for value in column.tolist()])
        case FieldType.INT if conversion == "d":
            return cells.decimal(column)
        case FieldType.INT if conversion == "u":
            return cells.decimal(_bits(column))
        case FieldType.INT | FieldType.POINTER if conversion in _HEXADECIMAL:
            digits = cells.hexadecimal(_bits(column))
            if conversion == "x":
                return digits
            prefix = np.full((len(digits), 2), tuple(b"0x"), np.uint8)
            if conversion == "#x":
                prefix[column == 0] = 0  # as printf has it
            return np.concatenate([prefix, digits], axis=1)
        case _:
            return cells.texts_of([show(field, value) for value in column.tolist()])


def _bits(column: Array) -> Array:
    """The bits of integers, without a sign."""
    return np.ascontiguousarray(column).view(f"u{column.dtype.itemsize}")


def of_texts(
    field: Field, texts: Texts, shown: Callable[[Value], str], *, marks: bytes, spaced: bool
) -> Cells:
    """Each text between these marks. Irregular ones are `shown`, one at a time."""
    offsets, data = from_zero(texts.offsets, texts.data)
    irregular = _irregular(field, Texts(offsets, data, texts.states))
    lengths = np.diff(offsets)
    chosen = gathered(data, offsets[:-1][irregular], lengths[irregular])
    replaced = [
        shown(value).encode("utf-8", "backslashreplace")
        for value in values(field, Texts(*chosen, texts.states[irregular]))
    ]
    if field.conversion == "ph":
        ends = offsets[1:][lengths > 0]
        data = cells.hexadecimal_bytes(data, spaced=spaced)
        offsets = offsets * (3 if spaced else 2)
        if spaced:
            data[ends * 3 - 1] = 0  # no space behind the last byte
    return cells.between(marks, offsets, data, irregular, replaced)


def _of_stacks(field: Field, texts: Texts, shown: Callable[[Value], str]) -> Cells:
    """Each stack as it is shown. The same ones come again and again."""
    texts_by_value: dict[Value, bytes] = {}
    made = []
    for value in values(field, texts):
        text = texts_by_value.get(value)
        if text is None:
            text = shown(value).encode("utf-8", "backslashreplace")
            texts_by_value[value] = text
        made.append(text)
    return cells.texts_of(made)


def _irregular(field: Field, texts: Texts) -> Array:
    """The rows of texts that need an escape, or that were not recorded whole."""
    offsets, data, states = texts
    rows = states >= TextState.NULL
    if field.limit is None:
        rows |= states == TextState.CUT
    if field.conversion != "ph":
        special = _SPECIAL[data]
        if (data >= 0x80).any() and not (is_utf8(texts) and data.tobytes().decode().isprintable()):
            special |= data >= 0x80
        rows[np.searchsorted(offsets, np.flatnonzero(special), side="right") - 1] = True
    return np.flatnonzero(rows)


def _json_text(value: Value) -> str:
    return "null" if value is None else in_json(str(json_value(value)))


def stack_in_json(value: Value) -> str:
    """A stack as a document of JSON; null where there is none, or it makes no sense."""
    if not isinstance(value, StackText) or not value.frames:
        return "null"
    return escape_controls(dumps(json_value(value), ensure_ascii=False))


def in_json(text: str) -> str:
    """The text as JSON, without control characters."""
    return escape_controls(_quoted(text))


_CHAR = Field("", FieldType.CHAR, CType(TypeClass.SIGNED, 4), 0, "c")
_CHARS = [chr(code) for code in range(256)]
_JSON_CHARS = cells.texts_of([in_json(char).encode() for char in _CHARS])
_TEXT_CHARS = cells.texts_of([show(_CHAR, char).encode() for char in _CHARS])
_BOOLS = cells.texts_of(["false", "true"])
