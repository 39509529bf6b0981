"""Spans from pairs of markers: which names make a span, and which events.

`query_start` and `query_done` make the span `query`. Names pair when they differ only by the word
behind their last `_`, `__` or `-`, as in `_PAIRS`. Each marker is in at most one pair. Events of a
thread pair like brackets: the last span that began ends first. Requests that one thread handles
concurrently cannot be told apart, because a name does not say which field identifies the request.

Missing events (lost, or from before the trace) are handled as far as possible. An end without a
begin makes no span. An end also closes the spans that began inside its own and have not ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count

from markerjit.model import Field
from markerjit.tuples import NamedTuple

_PAIRS = (
    ("begin", "end"),
    ("start", "done"),
    ("start", "end"),
    ("entry", "return"),
    ("entry", "exit"),
    ("enter", "exit"),
)
"""In order of preference, where a name has more than one possible partner."""

_SEPARATORS = ("__", "_", "-")

DEEPEST = 256
"""The most open spans of a thread. More are a sign of lost ends; viewers stop at 512."""


class Pair(NamedTuple):
    """A span, and the markers that begin and end it."""

    name: str
    begin: str
    end: str


def pair_names(names: Iterable[str]) -> tuple[Pair, ...]:
    """The pairs among these markers.

    A span is named after the common part of its markers, or after its begin where a marker or
    another span has that name already.
    """
    markers = list(dict.fromkeys(names))
    free = set(markers)
    used = set(markers)
    pairs = []
    for first, last in _PAIRS:
        for begin in markers:
            stem, separator = _split(begin, first)
            end = f"{stem}{separator}{last}"
            if not stem or begin not in free or end not in free:
                continue
            name = stem if stem not in used else begin
            used.add(name)
            free -= {begin, end}
            pairs.append(Pair(name, begin, end))
    return tuple(pairs)


def _split(name: str, word: str) -> tuple[str, str]:
    """The name before `word` and its separator, and the separator; "" without them."""
    for separator in _SEPARATORS:
        stem = name.removesuffix(separator + word)
        if stem != name and stem[-1:].isalnum():
            return stem, separator
    return "", ""


class OpenSpans:
    """The open spans of each thread. Begins and ends come in order of time."""

    def __init__(self) -> None:
        self._open: dict[int, list[Pair]] = {}

    def begin(self, tid: int, pair: Pair) -> bool:
        """Begin a span. Returns False where too many are open, and the span is to be left out."""
        stack = self._open.setdefault(tid, [])
        if len(stack) >= DEEPEST:
            return False
        stack.append(pair)
        return True

    def end(self, tid: int, pair: Pair) -> list[Pair] | None:
        """End a span. Returns the inner spans to close first, the innermost first.

        Returns None where the span is not open.
        """
        stack = self._open.get(tid)
        if stack is None or pair not in stack:
            return None
        inner = []
        while (top := stack.pop()) != pair:
            inner.append(top)
        if not stack:
            del self._open[tid]
        return inner


def cpu_key(fields: Iterable[Field]) -> str:
    """The name under which the CPU is added to an event's fields, distinct from all of them."""
    taken = {field.name for field in fields}
    return next(name for name in _cpu_names() if name not in taken)


def _cpu_names() -> Iterator[str]:
    yield "cpu"
    for number in count(2):
        yield f"cpu_{number}"
