"""Records of a stream that have no fields but the stack pointer: when, where, of which marker.

A stream makes columns for each type of record. With thousands of types the columns would take more
work than the records. Here the records of all types are one set of columns, in order of time, as
soon as nothing earlier can come.

What this does not do: other fields. The types have to be recorded without any, with times,
threads and the stack pointer (`rsp` of Options).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.events.stream import EventStream, feeds_of
from markerjit.ring.columns import monotonic
from markerjit.ring.starts import indices
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Packet

_FAR = np.uint64(1 << 32)
"""In ticks or nanoseconds. A record that seems to come so much later is nonsense, and is not kept
back."""
_KINDS = (np.uint32, np.uint32, np.uint16, np.int64, np.uint64)
"""Of the columns."""


class Records(NamedTuple):
    """Records in order of time: the id of the marker, the thread, the CPU, the time, in nanoseconds
    of CLOCK_MONOTONIC, and the stack pointer."""

    marker: Array
    tid: Array
    cpu: Array
    time: Array
    stack: Array

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.marker)


class PlainRecords:
    """The records of a stream."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        (self._feed,) = feeds_of([stream])
        self._kept: list[Records] = []

    def poll(self) -> Records:
        """The records since the last poll, except those that an earlier record may still
        precede."""
        until = self._feed.now()
        batch = self._stream.poll_batch(packets=True, columns=False)
        return self._released(batch.packets if batch else (), until)

    def rest(self) -> Records:
        """All that remain."""
        batch = self._stream.rest(packets=True, columns=False)
        return self._released(batch.packets if batch else (), None)

    def lost(self) -> int:
        """How many were lost since the stream began, as is known now."""
        self._feed.note_losses()
        return sum(self._feed.lost().values())

    def _released(self, packets: Sequence[Packet], until: int | None) -> Records:
        parts = [*self._kept, *(self._columns(packet) for packet in packets)]
        self._kept = []
        if not parts:
            return Records(*(np.zeros(0, kind) for kind in _KINDS))
        whole = Records(*(np.concatenate(column) for column in zip(*parts, strict=True)))
        if until is not None:
            later = (whole.time >= until) & (whole.time - np.uint64(until) < _FAR)
            if later.any():
                self._kept = [_rows(whole, later)]
                whole = _rows(whole, ~later)
        whole = _rows(whole, np.argsort(whole.time, kind="stable"))
        return whole._replace(time=monotonic(whole.time, self._stream.clock()))

    @staticmethod
    def _columns(packet: Packet) -> Records:
        words = np.frombuffer(packet.data, "<u8")
        assert packet.starts is not None
        starts = packet.starts
        if isinstance(starts, slice):
            heads, times, stacks = (words[at:][starts] for at in range(3))
        else:
            first = indices(starts)
            heads, times, stacks = (words[first + at] for at in range(3))
        marker = packet.head.marker((heads & np.uint64(0xFFFFFFFF)).astype(np.uint32))
        tid = (heads >> np.uint64(32)).astype(np.uint32)
        return Records(marker, tid, np.full(len(heads), packet.cpu, np.uint16), times, stacks)


def _rows(records: Records, rows: Array) -> Records:
    return Records(*(column[rows] for column in records))
