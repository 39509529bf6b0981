"""The records of a packet as the events of a CTF packet, and back; layout.py has the differences.
numpy converts all records of a packet at once.

Viewers refuse a whole trace for one event that does not fit its description, or is older than the
one before. So the fields of each record are checked once more here. Records that do not fit are
left out, and counted.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from markerjit.ring.batch import Packet
from markerjit.ring.by_marker import ByMarker
from markerjit.ring.find import find_records
from markerjit.ring.starts import behind, indices
from markerjit.ring.types import HEAD, WORD, Head, RecordType, Time
from markerjit.ring.walk import least_words
from markerjit.trace.ctf.layout import content_end
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Starts

_U32 = np.dtype("<u4")
_U64 = np.dtype("<u8")
_TOO_MUCH = 0xFFFF


class Records(NamedTuple):
    """Records one behind the other.

    data    uint64: their words
    where   where each record starts in these
    sizes   uint32: the words of each record
    times   uint64: the time of each record less the clock's base; None where records have no time
    """

    data: Array
    where: Starts
    sizes: Array
    times: Array | None

    @property
    def starts(self) -> Array:
        """The start of each record, as an array."""
        return indices(self.where)

    @property
    def size(self) -> int:
        return len(self.sizes)

    @property
    def first(self) -> int:
        """The time of the first; 0 where they have none."""
        return 0 if self.times is None else int(self.times[0])

    @property
    def last(self) -> int:
        return 0 if self.times is None else int(self.times[-1])

    def before(self, time: int) -> int:
        """Number of records older than `time`. The records must be in order."""
        return 0 if self.times is None else int(self.times.searchsorted(_U64.type(time)))

    def hold(self, count: int, time: int) -> None:
        """Give the first `count` records another time."""
        if self.times is not None:
            self.times[:count] = time

    def take(self, selection: Array | slice) -> Records:
        """The records with these numbers, in that order."""
        sizes = self.sizes[selection]
        ends = np.cumsum(sizes, dtype=np.int64)
        starts = ends - sizes
        total = int(ends[-1]) if len(ends) else 0
        words = np.repeat(self.starts[selection] - starts, sizes) + np.arange(total)
        times = None if self.times is None else self.times[selection]
        return Records(self.data[words], starts, sizes, times)

    def in_order(self) -> Records:
        """The same records in order of time."""
        if self.times is None or not (self.times[1:] < self.times[:-1]).any():
            return self
        return self.take(np.argsort(self.times, kind="stable"))


class Codec:
    """Converts records of the types of a trace.

    base    is subtracted from their times
    limit   times that are not below it, less the base, are damage: viewers cannot show them
    head    how the heads of the records are divided
    """

    def __init__(
        self, types: Iterable[RecordType], time: Time, base: int, limit: int, *, head: Head = HEAD
    ) -> None:
        self._types = {type_.id: type_ for type_ in types}
        self._least = least_words(self._types)
        fixed = {type_.id: type_.size // WORD for type_ in self._types.values()}
        self._fixed = ByMarker(fixed, np.uint32, others=_TOO_MUCH, filler=_TOO_MUCH)
        self._texts = [type_ for type_ in self._types.values() if type_.has_text]
        self._timed = time is not Time.NONE
        self._base = _U64.type(base & (1 << 64) - 1)
        self._limit = _U64.type(limit)
        self._head = head

    def take_apart(self, packet: Packet) -> tuple[Records, int]:
        """The sound records of a packet, without words that no field needs, and the number of the
        others."""
        data, where, whole = self._parsed(packet)
        heads = data.view(_U32)[::2][where]
        markers, sizes = self._head.marker(heads), self._head.words(heads)
        times = data[behind(where, 1)] - self._base if self._timed else None
        records = Records(data, where, sizes, times)
        needed = self._needed(records, markers)
        fits = times is None or not len(times) or times.max() < self._limit
        if whole and fits and (needed == sizes).all():
            return records, 0
        sound = needed <= sizes
        if times is not None:
            sound &= times < self._limit
        records = records._replace(sizes=needed).take(np.flatnonzero(sound))
        heads = self._head.pack(markers[sound], records.sizes)
        records.data.view(_U32)[::2][records.where] = heads
        return records, len(sound) - records.size + (not whole)

    def earliest(self, packet: Packet) -> int | None:
        """The least time in a packet, as recorded; None where there is none."""
        data, where, _ = self._parsed(packet)
        times = data[behind(where, 1)] if self._timed else data[:0]
        return int(times.min()) if len(times) else None

    def encode(self, records: Records) -> Array:
        """The bytes of a CTF packet: the first two words exchanged, and the time less the base."""
        if records.times is None:
            return records.data
        data = records.data.copy()
        data[behind(records.where, 1)] = records.data[records.where]
        data[records.where] = records.times
        return data

    def content(self, records: Records) -> int:
        """Number of bytes of these records that are content."""
        start = len(records.data) - int(records.sizes[-1])
        last = records.data[start:].tobytes()
        type_ = self._types[self._head.marker(int.from_bytes(last[:4], "little"))]
        return start * WORD + content_end(type_, last)

    def decode(self, cpu: int, ring: int, data: bytes) -> Packet | None:
        """The packet as it was recorded; None where the bytes are not a packet of ours."""
        words = np.frombuffer(data, _U64)
        if not self._timed:
            whole = find_records(words, self._least, self._head)[1]
            return Packet(cpu, ring, data, head=self._head) if whole else None
        # From its second word on it looks like records, up to the last, which lacks a word.
        heads = np.append(words[1:], _U64.type(0))
        where, whole = find_records(heads, self._least, self._head)
        if not whole:
            return None
        out = words.copy()
        out[where] = words[behind(where, 1)]
        out[behind(where, 1)] = words[where] + self._base
        return Packet(cpu, ring, out.tobytes(), head=self._head)

    def _parsed(self, packet: Packet) -> tuple[Array, Starts, bool]:
        """A packet's words, where its records start, and whether they make up all of it."""
        words = np.frombuffer(packet.data, _U64)
        if packet.starts is None:
            return words, *find_records(words, self._least, self._head)
        return words, packet.starts, True

    def _needed(self, records: Records, markers: Array) -> Array:
        """The words that the fields of each record need, by the lengths that texts say."""
        needed = self._fixed.of(markers)
        for type_ in self._texts:
            numbers = np.flatnonzero(markers == type_.id)
            if len(numbers):
                needed[numbers] = _with_texts(type_, records, numbers)
        return needed


def _with_texts(type_: RecordType, records: Records, numbers: Array) -> Array:
    """The words that the records of these numbers need, which are of one type: more than a record
    has where a text leads out of it."""
    halves = records.data.view(_U32)
    starts, ends = records.starts[numbers] * 2, records.sizes[numbers].astype(np.int64) * WORD
    at = np.full(len(numbers), type_.head_size, np.int64)
    for place in type_.places:
        size = int(place.code[1]) if place.code else WORD
        at = (at + size - 1) & -size
        if not place.code:
            inside = at + WORD <= ends
            lengths = halves[starts + np.where(inside, at // 4, 0)].astype(np.int64)
            at += np.where(inside, lengths, 1 << 32)
            at = (at + WORD - 1) & -WORD
        at += size
    return np.minimum((at + WORD - 1) // WORD, _TOO_MUCH)
