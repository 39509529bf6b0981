"""Where the records are in bytes that were copied out of a ring.

A record says its size, so each is found from the one before; numpy cannot do that, but it can do
this, and in nearly all blocks of pages it is enough:

  1  if the pages begin with the same header, look whether all records have it: one comparison
  2  if not, take every word for a header, keep what could be one, and look whether each of these
     ends where the next one starts; then they are the records, and once more without those to which
     no other leads: a number that looks like a header
  3  if not, go from record to record

Nothing here is believed. A record of an unknown marker, of no size, smaller than its marker's
smallest, or one that goes over its page's end or over the end of what was copied, ends the walk of
its page; what is left of that page is skipped and counted as damage. What is in a record is not
looked at (columns.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from markerjit.abi import PAGE
from markerjit.ring.batch import Packet
from markerjit.ring.starts import starts_of
from markerjit.ring.types import FILLER, WORD, RecordType

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_WORDS = PAGE // WORD
_UNKNOWN = 0xFFFF
"""The least words of a record of an unknown marker: no record has so many."""
_ANY = np.ones(1 << 16, np.uint16)
"""As the least words of every marker: for records whose lengths are known to be right."""
_BLOCK = 128 * _WORDS
"""So much at a time that all we make of it stays in the cache."""
_ROOM = np.tile(np.arange(_WORDS, 0, -1, dtype=np.uint16), _BLOCK // _WORDS)
"""For each word of a block the words that are left of its page."""


class Walked(NamedTuple):
    """Bytes of one ring, and where in them the records are.

    first       the number of the first of these records in its ring
    starts      int64: where each record starts, in words, in order; fillers are left out
    markers     uint16
    damaged     how often the rest of a page was skipped
    """

    cpu: int
    ring: int
    first: int
    data: bytes
    starts: Array
    markers: Array
    damaged: int

    @property
    def words(self) -> Array:
        """The size of each record, in words: uint16."""
        return np.frombuffer(self.data, np.uint16)[1::4][self.starts]

    def counts(self) -> dict[int, int]:
        """How many records there are of each marker that has some."""
        counts = np.bincount(self.markers)
        return {int(marker): int(counts[marker]) for marker in np.flatnonzero(counts)}


def least_words(types: Mapping[int, RecordType]) -> Array:
    """The least words of a record, by the marker's id."""
    least = np.full(1 << 16, _UNKNOWN, np.uint16)
    for marker, type_ in types.items():
        least[marker] = type_.size // WORD
    least[FILLER] = 1
    return least


def walk(
    data: bytes, start: int, least: Array, *, cpu: int = 0, ring: int = 0, first: int = 0
) -> Walked:
    """Find the records in what was copied from position `start` on."""
    data, raw = _whole_words(data)
    found, damaged = [np.empty(0, np.intp)], 0
    at, ahead = 0, start // WORD % _WORDS  # of the first page something may not be there
    while at < len(raw):
        block = raw[at : at + _BLOCK - ahead]
        starts, skipped = _walk_block(block, ahead, least)
        found.append(starts + at)
        damaged += skipped
        at, ahead = at + len(block), 0
    return _walked(Packet(cpu, ring, data), first, raw, np.concatenate(found), damaged)


def walk_packet(packet: Packet, least: Array, *, first: int = 0) -> Walked:
    """Find the records in a packet. It has no pages: a record may be larger than one, if it was not
    made by a recorder, and what is behind damage is lost."""
    data, raw = _whole_words(packet.data)
    starts = _alike(raw.reshape(1, -1), least) if len(raw) else raw.astype(np.intp)
    damaged = 0
    if starts is None:
        left = np.arange(len(raw), 0, -1)
        room = np.minimum(left, _UNKNOWN - 1).astype(np.uint16)
        starts, damaged = _follow(raw, room, left, least)
    return _walked(packet._replace(data=data), first, raw, starts, damaged)


