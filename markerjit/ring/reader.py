"""Taking records out of a shared ring, while the target writes them.

The reader believes nothing in a ring. Every size and position is checked; what does not fit is
skipped, up to the position that the writer has reserved, and counted. The reader never blocks the
writer: a full ring loses records, and the runtime counts them.

Reading takes two steps in two system calls:

  1  copy what has been reserved, and follow the commit words (D) as far as records are committed
  2  copy those bytes again: whatever was written before a commit word (C in shared.c) is in the
     second copy for certain, whatever order the first copy was made in

Only then is the space given back, by moving `limit`. A CPU's own ring needs none of this: drain.py
reads it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from markerjit.abi import PAGE, RING_BEGUN, Geometry
from markerjit.ring.batch import Packet
from markerjit.ring.raw import Growth, RawRing, Span, Store, always
from markerjit.ring.types import HEAD, WORD, Head

if TYPE_CHECKING:
    from markerjit.ring.batch import Array
    from markerjit.ring.by_marker import ByMarker
    from markerjit.ring.walk import Walked

_U64 = struct.Struct("<Q")
_ZEROS = bytes(PAGE)


class SharedRing(RawRing):
    """Reads the shared ring of one CPU. Call `start` or `resume` first.

    damaged     number of times that the ring made no sense
    bad         number of records that made no sense and were left out
    """

    def __init__(
        self,
        store: Store,
        geometry: Geometry,
        cpu: int,
        ring_size: int,
        *,
        is_ours: Callable[[], bool] = always,
        division: Head = HEAD,
        growth: Growth | None = None,
    ) -> None:
        self._division = division
        self.cpu = cpu
        self.ring = geometry.cpus + cpu
        self.damaged = self.bad = 0
        head, data = geometry.head_offset(self.ring), geometry.ring_offset(self.ring)
        super().__init__(store, head, data, ring_size, is_ours=is_ours, growth=growth)

    def pieces(self, span: Span) -> Iterator[tuple[int, bytes]]:
        """The records of a span, also behind one that is not committed, and the position of each
        piece. Nothing is consumed."""
        for start, end in span.pieces():
            spans, _, _ = _committed(self._copy(start, end), start, end, last=True)
            records, _ = _records(self._copy(start, end), spans, self._division)
            if records:
                yield start, records

    def take(self, *, last: bool = False) -> Iterator[tuple[int, bytes]]:
        """All records that are committed now, oldest first, in pieces, without their commit words.
        Each record's own size is right. The `last` time, the reader does not stop at a record that
        is not committed: it counts that record as damage, and takes the records behind it. A piece
        is given back before the next one is copied. Ends early if another reader has taken the
        ring."""
        reserved = self._head()
        fits = 0 <= reserved - self.consumed <= self._size
        if not fits or self.consumed % WORD or reserved % WORD:
            self.damaged += 1
            self._give_back(reserved & -WORD)
            return
        self._note_head(reserved, may_grow=not last)  # then an unfinished record may be passed
        for piece in Span(self.consumed, reserved).pieces():
            before = self._copy(*piece)
            spans, end, damaged = _committed(before, *piece, last=last)
            self.damaged += damaged
            if end == piece.start:
                return
            data = self._copy(piece.start, end)
            if not self._give_back(end):
                return
            records, bad = _records(data, spans, self._division)
            self.bad += bad
            if records:
                yield piece.start, records
            if end < piece.end:
                return

    def walk(self, taken: tuple[int, bytes], least: ByMarker) -> Walked:
        """The records in a piece. `least`: walk.least_words"""
        from markerjit.ring.walk import walk_shared

        packet = Packet(self.cpu, self.ring, taken[1], head=self._division)
        walked = walk_shared(packet, least)
        self.bad += walked.damaged
        return walked

    def picture(self) -> tuple[int, bytes]:
        """The content of a ring in overwrite mode, whose writers go on meanwhile, and the position
        where it starts."""
        first, begun = self._head(), self._word(RING_BEGUN)
        if first < begun or (first | begun) % WORD:
            self.damaged += 1
            return first, b""
        oldest = max(begun, first - self._size)
        before = self._copy(oldest, first)
        data = self._copy(oldest, first)
        # A writer that reserves up to here may be writing, a lap later, in the pages before.
        safe = max(0, -(-(self._head() + PAGE) // PAGE) * PAGE - self._size)
        kept = b""
        for page in range(oldest // PAGE * PAGE, first, PAGE):
            start, end = max(page, oldest), min(page + PAGE, first)
            if start < safe:
                continue
            part = slice(start - oldest, end - oldest)
            spans = _spans(before, oldest, start, end) - (start - oldest) // WORD
            kept += _records(data[part], spans, self._division)[0]
        return oldest, kept


def _committed(data: bytes, consumed: int, reserved: int, *, last: bool) -> tuple[Array, int, int]:
    """Start and end of each record up to the first that is still being written, in words of the
    data; the position of that; and the number of damaged places that were passed. The records are
    found by their commit words, which say what no size in a record can: that it is complete."""
    import numpy as np

    runs: list[Array] = []
    at, damaged = consumed, 0
    while at < reserved:
        run = _spans(data, consumed, at, reserved)
        broken = len(run) > 0 and not run[-1, 0] < run[-1, 1] <= (reserved - consumed) // WORD
        runs.append(run[:-1] if broken else run)
        at = consumed + int(runs[-1][-1, 1]) * WORD if len(runs[-1]) else at
        if at == reserved or not (broken or last):
            break
        damaged += 1
        at = _next_committed(data, consumed, at + WORD, reserved)
    return np.concatenate(runs) if runs else _spans(data, consumed, at, at), at, damaged


def _spans(data: bytes, first: int, start: int, end: int) -> Array:
    """Start and end of each committed record from position `start` on, in words of the data, which
    begins at position `first`. A record that cannot be is the last one.

    What looks like a commit word may stand inside a record, too. So the records are followed from
    the first one on, but all that come right behind each other in one step.
    """
    import numpy as np

    at, behind = (start - first) // WORD, (end - first) // WORD
    words = np.frombuffer(data, np.uint64)[at:behind]
    positions = np.arange(at, behind, dtype=np.uint64) * WORD + np.uint64(first % (1 << 64))
    # 0 is not a commit word: at position 0 it would look like that of a record of size 0.
    likely = (words >> np.uint64(16) == positions & np.uint64((1 << 48) - 1)) & (words != 0)
    starts = np.flatnonzero(likely)
    ends = starts + (words[starts] & np.uint64(0xFFFF)).astype(np.intp)
    starts, ends = starts + at, ends + at
    # Records that are not followed by something that looks like the next record.
    stops = np.flatnonzero(np.append(starts[1:], -1) != ends)
    runs: list[Array] = [np.empty((0, 2), np.intp)]
    while at < behind:
        index = int(np.searchsorted(starts, at))
        if index == len(starts) or starts[index] != at:
            break
        stop = int(stops[np.searchsorted(stops, index)])
        runs.append(np.stack([starts[index : stop + 1], ends[index : stop + 1]], axis=1))
        at = int(ends[stop])
        if not starts[stop] < at:
            break
    return np.concatenate(runs)


def _next_committed(data: bytes, first: int, start: int, end: int) -> int:
    """The position of the next committed record; the end where there is none."""
    position = start
    while position < end:
        (word,) = _U64.unpack_from(data, position - first)
        after = position + (word & 0xFFFF) * WORD
        if word and word >> 16 == position & (1 << 48) - 1 and position < after <= end:
            return position
        # Mostly all is zeros: a gigabyte, where an empty ring claims to be full.
        position += PAGE if data.startswith(_ZEROS, position - first) else WORD
    return end


def _records(data: bytes, spans: Array, division: Head) -> tuple[bytes, int]:
    """The records of these spans, in words of the data, without fillers and without records that
    have another size than their commit word says. And the number of the latter."""
    import numpy as np

    words = np.frombuffer(data, np.uint64)
    can_be = (spans[:, 1] - spans[:, 0] > 1) & (spans[:, 1] <= len(words))
    starts, ends = spans[can_be].T
    heads = words.view(np.uint32)[::2][starts + 1]
    is_filler = division.marker(heads) == division.filler
    fits = division.words(heads) == ends - starts - 1
    edges = np.zeros(len(words) + 1, np.int8)
    edges[starts[fits & ~is_filler] + 1] = 1
    edges[ends[fits & ~is_filler]] = -1
    inside = np.cumsum(edges[:-1], dtype=np.int8) > 0
    return words[inside].tobytes(), int((~fits & ~is_filler).sum())
