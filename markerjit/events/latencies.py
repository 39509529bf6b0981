"""The answers of a latency: its words, added up over CPUs, as values; and the pairs that took
long."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

import markerjit.abi as abi
from markerjit.arena.aggregates import Pairs
from markerjit.arguments import check_is
from markerjit.calls.samples import SampledTree, WeighedStacks
from markerjit.events.aggregates import (
    KeyValue,
    check_stacks,
    key_values,
    more,
    path_of,
)
from markerjit.printable import counted
from markerjit.questions.buckets import Histogram, Scale, Sketch
from markerjit.questions.latencies import SCALE, WORDS, KeptField, Side
from markerjit.questions.types import Type
from markerjit.ring.clock import Calibration
from markerjit.tuples import NamedTuple, brief

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

FieldValue = KeyValue | float
_COARSE = Scale(Type.U64, fine=False)
_NO_GROUPS: Mapping[bytes, tuple[int, ...]] = MappingProxyType({})


class LatencyRow(NamedTuple):
    """The durations of the calls, or pairs, that had this key, nanoseconds. A text of the key that
    was NULL or could not be read is None.

    sketch       of all calls
    sum_ns       and their sum
    longest_ns   the longest one; None of an interval
    names        of the parts of the key that are pointers, and None of the others; () where none is
    """

    key: tuple[KeyValue, ...]
    sketch: Sketch
    sum_ns: int
    longest_ns: int | None
    names: tuple[str | None, ...] = ()

    def __repr__(self) -> str:
        return brief(self)

    @property
    def calls(self) -> int:
        """How many there were."""
        return self.sketch.total

    def plus(self, other: LatencyRow) -> LatencyRow:
        """Merge these durations with another process's for the same key."""
        check_is("other", other, LatencyRow)
        return self._replace(
            sketch=self.sketch.plus(other.sketch),
            sum_ns=self.sum_ns + other.sum_ns,
            longest_ns=_longest(self.longest_ns, other.longest_ns),
        )

    @property
    def histogram(self) -> Histogram:
        """How many calls were in each power of two, of nanoseconds."""
        return _histogram(self.sketch)

    def quantile(self, fraction: float) -> int | None:
        """The duration that this fraction of all calls does not exceed, nanoseconds; None where
        there are none. It differs by at most 2 % from one that was there."""
        return _quantile(self.sketch, fraction)


class Latencies(NamedTuple):
    """The times between begins and ends, in nanoseconds, and what became of begins and ends without
    a pair. For calls of functions, each return is a pair with its own entry.

    sketch       of all pairs
    sum_ns       and their sum
    longest_ns   the longest one; None of an interval
    waiting      begins whose end did not come yet
    replaced     begins that were followed by another begin with the same key
    forgotten    begins that waited for a long time and gave their place to others
    alone        ends without a begin
    full         begins that found no room
    long         begins whose key has too long a text, and those whose key could not be read
    unreadable
    end_long     the same of ends
    end_unreadable
    unshown      pairs that took long and found no room in the list
    end_full     returns of functions whose key found no room
    rows         by key, of calls of functions or of pairs that are divided: those that had the most
                 time in all first
    undivided    pairs that are in no row: their begins found no room for their key, or it had too
                 long a text or could not be read
    """

    sketch: Sketch
    sum_ns: int
    longest_ns: int | None
    waiting: int
    replaced: int
    forgotten: int
    alone: int
    full: int
    long: int
    unreadable: int
    end_long: int
    end_unreadable: int
    unshown: int
    end_full: int = 0
    rows: tuple[LatencyRow, ...] = ()
    undivided: int = 0

    def __repr__(self) -> str:
        longest = "" if self.longest_ns is None else f", the longest {self.longest_ns:,} ns"
        return f"<Latencies of {counted(self.pairs, 'pair')}{longest}>"

    @property
    def pairs(self) -> int:
        """How many there were."""
        return self.sketch.total

    def plus(self, other: Latencies) -> Latencies:
        """Merge these times with another process's."""
        check_is("other", other, Latencies)
        numbers = {
            name: value + getattr(other, name)
            for name, value in self._asdict().items()
            if name not in ("sketch", "longest_ns", "rows")
        }
        return self._replace(
            sketch=self.sketch.plus(other.sketch),
            longest_ns=_longest(self.longest_ns, other.longest_ns),
            rows=by_key((*self.rows, *other.rows)),
            **numbers,
        )

    def stacks(self, title: str = "") -> WeighedStacks:
        """The stacks of the keys, each with the nanoseconds of all its pairs or calls. What else is
        in a key stands above the stack. Raises BadArgument where no key has a stack."""
        check_is("title", title, str)
        tree = SampledTree()
        for row in self.rows:
            tree.add(path_of(row.key), row.sum_ns)
        check_stacks("latencies", self.rows)
        return WeighedStacks(tree.nodes, "ns", title)

    @property
    def begins(self) -> int:
        """All begins: of pairs, and without an end."""
        lost = self.replaced + self.forgotten + self.full + self.long + self.unreadable
        return self.pairs + self.waiting + lost

    @property
    def ends(self) -> int:
        """All ends: of pairs, and without a begin."""
        lost = self.alone + self.end_long + self.end_unreadable + self.end_full
        return self.pairs + lost

    @property
    def histogram(self) -> Histogram:
        """How many pairs were in each power of two, of nanoseconds."""
        return _histogram(self.sketch)

    def quantile(self, fraction: float) -> int | None:
        """The time that this fraction of all pairs does not exceed, nanoseconds; None where there
        are none. It differs by at most 2 % from one that was there."""
        return _quantile(self.sketch, fraction)


