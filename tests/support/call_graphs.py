"""Call graphs of truth programs: calls that are followed beside a test, and parts of a graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import markerjit
from tests.support.programs import Target
from tests.support.timing import joined


def calls_of(graph: markerjit.CallGraph) -> dict[str, int]:
    return {each.name: each.calls for each in graph.functions if each.calls}


def function(graph: markerjit.CallGraph, name: str) -> markerjit.CalledFunction:
    return next(each for each in graph.functions if each.name == name)


def edges(graph: markerjit.CallGraph) -> dict[tuple[str, str], int]:
    return {(each.caller, each.callee): each.calls for each in graph.callings}


@contextmanager
def followed(program: Target, *args: str | None, **options: object) -> Iterator[list]:
    """Calls are followed in another thread; the list has the graph afterwards."""
    graphs: list[markerjit.CallGraph] = []
    with markerjit.attach(program.pid) as session:
        with session.trace_calls(*args, **options) as trace:  # type: ignore[arg-type]
            thread = threading.Thread(target=trace.wait)
            thread.start()
            try:
                yield graphs
            finally:
                trace.stop()
                joined(thread)
        graphs.append(trace.graph())
