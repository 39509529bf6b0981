"""Columns of the events of a Perfetto trace of ours, without making a Python object of each.

Only events as PerfettoSink writes them are understood here: all fields of the marker, in order,
with values of its types. For anything else there is no answer, and the caller reads event by event,
which takes ten times as long, and knows what to say of a malformed one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from markerjit.model import Field, FieldType, TypeClass
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.types import TEXT_COLUMNS, RecordType, TextState, number_code
from markerjit.trace import perfetto_fields as number
from markerjit.trace.header import LONGEST_TIME
from markerjit.trace.records import is_utf8
from markerjit.trace.spans import cpu_key
from markerjit.trace.wire_read import BYTES, FIXED64, VARINT, Bytes, Messages, Step

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Column

_MOST_CPU = 0xFFFF


class _Span(NamedTuple):
    """A part of the bytes in each row."""

    starts: Array
    ends: Array

    def of(self, rows: Array) -> _Span:
        return _Span(self.starts[rows], self.ends[rows])


class Events(NamedTuple):
    """The packets of a piece of a file that are events, and their parts, an entry for each event.

    packets  the numbers of the packets
    times    in nanoseconds
    tids     the threads
    sources  the numbers of the types
    notes    the annotations: the first ones, the second ones, and so on
    counts   how many annotations there are
    others   the numbers of the packets that are something else, malformed, or to be looked at alone
    """

    data: Bytes
    packets: Array
    times: Array
    tids: Array
    sources: Array
    notes: list[_Span]
    counts: Array
    others: Array


def events_of(data: bytes, starts: Array, ends: Array, most: int) -> Events:
    """The events among packets that are between these starts and ends, with at most so many
    annotations."""
    raw = Bytes(data)
    size = len(starts)
    times, tids, sources, counts = (np.zeros(size, np.int64) for _ in range(4))
    times_seen, events_seen = (np.zeros(size, np.uint8) for _ in range(2))
    event = _nothing(size)
    is_event = np.ones(size, np.bool_)
    packets = Messages(raw, starts, ends)
    for step in packets.steps():
        is_time = _is(step, number.TIMESTAMP, VARINT)
        is_inner = _is(step, number.EVENT, BYTES)
        is_known = _is(step, number.SEQUENCE, VARINT) | _is(step, number.FLAGS, VARINT)
        _keep(times, step, is_time)
        _keep_span(event, step, is_inner)
        times_seen[step.rows[is_time]] += 1
        events_seen[step.rows[is_inner]] += 1
        is_event[step.rows[~(is_time | is_inner | is_known)]] = False
    is_event &= ~packets.wrong & (times_seen == 1) & (events_seen == 1)
    event.ends[~is_event] = event.starts[~is_event]
    notes = [_nothing(size) for _ in range(most)]
    inner = Messages(raw, *event)
    for step in inner.steps():
        is_track = _is(step, number.TRACK_UUID, VARINT)
        is_source = _is(step, number.SOURCE, VARINT)
        is_note = _is(step, number.ANNOTATION, BYTES)
        is_known = _is(step, number.TYPE, VARINT) | _is(step, number.NAME, VARINT)
        _keep(tids, step, is_track)
        _keep(sources, step, is_source)
        places = counts[step.rows]
        for place in np.unique(places[is_note]).tolist():
            if place < most:
                _keep_span(notes[place], step, is_note & (places == place))
        counts[step.rows[is_note]] += 1
        is_event[step.rows[~(is_track | is_source | is_note | is_known)]] = False
    is_event &= ~inner.wrong & (sources != 0) & (counts <= most)
    rows = np.flatnonzero(is_event)
    return Events(
        raw,
        rows,
        times[rows],
        tids[rows] & (1 << 22) - 1,
        sources[rows],
        [note.of(rows) for note in notes],
        counts[rows],
        np.flatnonzero(~is_event),
    )


def columns_of(
    events: Events, types: Mapping[int, RecordType], names: Mapping[int, str]
) -> list[Columns] | None:
    """The events in columns, in the order of the first event of each type; None where one of
    them has to be looked at alone. Types and the names of fields are by their numbers."""
    sources, firsts = np.unique(events.sources, return_index=True)
    columns = []
    for source in sources[np.argsort(firsts)].tolist():
        kind = types.get(source)
        rows = np.flatnonzero(events.sources == source)
        if kind is None or (events.counts[rows] != 1 + len(kind.fields)).any():
            return None
        made = _columns(kind, events, rows, names)
        if made is None:
            return None
        columns.append(made)
    return columns


def _columns(
    kind: RecordType, events: Events, rows: Array, names: Mapping[int, str]
) -> Columns | None:
    """The columns of the events of one type, in these rows. The first annotation is the CPU."""
    times = events.times[rows]
    if max(-int(times.min()), int(times.max())) > LONGEST_TIME:
        return None
    order = np.argsort(times, kind="stable")
    rows = rows[order]
    notes = events.notes[: 1 + len(kind.fields)]
    cpus, *values = (_Notes(events.data, note.of(rows)) for note in notes)
    cpu = cpus.numbers(cpu_key(kind.fields), names, number.UINT)
    if cpu is None or (cpu > _MOST_CPU).any():
        return None
    fields: dict[str, Column] = {}
    for field, of_field in zip(kind.fields, values, strict=True):
        column = _column(field, of_field, names)
        if column is None:
            return None
        fields[field.name] = column
    return Columns(
        kind,
        times[order].astype(np.uint64),
        cpu.astype(np.uint16),
        events.tids[rows].astype(np.uint32),
        fields,
    )


def _column(field: Field, notes: _Notes, names: Mapping[int, str]) -> Column | None:
    if field.type in TEXT_COLUMNS:
        return notes.texts(field.name, names)
    if field.type is FieldType.CHAR:
        return _characters(field, notes.texts(field.name, names))
    if field.type is FieldType.FLOAT:
        words = notes.numbers(field.name, names, number.DOUBLE)
        return None if words is None else words.view(np.float64)
    if field.type is FieldType.BOOL:
        truths = notes.numbers(field.name, names, number.BOOL)
        return None if truths is None else truths != 0
    sort = number.UINT
    if field.type is FieldType.POINTER:
        sort = number.POINTER
    elif field.ctype.type_class is TypeClass.SIGNED:
        sort = number.INT
    values = notes.numbers(field.name, names, sort)
    if values is None:
        return None
    narrow = values.astype(number_code(field))
    return narrow if (narrow.astype(np.uint64) == values).all() else None


def _characters(field: Field, texts: Texts | None) -> Array | None:
    """Texts of one character each, of one byte in the program and up to two here."""
    if texts is None or (texts.states == TextState.NULL).any():
        return None
    sizes = np.diff(texts.offsets)
    if ((sizes < 1) | (sizes > 2)).any():
        return None
    first = texts.data[texts.offsets[:-1]].astype(np.int64)
    last = texts.data[texts.offsets[1:] - 1].astype(np.int64)
    is_one = sizes == 1
    if ((first >= 0x80) == is_one).any() or (first > 0xC3).any():
        return None  # two characters, or one above 0xFF
    return np.where(is_one, first, (first & 3) << 6 | last & 0x3F).astype(number_code(field))


class _Notes:
    """The annotations of one field: its name's number, and one value or none."""

    def __init__(self, data: Bytes, notes: _Span) -> None:
        size = len(notes.starts)
        self._data = data
        self._names = np.zeros(size, np.int64)
        self._sorts = np.zeros(size, np.int64)
        self._values = np.zeros(size, np.uint64)
        self._starts = np.zeros(size, np.int64)
        messages = Messages(data, *notes)
        fields = np.zeros(size, np.int64)
        is_right = np.ones(size, np.bool_)
        for step in messages.steps():
            fields[step.rows] += 1
            is_name = _is(step, number.ANNOTATION_NAME, VARINT)
            self._names[step.rows[is_name]] = step.values[is_name].astype(np.int64)
            rows, sorts = step.rows[~is_name], step.numbers[~is_name]
            is_right[rows] &= self._sorts[rows] == 0  # one value only
            is_right[rows] &= step.wires[~is_name] == _wires(sorts)
            self._sorts[rows] = sorts
            self._values[rows] = step.values[~is_name]
            self._starts[rows] = step.starts[~is_name]
        self._is_right = bool((is_right & ~messages.wrong & (fields <= 2)).all())

    def numbers(self, name: str, names: Mapping[int, str], sort: int) -> Array | None:
        """The values, all of this sort; the bits of doubles. None where they are not so."""
        if not self._is_of(name, names) or (self._sorts != sort).any():
            return None
        return self._data.words(self._starts) if sort == number.DOUBLE else self._values

    def texts(self, name: str, names: Mapping[int, str]) -> Texts | None:
        """The texts, NULL where there is no value."""
        is_null = self._sorts == 0
        if not self._is_of(name, names) or (~is_null & (self._sorts != number.STRING)).any():
            return None
        sizes = self._values.astype(np.int64)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        shifts = np.repeat(self._starts - offsets[:-1], sizes)
        data = self._data.bytes[np.arange(offsets[-1]) + shifts]
        states = np.where(is_null, TextState.NULL, TextState.WHOLE).astype(np.uint8)
        texts = Texts(offsets, data, states)
        return texts if is_utf8(texts) else None

    def _is_of(self, name: str, names: Mapping[int, str]) -> bool:
        """Whether each annotation is well-formed, and has this name."""
        if not self._is_right:
            return False
        numbers = np.unique(self._names).tolist()
        return all(names.get(number) == name for number in numbers)


def _wires(sorts: Array) -> Array:
    """How values of these sorts are encoded."""
    wires = np.full(len(sorts), VARINT, np.uint8)
    wires[sorts == number.DOUBLE] = FIXED64
    wires[sorts == number.STRING] = BYTES
    return wires


def _is(step: Step, number: int, wire: int) -> Array:
    """Which values of a step are of this field."""
    where: Array = (step.numbers == number) & (step.wires == wire)
    return where


def _nothing(rows: int) -> _Span:
    return _Span(np.zeros(rows, np.int64), np.zeros(rows, np.int64))


def _keep(kept: Array, step: Step, where: Array) -> None:
    """Keep the numbers of a step."""
    kept[step.rows[where]] = step.values[where].astype(np.int64)


def _keep_span(kept: _Span, step: Step, where: Array) -> None:
    """Keep where the bytes of a step are."""
    rows, starts = step.rows[where], step.starts[where]
    kept.starts[rows] = starts
    kept.ends[rows] = starts + step.values[where].astype(np.int64)
