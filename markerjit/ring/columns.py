"""Join, split and sort columns of records: for a stream that has to hold some records back, and for
files that are written a piece at a time.

    walk.py  →  decode.py: a Columns for each type  →  here  →  to_events.py
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import Time

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Column

_BLOCK = 4096
"""Texts that are copied at a time: the copy takes eight bytes of memory for each byte of text."""


def merge(parts: Sequence[Columns]) -> Columns:
    """Columns of one type as one Columns, in order of time. Records of the same time stay in the
    order of the parts."""
    whole = joined(parts)
    if len(parts) == 1:
        return whole
    if whole.type.time is Time.NONE or is_sorted(whole.time):
        return whole
    return picked(whole, np.argsort(whole.time, kind="stable"))


def joined(parts: Sequence[Columns]) -> Columns:
    """Columns of one type as one Columns, whose records are in the order of the parts."""
    if len(parts) == 1:
        return parts[0]
    return Columns(
        parts[0].type,
        np.concatenate([part.time for part in parts]),
        np.concatenate([part.cpu for part in parts]),
        np.concatenate([part.tid for part in parts]),
        {name: _joined([part.fields[name] for part in parts]) for name in parts[0].fields},
    )


def merge_types(columns: Iterable[Columns]) -> list[Columns]:
    """One Columns for each type, in the order of the types' ids."""
    by_type: dict[int, list[Columns]] = {}
    for part in columns:
        by_type.setdefault(part.type.id, []).append(part)
    return [merge(parts) for _, parts in sorted(by_type.items())]


def take(columns: Columns, until: int) -> tuple[Columns, Columns]:
    """The records before `until`, and the rest. `until` is in the unit of the records' own time.
    All records without a time (Time.NONE) count as before it."""
    at = len(columns.time)
    if columns.type.time is not Time.NONE:
        at = int(np.searchsorted(columns.time, np.uint64(min(max(until, 0), (1 << 64) - 1))))
    return rows_between(columns, 0, at), rows_between(columns, at, len(columns.time))


def rows_between(columns: Columns, low: int, high: int) -> Columns:
    """The records from `low` up to, and without, `high`. Only the offsets of texts are copied:
    they start at 0."""
    if low == 0 and high == len(columns.time):
        return columns
    fields: dict[str, Column] = {}
    for name, column in columns.fields.items():
        if isinstance(column, Texts):
            offsets, data = from_zero(column.offsets[low : high + 1], column.data)
            fields[name] = Texts(offsets, data, column.states[low:high])
        else:
            fields[name] = column[low:high]
    time, cpu, tid = (column[low:high] for column in columns[1:4])
    return Columns(columns.type, time, cpu, tid, fields)


def monotonic(time: Array, clock: Calibration) -> Array:
    """Calibration.monotonic for a column: int64."""
    if clock.time is not Time.TSC:
        return time.astype(np.int64)
    elapsed = (time - np.uint64(clock.counter)).view(np.int64)  # below 0 before the calibration
    seconds = elapsed // clock.frequency_hz
    rest = elapsed - seconds * clock.frequency_hz  # numpy's divmod takes three times as long
    nanoseconds: Array = clock.monotonic_ns + seconds * NS + rest * NS // clock.frequency_hz
    return nanoseconds


class Slices:
    """Columns of several types, taken a slice at a time in the order of `to_events.events`."""

    def __init__(self, columns: Sequence[Columns]) -> None:
        self._columns = columns
        self._ends = np.cumsum([len(part.time) for part in columns])
        self._order = order_of(columns)
        self._at = 0

    def __len__(self) -> int:
        return len(self._order) - self._at

    def time(self, index: int) -> int:
        """The time of the record that is `index` behind the next. The times of records without one
        (Time.NONE) are in order within a ring only."""
        place = self._order[self._at + index]
        number = int(np.searchsorted(self._ends, place, side="right"))
        part = self._columns[number]
        return int(part.time[place - self._ends[number]])  # from the end: below 0

    def count_until(self, time: int) -> int:
        """The number of records, from the next on, that are not later than `time`."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.time(middle) <= time else (low, middle)
        return low

    def take(self, most: int) -> list[Columns]:
        """The next `most` records, or all that remain."""
        places = self._order[self._at : self._at + most]
        self._at += len(places)
        if len(places) == len(self._order):
            return [*self._columns]
        taken = []
        for end, part in zip(self._ends, self._columns, strict=True):
            rows = places - (end - len(part.time))
            rows = rows[(rows >= 0) & (rows < len(part.time))]
            if len(rows):
                taken.append(picked(part, rows))
        return taken


def order_of(columns: Sequence[Columns]) -> Array:
    """The order of events: indices into the columns of all types, one behind the other. It is
    taken from the times as recorded, because a counter is finer than nanoseconds."""
    time = np.concatenate([part.time for part in columns])
    if len(columns) < 2:
        return np.arange(len(time))
    if columns[0].type.time is Time.NONE:
        return np.lexsort((time, np.concatenate([part.cpu for part in columns])))
    return np.argsort(time, kind="stable")


def picked(columns: Columns, rows: Array) -> Columns:
    """The records of these rows, in this order."""
    type_, time, cpu, tid, fields = columns
    picked = {name: _reordered(column, rows) for name, column in fields.items()}
    return Columns(type_, time[rows], cpu[rows], tid[rows], picked)


def gathered(data: Array, starts: Array, lengths: Array) -> tuple[Array, Array]:
    """Copies pieces of the data to one behind the other. Returns the offset of each, with the end
    of the last, and the bytes."""
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


def is_sorted(time: Array) -> bool:
    """Whether no time is before the one that precedes it."""
    return bool((time[1:] >= time[:-1]).all())


def _joined(columns: list[Column]) -> Column:
    texts = [column for column in columns if isinstance(column, Texts)]
    if not texts:
        return np.concatenate(columns)
    parts = [from_zero(column.offsets, column.data) for column in texts]
    ends = np.cumsum([0, *(len(data) for _, data in parts)])
    offsets = [part[:-1] + end for (part, _), end in zip(parts, ends, strict=False)]
    return Texts(
        np.concatenate([*offsets, ends[-1:]]),
        np.concatenate([data for _, data in parts]),
        np.concatenate([column.states for column in texts]),
    )


def from_zero(offsets: Array, data: Array) -> tuple[Array, Array]:
    """The same texts, without the bytes before the first and behind the last."""
    return offsets - offsets[0], data[offsets[0] : offsets[-1]]


def _reordered(column: Column, order: Array) -> Column:
    if not isinstance(column, Texts):
        return column[order]
    starts, lengths = column.offsets[:-1][order], np.diff(column.offsets)[order]
    return Texts(*gathered(column.data, starts, lengths), column.states[order])