def by_key(rows: Iterable[LatencyRow]) -> tuple[LatencyRow, ...]:
    """Merge the rows with the same key; those with the most time in all come first."""
    known: dict[tuple[KeyValue, ...], LatencyRow] = {}
    for row in rows:
        before = known.get(row.key)
        known[row.key] = before.plus(row) if before else row
    return tuple(sorted(known.values(), key=lambda row: -row.sum_ns))


def _longest(left: int | None, right: int | None) -> int | None:
    return max(left, right) if left is not None and right is not None else None


def _histogram(sketch: Sketch) -> Histogram:
    counts: dict[int, int] = {}
    for number, count in sketch.counts.items():
        low, _ = SCALE.bounds(number)
        counts[int(low).bit_length()] = counts.get(int(low).bit_length(), 0) + count
    return Histogram(_COARSE, counts)


def _quantile(sketch: Sketch, fraction: float) -> int | None:
    value = sketch.quantile(fraction)
    return None if value is None else int(value)


class PairEnd(NamedTuple):
    """One end of a pair that took long. `tid` is 0 where it is not known."""

    name: str
    tid: int
    fields: Mapping[str, FieldValue]


class SlowPair(NamedTuple):
    """A pair that took long. `time` is when it began, CLOCK_MONOTONIC nanoseconds, and `unix_ns`
    the same since 1970. Where the times are divided, `key` and `names` are those of its row; the
    key is () where there was no room for it."""

    time: int
    unix_ns: int
    took_ns: int
    begin: PairEnd
    end: PairEnd
    key: tuple[KeyValue, ...] = ()
    names: tuple[str | None, ...] = ()

    def __repr__(self) -> str:
        return brief(self)


Divided = Mapping[int, LatencyRow]
"""Keys, by the numbers that rows of slow pairs have for them."""
UNDIVIDED: Divided = MappingProxyType({})


class Sums(NamedTuple):
    """The words of a latency, added up over CPUs, and over groups; and those of each group."""

    missed: tuple[int, ...]
    buckets: tuple[int, ...]
    sum_ns: int
    longest_ns: int
    waiting: int
    groups: Mapping[bytes, tuple[int, ...]] = _NO_GROUPS


def sums_by_key(
    table: npt.NDArray[np.uint64], keys: Iterable[tuple[bytes, int]]
) -> dict[bytes, tuple[int, ...]]:
    """The sums over all rings, of which `table` has the words, by key. A key may have two
    numbers."""
    sums: dict[bytes, tuple[int, ...]] = {}
    for key, number in keys:
        start = abi.MISSED + number * WORDS
        columns = table[:, start : start + WORDS]
        row = [*columns[:, :-1].sum(axis=0).tolist(), int(columns[:, -1].max())]
        if before := sums.get(key):
            row = [
                *map(sum, zip(before[:-1], row[:-1], strict=True)),
                max(before[-1], row[-1]),
            ]
        sums[key] = tuple(row)
    return sums


