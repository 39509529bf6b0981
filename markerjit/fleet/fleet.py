"""A fleet: a session for each of several processes, and one request for all.

    with markerjit.Fleet(pids) as fleet:
        applied = fleet.each(lambda session: session.enable("kv_*"))

A process whose session cannot start, or whose request fails, leaves the fleet with its reason, and
the others go on: of many processes one has always just ended. Each process has its own arena, and
each switch is a transaction of its own: there is no moment at which all change together.

What this does not do: find processes (markerjit.targets), or start sessions with those that come
later.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

from markerjit.arguments import check_callable, listed_pids
from markerjit.errors import BadArgument, MarkerError, Refused
from markerjit.fleet.failed import Failed
from markerjit.model import Seccomp
from markerjit.session.session import Session
from markerjit.uncollected import uncollected

if TYPE_CHECKING:
    from markerjit.events.stream import EventStream

T = TypeVar("T")

_KEEP_S = 0.2
"""A part of the time after which a stream that is not polled loses its rings."""


class Fleet:
    """Sessions with several processes, open until `close`, or for the length of a `with`.

    `ring_size`, `seccomp` and `breakpoints` are those of `attach`. Raises, for a single pid, the
    error of its session, and Refused where no session can start.

    failed  those that left the fleet, and why
    """

    def __init__(
        self,
        pids: Iterable[int],
        *,
        ring_size: int | None = None,
        seccomp: Seccomp | str = "read",
        breakpoints: bool = False,
    ) -> None:
        pids = checked_pids(pids)
        self.failed: list[Failed] = []
        self._sessions: dict[int, Session] = {}
        self._streams: dict[int, EventStream] = {}
        self._traces: list[tuple[int, AbstractContextManager[EventStream]]] = []
        self._kept_at = 0.0
        try:
            with uncollected():  # a hundred processes have many mappings
                for pid in pids:
                    try:
                        self._sessions[pid] = Session(
                            pid, ring_size=ring_size, seccomp=seccomp, breakpoints=breakpoints
                        )
                    except BadArgument:
                        raise
                    except MarkerError as error:
                        self.failed.append(Failed(pid, error))
            self._refuse_empty()
        except BaseException:
            self.close()
            raise

    @property
    def sessions(self) -> dict[int, Session]:
        """The sessions that are in the fleet, by pid."""
        return dict(self._sessions)

    @property
    def streams(self) -> dict[int, EventStream]:
        """The streams of the traces that began, by pid."""
        return dict(self._streams)

    def each(self, request: Callable[[Session], T]) -> dict[int, T]:
        """The results of `request` for each session, by pid. A session for which `request` raises a
        MarkerError leaves the fleet; see `failed`. Raises BadArgument, and as the fleet does where
        no session is left."""
        check_callable("request", request)
        done: dict[int, T] = {}
        with uncollected():  # as each request would by itself, and no collection in between
            for pid, session in self.sessions.items():
                try:
                    done[pid] = request(session)
                except BadArgument:
                    raise  # it is wrong for all
                except MarkerError as error:
                    self._leave(pid, error)
        self._refuse_empty()
        return done

    def trace(
        self, request: Callable[[Session], AbstractContextManager[EventStream]]
    ) -> dict[int, EventStream]:
        """Begin the trace that `request` returns for each session; returns the streams by pid. All
        end with `end_traces`, or with the fleet. Raises what `each` raises."""
        check_callable("request", request)
        self.each(lambda session: self._begin(session, request))
        return self.streams

    def end_traces(self) -> None:
        """End all traces: their markers are off afterwards, and their streams have what is left.
        Raises the last error of those that could not be ended, when all others are."""
        with ExitStack() as stack:
            for trace in reversed(self._traces):  # the stack takes the last one first
                stack.push(trace[1].__exit__)
                stack.callback(self._keep)
            self._traces.clear()

    def close(self) -> None:
        """End the traces and the sessions. Markers that are on otherwise stay on. May be called
        again."""
        with ExitStack() as stack:
            for session in self._sessions.values():
                stack.callback(session.close)
            self.end_traces()

    def __repr__(self) -> str:
        return f"<Fleet of {len(self._sessions)}, {len(self.failed)} failed>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _begin(
        self, session: Session, request: Callable[[Session], AbstractContextManager[EventStream]]
    ) -> None:
        trace = request(session)
        self._streams[session.pid] = trace.__enter__()
        self._traces.append((session.pid, trace))
        self._keep()

    def _keep(self) -> None:
        """Renew the leases of the streams, while others begin or end: that may take longer."""
        now = time.monotonic()
        if now - self._kept_at >= _KEEP_S:
            self._kept_at = now
            for stream in self._streams.values():
                stream.keep()

    def _leave(self, pid: int, error: MarkerError) -> None:
        self.failed.append(Failed(pid, error))
        self._sessions.pop(pid).close()

    def _refuse_empty(self) -> None:
        """Raise the reason where no session is left."""
        if self._sessions:
            return
        if len(self.failed) == 1:
            raise self.failed[0].error
        raise Refused(
            f"all {len(self.failed)} processes are left out; {self.failed[0].sentence}",
            try_again=all(
                isinstance(failed.error, Refused) and failed.error.try_again
                for failed in self.failed
            ),
        )


def checked_pids(pids: Iterable[int]) -> list[int]:
    """The pids, of which there is one at least, and none twice. Raises BadArgument."""
    checked = listed_pids(pids)
    if not checked or len({*checked}) < len(checked):
        raise BadArgument("pids", pids, "numbers of processes, one at least and none twice")
    return checked
