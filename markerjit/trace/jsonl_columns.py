"""Columns of the lines that rows.py writes, found in their bytes: the reverse of `json_lines`.

A line of a known type is the same text again and again, with other numbers and texts in it. So all
lines of a type are followed at once, from one value to the next. A line that differs in anything
(an escape, a space, a number that its field cannot hold) is irregular: it is left to `json`, which
finds out what is wrong with it, or that nothing is. Needs numpy.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.model import Field, FieldType
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.columns import gathered, is_sorted, joined, picked
from markerjit.ring.types import TEXTS, RecordType, TextState, Time, number_code
from markerjit.trace.header import LONGEST_TIME
from markerjit.trace.rows import in_json
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Column

_MOST_DIGITS = 19
"""The most digits that always fit into 64 bits."""
_MOST_KINDS = 64
"""The most types that are looked for in one piece of a file, each in all remaining lines."""
_FLOAT = re.compile(rb"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_FLOAT_BYTES = np.zeros(256, np.bool_)
_FLOAT_BYTES[list(b"0123456789+-.eE")] = True
_LONGEST_FLOAT = 40
_PADDING = 256
"""Bytes added behind the data, so that a look-up behind a bad place stays inside the buffer."""
_QUOTE, _BACKSLASH, _NEWLINE, _MINUS, _ZERO = b'"\\\n-0'


class LineColumns(NamedTuple):
    """Columns of regular lines, and the number of each row's line, from 0."""

    columns: Columns
    lines: Array | Sequence[int]


class Parser:
    """Finds the lines of these types. In a line of a type of `numbered` is its number."""

    def __init__(self, types: Iterable[RecordType], numbered: Container[int], time: Time) -> None:
        self._least_time = 0 if time is Time.NONE else -LONGEST_TIME
        self._kinds: dict[bytes, list[RecordType]] = {}
        for kind in types:
            if any(field.type is FieldType.STACK for field in kind.fields):
                continue  # a document of its own
            number = f'"kind": {kind.id}, ' if kind.id in numbered else ""
            head = f'{in_json(kind.marker)}, {number}"fields": {{'.encode()
            self._kinds.setdefault(head, []).append(kind)

    def parse(self, data: bytes) -> tuple[list[LineColumns], list[int]]:
        """Columns of the regular ones of these whole lines, in order of time as a Collector makes
        them, and the numbers of the other lines."""
        text = _Text(data)
        count = len(text.starts)
        if not text.is_plain:
            return [], list(range(count))
        walk = _Walk(text, np.arange(count), text.starts)
        walk.follow(b'{"time": ')
        time = walk.numbers(self._least_time, LONGEST_TIME)
        walk.follow(b', "cpu": ')
        cpu = walk.numbers(0, 0xFFFF)
        walk.follow(b', "tid": ')
        tid = walk.numbers(0, 0xFFFF_FFFF)
        walk.follow(b', "name": ')
        left = np.flatnonzero(walk.is_good)
        pieces = []
        for _ in range(_MOST_KINDS):
            if not len(left):
                break
            head = text.head_at(int(walk.at[left[0]]))
            of_head = _Walk(text, left, walk.at[left])
            of_head.follow(head)
            kinds = self._kinds.get(head, ())
            if head and len(kinds) == 1:
                fields = [
                    _column(field, of_head, first=not n) for n, field in enumerate(kinds[0].fields)
                ]
                of_head.follow(b"}}")
                of_head.end()
                rows = np.flatnonzero(of_head.is_good)
                if len(rows):
                    pieces.append(_line_columns(kinds[0], fields, left, rows, (time, cpu, tid)))
            left = left[~of_head.is_begun]
        regular = np.zeros(count, np.bool_)
        for part in pieces:
            regular[part.lines] = True
        return pieces, np.flatnonzero(~regular).tolist()


def in_order(pieces: Sequence[LineColumns]) -> bool:
    """Whether the lines are in the order of events: later and later, from 0 on."""
    lines = np.concatenate([part.lines for part in pieces] or [np.zeros(0, np.int64)])
    times = np.concatenate([part.columns.time for part in pieces] or [np.zeros(0, np.uint64)])
    times = times.view(np.int64)[np.argsort(lines)]
    return bool((times >= 0).all() and (times[1:] > times[:-1]).all())


