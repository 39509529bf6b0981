"""Spans of events as they come: the time from the first marker of a pair to the second.

Pairs are those of trace/spans.py, and events of a thread pair like brackets. An end without a begin
makes none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markerjit.model import Event
from markerjit.trace.spans import DEEPEST, Pair, pair_names
from markerjit.tuples import NamedTuple

_THREADS = 10_000
"""Threads of which begins are kept. Those that have ended in between are forgotten first."""


class Span(NamedTuple):
    """A span that has ended, with the events at both ends."""

    name: str
    begin: Event
    end: Event


class Spans:
    """Pairs the events of one process, which come in order of time."""

    def __init__(self, markers: Iterable[str]) -> None:
        pairs = pair_names(markers)
        self._begins = {pair.begin: pair for pair in pairs}
        self._ends = {pair.end: pair for pair in pairs}
        self._open: dict[int, list[tuple[Pair, Event]]] = {}

    @property
    def markers(self) -> set[str]:
        """The markers that are part of a pair."""
        return {*self._begins, *self._ends}

    def add(self, events: Iterable[Event]) -> Iterator[Span]:
        """The spans that end with these events."""
        for event in events:
            if (pair := self._begins.get(event.name)) is not None:
                self._begin(pair, event)
            elif (pair := self._ends.get(event.name)) is not None:
                yield from self._end(pair, event)

    def _begin(self, pair: Pair, event: Event) -> None:
        stack = self._open.pop(event.tid, [])
        self._open[event.tid] = stack  # the newest thread is the last
        if len(stack) < DEEPEST:
            stack.append((pair, event))
        if len(self._open) > _THREADS:
            del self._open[next(iter(self._open))]

    def _end(self, pair: Pair, event: Event) -> Iterator[Span]:
        stack = self._open.get(event.tid, [])
        if not any(open_ is pair for open_, _ in stack):
            return
        while (top := stack.pop())[0] is not pair:
            pass  # its end was lost
        if not stack:
            del self._open[event.tid]
        yield Span(pair.name, top[1], event)
