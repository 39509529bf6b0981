"""Records as columns of numbers: from what a walk has found (walk.py) to a Columns for each type,
in order of time.

numpy copies fields out of the records, a column at a time. Up to the first text of a record each
field has a fixed place. Behind a text the places are worked out, for all records at once. The walk
has made sure that a record lies within the bytes and has room for its numbers and for empty texts.
A text's own length and state are checked here: a record that has no room for the text is dropped
and counted. A record may be longer than its fields.

Records with Time.NONE are ordered only within each ring, so their columns are in the order of the
rings.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.model import FieldType
from markerjit.ring.batch import Columns, Packet, Texts
from markerjit.ring.columns import gathered, is_sorted
from markerjit.ring.starts import compact
from markerjit.ring.types import HEAD_SIZE, WORD, Head, RecordType, TextState, Time
from markerjit.ring.walk import Walked, least_words, walk_packet
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array, Column, Starts

    Place = tuple[Starts, int]  # of a field in many records: words, and bytes behind them


class Decoded(NamedTuple):
    """The content of records.

    bad     number of records that were dropped, because a text in them cannot be as long as it says
    """

    columns: list[Columns]
    bad: int


def decode(
    packets: Sequence[Packet],
    types: Mapping[int, RecordType],
    *,
    counted: MutableMapping[tuple[int, int], int] | None = None,
) -> list[Columns]:
    """The records of these packets. `counted` is the number of records before them, by (cpu, ring),
    and is brought up to date. It matters for Time.NONE only, where a record's time is its number
    in its ring."""
    least = least_words(types)
    counted = {} if counted is None else counted
    walks = []
    for packet in packets:
        ring = (packet.cpu, packet.ring)
        walks.append(walk_packet(packet, least, first=counted.get(ring, 0)))
        counted[ring] = walks[-1].first + len(walks[-1].starts)
    return columns_of(walks, types).columns


def columns_of(walks: Sequence[Walked], types: Mapping[int, RecordType]) -> Decoded:
    """The records of these walks, a Columns for each type that occurs. The types must share their
    `time`, and the walks must have known them; records of other types are passed over."""
    walks = sorted(
        (walked for walked in walks if len(walked.starts)),
        key=lambda walked: (walked.cpu, walked.ring),
    )
    if not walks:
        return Decoded([], 0)
    numbered = any(type_.time is Time.NONE for type_ in types.values())
    records = _join(walks, numbered=numbered)
    if not numbered and not is_sorted(records.time):
        records = records.pick(np.argsort(records.time, kind="stable"))
    columns, bad = [], 0
    for marker, of_marker in _by_marker(records):
        if marker not in types:
            continue
        part, dropped = _columns(of_marker, types[marker])
        bad += dropped
        if len(part.time):
            columns.append(part)
    return Decoded(columns, bad)


class _Records(NamedTuple):
    """Records of all types and rings.

    data    the bytes of the walks
    starts  where each record starts in these, in words
    head    how the heads of the records are divided
    """

    data: bytes
    starts: Array
    markers: Array
    time: Array
    cpu: Array
    head: Head

    def pick(self, at: Array) -> _Records:
        """The records with these numbers, in this order."""
        _, starts, markers, time, cpu, head = self
        return _Records(self.data, starts[at], markers[at], time[at], cpu[at], head)

    def numbers(self, at: Starts, offset: int, code: str) -> Array:
        """One number of each record, `offset` bytes behind the words `at`."""
        words = np.frombuffer(self.data, np.uint64)[offset // WORD :][at]
        size = int(code[1])
        numbers: Array = np.ascontiguousarray(words).view(code)
        return numbers if size == WORD else numbers[offset % WORD // size :: WORD // size].copy()


def _join(walks: Sequence[Walked], *, numbered: bool) -> _Records:
    """The records of all walks, whose heads are divided alike, in this order. If numbered, their
    number is their time."""
    starts, end = [], 0
    for walked in walks:
        starts.append(walked.starts + end if end else walked.starts)
        end += len(walked.data) // WORD
    counts = [len(walked.starts) for walked in walks]
    records = _Records(
        b"".join([walked.data for walked in walks]),
        _concatenated(starts),
        _concatenated([walked.markers for walked in walks]),
        np.empty(0, np.uint64),
        np.repeat(np.array([walked.cpu for walked in walks], np.uint16), counts),
        walks[0].head,
    )
    if numbered:
        numbers = [np.arange(walked.first, walked.first + len(walked.starts)) for walked in walks]
        return records._replace(time=np.concatenate(numbers).astype(np.uint64))
    return records._replace(time=records.numbers(compact(records.starts), HEAD_SIZE, "u8"))


def _concatenated(arrays: list[Array]) -> Array:
    """The arrays as one. A single array is not copied."""
    return np.concatenate(arrays) if len(arrays) > 1 else arrays[0]


def _by_marker(records: _Records) -> Iterator[tuple[int, _Records]]:
    """The records of each marker, in the order they are in."""
    markers = records.markers
    if (markers == markers[0]).all():
        yield int(markers[0]), records
        return
    order = _order(markers)
    ends = np.flatnonzero(np.diff(markers[order])) + 1
    for rows in np.split(order, ends):
        yield int(markers[rows[0]]), records.pick(rows)


def _order(markers: Array) -> Array:
    """The stable order of ids. numpy sorts numbers of 16 bits by their digits, in linear time, and
    larger ones by comparison, so each half is sorted by itself."""
    order = np.argsort(markers.astype(np.uint16), kind="stable")
    upper = (markers >> 16).astype(np.uint16)
    return order[np.argsort(upper[order], kind="stable")] if upper.any() else order


def _columns(records: _Records, type_: RecordType) -> tuple[Columns, int]:
    """Columns of records that are all of this type, and the number of records dropped."""
    bad = 0
    if type_.has_text:
        places, fits = _places_by_record(records, type_)
        bad = len(fits) - int(np.count_nonzero(fits))
        if bad:
            records = records.pick(fits)
            places, _ = _places_by_record(records, type_)
    at = compact(records.starts)
    if not type_.has_text:
        places = [(at, place.offset) for place in type_.places]
    tid = records.numbers(at, 4, "u4") if type_.tid else np.zeros(len(records.time), np.uint32)
    fields: dict[str, Column] = {}
    for (field, _, code), (base, offset) in zip(type_.places, places, strict=True):
        if not code and not isinstance(base, slice):
            fields[field.name] = _texts(records, base)
            continue
        numbers = records.numbers(base, offset, code)
        fields[field.name] = numbers != 0 if field.type is FieldType.BOOL else numbers
    return Columns(type_, records.time, records.cpu, tid, fields), bad


def _places_by_record(records: _Records, type_: RecordType) -> tuple[list[Place], Array]:
    """Where the fields are, and which records have room for their texts. Until that is known,
    nothing is read outside of a record, whatever its texts say."""
    fits = np.ones(len(records.starts), np.bool_)
    base, offset = records.starts, type_.head_size
    ends = base + records.head.words(np.frombuffer(records.data, np.uint32)[::2][base])
    places: list[Place] = []
    for _, _, code in type_.places:
        size = int(code[1]) if code else WORD
        offset = (offset + size - 1) & -size
        if code:
            places.append((base, offset))
            offset += size
            continue
        at = base + offset // WORD
        fits &= at < ends
        at = np.minimum(at, ends - 1)
        places.append((at, 0))
        length = records.numbers(at, 0, "u4").astype(np.int64)
        fits &= records.numbers(at, 4, "u4") <= max(TextState)
        base, offset = at + 1 + (length + WORD - 1) // WORD, 0
    fits &= base + (offset + WORD - 1) // WORD <= ends
    return places, fits


def _texts(records: _Records, at: Array) -> Texts:
    """The texts whose lengths stand at these words."""
    lengths = records.numbers(at, 0, "u4")
    states = records.numbers(at, 4, "u4").astype(np.uint8)
    data = np.frombuffer(records.data, np.uint8)
    return Texts(*gathered(data, (at + 1) * WORD, lengths), states)