def together(pieces: Iterable[LineColumns]) -> list[Columns]:
    """One Columns for each type, in order of time, records of one time as their lines are; types
    in the order of their first lines."""
    by_type: dict[int, list[LineColumns]] = {}
    for part in pieces:
        by_type.setdefault(part.columns.type.id, []).append(part)
    return [
        _in_one(parts)
        for parts in sorted(
            by_type.values(), key=lambda parts: min(int(min(part.lines)) for part in parts)
        )
    ]


def _in_one(parts: Sequence[LineColumns]) -> Columns:
    if len(parts) == 1:
        return parts[0].columns
    whole = joined([part.columns for part in parts])
    lines = np.concatenate([np.asarray(part.lines, np.int64) for part in parts])
    return picked(whole, np.lexsort((lines, whole.time.view(np.int64))))


def _line_columns(
    kind: RecordType,
    fields: Sequence[_Values],
    left: Array,
    rows: Array,
    heads: tuple[Array, Array, Array],
) -> LineColumns:
    lines = left[rows]
    time, cpu, tid = (column[lines] for column in heads)
    order = None if is_sorted(time) else np.argsort(time, kind="stable")
    by_name = {
        field.name: values.column(rows) for field, values in zip(kind.fields, fields, strict=True)
    }
    columns = Columns(
        kind, time.astype(np.uint64), cpu.astype(np.uint16), tid.astype(np.uint32), by_name
    )
    return (
        LineColumns(columns, lines)
        if order is None
        else LineColumns(picked(columns, order), lines[order])
    )


