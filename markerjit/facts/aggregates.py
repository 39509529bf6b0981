"""Aggregates as facts for JSON, and as lines: tables, histograms of blocks, and what was missed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby

from markerjit.events.aggregates import AggregateRow, Answers, KeyValue, Statistics
from markerjit.facts import Json, as_json
from markerjit.printable import counted, printable
from markerjit.questions.aggregates import keys_of
from markerjit.questions.buckets import Bucket, Histogram, Number, Sketch
from markerjit.unwind.frames import WalkedStack

QUANTILES = (0.5, 0.9, 0.99, 0.999)
"""Those that are shown."""
_WIDTH = 80
_MOST_EMPTY = 8
"""Rows of a histogram that are shown one by one where they have no values."""
_BLOCKS = " ▏▎▍▌▋▊▉█"
_UNITS = ((1 << 60, "E"), (1 << 50, "P"), (1 << 40, "T"), (1 << 30, "G"), (1 << 20, "M"),
          (1 << 10, "K"))  # fmt: skip


def answers_facts(answers: Answers) -> Json:
    """All rows of an aggregate, and what was missed."""
    return {
        "rows": [_row_facts(row) for row in answers.rows],
        "events": answers.events,
        "missed": answers.missed._asdict(),
        "keys": answers.keys,
        "room": answers.room,
        **({"lost_stacks": answers.lost_stacks} if answers.lost_stacks else {}),
    }


def _row_facts(row: AggregateRow) -> Json:
    names = {"names": list(row.names)} if row.names else {}
    facts: Json = {"key": [key_facts(value) for value in row.key], **names, "count": row.events}
    match row.answer:
        case Statistics() as answer:
            values = {name: getattr(answer, name) for name in ("sum", "min", "max", "avg")}
            facts |= {name: as_json(value) for name, value in values.items() if value is not None}
        case Histogram() as answer:
            facts["buckets"] = [
                {name: as_json(number) for name, number in bucket._asdict().items()}
                for bucket in answer.buckets()
            ]
        case Sketch() as answer:
            facts["quantiles"] = {f"{at:g}": as_json(answer.quantile(at)) for at in QUANTILES}
    return facts


def key_facts(value: KeyValue) -> object:
    """A value of a key for JSON; of a stack its frames."""
    if not isinstance(value, WalkedStack):
        return value
    from markerjit.facts.stacks import stack_facts  # looks into symbols, and few keys have stacks

    return stack_facts(value)


# ---- in words ------------------------------------------------------------------------------------


def key_header(by: str | None) -> list[str]:
    """The parts of a key as they were written; names as headings are."""
    if by is None:
        return []
    parts = [part.strip() for part in keys_of(by)]
    return [part.upper() if part.isidentifier() else part for part in parts]


def key_words(key: Sequence[object], names: Sequence[str | None] = ()) -> list[str]:
    """The values of a key as cells, or their names; a bool as Python writes it. A stack is its
    innermost function: its frames stand below."""
    return [
        printable(name) if name else _cell(value)
        for value, name in zip(key, names or (None,) * len(key), strict=True)
    ]


def _cell(value: object) -> str:
    if not isinstance(value, WalkedStack):
        return str(value)
    from markerjit.elf.demangle import demangled  # as its frames below are written

    return demangled(value.labels[-1])


def has_stack(keys: Iterable[Sequence[object]]) -> bool:
    """Whether one of these keys has a stack."""
    return any(isinstance(value, WalkedStack) for key in keys for value in key)


def key_lines(key: Sequence[object]) -> Iterator[str]:
    """The frames of the stacks of a key, a line each."""
    for value in key:
        if isinstance(value, WalkedStack):
            from markerjit.facts.stacks import stack_lines

            yield from stack_lines(value)


def number_words(value: Number | None) -> str:
    """A number in a cell."""
    if value is None:
        return "-"
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"


def range_words(bucket: Bucket) -> str:
    """`7` of one integer, `[16, 32)` of several, and `(-32, -16]` of negative ones."""
    low, high = bucket.low, bucket.high
    if isinstance(low, int) and isinstance(high, int):
        if low == high:
            return str(low)
        if low < 0:
            return f"({_short(low - 1)}, {_short(high)}]"
        return f"[{_short(low)}, {_short(high + 1)})"
    return f"[{_short(low)}, {_short(high)})"


def histogram_lines(
    histogram: Histogram, label_of: Callable[[Bucket], str] = range_words
) -> Iterator[str]:
    """A line with a bar of blocks for each power of two, in 80 columns. Many that are empty, as
    between 0 and the next double, are one line."""
    buckets = list(histogram.buckets())
    labels = [label_of(bucket) for bucket in buckets]
    numbers = [f"{bucket.number:,}" for bucket in buckets]
    most = max((bucket.number for bucket in buckets), default=1)
    label_width = max(map(len, labels), default=0)
    number_width = max(map(len, numbers), default=0)
    room = max(_WIDTH - 6 - label_width - number_width, 8)
    for has_values, run in groupby(
        zip(buckets, labels, numbers, strict=True), key=lambda row: row[0].number > 0
    ):
        rows = list(run)
        if not has_values and len(rows) > _MOST_EMPTY:
            yield f"  {'…':>{label_width}}"
            continue
        for bucket, label, number in rows:
            line = f"  {label:>{label_width}}  {number:>{number_width}}  {_bar(bucket, most, room)}"
            yield line.rstrip()


def _bar(bucket: Bucket, most: int, room: int) -> str:
    """At least an eighth of a block for a bucket that has values."""
    eighths = bucket.number * room * 8 // most or (1 if bucket.number else 0)
    return "█" * (eighths // 8) + (_BLOCKS[eighths % 8] if eighths % 8 else "")


def _short(value: Number) -> str:
    """A power of two with K for 1024, and so on."""
    size = abs(value)
    for unit, letter in _UNITS if math.isfinite(value) else ():
        if size >= unit and size == int(size) and not int(size) % unit:
            return f"{'-' if value < 0 else ''}{int(size) // unit}{letter}"
    return f"{value:g}"


def missed_words(answers: Answers, bytes_of_text: int) -> Iterator[str]:
    """Why events were added to no key, and what to do about it."""
    missed = answers.missed
    if missed.full:
        yield (
            f"{counted(missed.full, 'event')} had keys for which there was no room; "
            f"--keys {answers.room * 4} has room for more"
        )
    if missed.long:
        yield (
            f"{counted(missed.long, 'event')} had a text of more than {bytes_of_text} bytes in the "
            f"key; cut it, as in key[:32], or --text {min(bytes_of_text * 2, 248)}"
        )
    if missed.nan:
        yield f"{counted(missed.nan, 'value')} of NaN left out"
    if answers.lost_stacks:
        yield f"{counted(answers.lost_stacks, 'event')} had no stack: there is no room for more"
    if missed.unreadable:
        yield f"{counted(missed.unreadable, 'event')} left out, whose memory cannot be read"


def summary_words(answers: Answers, shown: int) -> str:
    """`5 of 40 keys, 1,200 events`."""
    keys = len(answers.rows)
    which = counted(keys, "key") if shown >= keys else f"{shown:,} of {counted(keys, 'key')}"
    return f"{which}, {counted(answers.events, 'event')}"
