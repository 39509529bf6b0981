"""Where the records are in bytes that were copied out of a ring.

A record has its size, so the start of each follows from the one before. numpy cannot follow such a
chain. It tries these in turn, and the first two are enough in nearly all blocks of pages:

  1  If the pages begin with the same header, compare all headers with it.
  2  Take every word for a header, and keep those that could be one. If each of these records ends
     where the next one starts, they are the records. Otherwise drop those that no other record
     leads to, which are numbers that look like a header, and compare once more.
  3  Go from record to record.

Nothing here is believed. A record of an unknown marker, of no size, smaller than the smallest of
its marker, or one that crosses the end of its page or of the bytes, ends the walk of its page. The
rest of that page is skipped and counted as damage. The fields of a record are not checked here
(decode.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from markerjit.abi import PAGE
from markerjit.ring.batch import Packet
from markerjit.ring.by_marker import ByMarker
from markerjit.ring.starts import starts_of
from markerjit.ring.types import HEAD, WORD, Head, RecordType
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_WORDS = PAGE // WORD
_UNKNOWN = 0xFFFF
"""The least words of a record of an unknown marker: no record has so many."""
_ANY = ByMarker({}, np.uint16, others=1, filler=1)
"""The least words of every marker, for records whose lengths are known to be right."""
_COUNTED_IN_A_TABLE = 1 << 14
"""Ids below this are counted in a table, which is faster than sorting while it is in the cache."""
_BLOCK = 128 * _WORDS
"""Words that are walked at a time: all that is made of them stays in the cache."""
_ROOM = np.tile(np.arange(_WORDS, 0, -1, dtype=np.uint16), _BLOCK // _WORDS)
"""For each word of a block, the words from there to the end of its page."""


class Walked(NamedTuple):
    """Bytes of one ring, and where in them the records are.

    first       number of the first of these records in its ring
    starts      int64: where each record starts, in words, in order, without fillers
    markers     uint32: the id of each record's marker
    damaged     number of pages whose rest was skipped
    head        how the heads of the records are divided
    """

    cpu: int
    ring: int
    first: int
    data: bytes
    starts: Array
    markers: Array
    damaged: int
    head: Head

    @property
    def words(self) -> Array:
        """The size of each record, in words: uint32."""
        return self.head.words(np.frombuffer(self.data, np.uint32)[::2][self.starts])

    def counts(self) -> dict[int, int]:
        """Number of records, by marker."""
        markers = self.markers
        if not len(markers):
            return {}
        if markers.max() < _COUNTED_IN_A_TABLE:
            counts = np.bincount(markers)
            markers = np.flatnonzero(counts)
            return dict(zip(markers.tolist(), counts[markers].tolist(), strict=True))
        markers, counts = np.unique(markers, return_counts=True)
        return dict(zip(markers.tolist(), counts.tolist(), strict=True))


def least_words(
    types: Mapping[int, RecordType], others: Mapping[int, int] | None = None
) -> ByMarker:
    """The least words of a record, by its marker: of these types, and of `others` as they say."""
    words = dict(others or {})
    words.update((marker, type_.size // WORD) for marker, type_ in types.items())
    return ByMarker(words, np.uint16, others=_UNKNOWN, filler=1)


def walk(
    data: bytes,
    start: int,
    least: ByMarker,
    *,
    cpu: int = 0,
    ring: int = 0,
    first: int = 0,
    head: Head = HEAD,
) -> Walked:
    """The records in bytes that were copied from position `start` of a ring on.

    least   as `least_words` makes it
    first   number of the first record in its ring
    head    how the heads of the records are divided
    """
    data, raw = _whole_words(data)
    blocks, damaged = [np.empty(0, np.intp)], 0
    at = 0
    ahead = start // WORD % _WORDS  # words of the first page that were not copied
    while at < len(raw):
        block = raw[at : at + _BLOCK - ahead]
        starts, skipped = _walk_block(block, ahead, least, head)
        blocks.append(starts + at)
        damaged += skipped
        at, ahead = at + len(block), 0
    return _walked(Packet(cpu, ring, data, head=head), first, raw, np.concatenate(blocks), damaged)


def walk_packet(packet: Packet, least: ByMarker, *, first: int = 0) -> Walked:
    """The records in a packet. A packet has no pages: a record that no recorder has made may be
    larger than one, and records behind damage are lost."""
    data, raw = _whole_words(packet.data)
    head = packet.head
    starts = _alike(raw.reshape(1, -1), least, head) if len(raw) else raw.astype(np.intp)
    damaged = 0
    if starts is None:
        rest = np.arange(len(raw), 0, -1)
        room = np.minimum(rest, _UNKNOWN - 1).astype(np.uint16)
        starts, damaged = _follow(raw, room, rest, least, head)
    return _walked(packet._replace(data=data), first, raw, starts, damaged)


def walk_shared(packet: Packet, least: ByMarker) -> Walked:
    """The records in a packet from a shared ring, whose reader has checked their sizes. Records
    that are too short for their marker are left out."""
    walked = _walk_even(packet) or walk_packet(packet, _ANY)
    fits = walked.words >= least.of(walked.markers)
    if fits.all():
        return walked
    return walked._replace(
        starts=walked.starts[fits],
        markers=walked.markers[fits],
        damaged=walked.damaged + int((~fits).sum()),
    )


def _walk_even(packet: Packet) -> Walked | None:
    """The records in a packet, if all have one size; None otherwise."""
    data, raw = _whole_words(packet.data)
    heads = raw.view(np.uint32)[::2]
    size = int(packet.head.words(heads[0])) if len(heads) else 0
    if not size or len(raw) % size or (packet.head.words(heads[::size]) != size).any():
        return None
    return _walked(packet._replace(data=data), 0, raw, np.arange(0, len(raw), size), 0)


def packet(walked: Walked) -> Packet:
    """The records alone, one behind the other. The bytes are not copied where they are nothing but
    records."""
    data, starts, words = walked.data, walked.starts, walked.words
    if int(words.sum(dtype=np.int64)) * WORD < len(data):
        ends = starts + words
        gaps = np.flatnonzero(starts[1:] != ends[:-1])
        firsts = starts[np.append(0, gaps + 1)] if len(starts) else starts
        lasts = ends[np.append(gaps, -1)] if len(starts) else ends
        runs = zip((firsts * WORD).tolist(), (lasts * WORD).tolist(), strict=True)
        view = memoryview(data)
        data = b"".join([view[start:end] for start, end in runs])
    return Packet(walked.cpu, walked.ring, data, starts_of(words), walked.head)


def _whole_words(data: bytes) -> tuple[bytes, Array]:
    data = data[: len(data) & -WORD]
    return data, np.frombuffer(data, np.uint64)


def _walked(packet: Packet, first: int, raw: Array, starts: Array, damaged: int) -> Walked:
    head = packet.head
    markers = head.marker(raw.view(np.uint32)[::2][starts])
    fillers = markers == head.filler
    if fillers.any():
        starts, markers = starts[~fillers], markers[~fillers]
    return Walked(packet.cpu, packet.ring, first, packet.data, starts, markers, damaged, head)


def _walk_block(raw: Array, ahead: int, least: ByMarker, division: Head) -> tuple[Array, int]:
    """Where records and fillers start in pages, and how often the rest of a page was skipped. The
    first page lacks its first `ahead` words."""
    over = (ahead + len(raw)) % _WORDS
    if not ahead and not over:
        starts = _alike(raw.reshape(-1, _WORDS), least, division)
        if starts is not None:
            return starts, 0
    room = _ROOM[ahead : ahead + len(raw)]
    if over:
        last = min(over, len(raw))
        room = np.append(room[:-last], np.arange(last, 0, -1, dtype=np.uint16))
    return _follow(raw, room, room, least, division)


def _alike(pages: Array, least: ByMarker, division: Head) -> Array | None:
    """Where records start, if all have the same header and each page is full of them; None
    otherwise. Fillers at the ends of pages are passed over."""
    heads = pages.view(np.uint32)[:, ::2]
    head, size = int(heads[0, 0]), heads.shape[1]
    words = division.words(head)
    if not max(1, int(least.of(heads[0, :1], division)[0])) <= words <= min(size, _UNKNOWN - 1):
        return None
    end = size // words * words
    filler = division.pack(division.filler, size - end)
    if (heads[:, end - words] != head).any() or (end < size and (heads[:, end] != filler).any()):
        return None
    if (heads[:, :end:words] != head).any():
        return None
    starts: Array = np.arange(0, pages.size, size)[:, np.newaxis] + np.arange(0, end, words)
    return starts.ravel()


def _follow(
    raw: Array, room: Array, rest: Array, least: ByMarker, division: Head
) -> tuple[Array, int]:
    """Where records and fillers start, and how often the rest of a page or packet was skipped.

    room    the most words that a record may have, for each word where it may start
    rest    the words that are skipped from there where no record can start
    """
    heads = raw.view(np.uint32)[::2]
    words = division.words(heads).astype(np.uint16)
    likely = words >= least.of(heads, division)
    likely &= words <= room
    starts = np.flatnonzero(likely)
    for _ in range(2):
        ends = starts + words[starts]
        if np.array_equal(np.append(starts, len(raw)), np.append(0, ends)):
            return starts, 0
        led_to = np.zeros(len(raw) + 1, np.bool_)
        led_to[0] = led_to[ends] = True
        starts = starts[led_to[starts]]
    return _follow_singly((words * likely).tolist(), rest)


def _follow_singly(words: list[int], rest: Array) -> tuple[Array, int]:
    starts, skipped, at = [], 0, 0
    while at < len(words):
        if words[at]:
            starts.append(at)
            at += words[at]
        else:
            skipped += 1
            at += int(rest[at])
    return np.array(starts, np.intp), skipped