class _Text:
    """Whole lines, as bytes and as an array."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.array = np.frombuffer(data + bytes(_PADDING), np.uint8)
        self.words: Array = np.ndarray(
            (len(self.array) - 7,), np.dtype("<u8"), self.array.data, strides=(1,)
        )
        own = self.array[: len(data)]
        self.ends = np.flatnonzero(own == _NEWLINE)
        self.starts = np.append(0, self.ends[:-1] + 1)
        self.quotes = np.append(np.flatnonzero(own == _QUOTE), len(data))
        self.backslashes = np.flatnonzero(own == _BACKSLASH)
        self.is_plain = int((own < 0x20).sum()) == len(self.ends) and self._is_utf8()

    def _is_utf8(self) -> bool:
        try:
            self.data.decode()
        except UnicodeDecodeError:
            return False
        return True

    def head_at(self, at: int) -> bytes:
        """The text of a line from its name up to its first field, "" where it has none."""
        end = self.data.find(b"{", at, self.data.index(b"\n", at)) + 1
        return self.data[at:end] if end else b""


class _Walk:
    """A place in each of some lines. A line that is not as expected stops being good."""

    def __init__(self, text: _Text, lines: Array, at: Array) -> None:
        self.text = text
        self.at = at.copy()
        self._ends = text.ends[lines]
        places = text.backslashes
        escaped = np.searchsorted(places, text.starts[lines]) != np.searchsorted(places, self._ends)
        self.is_good = ~escaped
        self.is_begun = np.ones(len(lines), np.bool_)
        """Whether the first text that was followed is there, in good lines and others."""
        self._has_begun = False

    def follow(self, literal: bytes) -> None:
        """Go along a text that all good lines have."""
        is_there = self.has(literal)
        if not self._has_begun:
            self._has_begun = True
            self.is_begun = is_there
            self.is_begun[:1] = True  # the text was taken from there
        self.go(is_there, len(literal))

    def has(self, literal: bytes) -> Array:
        """Whether this text stands at each place."""
        is_there = np.ones(len(self.at), np.bool_)
        for start in range(0, len(literal), 8):
            part = literal[start : start + 8]
            mask = np.uint64((1 << 8 * len(part)) - 1)
            expected = np.uint64(int.from_bytes(part, "little"))
            is_there &= (
                self.text.words[np.minimum(self.at + start, len(self.text.data))] & mask == expected
            )
        return is_there

    def go(self, is_good: Array, steps: Array | int) -> None:
        """Go on in the lines that are good, and nowhere in the others."""
        self.is_good &= is_good
        self.at += np.where(self.is_good, steps, 0)

    def byte(self, ahead: Array | int = 0) -> Array:
        """The byte at each place."""
        own: Array = self.text.array[self.at + ahead]
        return own

    def numbers(self, low: int, high: int) -> Array:
        """The whole numbers at each place, of a type that has these bounds. They are int64, or
        uint64 where `high` is beyond that."""
        negative = self.byte() == _MINUS
        at = self.at + negative
        leading_zero = self.text.array[at] == _ZERO
        value = np.zeros(len(at), np.uint64)
        length = np.zeros(len(at), np.int64)
        alive = np.flatnonzero(self.is_good)
        for _ in range(_MOST_DIGITS + 1):
            digit = self.text.array[at[alive] + length[alive]] - np.uint8(_ZERO)
            keep = digit < 10
            alive, digit = alive[keep], digit[keep]
            if not len(alive):
                break
            value[alive] = value[alive] * np.uint64(10) + digit
            length[alive] += 1
        fits = np.where(negative, value <= np.uint64(-low), value <= np.uint64(high))
        is_number = (length > 0) & (length <= _MOST_DIGITS) & ~(leading_zero & (length > 1)) & fits
        self.go(is_number, negative + length)
        if high >= 1 << 63:
            return value
        signed = value.view(np.int64)
        return np.where(negative, -signed, signed)

    def texts(self) -> tuple[Array, Array]:
        """Where the text between quotes at each place begins, and its length."""
        closing = self.text.quotes[
            np.searchsorted(self.text.quotes, self.at + 1).clip(max=len(self.text.quotes) - 1)
        ]
        starts, lengths = self.at + 1, closing - self.at - 1
        self.go((self.byte() == _QUOTE) & (closing < self._ends), lengths + 2)
        return starts, lengths

    def end(self) -> None:
        """Good lines end here."""
        self.is_good &= self.at == self._ends


class _Numbers:
    """The numbers of a field in each line of a walk."""

    def __init__(self, values: Array, code: str) -> None:
        self._values = values
        self._code = code

    def column(self, rows: Array) -> Column:
        """A column of the values of these rows, which are good."""
        return self._values[rows].astype(self._code)


class _Strings:
    """The texts of a field in each line of a walk."""

    def __init__(self, text: _Text, starts: Array, lengths: Array, is_null: Array) -> None:
        self._text = text
        self._starts = starts
        self._lengths = np.where(is_null, 0, lengths)
        self._states = np.where(is_null, TextState.NULL, TextState.WHOLE).astype(np.uint8)

    def column(self, rows: Array) -> Column:
        """A column of the values of these rows, which are good."""
        offsets, data = gathered(self._text.array, self._starts[rows], self._lengths[rows])
        return Texts(offsets, data, self._states[rows])


_Values = _Numbers | _Strings


def _column(field: Field, walk: _Walk, *, first: bool) -> _Values:
    """Go along a field."""
    walk.follow(f"{'' if first else ', '}{in_json(field.name)}: ".encode())
    if field.type in TEXTS:
        is_null = walk.has(b"null")
        nulls, walk.is_good = walk.is_good & is_null, walk.is_good & ~is_null
        starts, lengths = walk.texts()
        walk.is_good |= nulls
        walk.go(walk.is_good, np.where(nulls, 4, 0))
        return _Strings(walk.text, starts, lengths, nulls)
    if field.type is FieldType.BOOL:
        is_true = walk.has(b"true")
        walk.go(is_true | walk.has(b"false"), np.where(is_true, 4, 5))
        return _Numbers(is_true, "?")
    if field.type is FieldType.CHAR:
        code = walk.byte(1)
        is_char = (walk.byte() == _QUOTE) & (walk.byte(2) == _QUOTE) & (code < 0x80)
        walk.go(is_char & (code != _QUOTE), 3)
        return _Numbers(code, number_code(field))
    if field.type is FieldType.FLOAT:
        return _Numbers(_floats(walk), "f8")
    bounds = np.iinfo(number_code(field))
    return _Numbers(walk.numbers(int(bounds.min), int(bounds.max)), number_code(field))


def _floats(walk: _Walk) -> Array:
    values = np.zeros(len(walk.at), np.float64)
    lengths = np.zeros(len(walk.at), np.int64)
    alive = np.flatnonzero(walk.is_good)
    for _ in range(_LONGEST_FLOAT):
        alive = alive[_FLOAT_BYTES[walk.text.array[walk.at[alive] + lengths[alive]]]]
        lengths[alive] += 1
        if not len(alive):
            break
    is_float = np.zeros(len(walk.at), np.bool_)
    data = walk.text.data
    for row in np.flatnonzero(walk.is_good).tolist():
        start = int(walk.at[row])
        number = data[start : start + int(lengths[row])]
        if _FLOAT.fullmatch(number):
            values[row] = float(number)
            is_float[row] = True
    walk.go(is_float, lengths)
    return values
