"""Records as columns of numbers, and columns as events.

    Walked (walk.py)  →  columns_of: a Columns for each type, in order of time  →  events
                         merge, take: for a stream that has to hold some of them back

Fields are copied out of the records by numpy, a column at a time. Up to the first text of a record
each has a fixed place; behind it the places are worked out, for all records at once. The walk has
made sure that a record lies within the bytes and has room for its numbers and for texts of no
length. What a text says of its own length and state is checked here: a record that has no room for
it is dropped and counted. A record may be longer than its fields.

Time.NONE knows no order but that in each ring; its columns are in the order of the rings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from itertools import pairwise, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from markerjit.model import Event, Field, FieldType, Value
from markerjit.ring.batch import Columns, Packet, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.starts import compact
from markerjit.ring.types import HEAD_SIZE, WORD, RecordType, TextState, Time
from markerjit.ring.walk import Walked, least_words, walk_packet

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

    Column = Array | Texts
    Place = tuple[Array | slice, int]  # of a field in many records: words, and bytes behind them

_BLOCK = 4096
"""So many texts are copied at a time: it takes eight bytes for each byte of them."""


class Decoded(NamedTuple):
    """`bad` records were dropped: a text in them cannot be what it says."""

    columns: list[Columns]
    bad: int


def decode(
    packets: Sequence[Packet],
    types: Mapping[int, RecordType],
    *,
    counted: MutableMapping[tuple[int, int], int] | None = None,
) -> list[Columns]:
    """The records of these packets. `counted` says how many came before, by (cpu, ring), and is
    brought up to date; it matters for Time.NONE, whose time is the number."""
    least = least_words(types)
    counted = {} if counted is None else counted
    walks = []
    for packet in packets:
        ring = (packet.cpu, packet.ring)
        walks.append(walk_packet(packet, least, first=counted.get(ring, 0)))
        counted[ring] = walks[-1].first + len(walks[-1].starts)
    return columns_of(walks, types).columns


def columns_of(walks: Sequence[Walked], types: Mapping[int, RecordType]) -> Decoded:
    """The records that were found, a Columns for each type that occurs. The walk must have known
    these types; it may have known more. They share their `time`."""
    found = sorted((one for one in walks if len(one.starts)), key=lambda one: (one.cpu, one.ring))
    if not found:
        return Decoded([], 0)
    numbered = any(type_.time is Time.NONE for type_ in types.values())
    records = _join(found, numbered=numbered)
    if not numbered and not _is_sorted(records.time):
        records = records.pick(np.argsort(records.time, kind="stable"))
    columns, bad = [], 0
    for marker, some in _by_marker(records):
        if marker not in types:
            continue
        one, dropped = _columns(some, types[marker])
        bad += dropped
        if len(one.time):
            columns.append(one)
    return Decoded(columns, bad)


def merge(parts: Sequence[Columns]) -> Columns:
    """Columns of one type as one, in order of time; what has the same time stays in its order."""
    if len(parts) == 1:
        return parts[0]
    type_ = parts[0].type
    time = np.concatenate([part.time for part in parts])
    whole = Columns(
        type_,
        time,
        np.concatenate([part.cpu for part in parts]),
        np.concatenate([part.tid for part in parts]),
        {name: _joined([part.fields[name] for part in parts]) for name in parts[0].fields},
    )
    if type_.time is Time.NONE or _is_sorted(time):
        return whole
    order = np.argsort(time, kind="stable")
    fields = {name: _reordered(column, order) for name, column in whole.fields.items()}
    return Columns(type_, time[order], whole.cpu[order], whole.tid[order], fields)


def take(columns: Columns, until: int) -> tuple[Columns, Columns]:
    """What is before `until`, counted as the records' own time is, and the rest. Time.NONE knows
    no later: all is before."""
    at = len(columns.time)
    if columns.type.time is not Time.NONE:
        at = int(np.searchsorted(columns.time, np.uint64(min(max(until, 0), (1 << 64) - 1))))
    return _part(columns, 0, at), _part(columns, at, len(columns.time))


def monotonic(time: Array, clock: Calibration) -> Array:
    """Calibration.monotonic for a column: int64."""
    if clock.time is not Time.TSC:
        return time.astype(np.int64)
    elapsed = (time - np.uint64(clock.counter)).view(np.int64)  # below 0 for what was before
    seconds, rest = np.divmod(elapsed, clock.frequency_hz)
    found: Array = clock.monotonic_ns + seconds * NS + rest * NS // clock.frequency_hz
    return found


def events(columns: Sequence[Columns], clock: Calibration) -> list[Event]:
    """The records as events, those of all types in order of time. Time.NONE: the time is the number
    in the ring."""
    found = [event for one in columns for event in _events(one, clock)]
    if len(columns) < 2:
        return found
    return [found[index] for index in _order(columns).tolist()]


class Slices:
    """Columns of several types, to be taken a part at a time in the order of `events`. To make
    events of all takes a hundred times as long as to sort them."""

    def __init__(self, columns: Sequence[Columns]) -> None:
        self._columns = columns
        self._ends = np.cumsum([len(one.time) for one in columns])
        self._order = _order(columns)
        self._at = 0

    def __len__(self) -> int:
        return len(self._order) - self._at

    def time(self, index: int) -> int:
        """When the next but so many was recorded. Time.NONE knows only its own ring's order."""
        place = self._order[self._at + index]
        part = int(np.searchsorted(self._ends, place, side="right"))
        columns = self._columns[part]
        return int(columns.time[place - self._ends[part]])  # from the end: below 0

    def count_until(self, time: int) -> int:
        """How many of the next are not later."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.time(middle) <= time else (low, middle)
        return low

    def take(self, most: int) -> list[Columns]:
        """The next so many, or all there are."""
        places = self._order[self._at : self._at + most]
        self._at += len(places)
        if len(places) == len(self._order):
            return [*self._columns]
        found = []
        for end, columns in zip(self._ends, self._columns, strict=True):
            rows = places - (end - len(columns.time))
            rows = rows[(rows >= 0) & (rows < len(columns.time))]
            if len(rows):
                found.append(_picked(columns, rows))
        return found


def _order(columns: Sequence[Columns]) -> Array:
    """The order of events, as places in all columns one behind the other."""
    time = np.concatenate([one.time for one in columns])
    if len(columns) < 2:
        return np.arange(len(time))
    if columns[0].type.time is Time.NONE:
        return np.lexsort((time, np.concatenate([one.cpu for one in columns])))
    return np.argsort(time, kind="stable")


def _picked(columns: Columns, rows: Array) -> Columns:
    """These records, in this order."""
    type_, time, cpu, tid, fields = columns
    picked = {name: _reordered(column, rows) for name, column in fields.items()}
    return Columns(type_, time[rows], cpu[rows], tid[rows], picked)


class _Records(NamedTuple):
    """Records of all types and rings: where each starts in `data`, in words, and of each what it
    has whatever its type."""

    data: bytes
    starts: Array
    markers: Array
    time: Array
    cpu: Array

    def pick(self, which: Array) -> _Records:
        """These of them, in this order."""
        _, starts, markers, time, cpu = self
        return _Records(self.data, starts[which], markers[which], time[which], cpu[which])

    def numbers(self, at: Array | slice, offset: int, code: str) -> Array:
        """One number of each record, `offset` bytes behind the words `at`."""
        words = np.frombuffer(self.data, np.uint64)[offset // WORD :][at]
        size = int(code[1])
        numbers: Array = np.ascontiguousarray(words).view(code)
        return numbers if size == WORD else numbers[offset % WORD // size :: WORD // size].copy()


def _join(walks: Sequence[Walked], *, numbered: bool) -> _Records:
    """The records of all walks, in this order. If numbered, their number is their time."""
    starts, end = [], 0
    for walked in walks:
        starts.append(walked.starts + end if end else walked.starts)
        end += len(walked.data) // WORD
    counts = [len(walked.starts) for walked in walks]
    records = _Records(
        b"".join([walked.data for walked in walks]),
        _concatenated(starts),
        _concatenated([walked.markers for walked in walks]),
        np.empty(0, np.uint64),
        np.repeat(np.array([walked.cpu for walked in walks], np.uint16), counts),
    )
    if numbered:
        numbers = [np.arange(one.first, one.first + len(one.starts)) for one in walks]
        return records._replace(time=np.concatenate(numbers).astype(np.uint64))
    return records._replace(time=records.numbers(compact(records.starts), HEAD_SIZE, "u8"))


def _concatenated(arrays: list[Array]) -> Array:
    """Without a copy of one alone."""
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


def _by_marker(records: _Records) -> Iterator[tuple[int, _Records]]:
    """The records of each marker, in the order they are in."""
    markers = records.markers
    if (markers == markers[0]).all():
        yield int(markers[0]), records
        return
    order = np.argsort(markers, kind="stable")
    ends = np.flatnonzero(np.diff(markers[order])) + 1
    for some in np.split(order, ends):
        yield int(markers[some[0]]), records.pick(some)


def _columns(records: _Records, type_: RecordType) -> tuple[Columns, int]:
    """Columns of records that are all of this type, and how many had to be dropped."""
    bad = 0
    if type_.has_text:
        places, fits = _places_by_record(records, type_)
        bad = len(fits) - int(np.count_nonzero(fits))
        if bad:
            records = records.pick(fits)
            places, _ = _places_by_record(records, type_)
    at = compact(records.starts)
    if not type_.has_text:
        places = [(at, place.offset) for place in type_.places]
    tid = records.numbers(at, 4, "u4") if type_.tid else np.zeros(len(records.time), np.uint32)
    fields: dict[str, Column] = {}
    for (field, _, code), (base, offset) in zip(type_.places, places, strict=True):
        if not code and not isinstance(base, slice):
            fields[field.name] = _texts(records, base)
            continue
        numbers = records.numbers(base, offset, code)
        fields[field.name] = numbers != 0 if field.type is FieldType.BOOL else numbers
    return Columns(type_, records.time, records.cpu, tid, fields), bad


def _places_by_record(records: _Records, type_: RecordType) -> tuple[list[Place], Array]:
    """Where the fields are, and which records have room for their texts. While this is not known
    nothing is read outside of a record, whatever its texts say."""
    fits = np.ones(len(records.starts), np.bool_)
    base, offset = records.starts, type_.head_size
    sizes = np.frombuffer(records.data, np.uint16)[1::4]
    ends = base + sizes[base]
    places: list[Place] = []
    for _, _, code in type_.places:
        size = int(code[1]) if code else WORD
        offset = (offset + size - 1) & -size
        if code:
            places.append((base, offset))
            offset += size
            continue
        at = base + offset // WORD
        fits &= at < ends
        at = np.minimum(at, ends - 1)
        places.append((at, 0))
        length = records.numbers(at, 0, "u4").astype(np.int64)
        fits &= records.numbers(at, 4, "u4") <= max(TextState)
        base, offset = at + 1 + (length + WORD - 1) // WORD, 0
    fits &= base + (offset + WORD - 1) // WORD <= ends
    return places, fits


def _texts(records: _Records, at: Array) -> Texts:
    """The texts whose lengths stand at these words."""
    lengths = records.numbers(at, 0, "u4")
    states = records.numbers(at, 4, "u4").astype(np.uint8)
    data = np.frombuffer(records.data, np.uint8)
    return Texts(*_copied(data, (at + 1) * WORD, lengths), states)


def _copied(data: Array, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """These pieces of the data, one behind the other: where each starts now, and the bytes."""
    offsets = np.zeros(len(starts) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    copied = np.empty(offsets[-1], np.uint8)
    back = starts - offsets[:-1]  # how far behind its new place a piece was
    for low in range(0, len(starts), _BLOCK):
        high = min(low + _BLOCK, len(starts))
        source = np.repeat(back[low:high], lengths[low:high])
        source += np.arange(offsets[low], offsets[high])
        copied[offsets[low] : offsets[high]] = data[source]
    return offsets, copied


def _is_sorted(time: Array) -> bool:
    return bool((time[1:] >= time[:-1]).all())


def _joined(columns: list[Column]) -> Column:
    texts = [column for column in columns if isinstance(column, Texts)]
    if not texts:
        return np.concatenate(columns)
    parts = [_from_zero(one.offsets, one.data) for one in texts]
    ends = np.cumsum([0, *(len(data) for _, data in parts)])
    offsets = [part[:-1] + end for (part, _), end in zip(parts, ends, strict=False)]
    return Texts(
        np.concatenate([*offsets, ends[-1:]]),
        np.concatenate([data for _, data in parts]),
        np.concatenate([one.states for one in texts]),
    )


def _from_zero(offsets: Array, data: Array) -> tuple[Array, Array]:
    """The same texts, with no bytes before the first or behind the last."""
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _reordered(column: Column, order: Array) -> Column:
    if not isinstance(column, Texts):
        return column[order]
    starts, lengths = column.offsets[:-1][order], np.diff(column.offsets)[order]
    return Texts(*_copied(column.data, starts, lengths), column.states[order])


def _part(columns: Columns, low: int, high: int) -> Columns:
    """The records from `low` to `high`: no copy but of the offsets of texts, which start at 0."""
    fields: dict[str, Column] = {}
    for name, column in columns.fields.items():
        if isinstance(column, Texts):
            offsets, data = _from_zero(column.offsets[low : high + 1], column.data)
            fields[name] = Texts(offsets, data, column.states[low:high])
        else:
            fields[name] = column[low:high]
    time, cpu, tid = (column[low:high] for column in columns[1:4])
    return Columns(columns.type, time, cpu, tid, fields)


# From columns to events


def _events(columns: Columns, clock: Calibration) -> Iterator[Event]:
    type_ = columns.type
    times = columns.time if type_.time is Time.NONE else monotonic(columns.time, clock)
    names = [field.name for field in type_.fields]
    values = [_values(field, columns.fields[field.name]) for field in type_.fields]
    rows = zip(*values, strict=True) if values else repeat((), len(columns.time))
    fields = map(dict, map(zip, repeat(names), rows))
    rows = zip(
        times.tolist(), columns.cpu.tolist(), columns.tid.tolist(), repeat(type_.marker), fields
    )
    return map(tuple.__new__, repeat(Event), rows)  # Event(*row) takes half as long again


def _values(field: Field, column: Column) -> list[Value]:
    """What an event has of a field."""
    if isinstance(column, Texts):
        return _text_values(field, column)
    if field.type is FieldType.CHAR:
        return [*column.astype(np.uint8).tobytes().decode("latin-1")]
    values: list[Value] = column.tolist()
    return values


def _text_values(field: Field, texts: Texts) -> list[Value]:
    offsets, column = _from_zero(texts.offsets, texts.data)
    data, spans = column.tobytes(), pairwise(offsets.tolist())
    values: list[Value]
    if field.conversion == "ph":  # %*ph: bytes, whatever they look like
        values = [data[start:end] for start, end in spans]
    elif field.type is FieldType.BYTES:
        values = [_printable(data[start:end]) for start, end in spans]
    elif data.isascii():
        text = data.decode()
        values = [text[start:end] for start, end in spans]
    else:
        values = [data[start:end].decode("utf-8", "backslashreplace") for start, end in spans]
    for index in np.flatnonzero(texts.states).tolist():
        value = values[index]
        match texts.states[index]:
            case TextState.NULL:
                values[index] = None
            case TextState.UNREADABLE:
                values[index] = "<unreadable>"
            case _ if isinstance(value, str) and field.limit is None:
                values[index] = value + "…"  # what the format itself cuts is whole
    return values


def _printable(data: bytes) -> str | bytes:
    """A string if it can be shown as one."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return data
    return text if text.isprintable() else data
