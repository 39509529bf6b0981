"""Records of a stream in columns, with the place of each among those of all types.

Counters of some machines tick seldom: every ten nanoseconds. So events of one thread may have the
same time, and the columns of two types do not say which was first. Their ring does. Here records
of the same time and CPU are in the order of their ring.

What this does not do: tell apart events of the same time on two CPUs; texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.events.stream import EventStream, feeds_of
from markerjit.ring.clock import Calibration
from markerjit.ring.decode import decode
from markerjit.ring.starts import indices
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Columns, Packet

FAR = 1 << 32
"""Ticks or nanoseconds. What seems to come so much later is nonsense, and not kept back."""


class Ranked(NamedTuple):
    """Records of one type, and the places that they have among those of all types."""

    columns: Columns
    places: Array


class RankedPoll(NamedTuple):
    """What a poll has brought. Records that are not before `until`, as records count time, may come
    before those of a later poll; None: nothing will come. Their times are read by the `clock`."""

    records: Sequence[Ranked]
    until: int | None
    clock: Calibration


class RankedRecords:
    """The records of a stream."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        (self._feed,) = feeds_of([stream])

    def poll(self) -> RankedPoll:
        """The records since the last poll."""
        until = self._feed.now()
        batch = self._stream.poll_batch(packets=True, columns=False)
        return self._ranked(batch.packets if batch else (), until)

    def rest(self) -> RankedPoll:
        """All that remain."""
        batch = self._stream.rest(packets=True, columns=False)
        return self._ranked(batch.packets if batch else (), None)

    def lost(self) -> int:
        """How many were lost since the stream began, as is known now."""
        self._feed.note_losses()
        return sum(self._feed.lost().values())

    def _ranked(self, packets: Sequence[Packet], until: int | None) -> RankedPoll:
        clock = self._stream.clock()
        packets = sorted(packets, key=lambda packet: (packet.cpu, packet.ring))
        if not packets:
            return RankedPoll((), until, clock)
        heads = [_heads(packet) for packet in packets]
        markers = np.concatenate([marker for marker, _ in heads])
        times = np.concatenate([time for _, time in heads])
        markers = markers[np.argsort(times, kind="stable")]  # as decode has them
        records = [
            Ranked(columns, np.flatnonzero(markers == columns.type.id))
            for columns in decode(packets, self._stream.types)
        ]
        return RankedPoll(records, until, clock)


def _heads(packet: Packet) -> tuple[Array, Array]:
    """The markers and times of a packet's records."""
    words = np.frombuffer(packet.data, "<u8")
    assert packet.starts is not None
    at = indices(packet.starts)
    markers = packet.head.marker((words[at] & np.uint64(0xFFFFFFFF)).astype(np.uint32))
    return markers, words[at + 1]
