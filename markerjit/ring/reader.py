"""Taking records out of a shared ring, while the target writes them.

The reader never believes a ring: every size and position is checked, and what does not fit is
skipped up to what the writer has reserved, and counted. It never blocks the writer: a ring that is
full loses records, which the runtime counts.

Reading takes two steps in two system calls:

  1  copy what has been reserved, and follow the commit words (D) as far as records are committed
  2  copy those bytes again: whatever was written before a commit word (C in shared.c) is in the
     second copy for certain, whatever order the first copy was made in

and only then is the space given back, by moving `limit`. A CPU's own ring needs none of this:
drain.py.
"""

from __future__ import annotations

import struct

from markerjit.ring.layout import NO_LIMIT, PAGE, RING_BEGUN, RING_LIMIT, Geometry
from markerjit.ring.raw import RawRing, Store
from markerjit.ring.types import FILLER

_U64 = struct.Struct("<Q")
_WORD = 8


class SharedRing(RawRing):
    """Reads the shared ring of one CPU. `damaged` counts how often its contents made no sense,
    `bad` the records that did not and were left out."""

    def __init__(self, store: Store, geometry: Geometry, cpu: int, ring_size: int) -> None:
        self.cpu = cpu
        self.ring = geometry.cpus + cpu
        self.damaged = self.bad = 0
        head, data = geometry.head_offset(self.ring), geometry.ring_offset(self.ring)
        super().__init__(store, head, data, ring_size)

    def start(self, *, overwrite: bool = False) -> bytes:
        """Begin with what is recorded from now on; with `overwrite` as a flight recorder. Returns
        what is forgotten: the records that `poll` would have found."""
        forgotten, begun = self._unread()
        self._begin(begun, overwrite=overwrite)
        return forgotten

    def unread(self) -> bytes:
        """The records that an earlier reader left; none of a flight recorder, or where the ring
        makes no sense. Nothing is consumed."""
        return self._unread()[0]

    def _unread(self) -> tuple[bytes, int]:
        """And where what has been reserved ends."""
        limit, end = self._word(RING_LIMIT), self._head() & -_WORD
        start = limit - self._size
        if limit == NO_LIMIT or not 0 <= start < end <= limit or start % _WORD:
            return b"", end
        spans, _, _ = _committed(self._copy(start, end), start, end, last=True)
        return _records(self._copy(start, end), start, spans)[0], end

    def poll(self, *, last: bool = False) -> bytes:
        """All records that are committed now, oldest first, without their commit words: each says
        truly how long it is. The `last` poll does not stop at one that is not committed: it counts
        it as damage, and takes what is behind."""
        reserved = self._head()
        consumed = (self._word(RING_LIMIT) - self._size) % (1 << 64)
        fits = 0 <= reserved - consumed <= self._size
        if not fits or consumed % _WORD or reserved % _WORD:
            self.damaged += 1
            self._set_limit(reserved + self._size)
            return b""
        if reserved == consumed:
            return b""
        before = self._copy(consumed, reserved)
        spans, end, damaged = _committed(before, consumed, reserved, last=last)
        self.damaged += damaged
        if end == consumed:
            return b""
        data = self._copy(consumed, end)
        self._set_limit(end + self._size)
        kept, bad = _records(data, consumed, spans)
        self.bad += bad
        return kept

    def picture(self) -> bytes:
        """What is in a ring in overwrite mode, whose writers go on meanwhile."""
        first, begun = self._head(), self._word(RING_BEGUN)
        if first < begun or (first | begun) % _WORD:
            self.damaged += 1
            return b""
        oldest = max(begun, first - self._size)
        before = self._copy(oldest, first)
        data = self._copy(oldest, first)
        # Whoever reserves up to here may be writing, a lap later, in the pages before.
        safe = max(0, -(-(self._head() + PAGE) // PAGE) * PAGE - self._size)
        kept = b""
        for page in range(oldest // PAGE * PAGE, first, PAGE):
            start, end = max(page, oldest), min(page + PAGE, first)
            if start < safe:
                continue
            part = slice(start - oldest, end - oldest)
            kept += _records(data[part], start, _spans(before, oldest, start, end))[0]
        return kept


def _committed(
    data: bytes, consumed: int, reserved: int, *, last: bool
) -> tuple[list[tuple[int, int]], int, int]:
    """Start and end of each record up to the first that is still being written, where that is, and
    how much damage was passed: a record that cannot be is left out."""
    spans: list[tuple[int, int]] = []
    at, damaged = consumed, 0
    while at < reserved:
        found = _spans(data, consumed, at, reserved)
        broken = bool(found) and not found[-1][0] < found[-1][1] <= reserved
        spans += found[:-1] if broken else found
        at = spans[-1][1] if spans and spans[-1][1] > at else at
        if at == reserved or not (broken or last):
            break
        damaged += 1
        at = _next_committed(data, consumed, at + _WORD, reserved)
    return spans, at, damaged


def _spans(data: bytes, first: int, start: int, end: int) -> list[tuple[int, int]]:
    """Start and end of each committed record from `start` on; the data begins at `first`. One that
    cannot be ends the list, as the last."""
    spans = []
    position = start
    while position < end:
        (word,) = _U64.unpack_from(data, position - first)
        # 0 is no commit word: at position 0 it would look like one of a record of no size.
        if not word or word >> 16 != position & (1 << 48) - 1:
            break
        after = position + (word & 0xFFFF) * _WORD
        spans.append((position, after))
        if not position < after <= end:
            break
        position = after
    return spans


def _next_committed(data: bytes, first: int, start: int, end: int) -> int:
    """Where the next record is that is committed; the end if there is none."""
    for position in range(start, end, _WORD):
        (word,) = _U64.unpack_from(data, position - first)
        after = position + (word & 0xFFFF) * _WORD
        if word and word >> 16 == position & (1 << 48) - 1 and position < after <= end:
            return position
    return end


def _records(data: bytes, first: int, spans: list[tuple[int, int]]) -> tuple[bytes, int]:
    """The records of these spans that say themselves that they are so long; no fillers. And how
    many do not."""
    found, bad = [], 0
    for start, end in spans:
        record = data[start - first + _WORD : end - first]
        if not record or int.from_bytes(record[:2], "little") == FILLER:
            continue
        if int.from_bytes(record[2:4], "little") * _WORD == len(record):
            found.append(record)
        else:
            bad += 1
    return b"".join(found), bad
