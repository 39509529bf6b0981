"""Taking bytes out of one ring while the target writes to it.

At the ring's head are two positions, which count bytes since the trace began and never wrap:

    head    written by the target: records are complete up to here. It stores the records first, and
            x86 shows stores in their order, so what is read after the head is not older
    limit   written by the reader: the target stops here. What was consumed and the size of the
            ring; for a flight recorder, where nobody consumes and the oldest is overwritten, the
            largest number

The reader never waits for the writer nor the writer for the reader. It believes nothing: a head
that cannot be is counted as damage, and reading goes on from it. What the records say is checked
by the walk (walk.py), which is only imported when there are some: it needs numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from markerjit.ring.layout import NO_LIMIT, PAGE, RING_BEGUN, RING_LIMIT
from markerjit.ring.raw import RawRing, Store
from markerjit.ring.types import WORD

if TYPE_CHECKING:
    from markerjit.ring.batch import Array
    from markerjit.ring.walk import Walked

_PIECE = 16 * PAGE
_TAKEN = 128 * PAGE
"""A record is in one page, and so in one piece."""


class RingDrain(RawRing):
    """Reads one ring; `start` or `resume` comes first.

    consumed    up to where the ring has been read
    damaged     how often the ring, or a page in it, made no sense
    """

    def __init__(
        self, store: Store, head_offset: int, data_offset: int, ring_size: int, cpu: int, ring: int
    ) -> None:
        super().__init__(store, head_offset, data_offset, ring_size)
        self.cpu = cpu
        self.ring = ring
        self.consumed = 0
        self.damaged = 0

    def start(self, *, overwrite: bool = False) -> tuple[int, bytes]:
        """Begin with what is recorded from now on; with `overwrite` as a flight recorder. Returns
        what is forgotten, as `unread` does."""
        forgotten = self.unread()
        self.consumed = forgotten[0] + len(forgotten[1])
        self._begin(self.consumed, overwrite=overwrite)
        return forgotten

    def unread(self) -> tuple[int, bytes]:
        """What an earlier reader left, and the position where it begins; nothing of a flight
        recorder, or where the ring makes no sense. Nothing is consumed."""
        limit, head = self._word(RING_LIMIT), self._head() & -WORD
        start = limit - self._size
        if limit == NO_LIMIT or not 0 <= start <= head <= limit or start % WORD:
            return head, b""
        return start, self._copy(start, head)

    def resume(self) -> None:
        """Go on where an earlier reader stopped. Of a flight recorder, which has had no reader,
        everything is there to be read by `picture`."""
        limit = self._word(RING_LIMIT)
        self.consumed = 0 if limit == NO_LIMIT else limit - self._size

    def take(self) -> Iterator[tuple[int, bytes]]:
        """What has come since the last time, before anybody has looked at it, in pieces that a
        cache holds: positions and bytes. A piece is given back before the next one is copied. Not
        for a flight recorder."""
        head = self._head()
        if not 0 <= self.consumed <= head <= self.consumed + self._size or (
            head % WORD or self.consumed % WORD
        ):
            self.damaged += 1
            head = self.consumed = head & -WORD
            self._set_limit(head + self._size)
        while self.consumed < head:
            start, end = self.consumed, min(self.consumed // _TAKEN * _TAKEN + _TAKEN, head)
            data = self._copy(start, end)
            self.consumed = end
            self._set_limit(end + self._size)
            yield start, data

    def walk(self, taken: tuple[int, bytes], least: Array) -> Walked:
        """The records in a piece. `least`: walk.least_words"""
        from markerjit.ring.walk import walk

        start, data = taken
        walked = walk(data, start, least, cpu=self.cpu, ring=self.ring)
        self.damaged += walked.damaged
        return walked

    def picture(self) -> tuple[int, bytes]:
        """What a flight recorder holds, and the position where that begins. Nothing is consumed.

        The target goes on writing. So the newest is copied first, which is overwritten last, piece
        by piece; and after each piece the head is read again. The target may have written to the
        page of that, and where its record did not fit there, to the next: what these have taken the
        place of ends the picture.
        """
        head = at = self._head()
        oldest = max(head - self._size, self._word(RING_BEGUN))
        if oldest > head or head % WORD or oldest % WORD:
            self.damaged += 1
            return head, b""
        pieces: list[bytes] = []
        while at > oldest:
            start = max((at - 1) // _PIECE * _PIECE, oldest)
            data = self._copy(start, at)
            after = self._head()
            if after < head:
                self.damaged += 1
                return head, b""
            untouched = (after + 2 * PAGE - 1) // PAGE * PAGE - self._size
            late = min(max(untouched - start, 0), len(data))
            pieces.append(data[late:])
            at = start + late
            if late:
                break
        return at, b"".join(reversed(pieces))
