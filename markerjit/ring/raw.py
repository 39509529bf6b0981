"""The bytes of one ring and the words at its head, as a reader sees them from outside.

Two positions, which count bytes since the trace began and never wrap: the head, written by the
target, and the limit, written by the reader. What is read is not believed here, only copied.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

from markerjit.abi import NO_LIMIT, PAGE, RING_BEGUN, RING_HEAD, RING_LIMIT
from markerjit.ring.types import WORD

_U64 = struct.Struct("<Q")
_TAKEN = 128 * PAGE
"""So much is copied at a time, whatever a ring claims to hold. A record is in one page, and so in
one piece."""


class Store(Protocol):
    """The arena's bytes: a memfd, or the target's memory where there is no descriptor."""

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes."""

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`."""


class Span(NamedTuple):
    """Positions in a ring: from `start` up to, and without, `end`."""

    start: int
    end: int

    def pieces(self) -> Iterator[Span]:
        """In pieces that a cache holds, each but the last up to the end of a page."""
        at = self.start
        while at < self.end:
            end = min(at // _TAKEN * _TAKEN + _TAKEN, self.end)
            yield Span(at, end)
            at = end


def always() -> bool:
    """For a reader whom nobody can take the rings from."""
    return True


class RawRing:
    """One ring of an arena: where its head and its bytes are, and how many.

    consumed    up to where the ring has been read. The reader's own: the limit in the arena says
                the same, until another reader has taken the rings
    is_ours     whether they are still ours, asked before a limit is moved: a reader that was
                stopped for longer than its lease comes back to somebody else's
    """

    def __init__(
        self,
        store: Store,
        head_offset: int,
        data_offset: int,
        ring_size: int,
        *,
        is_ours: Callable[[], bool] = always,
    ) -> None:
        self.consumed = 0
        self._store = store
        self._place = head_offset
        self._data = data_offset
        self._size = ring_size
        self._is_ours = is_ours

    def start(self, at: int | None = None, *, overwrite: bool = False) -> None:
        """Begin with what is recorded from now on, or from position `at` on; with `overwrite` as a
        flight recorder, whose newest is kept and which nobody reads."""
        self.consumed = self._head() & -WORD if at is None else at
        self._store.write(self._place + RING_BEGUN, _U64.pack(self.consumed))
        self._set_limit(NO_LIMIT if overwrite else self.consumed + self._size)

    def resume(self) -> None:
        """Go on where an earlier reader stopped. Of a flight recorder, which has had no reader,
        everything is there to be read by `picture`."""
        limit = self._word(RING_LIMIT)
        self.consumed = 0 if limit == NO_LIMIT else (limit - self._size) & NO_LIMIT

    def unread(self) -> Span:
        """What an earlier reader left; nothing, at the head, of a flight recorder, or where the
        ring makes no sense."""
        limit, head = self._word(RING_LIMIT), self._head() & -WORD
        start = limit - self._size
        if limit == NO_LIMIT or not 0 <= start <= head <= limit or start % WORD:
            return Span(head, head)
        return Span(start, head)

    def _give_back(self, end: int) -> bool:
        """What was copied is the target's again. False where the ring is another reader's by now:
        then the copy may be of what came in its place."""
        if not self._is_ours():
            return False
        self.consumed = end
        self._set_limit(end + self._size)
        return True

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

    def _set_limit(self, position: int) -> None:
        self._store.write(self._place + RING_LIMIT, _U64.pack(position & NO_LIMIT))
