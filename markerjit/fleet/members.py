"""The programs of a request that goes on while programs come and go: a family, or newcomers.

Each member has a session, and a request that has begun and ends with its context: a trace, or
markers that are switched on. What this does not do: know which programs come (family.py,
newcomers.py).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from typing import Generic, Protocol, TypeVar, runtime_checkable

from markerjit.arguments import check_callable, check_flag, check_is
from markerjit.errors import (
    BadArgument,
    BadQuestion,
    MarkerError,
    NoMarkers,
    NoSuchProcess,
    TargetGone,
    UnknownField,
    UnknownMarker,
)
from markerjit.fleet.failed import Failed
from markerjit.model import Seccomp
from markerjit.session.session import Session
from markerjit.session.watch import Ending
from markerjit.tuples import NamedTuple, brief

T = TypeVar("T")

_OF_THE_USER = BadQuestion, UnknownField
"""The errors of a request that names what such markers do not have."""


@runtime_checkable
class _Leased(Protocol):
    """A stream: its rings are lost to it where it does nothing for too long."""

    def keep(self) -> bool: ...


class Member(NamedTuple, Generic[T]):
    """A program that has what was requested. A process that executes a file is another one.

    request   ends what was requested, as a context manager does
    begun     what the request returned when it began, such as the stream of a trace
    """

    pid: int
    session: Session
    request: AbstractContextManager[T]
    begun: T

    def __repr__(self) -> str:
        return brief(self)


class Ended(NamedTuple, Generic[T]):
    """A program that is over. `ending` is None where its process has executed another file."""

    member: Member[T]
    ending: Ending | None

    def __repr__(self) -> str:
        return brief(self)


class Members(Generic[T]):
    """The programs that there are now. See the module.

    failed  the processes for which the request failed, and why
    plain   number of programs that have no such markers
    """

    def __init__(
        self,
        request: Callable[[Session], AbstractContextManager[T]],
        *,
        ring_size: int | None = None,
        seccomp: Seccomp | str = "read",
        breakpoints: bool = False,
    ) -> None:
        check_callable("request", request)
        check_flag("breakpoints", breakpoints)
        self.failed: list[Failed] = []
        self.plain = 0
        self._request = request
        self._ring_size = ring_size
        self._seccomp = seccomp
        self._breakpoints = breakpoints
        self._members: list[Member[T]] = []
        self._over: set[int] = set()  # the identities of members that are over
        self._ended: list[Ended[T]] = []
        self._has_begun = False  # the request, for any

    @property
    def now(self) -> list[Member[T]]:
        """The programs that there are now."""
        return list(self._members)

    def open(self, pid: int) -> Session:
        """A session, which the caller closes."""
        return Session(
            pid, ring_size=self._ring_size, seccomp=self._seccomp, breakpoints=self._breakpoints
        )

    def add(self, session: Session) -> None:
        """Begin the request for a session, which is closed by `retire` or `close` afterwards.
        Raises what the request raises."""
        request = self._request(session)
        self._members.append(Member(session.pid, session, request, request.__enter__()))
        self._has_begun = True
        self.keep()  # to begin many takes longer than a lease

    def begin(self, pid: int) -> None:
        """Begin the request for a process, if it has such markers. An error is noted, unless it is
        wrong for all."""
        self.note(pid, self.attempt(pid))

    def attempt(self, pid: int) -> MarkerError | None:
        """Begin the request for a process. Returns the reason where it has not begun. Raises
        BadArgument, which is wrong for all."""
        try:
            with ExitStack() as stack:
                self.add(stack.enter_context(self.open(pid)))
                stack.pop_all()
        except BadArgument:
            raise
        except MarkerError as error:
            return error
        return None

    def check_request(self) -> None:
        """Raise BadQuestion or UnknownField where the question, or a field to be recorded, is wrong
        for all processes so far that have such markers."""
        wrong = [each.error for each in self.failed if isinstance(each.error, _OF_THE_USER)]
        if wrong and not self._has_begun:
            raise wrong[-1]

    def note(self, pid: int, reason: MarkerError | None) -> None:
        """Note why the request has not begun for a process. Nothing is noted of one that has begun,
        or has ended already."""
        match reason:
            case None | NoSuchProcess() | TargetGone():
                pass
            case NoMarkers() | UnknownMarker():
                self.plain += 1
            case _:
                self.failed.append(Failed(pid, reason))

    def keep(self) -> None:
        """Renew the leases of streams."""
        for member in self._members:
            if isinstance(member.begun, _Leased):
                member.begun.keep()

    def of(self, pid: int) -> list[Member[T]]:
        """The programs of a process: the last one, and those before it that were not retired."""
        return [member for member in self._members if member.pid == pid]

    def is_over(self, member: Member[T]) -> bool:
        """Whether the end of a program was noted."""
        return id(member) in self._over

    def note_end(self, member: Member[T], ending: Ending | None) -> None:
        """A program is over. It stays a member until it is retired."""
        if not self.is_over(member):
            self._over.add(id(member))
            self._ended.append(Ended(member, ending))

    def take_ended(self) -> list[Ended[T]]:
        """The programs whose end was noted since the last call."""
        ended, self._ended = self._ended, []
        return ended

    def retire(self, member: Member[T]) -> None:
        """End the request for a program that is over."""
        check_is("member", member, Member)
        self._over.discard(id(member))
        self._ended = [ended for ended in self._ended if ended.member is not member]
        self._members = [other for other in self._members if other is not member]
        with suppress(TargetGone, NoSuchProcess), ExitStack() as stack:
            stack.callback(member.session.close)
            stack.push(member.request.__exit__)

    def undo(self, pid: int) -> None:
        """Begin the request for a process that has its markers from its parent, and end it."""
        with suppress(MarkerError), self.open(pid) as session, self._request(session):
            pass

    def end_requests(self) -> None:
        """End all requests. Raises the last error of those that could not be ended, when all others
        are."""
        with ExitStack() as stack:
            for member in self._members:
                stack.push(member.request.__exit__)

    def close(self) -> None:
        """Close all sessions. May be called again."""
        with ExitStack() as stack:
            for member in self._members:
                stack.callback(member.session.close)
            self._members.clear()
