"""The summary of a trace, by marker: the number and rate of events, and the values of fields."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from markerjit.arguments import check_callable, check_is
from markerjit.elf import show
from markerjit.model import Field, FieldType, Value
from markerjit.printable import counted
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.clock import NS
from markerjit.ring.columns import monotonic
from markerjit.ring.types import RecordType, Time
from markerjit.trace.reading import Trace
from markerjit.trace.records import pieces, values
from markerjit.trace.sketch import ERROR, Budget, Frequent, Numbers
from markerjit.tuples import NamedTuple, brief

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

SHOWN = 5
"""The number of most frequent values in a summary."""

_NUMERIC = (FieldType.INT, FieldType.FLOAT)


class NumberSummary(NamedTuple):
    """The summary of a field of numbers.

    `error` is the relative error of the percentiles, 0 where they are exact. Statistics are None
    where there was no number; nan does not count as one.
    """

    field: Field
    values: int
    nans: int
    least: int | float | None
    p50: int | float | None
    p90: int | float | None
    p99: int | float | None
    largest: int | float | None
    mean: float | None
    error: float

    def __repr__(self) -> str:
        return brief(self)


class ValueSummary(NamedTuple):
    """The summary of a field of anything but numbers.

    Counts may be too low by up to `missed`, which is 0 where they are exact. If they are not,
    `distinct` is None.
    """

    field: Field
    values: int
    nulls: int
    distinct: int | None
    top: tuple[tuple[Value, int], ...]
    missed: int

    def __repr__(self) -> str:
        return brief(self)

    def shown(self) -> list[tuple[str, int]]:
        """The most frequent values, in the format of the marker, with their counts."""
        return [(show(self.field, value), count) for value, count in self.top]


class MarkerSummary(NamedTuple):
    """The summary of a marker. Without a clock, rate, first and last are None. `sample` is the part
    of the events that was recorded, such as "1/100", `at_most` how many of them there could be in a
    second, and `budget` the part of the processor time, for which the sample may have become
    smaller; None without one. All numbers are of the recorded ones."""

    name: str
    source: str
    events: int
    lost: int
    rate_hz: float | None
    first_ns: int | None
    last_ns: int | None
    fields: tuple[NumberSummary | ValueSummary, ...]
    sample: str | None = None
    at_most: int | None = None
    budget: str | None = None

    def __repr__(self) -> str:
        return brief(self)


class Summary(NamedTuple):
    """The summary of a trace.

    Rates are over the time from the first event of any marker to the last. Losses of an unknown
    marker are in `lost` only.
    """

    events: int
    lost: int
    first_ns: int | None
    last_ns: int | None
    markers: tuple[MarkerSummary, ...]

    def __repr__(self) -> str:
        markers = counted(len(self.markers), "marker")
        return f"<Summary of {counted(self.events, 'event')} of {markers}, {self.lost:,} lost>"


def summarise(
    trace: Trace, select: Callable[[str], bool] = lambda name: True, *, budget: Budget | None = None
) -> Summary:
    """The summary of a trace, which is read whole. Markers with the most events come first.

    `select` chooses markers by name.
    """
    check_is("trace", trace, Trace)
    check_callable("select", select)
    if budget is not None:
        check_is("budget", budget, Budget)
    budget = budget or Budget()
    kinds = [kind for kind in trace.info.types if select(kind.marker)]
    summaries = {id_: _Marker(kind, budget) for id_, kind in ((kind.id, kind) for kind in kinds)}
    timed = trace.info.clock.time is not Time.NONE
    for batch in trace.batches():
        for piece in pieces(batch, trace.info.clock):
            for columns in piece:
                if columns.type.id in summaries:
                    times = monotonic(columns.time, trace.info.clock)
                    summaries[columns.type.id].add(columns, int(times.min()), int(times.max()))
    recorded = [marker for marker in summaries.values() if marker.events and timed]
    first = min((marker.first for marker in recorded), default=None)
    last = max((marker.last for marker in recorded), default=None)
    duration_ns = last - first if first is not None and last is not None else 0
    lost = Counter[str]()
    for (_, name), count in trace.lost.items():
        if not name or select(name):
            lost[name] += count
    total = lost.total()
    markers = [
        # Types of one name are sorted by their events; the first gets the losses of all.
        marker.summary(
            trace.info.sources.get(marker.name, ""), lost.pop(marker.name, 0), timed, duration_ns
        )
        for marker in sorted(summaries.values(), key=lambda marker: (-marker.events, marker.name))
    ]
    return Summary(sum(marker.events for marker in markers), total, first, last, tuple(markers))


class _Marker:
    """Collects the events of a marker."""

    def __init__(self, kind: RecordType, budget: Budget) -> None:
        self.name = kind.marker
        self.brakes = kind.brakes
        self.events = self.first = self.last = 0
        self._fields: dict[str, tuple[Field, Numbers | Frequent]] = {
            field.name: (field, Numbers(budget) if field.type in _NUMERIC else Frequent())
            for field in kind.fields
        }

    def add(self, columns: Columns, first: int, last: int) -> None:
        self.first = min(self.first, first) if self.events else first
        self.last = max(self.last, last) if self.events else last
        self.events += len(columns.time)
        for name, (field, summed) in self._fields.items():
            column = columns.fields[name]
            if isinstance(summed, Frequent):
                summed.add_counted(_counted(field, column))
            else:
                assert not isinstance(column, Texts)
                summed.add(column)

    def summary(self, source: str, lost: int, timed: bool, duration_ns: int) -> MarkerSummary:
        has_times = timed and self.events > 0
        return MarkerSummary(
            self.name,
            source,
            self.events,
            lost,
            self.events * NS / duration_ns if has_times and duration_ns else None,
            self.first if has_times else None,
            self.last if has_times else None,
            tuple(
                _of_values(field, summed)
                if isinstance(summed, Frequent)
                else _of_numbers(field, summed)
                for field, summed in self._fields.values()
            ),
            str(self.brakes.sample) if self.brakes.sample else None,
            self.brakes.at_most,
            self.brakes.percent,
        )


def _counted(field: Field, column: Array | Texts) -> Counter[Value]:
    """The number of times that each value occurs."""
    if isinstance(column, Texts):
        return Counter(values(field, column))
    different, counts = np.unique(column, return_counts=True)
    return Counter(dict(zip(values(field, different), counts.tolist(), strict=True)))


def _of_numbers(field: Field, numbers: Numbers) -> NumberSummary:
    if not numbers.count:
        return NumberSummary(field, 0, numbers.nans, None, None, None, None, None, None, 0)
    p50, p90, p99 = numbers.percentiles(0.5, 0.9, 0.99)
    if field.type is FieldType.INT:
        p50, p90, p99 = round(p50), round(p90), round(p99)
    return NumberSummary(
        field,
        numbers.count,
        numbers.nans,
        numbers.least,
        p50,
        p90,
        p99,
        numbers.largest,
        numbers.mean(),
        0 if numbers.exact else ERROR,
    )


def _of_values(field: Field, values: Frequent) -> ValueSummary:
    return ValueSummary(
        field, values.count, values.nulls, values.distinct, tuple(values.top(SHOWN)), values.missed
    )
