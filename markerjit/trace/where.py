"""The events of a trace that meet a condition. Needs numpy.

The records of each type are asked as columns, whatever the format. Types that have the same name
and different fields are asked one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from markerjit.arguments import check_all, check_callable, check_int, check_is
from markerjit.model import Event
from markerjit.questions import Lack, Question, ask, scope_of
from markerjit.questions.columns import TextColumn, answers
from markerjit.questions.scope import CALLER, CPU, TID, TIME, Scope, hidden
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.columns import monotonic, picked
from markerjit.ring.types import RecordType, TextState, Time
from markerjit.trace.collect import Collector
from markerjit.trace.reading import EVENTS_AT_ONCE, EventTrace, Trace
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Column
    from markerjit.ring.clock import Calibration

_MEMORY = "a stored trace has no memory of the process"
_CALLER = "a stored trace does not have it"
_UNTIMED = "the trace was recorded without a clock"
_NO_THREADS = "the trace was recorded without thread ids"


class Within(NamedTuple):
    """Bounds that need no condition: a marker may have a field that is called `tid` or `cpu`.

    tids, cpus     None for any
    since, before  times as events have them, in ns; None without a bound
    """

    tids: Sequence[int] | None = None
    cpus: Sequence[int] | None = None
    since: int | None = None
    before: int | None = None

    def lacks(self, kind: RecordType) -> Iterator[str]:
        """The names of what records of a type do not have, and a bound is about."""
        if self.tids is not None and not kind.tid:
            yield TID
        if (self.since, self.before) != (None, None) and kind.time is Time.NONE:
            yield TIME

    def of(self, columns: Columns, clock: Calibration) -> Array:
        """Whether each record is within the bounds. Its type has all that they are about."""
        inside = np.ones(len(columns.time), np.bool_)
        if self.tids is not None:
            inside &= np.isin(columns.tid, list(self.tids))
        if self.cpus is not None:
            inside &= np.isin(columns.cpu, list(self.cpus))
        if self.since is not None:
            inside &= monotonic(columns.time, clock) >= self.since
        if self.before is not None:
            inside &= monotonic(columns.time, clock) < self.before
        return inside


def where(
    trace: Trace,
    text: str,
    select: Callable[[str], bool] = lambda name: True,
    *,
    tids: Sequence[int] | None = None,
    cpus: Sequence[int] | None = None,
    since: int | None = None,
    before: int | None = None,
) -> Selection:
    """The events of a trace that meet a condition (docs/reference/questions.md).

    `select` chooses markers by name; others have no event in it. `tids` and `cpus` are those whose
    events are meant, and `since` and `before` bounds of their times in ns. Raises BadQuestion.
    """
    check_is("trace", trace, Trace)
    check_is("text", text, str)
    check_callable("select", select)
    for name, numbers in (("tids", tids), ("cpus", cpus)):
        if numbers is not None:
            check_all(name, numbers, int)
    for name, bound in (("since", since), ("before", before)):
        if bound is not None:
            check_int(name, bound, -(1 << 63), (1 << 63) - 1)
    return Selection(trace, text, select, Within(tids, cpus, since, before))


class Selection(Trace):
    """The events of another trace that meet a condition. Its losses are those of the whole trace:
    nothing is known of lost events.

    lacks  the types that do not have a name of the condition, so that none of their events meets it
    """

    def __init__(
        self, trace: Trace, text: str, select: Callable[[str], bool], within: Within
    ) -> None:
        super().__init__(trace.path)
        self.problems = trace.problems
        self.info = trace.info
        self._trace = trace
        self._within = within
        named = [kind for kind in trace.info.types if select(kind.marker)]
        bare = [Lack(kind.marker, name) for kind in named for name in within.lacks(kind)]
        types = [kind for kind in named if not any(within.lacks(kind))]
        asked = ask(text, [scope_of_type(kind) for kind in types])
        self.lacks = (*bare, *(lack for lack in asked if isinstance(lack, Lack)))
        self._questions = {
            kind.id: question
            for kind, question in zip(types, asked, strict=True)
            if isinstance(question, Question)
        }

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._trace.lost

    def batches(self) -> Iterator[Sequence[Columns]]:
        for batch in self._trace.batches():
            parts = [picked(part, np.flatnonzero(self._meets(part))) for part in batch]
            yield [part for part in parts if len(part.time)]

    def events(self) -> Iterator[Event]:
        if isinstance(self._trace, EventTrace):
            yield from self._chosen(self._trace.events())
            return
        from markerjit.trace.records import to_events

        for batch in self.batches():
            for events in to_events(batch, self.info.clock, self.info.pid):
                yield from events

    def _chosen(self, events: Iterator[Event]) -> Iterator[Event]:
        """Those of these events that meet the condition, in their order."""
        collector = Collector(self.info.types)
        while piece := list(islice(events, EVENTS_AT_ONCE)):
            chosen: set[int] = set()
            for columns, of_kind in collector.columns_with_events(piece):
                rows = np.flatnonzero(self._meets(columns))
                chosen.update(id(of_kind[row]) for row in rows.tolist())
            yield from (event for event in piece if id(event) in chosen)

    def _meets(self, columns: Columns) -> Array:
        question = self._questions.get(columns.type.id)
        if question is None:
            return np.zeros(len(columns.time), np.bool_)
        known = columns_by_name(columns, self.info.clock)
        met = answers(question.condition, known, len(columns.time))
        return met & self._within.of(columns, self.info.clock)


def columns_by_name(columns: Columns, clock: Calibration) -> dict[str, Array | TextColumn]:
    """The values of all names of events."""
    fields = {name: _column(column) for name, column in columns.fields.items()}
    always = {CPU: columns.cpu, TID: columns.tid}
    if columns.type.time is not Time.NONE:
        always[TIME] = monotonic(columns.time, clock)
    of_event = {hidden(name): column for name, column in always.items() if name in fields}
    return {**always, **of_event, **fields}


def scope_of_type(kind: RecordType) -> Scope:
    """The names of the events of a type."""
    unknown = {CALLER: _CALLER}
    if kind.time is Time.NONE:
        unknown[TIME] = _UNTIMED
    if not kind.tid:
        unknown[TID] = _NO_THREADS
    return scope_of(kind.marker, kind.fields, unknown, _MEMORY)


def _column(column: Column) -> Array | TextColumn:
    if not isinstance(column, Texts):
        return column
    missing = column.states >= TextState.NULL
    lengths = np.where(missing, 0, np.diff(column.offsets))
    return TextColumn(column.data, column.offsets[:-1], lengths, missing)
