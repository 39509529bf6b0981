"""Counts and histograms of records, by marker and by the values of a field.

Their number is bounded: the first values that come have series of their own, and what comes later
is summed up under OTHER, and counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit import Calibration, Columns

OTHER = "(other)"
ABSENT = "(absent)"
"""Stands for a text that is NULL or cannot be read."""

_LONGEST = 100
"""Characters of a value; what is longer is cut, and such values share a series."""
_INF = 99
_OF_WHOLE = range(33)
_OF_FLOAT = range(-20, 21)
_ZERO = -99


class Key(NamedTuple):
    """The labels of a series: the process, the marker, and the value of the field, if one was
    asked for."""

    pid: int
    marker: str
    value: str | None = None


class Exemplar(NamedTuple):
    """An event that was counted in a bucket: its value, its time since 1970, and its origin."""

    value: float
    when_s: float
    tid: int
    cpu: int


class Histogram:
    """Values by powers of two. A bucket has those that are not above its bound."""

    def __init__(self, *, whole: bool) -> None:
        self._powers = _OF_WHOLE if whole else _OF_FLOAT
        self._counts: Counter[tuple[int, int]] = Counter()  # by sign and power
        self._exemplars: dict[tuple[int, int], Exemplar] = {}
        self.sum = 0.0
        self.count = 0

    def add(self, values: Any, exemplar: Any) -> None:
        """Count the values of an array. `exemplar` makes an Exemplar of the row of one."""
        values = values.astype(np.float64)
        rows = np.flatnonzero(~np.isnan(values))
        values = values[rows]
        if not len(values):
            return
        self.count += len(values)
        self.sum += float(values.sum())
        part, power = np.frexp(np.abs(values))
        exact = part == 0.5
        low, high = self._powers[0], self._powers[-1]
        # The bound above v is 2^p, and -2^(p-1) for one below 0.
        negative = (values < 0) & (power - 1 >= low)
        power = np.where(negative, power - 1, power - exact)
        power = np.where(np.isinf(values), high + 1, power)
        above = np.where(power > high, _INF, np.maximum(power, low))
        power = np.where(negative, np.minimum(power, high), np.where(values <= 0, _ZERO, above))
        codes = power * 2 + negative
        kinds, last, counts = np.unique(codes[::-1], return_index=True, return_counts=True)
        for code, at, count in zip(kinds.tolist(), last.tolist(), counts.tolist(), strict=True):
            bucket = (-1 if code & 1 else 1, code >> 1)
            self._counts[bucket] += count
            row = int(rows[len(values) - 1 - at])
            self._exemplars[bucket] = exemplar(float(values[len(values) - 1 - at]), row)

    @property
    def has_negative(self) -> bool:
        """Whether a value below 0 was counted: then the sum says little, and may fall."""
        return any(sign < 0 for sign, _ in self._counts)

    def buckets(self) -> list[tuple[float, int, Exemplar | None]]:
        """The bound of each bucket, the number of values that are not above it, and one of those in
        it; the last bound is infinity."""
        places = [(1, _ZERO), *((1, power) for power in self._powers), (1, _INF)]
        if self.has_negative:
            places = [*((-1, power) for power in reversed(self._powers)), *places]
        total, buckets = 0, []
        for sign, power in places:
            total += self._counts[sign, power]
            buckets.append((_bound(sign, power), total, self._exemplars.get((sign, power))))
        return buckets


def _bound(sign: int, power: int) -> float:
    if power == _INF:
        return float("inf")
    return 0.0 if power == _ZERO else sign * 2.0**power


class Series:
    """All series of the processes that are exported. `by` and `histogram` are fields; a marker that
    lacks one has no such series."""

    def __init__(self, most: int, *, by: str | None = None, histogram: str | None = None) -> None:
        self.by = by
        self.histogram = histogram
        self.counts: Counter[Key] = Counter()
        self.histograms: dict[Key, Histogram] = {}
        self.without_series = 0
        self._most = most
        self._known: set[Key] = set()

    def add(self, pid: int, columns: Columns, clock: Calibration) -> None:
        """Count the records of one marker."""
        marker = columns.type.marker
        if self.by is not None and self.by not in columns.fields:
            groups = [(Key(pid, marker), slice(None))]
        elif self.by is not None:
            groups = self._groups(pid, marker, columns.fields[self.by])
        else:
            groups = [(Key(pid, marker), slice(None))]
        values = columns.fields.get(self.histogram) if self.histogram else None
        for key, rows in groups:
            self.counts[key] += len(columns.time[rows])
            if values is not None and not hasattr(values, "offsets"):
                self._measure(key, columns, values, rows, clock)

    def _groups(self, pid: int, marker: str, column: Any) -> list[tuple[Key, Any]]:
        """The rows of each value that has a series, and those of all others."""
        by_value: dict[str, list[int]] = {}
        for row, value in enumerate(_texts(column)):
            by_value.setdefault(value, []).append(row)
        others: list[int] = []
        groups: list[tuple[Key, Any]] = []
        for value, rows in by_value.items():
            key = Key(pid, marker, value)
            if key not in self._known and len(self._known) >= self._most:
                others += rows
                continue
            self._known.add(key)
            groups.append((key, np.array(rows)))
        if others:
            self.without_series += len(others)
            groups.append((Key(pid, marker, OTHER), np.array(sorted(others))))
        return groups

    def _measure(
        self, key: Key, columns: Columns, values: Any, rows: Any, clock: Calibration
    ) -> None:
        if key not in self.histograms:
            self.histograms[key] = Histogram(whole=values.dtype.kind in "iub")
        times, tids, cpus = columns.time[rows], columns.tid[rows], columns.cpu[rows]

        def exemplar(value: float, row: int) -> Exemplar:
            when = clock.monotonic(int(times[row])) + clock.wall_offset_ns
            return Exemplar(value, when / 1e9, int(tids[row]), int(cpus[row]))

        self.histograms[key].add(values[rows], exemplar)


def _texts(column: Any) -> Sequence[str]:
    """The values of a column as labels."""
    if not hasattr(column, "offsets"):
        return [str(value)[:_LONGEST] for value in column.tolist()]
    data, ends = column.data.tobytes(), column.offsets.tolist()
    return [
        data[start:end].decode("utf-8", "backslashreplace")[:_LONGEST] if state < 2 else ABSENT
        for start, end, state in zip(ends, ends[1:], column.states.tolist(), strict=False)
    ]
