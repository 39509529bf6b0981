"""Spans out of markers that come in pairs: which names make one, and which events do.

`query_start` and `query_done` make the span `query`. Names pair when they differ only by what is
behind their last `_`, `__` or `-`, as in `_PAIRS`; each marker is in one pair at most. Events
of one thread pair like brackets: the last one that began ends first. So spans of a program that
keeps several requests under way in one thread, each with its own begin, are not told apart: nothing
in a name says which field is the request.

Events that are missing (lost, or from before the trace) are repaired as far as can be: an end
without its begin is no span; an end closes those that began inside of it and have not ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from markerjit.model import Field

_PAIRS = (
    ("begin", "end"),
    ("start", "done"),
    ("start", "end"),
    ("entry", "return"),
    ("entry", "exit"),
    ("enter", "exit"),
)
"""In this order, where a name could have more than one partner."""

_SEPARATORS = ("__", "_", "-")

DEEPEST = 256
"""Spans open at once in a thread. More are a sign of ends that were lost; viewers stop at 512."""


class Pair(NamedTuple):
    """A span, and the markers at which it begins and ends."""

    name: str
    begin: str
    end: str


def pair_names(names: Iterable[str]) -> tuple[Pair, ...]:
    """The pairs among these markers. A span is named by what its markers have in common; by its
    begin, where a marker or another span has that name already."""
    known = list(dict.fromkeys(names))
    free = set(known)
    used = set(known)
    found = []
    for first, last in _PAIRS:
        for begin in known:
            stem, separator = _split(begin, first)
            end = f"{stem}{separator}{last}"
            if not stem or begin not in free or end not in free:
                continue
            name = stem if stem not in used else begin
            used.add(name)
            free -= {begin, end}
            found.append(Pair(name, begin, end))
    return tuple(found)


def _split(name: str, word: str) -> tuple[str, str]:
    """What is before `word` and its separator, and the separator; nothing if it is not there."""
    for separator in _SEPARATORS:
        stem = name.removesuffix(separator + word)
        if stem != name and stem[-1:].isalnum():
            return stem, separator
    return "", ""


class OpenSpans:
    """The spans that are open, by thread. Fed with begins and ends in the order of their time."""

    def __init__(self) -> None:
        self._open: dict[int, list[Pair]] = {}

    def begin(self, tid: int, pair: Pair) -> bool:
        """A span begins. False: too many are open, it is to be left out."""
        stack = self._open.setdefault(tid, [])
        if len(stack) >= DEEPEST:
            return False
        stack.append(pair)
        return True

    def end(self, tid: int, pair: Pair) -> list[Pair] | None:
        """A span ends. Returns those inside that are to be closed before, the innermost first, or
        None where it is not open."""
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
    """By which name viewers show the CPU among an event's fields: one that no field has."""
    taken = {field.name for field in fields}
    return next(name for name in _cpu_names() if name not in taken)


def _cpu_names() -> Iterator[str]:
    yield "cpu"
    for number in count(2):
        yield f"cpu_{number}"
