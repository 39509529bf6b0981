"""Lines of events as a template says: `{time} {name} {fields.key}`.

    time        the time of day                 cpu, tid, pid
    date        with the date, as ISO 8601      name        the marker
    since       seconds since the first event   source      its file and line
    delta       since the last event of the     fields      all, as name=value
                same thread                     fields.X    the value of one, without quotes

A field that a marker does not have is `-`. `{{` and `}}` are braces, and `\\t` is a tab. Lines are
made of columns, as those of rows.py are.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from string import Formatter
from typing import TYPE_CHECKING

import numpy as np

from markerjit.arguments import check_all, check_is, check_text
from markerjit.elf import show
from markerjit.errors import Refused, UnknownField
from markerjit.model import Field, FieldType, Value
from markerjit.printable import printable
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import RecordType, Time
from markerjit.trace import cells
from markerjit.trace.records import in_order, pieces, split
from markerjit.trace.rows import of_texts, text_cells
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array
    from markerjit.trace.cells import Cells

NAMES = (
    *("time", "date", "since", "delta", "cpu", "tid", "pid", "name", "source", "fields"),
)  # fmt: skip
"""The names that a template may have, beside `fields.X`."""
_OF_FIELD = "fields."
_AT_ONCE = 1 << 13
_SHOWN = {"cpu": "cpu{cpu}"}
"""How a column is written, where its name alone would not say it."""


class Moments(NamedTuple):
    """The times of some records, in nanoseconds: by the clock, since the first event of all, and
    since the last event of the same thread."""

    times: Array
    since: Array
    delta: Array


class LineTemplate:
    """A template of lines. It knows the first event that it has formatted, and the last of each
    thread, so each trace needs one of its own. Raises Refused for a text that is none."""

    def __init__(self, text: str) -> None:
        check_text("text", text)
        self._first: int | None = None
        self._last: dict[int, int] = {}
        self._parts: list[tuple[bytes, str]] = []
        try:
            parsed = [*Formatter().parse(text)]
        except ValueError as error:
            raise Refused(f"the template {text!r} makes no sense: {error}") from None
        for literal, name, spec, conversion in parsed:
            if spec or conversion:
                raise Refused(f"{{{name}}} of the template takes no format of its own")
            if name is not None:
                _check_name(name)
            shown = "\t".join(map(printable, literal.replace("\\t", "\t").split("\t")))
            self._parts.append((shown.encode("utf-8", "backslashreplace"), name or ""))
        if not self.names:
            raise Refused(
                f"the template {text!r} names nothing; there are {_braced(NAMES)} and {{fields.X}}"
            )

    def __repr__(self) -> str:
        return f"<LineTemplate of {', '.join(self.names)}>"

    @classmethod
    def of_columns(cls, names: Sequence[str]) -> LineTemplate:
        """A template with these names, a blank between them."""
        check_all("names", names, str)
        for name in names:
            _check_name(name)
        return cls(" ".join(_SHOWN.get(name, f"{{{name}}}") for name in names))

    @property
    def names(self) -> tuple[str, ...]:
        """The names in it."""
        return tuple(name for _, name in self._parts if name)

    def check(self, types: Sequence[RecordType]) -> None:
        """Raise UnknownField where it names a field that none of these types of records has."""
        check_all("types", types, RecordType)
        known = dict.fromkeys(field.name for kind in types for field in kind.fields)
        for name in self.names:
            field = name.removeprefix(_OF_FIELD)
            if field != name and known and field not in known:
                raise UnknownField(field, tuple(known))

    def lines(
        self,
        columns: Sequence[Columns],
        clock: Calibration,
        *,
        pids: Mapping[RecordType, int] | None = None,
        sources: Mapping[str, str] | None = None,
    ) -> bytes:
        """The line of each of these records, in order of time. `pids` has the process of each type
        of record, and `sources` the file and line of each marker; `-` where they do not say it."""
        check_all("columns", columns, Columns)
        check_is("clock", clock, Calibration)
        made = []
        for piece in pieces(columns, clock, _AT_ONCE):
            times, order = in_order(piece, clock)
            parts = self._moments(piece, times, order)
            moments = zip(*(split(part, piece) for part in parts), strict=True)
            tables = [
                cells.table(
                    [*self._cells(of_type, Moments(*when), clock, pids or {}, sources or {})],
                    len(of_type.time),
                )
                for of_type, when in zip(piece, moments, strict=True)
            ]
            made.append(cells.packed(tables, order))
        return b"".join(made)

    def _moments(self, piece: Sequence[Columns], times: Array, order: Array) -> Moments:
        if self._first is None:
            self._first = int(times[order[0]])
        tids = np.concatenate([np.asarray(columns.tid, np.int64) for columns in piece])
        rows = order[np.argsort(tids[order], kind="stable")]  # by thread, and in order of time
        threads, when = tids[rows], times[rows]
        firsts = np.append(0, np.flatnonzero(threads[1:] != threads[:-1]) + 1)
        differences = np.diff(when, prepend=when[0])
        differences[firsts] = [
            moment - self._last.get(thread, moment)
            for thread, moment in zip(threads[firsts].tolist(), when[firsts].tolist(), strict=True)
        ]
        lasts = np.append(firsts[1:], len(rows)) - 1
        self._last.update(zip(threads[lasts].tolist(), when[lasts].tolist(), strict=True))
        delta = np.empty_like(times)
        delta[rows] = differences
        return Moments(times, times - self._first, delta)

    def _cells(
        self,
        columns: Columns,
        moments: Moments,
        clock: Calibration,
        pids: Mapping[RecordType, int],
        sources: Mapping[str, str],
    ) -> Iterator[bytes | Cells]:
        kind = columns.type
        known: dict[str, Callable[[], Iterable[bytes | Cells]]] = {
            "time": lambda: _moment(moments.times, clock, "%H:%M:%S"),
            "date": lambda: _moment(moments.times, clock, "%Y-%m-%dT%H:%M:%S"),
            "since": lambda: _seconds(moments.since, clock),
            "delta": lambda: _seconds(moments.delta, clock),
            "cpu": lambda: [cells.decimal(columns.cpu)],
            "tid": lambda: [cells.decimal(columns.tid)],
            "pid": lambda: [str(pids.get(kind, "-")).encode()],
            "name": lambda: [printable(kind.marker).encode()],
            "source": lambda: [printable(sources.get(kind.marker) or "-").encode()],
            "fields": lambda: _all_fields(columns),
        }
        for literal, name in self._parts:
            yield literal
            if name.startswith(_OF_FIELD):
                yield _one_field(columns, name.removeprefix(_OF_FIELD))
            elif name:
                yield from known[name]()
        yield b"\n"


def times_of(columns: Sequence[Columns], clock: Calibration) -> list[int]:
    """The times of these records since 1970 in nanoseconds, in order; their numbers where they were
    recorded without a time."""
    check_all("columns", columns, Columns)
    check_is("clock", clock, Calibration)
    times: list[int] = []
    for piece in pieces(columns, clock, _AT_ONCE):
        when, order = in_order(piece, clock)
        times += (when[order] + clock.wall_offset_ns).tolist()
    return times


def _check_name(name: str) -> None:
    if name in NAMES or (name.startswith(_OF_FIELD) and len(name) > len(_OF_FIELD)):
        return
    if not name:
        raise Refused(f"a name is empty; there are {', '.join(NAMES)} and fields.X")
    near = difflib.get_close_matches(name, NAMES, 1)
    hint = f"did you mean {near[0]}? There are" if near else "there are"
    raise Refused(f"there is no {name} in a line; {hint} {', '.join(NAMES)} and fields.X")


def _braced(names: Iterable[str]) -> str:
    return ", ".join(f"{{{name}}}" for name in names)


def _moment(times: Array, clock: Calibration, form: str) -> Iterator[bytes | Cells]:
    """The local time of each record, or its number where it has none."""
    if clock.time is Time.NONE:
        yield b"#"
        yield cells.decimal(times)
        return
    since_1970 = times + clock.wall_offset_ns
    seconds = since_1970 // NS
    firsts = np.append(0, np.flatnonzero(seconds[1:] != seconds[:-1]) + 1)
    shown = cells.texts_of(
        [time.strftime(form, time.localtime(second)) for second in seconds[firsts].tolist()]
    )
    yield np.repeat(shown, np.diff(firsts, append=len(times)), axis=0)
    yield b"."
    yield cells.nanoseconds(since_1970 - seconds * NS)


def _seconds(spans: Array, clock: Calibration) -> Iterator[bytes | Cells]:
    """Spans of time in seconds, which may be negative."""
    if clock.time is Time.NONE:
        yield b"-"
        return
    magnitudes = np.abs(spans)
    signs = np.zeros((len(spans), 1), np.uint8)
    signs[spans < 0] = ord("-")
    yield signs
    yield cells.decimal(magnitudes // NS)
    yield b"."
    yield cells.nanoseconds(magnitudes % NS)


def _all_fields(columns: Columns) -> Iterator[bytes | Cells]:
    for number, field in enumerate(columns.type.fields):
        yield f"{' ' if number else ''}{printable(field.name)}=".encode()
        yield text_cells(field, columns.fields[field.name], bracketed=False)


def _one_field(columns: Columns, name: str) -> bytes | Cells:
    """The value of a field, a text without quotes."""
    field = next((field for field in columns.type.fields if field.name == name), None)
    if field is None:
        return b"-"
    column = columns.fields[name]
    if not isinstance(column, Texts) or field.type is FieldType.STACK:
        return text_cells(field, column, bracketed=False)
    return of_texts(field, column, lambda value: _bare(field, value), marks=b"\0\0", spaced=True)


def _bare(field: Field, value: Value) -> str:
    text = show(field, value)
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == '"' else text
