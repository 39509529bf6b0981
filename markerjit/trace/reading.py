"""The interface of all readers of traces.

A format has either columns or events, and offers the other by converting them. So code that does
not know the format can summarise, print and convert a trace. Each reading starts at the beginning
of the file, and keeps the file open until it is finished.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from markerjit.arguments import check_int, check_is
from markerjit.errors import BadTrace
from markerjit.model import Event, event_type
from markerjit.printable import counted, printable

if TYPE_CHECKING:
    from markerjit.ring.batch import Columns
    from markerjit.trace.batch import Batch
    from markerjit.trace.sink import TraceInfo

UNKNOWN = (-1, "")
"""In place of (cpu, marker), for lost events that the file does not attribute."""

EVENTS_AT_ONCE = 20_000
"""The most events that are made into columns at a time, which bounds memory."""
_EVENTS_SHOWN = 20


class Trace:
    """A trace in a file. Raises BadTrace when reading comes to a malformed place.

    path       the file
    info       the description of the trace; its times are nanoseconds of CLOCK_MONOTONIC, unless
               it was recorded without a clock
    problems   sentences that say what is unknown or wrong; complete when all has been read
    part       how much of it was read by the latest reading, from 0 to 1; None where only the place
               of its descriptor tells
    """

    info: TraceInfo
    part: float | None = None

    def __init__(self, path: str) -> None:
        self.path = path
        self.problems: list[str] = []

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        """The number of lost events by (cpu, marker), or by UNKNOWN for a mere total."""
        raise NotImplementedError

    def batches(self) -> Iterator[Sequence[Columns]]:
        """All records as columns, a bounded number at a time."""
        raise NotImplementedError

    def events(self) -> Iterator[Event]:
        """All events, in the order of the file."""
        raise NotImplementedError

    def record_batches(self) -> Iterator[Batch]:
        """All records as a stream has them, in batches of bounded size."""
        from markerjit.trace.batch import Batch

        for columns in self.batches():
            yield Batch((), columns, self.lost, self.info.clock, self.info.types, self.info.pid)

    def to_arrow(self) -> Any:
        """All records as a pyarrow.Table, as `Batch.to_arrow` has them."""
        from markerjit.trace.batch import table_of

        return table_of(self.record_batches(), self.info.types)

    def to_pandas(self) -> Any:
        """All records as a pandas.DataFrame."""
        from markerjit.trace.frames import to_pandas

        return to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """All records as a polars.DataFrame."""
        from markerjit.trace.frames import to_polars

        return to_polars(self.to_arrow())

    def __iter__(self) -> Iterator[Event]:
        return self.events()

    def __repr__(self) -> str:
        markers = counted(len({kind.marker for kind in self.info.types}), "marker")
        return f"<Trace {printable(self.path)[:60]} of process {self.info.pid}, {markers}>"

    def formatter(self, *, json: bool = False) -> Callable[[Event], str]:
        """A function that formats an event as a line, as `trace` prints it."""
        from markerjit.ring.types import fields_by_marker
        from markerjit.trace.lines import line_formatter

        return line_formatter(fields_by_marker(self.info.types), json=json, clock=self.info.clock)

    def time_of_day(self, time: int) -> str:
        """The time of day of an event's time in nanoseconds, as in lines of text. Raises
        BadArgument for what is not a number of 64 bits."""
        check_int("time", time, -(1 << 63), (1 << 64) - 1)
        from markerjit.trace.lines import time_of_day

        return time_of_day(time + self.info.clock.wall_offset_ns)

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_table

        rows = []
        remarks = []
        try:
            for event in islice(self.events(), _EVENTS_SHOWN + 1):
                rows.append({**event._repr_cells_(), "time": self.time_of_day(event.time)})
        except BadTrace as problem:
            remarks.append(str(problem))
        if len(rows) > _EVENTS_SHOWN:
            remarks.append(f"the first {_EVENTS_SHOWN} events")
        remarks += self.problems
        return html_table(rows[:_EVENTS_SHOWN], caption=self.path, remarks=remarks)

    def complain(self, problem: str) -> None:
        """Add a problem, once however often the trace is read."""
        check_is("problem", problem, str)
        if problem not in self.problems:
            self.problems.append(problem)


class ColumnTrace(Trace):
    """A trace whose format has columns."""

    def events(self) -> Iterator[Event]:
        from markerjit.trace.records import to_events

        for batch in self.batches():
            for events in to_events(batch, self.info.clock, self.info.pid):
                yield from events


class EventTrace(Trace):
    """A trace whose format has events."""

    def _with_origin(self, event: Event) -> Event:
        """The same event, as one of this trace."""
        from markerjit.ring.clock import origin_of
        from markerjit.trace.kinds import EventOfKind

        origin = origin_of(self.info.clock, self.info.pid)
        if isinstance(event, EventOfKind):
            return event.of(origin)
        return event_type(origin)._make(event)

    def batches(self) -> Iterator[Sequence[Columns]]:
        from markerjit.trace.collect import Collector

        collector = Collector(self.info.types)
        events = self.events()
        while piece := list(islice(events, EVENTS_AT_ONCE)):
            yield collector.columns(piece)


def open_to_read(path: str) -> int:
    """A descriptor of a regular file. Raises BadTrace, with the reason.

    A device or a pipe is refused: opening it could block, and it can be read only once.
    """
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise BadTrace(f"cannot open {path}: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise BadTrace(f"{path} is not a regular file")
    return file
