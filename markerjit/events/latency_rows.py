"""Latencies by key: the sums of each key as rows of durations."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from markerjit.events.aggregates import KeyValue, key_values, more, with_stacks_in
from markerjit.events.latencies import Latencies, LatencyRow, by_key
from markerjit.questions.aggregates import KeyPart
from markerjit.questions.buckets import Sketch
from markerjit.questions.latencies import SCALE, WORDS
from markerjit.sites.names import SUFFIX
from markerjit.unwind.frames import WalkedStack

_NOTHING = (0,) * WORDS


def rows_of(
    now: Mapping[bytes, tuple[int, ...]],
    before: Mapping[bytes, tuple[int, ...]] | None,
    key: Sequence[KeyPart],
    names: Sequence[bool] = (),
) -> list[LatencyRow]:
    """The durations of each key, those that had the most time first; of an interval, where there
    are sums of its beginning. `names` says which parts of the key are names of returns: they become
    those of the functions."""
    rows = []
    for words, sums in now.items():
        earlier = _NOTHING if before is None else before.get(words, _NOTHING)
        since = tuple(map(more, sums[:-1], earlier[:-1]))
        counts = {at: count for at, count in enumerate(since[:-1]) if count}
        longest = sums[-1] if before is None else None
        if counts:
            rows.append(
                LatencyRow(_values(words, key, names), Sketch(SCALE, counts), since[-1], longest)
            )
    return sorted(rows, key=lambda row: -row.sum_ns)


def row_of_key(words: bytes, key: Sequence[KeyPart], names: Sequence[bool] = ()) -> LatencyRow:
    """A key without times."""
    return LatencyRow(_values(words, key, names), Sketch(SCALE, {}), 0, None)


def _values(words: bytes, key: Sequence[KeyPart], names: Sequence[bool]) -> tuple[KeyValue, ...]:
    return tuple(
        value.removesuffix(SUFFIX) if is_name and isinstance(value, str) else value
        for value, is_name in zip(key_values(words, key), names or [False] * len(key), strict=True)
    )


def with_stacks(
    latencies: Latencies,
    parts: Sequence[KeyPart],
    stack_of: Callable[[int], WalkedStack | None],
) -> Latencies:
    """The same with stacks in the place of their numbers, of which a stack may have several."""
    rows = (row._replace(key=with_stacks_in(row.key, parts, stack_of)) for row in latencies.rows)
    return latencies._replace(rows=by_key(rows))
