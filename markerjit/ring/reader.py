"""Taking records out of the rings, while the target writes them.

The reader never believes a ring: every size and position is checked, and what does not fit is
skipped up to what the writer has reserved, and counted. It never blocks the writer: a ring that is
full loses records, which the runtime counts.

Reading a ring takes two steps in two system calls:

  1  copy what has been reserved, and follow the commit words (D) as far as records are committed
  2  copy those bytes again: whatever was written before a commit word (C in record.c) is in the
     second copy for certain, whatever order the first copy was made in

and only then is the space given back, by moving `consumed`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple, Protocol

from markerjit.ring.layout import (
    FILLER,
    RECORD_SIZE,
    RING_CONSUMED,
    RING_DATA,
    RING_RESERVED,
    Geometry,
)


class Store(Protocol):
    """The arena's bytes: a memfd, or the target's memory where there is no descriptor."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes."""

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`."""


class Record(NamedTuple):
    """A committed record: its marker's id, and its fields not yet decoded."""

    time: int
    cpu: int
    tid: int
    marker: int
    payload: bytes


_U64 = struct.Struct("<Q")
_HEADER = struct.Struct("<QQIHH")
_WORD = 8


class RingReader:
    """Reads one ring. `damaged` counts how often its contents made no sense."""

    def __init__(self, store: Store, geometry: Geometry, cpu: int) -> None:
        self.cpu = cpu
        self.damaged = 0
        self._store = store
        self._size = geometry.ring_size
        self._head = geometry.ring_offset(cpu)
        self._data = self._head + RING_DATA

    def discard(self) -> None:
        """Forget what is in the ring: a trace starts with what happens from now on."""
        self._give_back(self._reserved())

    def poll(self) -> Iterator[Record]:
        """All records that are committed now, oldest first."""
        reserved = self._reserved()
        consumed = self._word(RING_CONSUMED)
        fits = 0 <= reserved - consumed <= self._size
        if not fits or consumed % _WORD or reserved % _WORD:
            self.damaged += 1
            self._give_back(reserved)
            return
        if reserved == consumed:
            return
        spans = self._committed(self._copy(consumed, reserved), consumed, reserved)
        if not spans:
            return
        end = spans[-1][1]
        data = self._copy(consumed, end)
        self._give_back(end)
        for start, stop in spans:
            record = data[start - consumed : stop - consumed]
            if len(record) < RECORD_SIZE:
                continue
            _, time, tid, marker, _ = _HEADER.unpack_from(record)
            if marker != FILLER:
                yield Record(time, self.cpu, tid, marker, record[RECORD_SIZE:])

    def _committed(self, data: bytes, consumed: int, reserved: int) -> list[tuple[int, int]]:
        """Start and end of each record up to the first that is still being written."""
        spans = []
        position = consumed
        while position < reserved:
            (word,) = _U64.unpack_from(data, position - consumed)
            # 0 is no commit word: at position 0 it would look like one of a record of no size.
            if not word or word >> 16 != position & (1 << 48) - 1:
                break
            end = position + (word & 0xFFFF) * _WORD
            if not position < end <= reserved:
                self.damaged += 1
                self._give_back(reserved)
                return []
            spans.append((position, end))
            position = end
        return spans

    def _copy(self, start: int, end: int) -> bytes:
        """The bytes of these positions, unwrapped."""
        at = start % self._size
        size = end - start
        first = self._store.read(self._data + at, min(size, self._size - at))
        if len(first) == size:
            return first
        return first + self._store.read(self._data, size - len(first))

    def _word(self, offset: int) -> int:
        (value,) = _U64.unpack(self._store.read(self._head + offset, _WORD))
        return int(value)

    def _reserved(self) -> int:
        return self._word(RING_RESERVED)

    def _give_back(self, position: int) -> None:
        self._store.write(self._head + RING_CONSUMED, _U64.pack(position))
