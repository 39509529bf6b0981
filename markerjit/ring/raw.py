"""The bytes of a ring and the words at its head, as a reader sees them from outside.

There are two positions, which count bytes since the trace began and never wrap: the head, written
by the target, and the limit, written by the reader. This module copies bytes and does not check
them.

A ring can be made twice as large while it is written. Positions that are not read yet are from
`consumed` to the limit, no more than the ring's size S. When all of them are in an even lap, from
2kS to (2k + 1)S, then the masks of S and of 2S mean the same places for each of them. So

  1  the mask is set, by a store of one byte, while the limit is in that lap or at its end
  2  the limit is moved behind the end of the lap

A writer reads the mask after it has read the head (a CPU's own ring) or has moved it (a shared
ring). So a writer whose position is behind the end of the lap has seen the limit of 2, and sees the
mask of 1. A writer that is anywhere before that end may use either mask, however long it is held
up: the reader does not pass a record that is not finished. docs/decisions/0026-growing-rings.md
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

from markerjit.abi import NO_LIMIT, PAGE, RING_BEGUN, RING_HEAD, RING_LIMIT, RING_MASK
from markerjit.ring.types import WORD
from markerjit.tuples import NamedTuple

_U64 = struct.Struct("<Q")
_TAKEN = 128 * PAGE
"""The most bytes that are copied at a time, whatever a ring claims to hold. A record is within a
page, and so within a piece."""


class Store(Protocol):
    """The bytes of an arena: a memfd, or the target's memory where there is no descriptor."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes."""

    def write(self, offset: int, data: bytes) -> None:
        """Write all of `data`."""


class Span(NamedTuple):
    """A range of positions in a ring, from `start` up to but not including `end`."""

    start: int
    end: int

    def pieces(self) -> Iterator[Span]:
        """The span in pieces that fit into a cache. All but the last end at a page boundary."""
        at = self.start
        while at < self.end:
            end = min(at // _TAKEN * _TAKEN + _TAKEN, self.end)
            yield Span(at, end)
            at = end


class Growth:
    """The room by which the rings of a process may grow while they are read.

    largest     the most bytes that a ring can have
    grown       bytes by which they have grown
    """

    def __init__(self, most: int = 0, largest: int = 0) -> None:
        self.largest = largest
        self.grown = 0
        self._left = most

    def take(self, size: int) -> bool:
        """Take so many bytes of the room, if enough is left."""
        if size > self._left:
            return False
        self._left -= size
        self.grown += size
        return True

    def end(self) -> None:
        """Let no ring grow any more."""
        self._left = 0


def always() -> bool:
    """The `is_ours` of a reader whose rings no other reader can take."""
    return True


class RawRing:
    """A ring of an arena, given by the offsets of its head and its bytes, and its size.

    consumed    the position up to which the ring has been read. The reader keeps its own copy: the
                limit in the arena says the same only until another reader takes the rings
    is_ours     whether the rings are still ours. Asked before a limit is moved: a reader that was
                stopped for longer than its lease may have lost them
    growth      room to grow by, for a ring that was found more than half full
    """

    def __init__(
        self,
        store: Store,
        head_offset: int,
        data_offset: int,
        ring_size: int,
        *,
        is_ours: Callable[[], bool] = always,
        growth: Growth | None = None,
    ) -> None:
        self.consumed = 0
        self._store = store
        self._place = head_offset
        self._data = data_offset
        self._size = ring_size
        self._is_ours = is_ours
        self._growth = growth or Growth()
        self._is_behind = False

    @property
    def size(self) -> int:
        """Bytes of the ring."""
        return self._size

    def start(self, at: int | None = None, *, overwrite: bool = False) -> None:
        """Begin at the head, or at position `at`.

        With `overwrite` the ring becomes a flight recorder: it has no reader, and keeps the newest
        records.
        """
        self.consumed = self._head() & -WORD if at is None else at
        self._store.write(self._place + RING_BEGUN, _U64.pack(self.consumed))
        self._set_limit(NO_LIMIT if overwrite else self.consumed + self._size)

    def resume(self) -> None:
        """Continue where an earlier reader stopped.

        A flight recorder has had no reader; `picture` reads all of it.
        """
        limit = self._word(RING_LIMIT)
        self.consumed = 0 if limit == NO_LIMIT else (limit - self._size) & NO_LIMIT

    def unread(self) -> Span:
        """The span that an earlier reader left unread.

        It is empty, at the head, for a flight recorder or an inconsistent ring.
        """
        limit, head = self._word(RING_LIMIT), self._head() & -WORD
        start = limit - self._size
        if limit == NO_LIMIT or not 0 <= start <= head <= limit or start % WORD:
            return Span(head, head)
        return Span(start, head)

    def _give_back(self, end: int) -> bool:
        """Give the bytes up to `end` back to the target. Returns whether the ring is still ours.

        If another reader has taken it, the bytes copied before may already be overwritten ones.
        """
        if not self._is_ours():
            return False
        if self._is_behind:
            self._grow(end)
        self.consumed = end
        self._set_limit(end + self._size)
        return True

    def _note_head(self, head: int, *, may_grow: bool = True) -> None:
        """Note whether the ring is more than half full, and so is to grow."""
        self._is_behind = may_grow and head - self.consumed > self._size // 2

    def _grow(self, end: int) -> None:
        """Make the ring twice as large, if there is room, and if everything from `end` up to the
        limit is in an even lap. This is so when reading enters an even lap, once in two laps. The
        limit is one lap ahead of what was consumed before, so it is not beyond the end of that
        lap."""
        lap = end // (2 * self._size) * (2 * self._size)
        mask = self._size - 1
        if not self.consumed <= lap <= end <= self.consumed + self._size or (
            2 * self._size > self._growth.largest or self._word(RING_MASK) != mask
        ):
            return
        if self._growth.take(self._size):
            # Of the masks of S and 2S one byte differs, so that no writer reads half of a number.
            byte = mask.bit_length() // 8
            value = (2 * self._size - 1).to_bytes(8, "little")[byte : byte + 1]
            self._store.write(self._place + RING_MASK + byte, value)
            self._size *= 2
            self._is_behind = False

    def _copy(self, start: int, end: int) -> bytes:
        """The bytes from position `start` to `end`, unwrapped."""
        at = start % self._size
        size = end - start
        first = self._store.read(self._data + at, min(size, self._size - at))
        if len(first) == size:
            return first
        return first + self._store.read(self._data, size - len(first))

    def _head(self) -> int:
        """The position up to which records are complete.

        The kernel does not promise to copy a word atomically. It copies upwards, so a word that
        changes meanwhile may read too large, but not too small. It is read twice, and the smaller
        value taken: two reads are not both torn.
        """
        return min(self._word(RING_HEAD), self._word(RING_HEAD))

    def _word(self, offset: int) -> int:
        (value,) = _U64.unpack(self._store.read(self._place + offset, _U64.size))
        return int(value)

    def _set_limit(self, position: int) -> None:
        self._store.write(self._place + RING_LIMIT, _U64.pack(position & NO_LIMIT))
