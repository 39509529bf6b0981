"""Several traces, of processes of one machine, in one order of time: as columns, or as one file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.arguments import check_all, check_callable, check_flag, check_path
from markerjit.errors import MarkerError, Refused
from markerjit.ring.batch import Columns
from markerjit.ring.columns import monotonic, rows_between
from markerjit.ring.types import Time
from markerjit.trace.open import open_joint
from markerjit.trace.reading import Trace

if TYPE_CHECKING:
    from markerjit.ring.batch import Array


def join_traces(
    traces: Sequence[Trace],
    path: str,
    select: Callable[[str], bool] = lambda name: True,
    *,
    force: bool = False,
) -> int:
    """Write several traces to one file; returns the number of events.

    `select` chooses markers by name. Raises Refused for a format that has no file of several
    processes, and for traces without times. Where a trace is damaged in the middle, the events
    before that are written and can be read.
    """
    check_all("traces", traces, Trace)
    check_path("path", path)
    check_callable("select", select)
    check_flag("force", force)
    path = os.fspath(path)
    for trace in traces:
        with contextlib.suppress(OSError):  # writing it raises the error
            if os.path.samefile(trace.path, path):
                raise Refused(f"{path} is the trace itself; take another name")
        if trace.info.clock.time is Time.NONE:
            raise Refused(f"without times there is no order; {trace.path} has none")
    sink = open_joint(path, force=force)
    lost: dict[int, dict[tuple[int, str], int]] = {}
    count = 0
    try:
        for trace in traces:
            kinds = tuple(kind for kind in trace.info.types if select(kind.marker))
            sink.add(trace.info._replace(types=kinds, clock=traces[0].info.clock))
        for columns in in_one_order(traces, select):
            sink.write(columns)
            count += sum(len(of_type.time) for of_type in columns)
    finally:
        for trace in traces:
            of_process = lost.setdefault(trace.info.pid, {})
            with contextlib.suppress(MarkerError):  # known by now, unless the trace is damaged
                for key, number in trace.lost.items():
                    if not key[1] or select(key[1]):
                        of_process[key] = of_process.get(key, 0) + number
        sink.close(lost)
    return count


def in_one_order(
    traces: Sequence[Trace], select: Callable[[str], bool] = lambda name: True
) -> Iterator[list[Columns]]:
    """The records of several traces: those of a list have one order of time, which is that of the
    first trace's clock, and come behind those of the list before. Bounded in memory, as the batches
    of each trace are."""
    going = [_Going(trace, traces[0], select) for trace in traces]
    while True:
        for each in going:
            each.fill()
        going = [each for each in going if each.columns]
        if not going:
            return
        until = min(each.last for each in going)
        joined = [columns for each in going for columns in each.take(until)]
        if joined:
            yield joined


class _Going:
    """A trace that is read, and the batch of it of which there is something left."""

    def __init__(self, trace: Trace, first: Trace, select: Callable[[str], bool]) -> None:
        self.columns: list[Columns] = []
        self.last = 0
        self._batches = iter(trace.batches())
        self._clock = trace.info.clock
        self._later = self._clock.wall_offset_ns - first.info.clock.wall_offset_ns
        self._select = select

    def fill(self) -> None:
        """Read the next batch, where nothing is left of the one before."""
        while not self.columns and (batch := next(self._batches, None)) is not None:
            chosen = (of_type for of_type in batch if self._select(of_type.type.marker))
            self.columns = [self._timed(of_type) for of_type in chosen if len(of_type.time)]
        self.last = max((int(_signed(each)[-1]) for each in self.columns), default=0)

    def take(self, until: int) -> Iterator[Columns]:
        """The records up to this time."""
        rest: list[Columns] = []
        for columns in self.columns:
            end = int(np.searchsorted(_signed(columns), until, side="right"))
            if end:
                yield rows_between(columns, 0, end)
            if end < len(columns.time):
                rest.append(rows_between(columns, end, len(columns.time)))
        self.columns = rest

    def _timed(self, columns: Columns) -> Columns:
        """The same records, with times of the first trace's clock."""
        times = monotonic(columns.time, self._clock) + self._later
        return columns._replace(time=times.view(np.uint64))


def _signed(columns: Columns) -> Array:
    """The times, of which those before the clock's 0 are negative."""
    return columns.time.view(np.int64)
