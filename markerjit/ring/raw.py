"""The bytes of one ring and the words at its head, as a reader sees them from outside.

Two positions, which count bytes since the trace began and never wrap: the head, written by the
target, and the limit, written by the reader. What is read is not believed here, only copied.
"""

from __future__ import annotations

import struct
from typing import Protocol

from markerjit.ring.layout import NO_LIMIT, RING_BEGUN, RING_HEAD, RING_LIMIT

_U64 = struct.Struct("<Q")


class Store(Protocol):
    """The arena's bytes: a memfd, or the target's memory where there is no descriptor."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes."""

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`."""


class RawRing:
    """One ring of an arena: where its head and its bytes are, and how many."""

    def __init__(self, store: Store, head_offset: int, data_offset: int, ring_size: int) -> None:
        self._store = store
        self._place = head_offset
        self._data = data_offset
        self._size = ring_size

    def _copy(self, start: int, end: int) -> bytes:
        """The bytes of these positions, unwrapped."""
        at = start % self._size
        size = end - start
        first = self._store.read(self._data + at, min(size, self._size - at))
        if len(first) == size:
            return first
        return first + self._store.read(self._data, size - len(first))

    def _head(self) -> int:
        """The kernel does not promise to copy a word at once. It copies upwards, so one that
        changes meanwhile may seem larger than it ever was, but not smaller; and not twice."""
        return min(self._word(RING_HEAD), self._word(RING_HEAD))

    def _word(self, offset: int) -> int:
        (value,) = _U64.unpack(self._store.read(self._place + offset, _U64.size))
        return int(value)

    def _begin(self, position: int, *, overwrite: bool) -> None:
        """What was recorded before is forgotten; with `overwrite` nobody is to read."""
        self._store.write(self._place + RING_BEGUN, _U64.pack(position))
        self._set_limit(NO_LIMIT if overwrite else position + self._size)

    def _set_limit(self, position: int) -> None:
        self._store.write(self._place + RING_LIMIT, _U64.pack(position & NO_LIMIT))
