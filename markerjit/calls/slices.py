"""Calls one by one, as slices of Perfetto's trace, which ui.perfetto.dev shows by thread and time.

    1  names of functions, the clock, and the process, once
    2  each thread before its first call
    3  a packet for each begin and end of a call, as it comes

Times are CLOCK_MONOTONIC. A call that was left without an exit ends when that becomes known. A call
that has not ended has no end in the file, so a truncated file can be read up to the cut.

Authority: protos/perfetto/trace/ of Perfetto v59. The constants name its field numbers.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.calls.stacks import Calls
from markerjit.calls.steps import FRAME, LEAVE, Steps
from markerjit.elf.demangle import demangled
from markerjit.trace import wire
from markerjit.trace.files import WholeWriter
from markerjit.trace.perfetto import whole_packets

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_PACKET = 1
_CLOCK_SNAPSHOT, _TIMESTAMP, _SEQUENCE, _EVENT, _INTERNED, _FLAGS = 6, 8, 10, 11, 12, 13
_DEFAULTS, _TRACK, _FIRST, _CLOCK_ID = 59, 60, 87, 58
_CLEARED, _NEEDS_STATE = 1, 2
_REALTIME, _MONOTONIC = 1, 3
_TYPE, _NAME, _TRACK_UUID = 9, 10, 11
_BEGIN, _END = 1, 2


class Slices:
    """Writes the calls of a process. `names` are the symbols of its functions, by their numbers.
    Raises Refused where the file cannot be made."""

    def __init__(
        self,
        path: str,
        pid: int,
        command: str,
        names: Sequence[str],
        *,
        force: bool = False,
    ) -> None:
        self._pid = pid
        self._process = pid << 22
        self._sequence = wire.field(_SEQUENCE, pid or 1)
        self._known: set[int] = set()
        self._file = WholeWriter(path, whole_packets, force=force)
        self._file.write(self._beginning(command or f"process {pid}", names))

    def write(self, calls: Calls, nodes: Array, tids: Array) -> None:
        """Add the begins and ends of calls that have a node; `tids` are those of threads, by their
        numbers."""
        steps = calls.steps
        opened = np.flatnonzero((steps.kind < LEAVE) & (nodes >= 0))
        ends = calls.closes[opened]
        begins = opened[steps.kind[opened] != FRAME]
        rows = np.sort(np.concatenate([begins, ends[ends >= 0]]))
        if not len(rows):
            return
        part = steps.picked(rows)
        of_thread = tids[part.thread].astype(np.int64)
        self._file.write(self._threads(of_thread) + self._packets(part, of_thread))

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _packets(self, part: Steps, tids: Array) -> bytes:
        rows = len(tids)
        event = [
            *wire.numbers(_TYPE, np.where(part.kind < LEAVE, _BEGIN, _END)),
            *wire.numbers(_NAME, part.function + 1),
            *wire.numbers(_TRACK_UUID, tids + self._process),
        ]
        packet = [
            *wire.numbers(_TIMESTAMP, part.time),
            self._sequence,
            *wire.message(_EVENT, event, rows),
            wire.field(_FLAGS, _NEEDS_STATE),
        ]
        return wire.bytes_of(wire.message(_PACKET, packet, rows), rows)

    def _packet(self, *fields: bytes) -> bytes:
        return wire.field(_PACKET, [*fields, self._sequence])

    def _beginning(self, command: str, names: Sequence[str]) -> bytes:
        field = wire.field
        interned = [
            field(2, [field(1, number), field(2, demangled(name))])
            for number, name in enumerate(names, 1)
        ]
        clocks = [
            field(1, [field(1, _MONOTONIC), field(2, time.monotonic_ns())]),
            field(1, [field(1, _REALTIME), field(2, time.time_ns())]),
        ]
        process = field(3, [field(1, self._pid), field(6, command)])
        return b"".join([
            self._packet(
                field(_FIRST, 1),
                field(_FLAGS, _CLEARED),
                field(_DEFAULTS, [field(_CLOCK_ID, _MONOTONIC)]),
                field(_INTERNED, interned),
            ),
            self._packet(field(_CLOCK_SNAPSHOT, [*clocks, field(2, _MONOTONIC)])),
            self._packet(field(_TRACK, [field(1, self._process), process])),
        ])  # fmt: skip

    def _threads(self, tids: Array) -> bytes:
        field = wire.field
        new = sorted(set(np.unique(tids).tolist()) - self._known)
        self._known.update(new)
        return b"".join(
            self._packet(
                field(
                    _TRACK,
                    [
                        field(1, self._process + tid),
                        field(5, self._process),
                        field(4, [field(1, self._pid), field(2, tid)]),
                    ],
                )
            )
            for tid in new
        )
