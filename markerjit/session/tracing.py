"""A trace that has not begun: for `with`, which gives its stream, or for `for`, which gives its
events.

    with session.trace("kv_*") as events: ...
    for event in session.trace("kv_*", duration=1): ...

What this does not do: trace (trace.py), or check what was asked for (session.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from types import TracebackType

from markerjit.errors import Refused
from markerjit.events.stream import EventStream
from markerjit.model import Event

Begin = Callable[[], AbstractContextManager[EventStream]]


class Tracing(AbstractContextManager[EventStream]):
    """A trace that begins with `with` or with `for`, and whose markers are off at the end of it.

    A loop that is left early, by `break` or an exception, ends the trace, too. Each `with` and each
    `for` begins anew; Refused is raised while it is going on already.
    """

    def __init__(self, label: str, begin: Begin) -> None:
        self._label = label
        self._begin = begin
        self._running: AbstractContextManager[EventStream] | None = None

    def __enter__(self) -> EventStream:
        if self._running is not None:
            raise Refused(f"the trace of {self._label} is going on already")
        running = self._begin()
        stream = running.__enter__()
        self._running = running
        return stream

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        running, self._running = self._running, None
        return running.__exit__(kind, error, traceback) if running else None

    def __iter__(self) -> Iterator[Event]:
        with self as stream:
            yield from stream

    def __repr__(self) -> str:
        state = "not begun" if self._running is None else "going on"
        return f"<Tracing of {self._label}, {state}>"
