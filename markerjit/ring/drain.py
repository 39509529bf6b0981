"""Reading the bytes of a ring while the target writes to it.

The head of a ring has two positions, which count bytes since the trace began and never wrap:

    head    written by the target: records are complete up to here. The target stores the records
            first, and x86 keeps the order of stores, so data read after the head is not older
    limit   written by the reader: the target stops here. It is the consumed position plus the size
            of the ring, or the largest number for a flight recorder, which has no reader and
            overwrites its oldest records

Neither the reader nor the writer ever waits for the other. The reader trusts nothing: an impossible
head is counted as damage, and reading continues from there. walk.py checks the records. It needs
numpy, and is imported only when there are records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from markerjit.abi import PAGE, RING_BEGUN
from markerjit.ring.raw import Growth, RawRing, Span, Store, always
from markerjit.ring.types import HEAD, WORD, Head

if TYPE_CHECKING:
    from markerjit.ring.by_marker import ByMarker
    from markerjit.ring.walk import Walked

_PIECE = 16 * PAGE


class RingDrain(RawRing):
    """Reads one ring. Call `start` or `resume` first. `division` says how the heads of its records
    are divided.

    damaged     how often the ring, or a page in it, was inconsistent
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
        division: Head = HEAD,
        growth: Growth | None = None,
    ) -> None:
        super().__init__(store, head_offset, data_offset, ring_size, is_ours=is_ours, growth=growth)
        self._division = division
        self.cpu = cpu
        self.ring = ring
        self.damaged = 0

    def pieces(self, span: Span) -> Iterator[tuple[int, bytes]]:
        """The bytes of a span, in pieces, each with its position. Nothing is consumed."""
        for piece in span.pieces():
            yield piece.start, self._copy(*piece)

    def take(self) -> Iterator[tuple[int, bytes]]:
        """The unchecked bytes since the last call, in pieces, each with its position.

        A piece is given back to the target before the next one is copied. Ends early where another
        reader has taken the ring. Not for a flight recorder.
        """
        head = self._head()
        if not 0 <= self.consumed <= head <= self.consumed + self._size or (
            head % WORD or self.consumed % WORD
        ):
            self.damaged += 1
            head &= -WORD
            self._give_back(head)
            return
        self._note_head(head)
        for piece in Span(self.consumed, head).pieces():
            data = self._copy(*piece)
            if not self._give_back(piece.end):
                return
            yield piece.start, data

    def walk(self, taken: tuple[int, bytes], least: ByMarker) -> Walked:
        """The records in a piece. `least` is from walk.least_words."""
        from markerjit.ring.walk import walk

        start, data = taken
        walked = walk(data, start, least, cpu=self.cpu, ring=self.ring, head=self._division)
        self.damaged += walked.damaged
        return walked

    def picture(self) -> tuple[int, bytes]:
        """The contents of a flight recorder, behind the position of their first byte.

        Nothing is consumed. The target continues to write, so the newest bytes, which are
        overwritten last, are copied first, piece by piece. The head is read again after each piece.
        The target may have written to the page of the head, and to the next page where its record
        did not fit. The bytes that those two pages replaced end the picture.
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
