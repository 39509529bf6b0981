"""Memory for fuzzing: it counts, and it refuses what lies outside of the given spans.

An image's memory answers such a read with MemoryFault, as a process does: the addresses come out of
the image itself, and it may claim any. A ring's store fails the test instead: the reader knows how
large the ring is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markerjit.errors import MemoryFault
from markerjit.model import RemoteAddress
from markerjit.ring.layout import RING_CONSUMED, RING_DATA, Geometry


class SpannedMemory:
    """Spans of zeros, with contents put over them. Reads are counted, and so are their bytes."""

    def __init__(self, spans: Iterable[range], contents: Iterable[tuple[int, bytes]]) -> None:
        self._spans = list(spans)
        self._contents = list(contents)
        self.reads = 0
        self.read_bytes = 0

    def read(self, address: RemoteAddress, size: int) -> bytes:
        assert size >= 0, "a read of a negative size"
        self.reads += 1
        if not any(span.start <= address <= address + size <= span.stop for span in self._spans):
            raise MemoryFault(address, size, "read", "outside of the spans")
        self.read_bytes += size
        data = bytearray(size)
        for start, content in self._contents:
            first, end = max(address, start), min(address + size, start + len(content))
            if first < end:
                data[first - address : end - address] = content[first - start : end - start]
        return bytes(data)


class Change(NamedTuple):
    """What the target does after the reader's nth read: a word of its own, at `at`.

    `at` counts words: 0 is `reserved`, 1 is `consumed`, the others are the ring.
    """

    after_read: int
    at: int
    word: int


class HostileRing:
    """One ring of an arena, whose target goes on writing while it is read.

    reserved_seen, consumed_seen  what the reader has last read of the head
    given_back                    what it has written to `consumed`, in order
    """

    def __init__(
        self,
        geometry: Geometry,
        ring: int,
        head: tuple[int, int],
        data: bytes,
        changes: Sequence[Change] = (),
    ) -> None:
        assert len(data) == geometry.ring_size
        self._head = geometry.ring_offset(ring)
        self._words = list(head)
        self._data = bytearray(data)
        self._changes = changes
        self.reads = 0
        self.reserved_seen = self.consumed_seen = 0
        self.given_back: list[int] = []

    def read(self, offset: int, size: int) -> bytes:
        found = self._read(offset - self._head, size)
        self.reads += 1
        for change in self._changes:
            if change.after_read == self.reads:
                self._change(change)
        return found

    def write(self, offset: int, data: bytes) -> None:
        assert (offset, len(data)) == (self._head + RING_CONSUMED, 8), "not the reader's to write"
        position = int.from_bytes(data, "little")
        assert position <= self.reserved_seen, "`consumed` beyond `reserved`"
        if self.consumed_seen <= self.reserved_seen:
            assert position >= self.consumed_seen, "`consumed` went backwards"
        self._words[1] = position
        self.given_back.append(position)

    def _read(self, at: int, size: int) -> bytes:
        if (at, size) == (0, 8):
            self.reserved_seen = self._words[0]
            return self.reserved_seen.to_bytes(8, "little")
        if (at, size) == (RING_CONSUMED, 8):
            self.consumed_seen = self._words[1]
            return self.consumed_seen.to_bytes(8, "little")
        start = at - RING_DATA
        assert 0 <= start <= start + size <= len(self._data), "outside of the ring"
        return bytes(self._data[start : start + size])

    def _change(self, change: Change) -> None:
        if change.at < 2:
            self._words[change.at] = change.word
            return
        at = (change.at - 2) * 8 % len(self._data)
        self._data[at : at + 8] = change.word.to_bytes(8, "little")
