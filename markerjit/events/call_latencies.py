"""The answers of a latency of functions' calls: its words, added up over CPUs and by key, as
durations; and the calls that took long.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Mapping, Sequence

import markerjit.abi as abi
from markerjit.arena.aggregates import Words
from markerjit.events.aggregates import more
from markerjit.events.latencies import (
    UNDIVIDED,
    Divided,
    Known,
    Latencies,
    PairEnd,
    SlowPair,
    fields_of,
    key_of,
    sums_by_key,
)
from markerjit.events.latency_rows import rows_of
from markerjit.questions.aggregates import KeyPart
from markerjit.questions.buckets import Sketch
from markerjit.questions.latencies import SCALE
from markerjit.ring.clock import Calibration
from markerjit.sites.names import SUFFIX
from markerjit.tuples import NamedTuple


class SumsOfCalls(NamedTuple):
    """The words of a latency of calls, added up over CPUs: what was missed, and the words of each
    key."""

    missed: tuple[int, ...]
    keys: Mapping[bytes, tuple[int, ...]]


def sums_of_calls(words: Words) -> SumsOfCalls:
    """The sums over all rings, by key."""
    import numpy as np

    table = np.array([np.frombuffer(ring, np.uint64) for ring in words.rings])
    missed = tuple(table[:, : abi.MISSED].sum(axis=0).tolist())
    return SumsOfCalls(missed, sums_by_key(table, words.keys))


def latencies_of_calls(
    now: SumsOfCalls, before: SumsOfCalls | None, key: Sequence[KeyPart], names: Sequence[bool]
) -> Latencies:
    """What the sums of calls say; of an interval, where there are sums of its beginning. `names`
    says which parts of the key are names of returns: they become those of the functions."""
    missed = now.missed
    if before is not None:
        missed = tuple(map(more, missed, before.missed))
    rows = rows_of(now.keys, None if before is None else before.keys, key, names)
    counted: Counter[int] = Counter()
    for row in rows:
        counted.update(row.sketch.counts)
    longest_ns = None
    if before is None:
        longest_ns = max((row.longest_ns or 0 for row in rows), default=0)
    return Latencies(
        Sketch(SCALE, dict(counted)),
        sum(row.sum_ns for row in rows),
        longest_ns,
        *(0,) * 6,
        unreadable=0,
        end_long=missed[abi.MISSED_END_LONG],
        end_unreadable=missed[abi.MISSED_END_UNREADABLE],
        unshown=missed[abi.MISSED_UNSHOWN],
        end_full=missed[abi.MISSED_FULL],
        rows=tuple(rows),
    )


def slow_calls(
    rows: Sequence[bytes],
    markers: Mapping[int, Known],
    clock: Calibration,
    divided: Divided = UNDIVIDED,
) -> list[SlowPair]:
    """The calls in these rows: their entries with the arguments, and their returns. What makes no
    sense is left out."""
    made = []
    for row in rows:
        _, time, took_ns, _, end = struct.unpack_from("<5Q", row)
        returned = markers.get(end >> 32)
        if returned is None:
            continue
        began = clock.monotonic(time) - took_ns
        fields = fields_of(row[8 * abi.SLOW_WORDS :], returned.side.fields)
        names = [field.name for field in returned.side.fields]
        tid, results = end & 0xFFFFFFFF, names[: returned.side.results]
        given = {name: value for name, value in fields.items() if name not in results}
        made.append(
            SlowPair(
                began,
                began + clock.wall_offset_ns,
                took_ns,
                PairEnd(returned.name.removesuffix(SUFFIX), tid, given),
                PairEnd(returned.name, tid, {name: fields[name] for name in results}),
                *key_of(row, divided),
            )
        )
    return made