def sums_of(pairs: Pairs) -> Sums:
    """The sums over all rings."""
    import numpy as np

    table = np.array([np.frombuffer(ring, np.uint64) for ring in pairs.rings])
    words = table[:, abi.MISSED :].reshape(-1, WORDS)
    sums = words.sum(axis=0).tolist()
    return Sums(
        tuple(table[:, : abi.MISSED].sum(axis=0).tolist()),
        tuple(sums[: SCALE.size]),
        int(sums[-2]),
        int(words[:, -1].max()),
        pairs.waiting,
        sums_by_key(table, ((key, number + 1) for key, number in pairs.keys)),
    )


def latencies_of(now: Sums, before: Sums | None = None) -> Latencies:
    """What the sums say; of an interval, where there are sums of its beginning."""
    missed, buckets, total = now.missed, now.buckets, now.sum_ns
    if before is not None:
        missed = tuple(map(more, missed, before.missed))
        buckets = tuple(map(more, buckets, before.buckets))
        total = more(total, before.sum_ns)
    counts = {number: count for number, count in enumerate(buckets) if count}
    return Latencies(
        Sketch(SCALE, counts),
        total,
        now.longest_ns if before is None else None,
        now.waiting,
        missed[abi.MISSED_REPLACED],
        missed[abi.MISSED_FORGOTTEN],
        missed[abi.MISSED_ALONE],
        missed[abi.MISSED_FULL],
        missed[abi.MISSED_LONG],
        missed[abi.MISSED_UNREADABLE],
        missed[abi.MISSED_END_LONG],
        missed[abi.MISSED_END_UNREADABLE],
        missed[abi.MISSED_UNSHOWN],
    )


class Known(NamedTuple):
    """A marker of a latency: its name, the fields that are kept of it, and whether it ends a
    pair."""

    name: str
    side: Side
    ends: bool


def slow_pairs(
    rows: Sequence[bytes],
    markers: Mapping[int, Known],
    begin_words: int,
    clock: Calibration,
    divided: Divided = UNDIVIDED,
) -> list[SlowPair]:
    """The pairs in these rows. What makes no sense is left out: the target can write there. The
    fields of a begin have `begin_words` at most, so an end in its place may have more.
    """
    made = []
    for row in rows:
        _, time, took_ns, begin, end = struct.unpack_from("<5Q", row)
        first, last = markers.get(begin >> 32), markers.get(end >> 32)
        if first is None or last is None or first.ends or not last.ends:
            continue
        began = clock.monotonic(time)
        begun, ended = begin & 0xFFFFFFFF, end & 0xFFFFFFFF
        at = 8 * abi.SLOW_WORDS
        behind = at + 8 * begin_words
        made.append(
            SlowPair(
                began,
                began + clock.wall_offset_ns,
                took_ns,
                PairEnd(first.name, begun, fields_of(row[at:behind], first.side.fields)),
                PairEnd(last.name, ended, fields_of(row[behind:], last.side.fields)),
                *key_of(row, divided),
            )
        )
    return made


def number_of(row: bytes) -> int:
    """The number of the key of a slow pair; 0 where it has none."""
    return int(struct.unpack_from("<6Q", row)[5])


def key_of(row: bytes, divided: Divided) -> tuple[tuple[KeyValue, ...], tuple[str | None, ...]]:
    """The key of a slow pair, and its names."""
    of_key = divided.get(number_of(row))
    return (of_key.key, of_key.names) if of_key else ((), ())


def fields_of(words: bytes, fields: Sequence[KeptField]) -> dict[str, FieldValue]:
    """The values of fields, from their words."""
    values: dict[str, FieldValue] = {}
    at = 0
    for field in fields:
        piece = words[at : at + 8 * field.part.words]
        at += len(piece)
        if field.part.type is Type.F64:
            values[field.name] = float(struct.unpack("<d", piece)[0])
        else:
            values[field.name] = key_values(piece, [field.part])[0]
    return values
