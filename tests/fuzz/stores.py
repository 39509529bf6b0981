"""Memory for fuzzing: it counts, and it refuses what lies outside of the given spans.

An image's memory answers such a read with MemoryFault, as a process does: the addresses come out of
the image itself, and it may claim any. A ring's store fails the test instead: the reader knows how
large the ring is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from markerjit.abi import RING_BEGUN, RING_HEAD, RING_LIMIT, Geometry
from markerjit.errors import MemoryFault
from markerjit.model import RemoteAddress


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

    `at` counts words: first those of the head, in the order of RINGS_WORDS, then the ring's.
    """

    after_read: int
    at: int
    word: int


RINGS_WORDS = (RING_HEAD, RING_LIMIT, RING_BEGUN)


class HostileRing:
    """One ring of an arena, whose target goes on writing while it is read.

    head_seen, limit_seen  what the reader has last read there
    limits                 what it has written as its limit, in order
    """

    def __init__(
        self,
        geometry: Geometry,
        ring: int,
        words: Sequence[int],
        data: bytes,
        changes: Sequence[Change] = (),
    ) -> None:
        assert len(data) == geometry.ring_size
        self._head = geometry.head_offset(ring)
        self._start = geometry.ring_offset(ring)
        self._words = dict(zip(RINGS_WORDS, words, strict=True))
        self._data = bytearray(data)
        self._changes = changes
        self.reads = 0
        self.head_seen = self.limit_seen = 0
        self.limits: list[int] = []

    def read(self, offset: int, size: int) -> bytes:
        data = self._read(offset, size)
        self.reads += 1
        for change in self._changes:
            if change.after_read == self.reads:
                self._change(change)
        return data

    def write(self, offset: int, data: bytes) -> None:
        word = int.from_bytes(data, "little")
        assert len(data) == 8
        assert offset - self._head in (RING_LIMIT, RING_BEGUN), "not the reader's to write"
        self._words[offset - self._head] = word
        if offset - self._head == RING_LIMIT:
            self.limits.append(word)

    def _read(self, offset: int, size: int) -> bytes:
        if offset - self._head in RINGS_WORDS and size == 8:
            word = self._words[offset - self._head]
            if offset == self._head + RING_HEAD:
                self.head_seen = word
            if offset == self._head + RING_LIMIT:
                self.limit_seen = word
            return word.to_bytes(8, "little")
        start = offset - self._start
        assert 0 <= start <= start + size <= len(self._data), "outside of the ring"
        return bytes(self._data[start : start + size])

    def _change(self, change: Change) -> None:
        if change.at < len(RINGS_WORDS):
            self._words[RINGS_WORDS[change.at]] = change.word
            return
        at = (change.at - len(RINGS_WORDS)) * 8 % len(self._data)
        self._data[at : at + 8] = change.word.to_bytes(8, "little")
