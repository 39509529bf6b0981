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

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from markerjit.abi import PAGE, RING_BEGUN
from markerjit.ring.raw import RawRing, Span, Store, always
from markerjit.ring.types import WORD

if TYPE_CHECKING:
    from markerjit.ring.batch import Array
    from markerjit.ring.walk import Walked

_PIECE = 16 * PAGE


class RingDrain(RawRing):
    """Reads one ring; `start` or `resume` comes first.

    damaged     how often the ring, or a page in it, made no sense
    """

    def __init__(
        self,
        store: Store,
        head_offset: int,
        data_offset: int,
        ring_size: int,
        cpu: int,
        ring: int,
        *,
        is_ours: Callable[[], bool] = always,
    ) -> None:
        super().__init__(store, head_offset, data_offset, ring_size, is_ours=is_ours)
        self.cpu = cpu
        self.ring = ring
        self.damaged = 0

    def pieces(self, span: Span) -> Iterator[tuple[int, bytes]]:
        """The bytes of a span, and the position of each piece. Nothing is consumed."""
        for piece in span.pieces():
            yield piece.start, self._copy(*piece)

    def take(self) -> Iterator[tuple[int, bytes]]:
        """What has come since the last time, before anybody has looked at it, in pieces: positions
        and bytes. A piece is given back before the next one is copied. Ends where the ring is
        another reader's by now. Not for a flight recorder."""
        head = self._head()
        if not 0 <= self.consumed <= head <= self.consumed + self._size or (
            head % WORD or self.consumed % WORD
        ):
            self.damaged += 1
            head &= -WORD
            self._give_back(head)
            return
        for piece in Span(self.consumed, head).pieces():
            data = self._copy(*piece)
            if not self._give_back(piece.end):
                return
            yield piece.start, data

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
