"""Latencies as facts for JSON, and as lines: a histogram of times, quantiles, slow pairs, and the
fate of events that are in no pair.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from markerjit.events.latencies import Latencies, LatencyRow, PairEnd, SlowPair
from markerjit.facts import Json, as_json
from markerjit.facts.aggregates import QUANTILES, histogram_lines, key_facts, key_words
from markerjit.facts.words import duration_words
from markerjit.printable import counted, printable
from markerjit.questions.buckets import Bucket

_LOST = (
    "waiting", "replaced", "forgotten", "alone", "full", "long", "unreadable", "end_long",
    "end_unreadable", "end_full", "unshown",
)  # fmt: skip


def latencies_facts(latencies: Latencies, unseen: int = 0) -> Json:
    """The pairs, and what has become of the other events; of functions' returns, how many were not
    looked at, since their entries were `unseen`."""
    return {
        "pairs": latencies.pairs,
        **_times_facts(latencies),
        "begins": latencies.begins,
        "ends": latencies.ends,
        "unmatched": {name: getattr(latencies, name) for name in _LOST} | {"unseen": unseen},
    }


def row_facts(latencies: Latencies, what: str) -> Json:
    """The times of each key, those that had the most in all first. `what`: "calls" or "pairs"."""
    return {
        "rows": [
            {
                "key": [*map(key_facts, row.key)],
                **({"names": list(row.names)} if row.names else {}),
                what: row.calls,
                **_times_facts(row),
            }
            for row in latencies.rows
        ]
    }


def _times_facts(times: Latencies | LatencyRow) -> Json:
    return {
        "sum_ns": times.sum_ns,
        "longest_ns": times.longest_ns,
        "quantiles_ns": {f"{at:g}": times.quantile(at) for at in QUANTILES},
        "buckets_ns": [bucket._asdict() for bucket in times.histogram.buckets()],
    }


def slow_facts(pair: SlowPair) -> Json:
    """A pair that took long."""
    return {
        "time": pair.time,
        "unix_ns": pair.unix_ns,
        "took_ns": pair.took_ns,
        "begin": _end_facts(pair.begin),
        "end": _end_facts(pair.end),
        **({"key": [*map(key_facts, pair.key)]} if pair.key else {}),
        **({"names": list(pair.names)} if pair.names else {}),
    }


def _end_facts(end: PairEnd) -> Json:
    fields = {name: as_json(value) for name, value in end.fields.items()}
    return {"name": end.name, "tid": end.tid, "fields": fields}


def tail_jump_words(names: Sequence[str]) -> str:
    """Where the time of a call may end before its return."""
    return f"calls of {', '.join(names)} that end by a jump to another function are timed up to it"


# ---- in words ------------------------------------------------------------------------------------


def _range_words(bucket: Bucket) -> str:
    """`1.02 µs … 2.05 µs`: behind the first, up to the second."""
    return f"{duration_words(int(bucket.low))} … {duration_words(int(bucket.high) + 1)}"


ROW_HEADER = ("TOTAL", *(f"{100 * at:g} %" for at in QUANTILES), "LONGEST")
"""Columns of a table, behind those of the key and how many there were."""


def row_cells(row: LatencyRow) -> list[str]:
    """The cells of a row: the number of durations, and the cells below the header."""
    longest = "-" if row.longest_ns is None else duration_words(row.longest_ns)
    quantiles = [duration_words(row.quantile(at)) for at in QUANTILES]
    return [f"{row.calls:,}", duration_words(row.sum_ns), *quantiles, longest]


def latencies_lines(latencies: Latencies, noun: str = "pair") -> Iterator[str]:
    """A histogram, the quantiles, and what is in no pair. `noun` is the word for a pair."""
    yield from histogram_lines(latencies.histogram, _range_words)
    if latencies.pairs:
        quantiles = [
            f"{100 * at:g} %: {duration_words(latencies.quantile(at))}" for at in QUANTILES
        ]
        if latencies.longest_ns is not None:
            quantiles.append(f"longest: {duration_words(latencies.longest_ns)}")
        yield "  ".join(quantiles)
    yield counted(latencies.pairs, noun)
    yield from unmatched_lines(latencies)


def unmatched_lines(latencies: Latencies) -> Iterator[str]:
    """What has become of the events that are in no pair, and what to do about it."""
    begin, end, pair = "begin", "end", "pair"
    for number, noun, rest in (
        (latencies.undivided, pair, "in no row; --keys has room for more, if a key can be read"),
        (latencies.waiting, begin, "without an end so far"),
        (latencies.replaced, begin, "followed by another one with the same key"),
        (latencies.forgotten, begin, "forgotten, after a long time; --forget has them wait longer"),
        (latencies.alone, end, "without a begin"),
        (latencies.full, begin, "left out, without room; --room has room for more"),
        (latencies.long, begin, "left out, whose key is too long; cut it, as in key[:32]"),
        (latencies.end_long, end, "left out, whose key is too long; cut it, as in key[:32]"),
        (latencies.unreadable, begin, "left out, whose memory cannot be read"),
        (latencies.end_unreadable, end, "left out, whose memory cannot be read"),
        (latencies.end_full, "call", "without room for its key; --room has room for more"),
        (latencies.unshown, "slow pair", "not shown: they came faster than they were read"),
    ):
        if number:
            yield f"{counted(number, noun)} {rest}"


def slow_line(pair: SlowPair) -> str:
    """`14:42:54.383  52.1 ms  kv_command name="SET" -> kv_reply size=5`, with the time of day at
    which it began. What divides the times stands before the pair: `[SET]`."""
    seconds, rest = divmod(pair.unix_ns, 10**9)
    clock = time.strftime("%H:%M:%S", time.localtime(seconds))
    begin, end = _end_words(pair.begin), _end_words(pair.end, besides=pair.begin.tid)
    key = f"[{', '.join(key_words(pair.key, pair.names))}]  " if pair.key else ""
    return f"{clock}.{rest // 10**6:03}  {duration_words(pair.took_ns)}  {key}{begin} -> {end}"


def _end_words(end: PairEnd, besides: int = 0) -> str:
    """An end; its thread is said unless it is the one `besides`."""
    thread = f" {end.tid}" if end.tid and end.tid != besides else ""
    fields = "".join(f" {name}={_value_words(value)}" for name, value in end.fields.items())
    return f"{printable(end.name)}{thread}{fields}"


def _value_words(value: object) -> str:
    if isinstance(value, str):
        return f'"{printable(value)}"'
    return f"{value:.6g}" if isinstance(value, float) else str(value)
