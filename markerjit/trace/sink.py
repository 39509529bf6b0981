"""The interfaces of all writers of traces, and the description that a trace begins with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from markerjit.ring.batch import Columns
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType
from markerjit.trace.batch import Batch
from markerjit.tuples import NamedTuple


class TraceInfo(NamedTuple):
    """The description of a trace.

    types       all types of records that it may hold; they share their `time` and `tid`
    clock       converts their times
    sources     the place in the source by marker: "file.c:12"
    started_ns  the start, since 1970
    """

    types: tuple[RecordType, ...]
    clock: Calibration
    pid: int
    command: str
    host: str
    started_ns: int
    sources: Mapping[str, str]


class Sink(Protocol):
    """A trace that is being written. Not thread-safe.

    Raises OSError where the disk is full. Events written before can still be read.
    """

    def write(self, batch: Batch) -> None:
        """Add a batch."""

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """End the trace. `lost` is the number of all lost events, by (cpu, marker)."""


class JointSink(Protocol):
    """A file of several programs in one order of time, that is being written. Not thread-safe."""

    def add(self, info: TraceInfo) -> None:
        """Take a program, of which no event was written yet. All have one clock."""

    def write(self, batch: Sequence[Columns]) -> None:
        """Add events of programs that were taken, later than all before."""

    def close(self, lost: Mapping[int, Mapping[tuple[int, str], int]]) -> None:
        """End the file. `lost` is the number of all lost events by (cpu, marker), by process."""
