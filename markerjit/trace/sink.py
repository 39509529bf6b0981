"""What every kind of trace file has in common: what it is told at the start, and how it is fed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from markerjit.ring.batch import Batch
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType


class TraceInfo(NamedTuple):
    """What a trace says of itself.

    types       all kinds of records that can be in it; they share their `time` and `tid`
    clock       for their times
    sources     by marker: "file.c:12"
    started_ns  since 1970
    """

    types: tuple[RecordType, ...]
    clock: Calibration
    pid: int
    command: str
    host: str
    started_ns: int
    sources: Mapping[str, str]


class Sink(Protocol):
    """A trace that is being written. Not thread-safe. Raises OSError where the disk is full; what
    was written before can be read all the same."""

    def write(self, batch: Batch) -> None:
        """Add a batch."""

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """End the trace. `lost` are all events lost, by (cpu, marker)."""