def walk_shared(packet: Packet, least: Array) -> Walked:
    """Find the records in what came out of a shared ring. Each says truly how long it is; those
    that are too short for their marker are left out."""
    walked = walk_packet(packet, _ANY)
    fits = walked.words >= least[walked.markers]
    if fits.all():
        return walked
    return walked._replace(
        starts=walked.starts[fits],
        markers=walked.markers[fits],
        damaged=walked.damaged + int((~fits).sum()),
    )


def packet(walked: Walked) -> Packet:
    """The records alone, one behind the other; the very bytes where there is nothing else."""
    data, starts, words = walked.data, walked.starts, walked.words
    if int(words.sum(dtype=np.int64)) * WORD < len(data):
        ends = starts + words
        gaps = np.flatnonzero(starts[1:] != ends[:-1])
        firsts = starts[np.append(0, gaps + 1)] if len(starts) else starts
        lasts = ends[np.append(gaps, -1)] if len(starts) else ends
        runs = zip((firsts * WORD).tolist(), (lasts * WORD).tolist(), strict=True)
        view = memoryview(data)
        data = b"".join([view[start:end] for start, end in runs])
    return Packet(walked.cpu, walked.ring, data, starts_of(words))


def _whole_words(data: bytes) -> tuple[bytes, Array]:
    data = data[: len(data) & -WORD]
    return data, np.frombuffer(data, np.uint64)


def _walked(packet: Packet, first: int, raw: Array, starts: Array, damaged: int) -> Walked:
    markers = raw.view(np.uint16)[::4][starts]
    fillers = markers == FILLER
    if fillers.any():
        starts, markers = starts[~fillers], markers[~fillers]
    return Walked(packet.cpu, packet.ring, first, packet.data, starts, markers, damaged)


def _walk_block(raw: Array, ahead: int, least: Array) -> tuple[Array, int]:
    """Where records and fillers start in pages, the first of which lacks as many words as `ahead`;
    and how often the rest of a page was skipped."""
    over = (ahead + len(raw)) % _WORDS
    if not ahead and not over:
        starts = _alike(raw.reshape(-1, _WORDS), least)
        if starts is not None:
            return starts, 0
    room = _ROOM[ahead : ahead + len(raw)]
    if over:
        last = min(over, len(raw))
        room = np.append(room[:-last], np.arange(last, 0, -1, dtype=np.uint16))
    return _follow(raw, room, room, least)


def _alike(pages: Array, least: Array) -> Array | None:
    """Where records start, if all have the same header and a page has as many as it has room for;
    None if not. Of fillers, which may be behind them, it does not say where they start."""
    heads = pages.view(np.uint32)[:, ::2]
    head, size = int(heads[0, 0]), heads.shape[1]
    words = head >> 16
    if not max(1, least[head & 0xFFFF]) <= words <= min(size, _UNKNOWN - 1):
        return None
    end = size // words * words
    filler = FILLER | (size - end) << 16
    if (heads[:, end - words] != head).any() or (end < size and (heads[:, end] != filler).any()):
        return None
    if (heads[:, :end:words] != head).any():
        return None
    starts: Array = np.arange(0, pages.size, size)[:, np.newaxis] + np.arange(0, end, words)
    return starts.ravel()


def _follow(raw: Array, room: Array, left: Array, least: Array) -> tuple[Array, int]:
    """Where records and fillers start, and how often all words that were `left` were skipped."""
    headers = raw.view(np.uint16)
    words = headers[1::4].copy()
    likely = words >= least.take(headers[::4])
    likely &= words <= room
    starts = np.flatnonzero(likely)
    for _ in range(2):
        ends = starts + words[starts]
        if np.array_equal(np.append(starts, len(raw)), np.append(0, ends)):
            return starts, 0
        led_to = np.zeros(len(raw) + 1, np.bool_)
        led_to[0] = led_to[ends] = True
        starts = starts[led_to[starts]]
    return _follow_singly((words * likely).tolist(), left)


def _follow_singly(words: list[int], left: Array) -> tuple[Array, int]:
    starts, skipped, at = [], 0, 0
    while at < len(words):
        if words[at]:
            starts.append(at)
            at += words[at]
        else:
            skipped += 1
            at += int(left[at])
    return np.array(starts, np.intp), skipped
