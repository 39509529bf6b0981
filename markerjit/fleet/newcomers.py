"""The processes that match a request: those that exist, and those that come later.

    with markerjit.Newcomers(targets, lambda session: session.trace("kv_*")) as newcomers:
        while True:
            new = newcomers.poll()

A process is seen when it runs already (markerjit/targets/arrivals.py says how), and does not wait
for us: what it does before is missed. Its request begins when its loader has mapped its libraries
(start.py). A process that executes another file gets a new session.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from types import TracebackType
from typing import Generic, Self, TypeVar

from markerjit.arguments import check_seconds
from markerjit.fleet.failed import Failed
from markerjit.fleet.members import Ended, Member, Members
from markerjit.fleet.start import Start
from markerjit.model import Seccomp
from markerjit.session.session import Session
from markerjit.targets.arrivals import Arrivals
from markerjit.targets.request import Targets

T = TypeVar("T")

_LOOK_AGAIN_S = 0.2
"""The time between two looks for members that are over."""


class Newcomers(Generic[T]):
    """Processes that `targets` means, each with the same request, until `end_requests` or `close`.

    `request` is as a `Family` has it. A process for which it fails is noted, and the others go on.
    Raises BadQuestion or UnknownField where a name in the request is wrong for all that are there
    and have such markers.

    missed  always empty: nobody says what was missed
    way     how processes are seen, in a few words
    """

    is_over = False
    """Others may come at any time."""

    def __init__(
        self,
        targets: Targets,
        request: Callable[[Session], AbstractContextManager[T]],
        *,
        ring_size: int | None = None,
        seccomp: Seccomp | str = "read",
        breakpoints: bool = False,
    ) -> None:
        self.missed: list[str] = []
        self._members = Members(
            request, ring_size=ring_size, seccomp=seccomp, breakpoints=breakpoints
        )
        self._looked_at = 0.0
        self._starts: dict[int, Start] = {}
        self._arrivals = Arrivals(targets)
        self.way = self._arrivals.way
        try:
            for pid in self._arrivals.first:
                start = self._starts[pid] = Start(pid, runs=True)
                if start.is_due():
                    self._attempt(pid, start)
            self._members.check_request()
        except BaseException:
            self.close()
            raise

    @property
    def members(self) -> list[Member[T]]:
        """The programs that have the request now."""
        return self._members.now

    @property
    def failed(self) -> list[Failed]:
        """The processes that could not have the request, and why."""
        return list(self._members.failed)

    @property
    def plain(self) -> int:
        """Number of programs that have no such markers."""
        return self._members.plain + sum(start.is_plain for start in self._starts.values())

    def poll(self) -> list[Member[T]]:
        """Begin the requests for the processes that have come meanwhile; returns these. Raises
        BadQuestion or UnknownField where a name in the request is wrong for all so far that have
        such markers."""
        before = self.members
        self._look_for_ends()
        for pid in self._arrivals.poll():
            start = self._starts.get(pid)
            if not start or start.is_of_another():
                self._end_start(pid)
                self._starts[pid] = Start(pid)
        for pid, start in list(self._starts.items()):
            if start.is_due():
                self._attempt(pid, start)
            elif start.is_over():
                self._end_start(pid)
        self._members.check_request()
        return self.members[len(before) :]

    def wait(self, most_s: float) -> None:
        """Wait until something has happened, for so many seconds at most."""
        check_seconds("most_s", most_s)
        looks = [start.pause_s for start in self._starts.values()]
        self._arrivals.wait(min([most_s, *looks]))

    def take_ended(self) -> list[Ended[T]]:
        """The programs that have ended since the last call. They are members until they are
        retired."""
        return self._members.take_ended()

    def retire(self, member: Member[T]) -> None:
        """End the request for a program that is over, and whose events were read."""
        self._members.retire(member)

    def end_requests(self) -> None:
        """End all requests. Raises the last error of those that could not be ended, when all others
        are."""
        for pid in list(self._starts):
            self._end_start(pid)
        with ExitStack() as stack:
            stack.callback(self._arrivals.close)
            self._members.end_requests()

    def close(self) -> None:
        """End the requests and the sessions. May be called again."""
        with ExitStack() as stack:
            stack.callback(self._members.close)
            self.end_requests()

    def __repr__(self) -> str:
        return f"<Newcomers: {len(self.members)} now>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _attempt(self, pid: int, start: Start) -> None:
        """Begin a member, unless its program has begun already: news may come after the effect."""
        has_begun = any(not member.session.is_gone for member in self._members.of(pid))
        start.note(None if has_begun else self._members.attempt(pid))
        if start.is_over():
            self._end_start(pid)

    def _end_start(self, pid: int) -> None:
        """Wait no longer for what may come of a start."""
        if start := self._starts.pop(pid, None):
            self._members.note(pid, start.reason)

    def _look_for_ends(self) -> None:
        now = time.monotonic()
        if now - self._looked_at < _LOOK_AGAIN_S:
            return
        self._looked_at = now
        for member in self.members:
            if not self._members.is_over(member) and member.session.is_gone:
                ending = member.session.ending()
                self._members.note_end(member, ending)
                if ending is None:
                    self._starts.setdefault(member.pid, Start(member.pid))
                else:
                    self._arrivals.forget(member.pid)
