"""A family: processes, all that they have started, and all that they start.

    with markerjit.Family([pid], lambda session: session.trace("kv_*")) as family:
        while not family.is_over:
            new = family.poll()

What is there already is traced from now on, and what is started from its first instruction on. A
child of a fork has an arena and a session of its own, which are made before that. A process that
executes a file gets its session at the entry point of that: what ran before, the loader and the
constructors of libraries, is not traced. A child of vfork has the arena of its parent until it
executes a file.

All are held for the time that a session takes to begin: so a program with many short children
becomes slower. Their parents are not held for that.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from types import TracebackType
from typing import Generic, Self, TypeVar

from markerjit.arguments import check_is, check_seconds
from markerjit.errors import (
    BadArgument,
    MarkerError,
    NoMarkers,
    NoSuchProcess,
    TargetGone,
    UnknownMarker,
)
from markerjit.fleet.failed import Failed
from markerjit.fleet.fleet import checked_pids
from markerjit.fleet.follower import Follower, Kind, News
from markerjit.fleet.hold import Hold
from markerjit.fleet.launch import Launched
from markerjit.fleet.members import Ended, Member, Members
from markerjit.memory import ProcessMemory
from markerjit.model import Seccomp
from markerjit.proc.children import children_of
from markerjit.session.session import Session
from markerjit.session.watch import Ending
from markerjit.tuples import NamedTuple, brief

T = TypeVar("T")

_AT_ONCE_S = 0.05
"""Time for new processes before the streams are polled again."""

_PATIENCE_S = 10.0
"""The longest time that a program waits for its markers whose family was not launched for them."""

_REMOVE_S = 2
_POLL_S = 0.001
_NO_LIBRARY = 127
"""With this the loader exits."""


class Price(NamedTuple):
    """What the family has paid for being followed. Times are in seconds.

    processes    number of processes that were made
    sharing      of these, those in the memory of their parent
    executed     number of files that were executed
    births       number of stops of a thread because it had made a process or a thread
    held         how long new processes were held in all
    longest_held the longest of them
    """

    processes: int
    sharing: int
    executed: int
    births: int
    held: float
    longest_held: float

    def __repr__(self) -> str:
        return brief(self)


class Family(Generic[T]):
    """Processes, their children and all that they start, each with the same request, until
    `end_requests` or `close`.

    `request` returns the request for a session, as a context: a trace, or markers that are switched
    on and, at its end, off. Raises what a session, the request and following raise for a single
    pid; of several, those for which it fails are noted, and the last reason is raised where none is
    left. Children for which it fails are noted. A name in the request, of a question or of a field,
    that is wrong for all that have such markers is raised. A `program` that was launched is the
    only one of the pids; its exit status is taken, and is told to it.

    missed   sentences for programs whose beginning was not traced
    """

    def __init__(
        self,
        pids: Iterable[int],
        request: Callable[[Session], AbstractContextManager[T]],
        *,
        program: Launched | None = None,
        ring_size: int | None = None,
        seccomp: Seccomp | str = "read",
        breakpoints: bool = False,
    ) -> None:
        if program is not None:
            check_is("program", program, Launched)
        pids = checked_pids(pids)
        self.missed: list[str] = []
        self._members = Members(
            request, ring_size=ring_size, seccomp=seccomp, breakpoints=breakpoints
        )
        self._alive: set[int] = set()
        self._holds: dict[int, Hold] = {}
        self._leaving: list[tuple[Hold, ProcessMemory, float]] = []
        self._program = program
        self._follower = Follower(program.patience if program else _PATIENCE_S)
        try:
            for pid in pids:
                try:
                    self._follow(pid)
                except BadArgument:
                    raise  # it is wrong for all
                except MarkerError as error:
                    self._members.failed.append(Failed(pid, error))
            if len(self._members.failed) == len(pids):
                raise self._members.failed[-1].error
            self._follow_children(but=pids)
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
        return self._members.plain

    @property
    def is_over(self) -> bool:
        """Whether all processes have ended."""
        return not self._alive

    def price(self) -> Price:
        """What the family has paid for being followed, so far."""
        totals = self._follower.totals()
        return Price(
            totals.processes, totals.sharing, totals.executed, totals.births,
            totals.held_ns / 1e9, totals.longest_held_ns / 1e9,
        )  # fmt: skip

    def poll(self) -> list[Member[T]]:
        """Begin the requests for what was started meanwhile; returns these. Call it often: what was
        started waits for it. Raises BadQuestion or UnknownField where a name in the request is
        wrong for all so far that have such markers."""
        before = self.members
        until = time.monotonic() + _AT_ONCE_S
        while time.monotonic() < until and (news := self._follower.next()):
            self._take(news)
        for hold in list(self._holds.values()):
            if hold.is_waiting() or hold.has_begun():
                self._begin_held(hold)
        self._remove_holds()
        self._members.check_request()
        return self.members[len(before) :]

    def wait(self, most_s: float) -> None:
        """Wait until something has happened, for so many seconds at most."""
        check_seconds("most_s", most_s)
        self._follower.wait(_POLL_S if self._holds or self._leaving else most_s)

    def take_ended(self) -> list[Ended[T]]:
        """The programs that have ended since the last call. They are members until they are
        retired."""
        return self._members.take_ended()

    def retire(self, member: Member[T]) -> None:
        """End the request for a program that is over, and whose events were read."""
        self._members.retire(member)

    def end_requests(self) -> None:
        """End all requests, and let all processes go. A process that was made meanwhile has markers
        switched off that its parent had on. Raises the last error of those that could not be
        ended, when all others are."""
        with ExitStack() as stack:
            stack.callback(self._let_go)
            self._members.end_requests()

    def close(self) -> None:
        """End the requests and the sessions. May be called again."""
        with ExitStack() as stack:
            stack.callback(self._follower.close)
            stack.callback(self._members.close)
            self.end_requests()

    def __repr__(self) -> str:
        return f"<Family of {len(self._alive)}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # ---- what happens in the family ----

    def _follow(self, pid: int) -> None:
        """Follow a process that is there, and begin its request if it has such markers."""
        with ExitStack() as stack:
            session = stack.enter_context(self._members.open(pid))
            self._follower.follow(pid, is_ours=self._program is not None)
            self._alive.add(pid)
            try:
                self._members.add(session)
                stack.pop_all()
            except (NoMarkers, UnknownMarker) as error:
                self._members.note(pid, error)

    def _follow_children(self, *, but: Collection[int]) -> None:
        """Follow what they have started before, but for these and ourselves. What they start from
        now on is followed already."""
        known = {*but, os.getpid()}
        parents = deque(self._alive)
        while parents:
            for child in sorted(children_of(parents.popleft()) - known):
                try:
                    if not self._follower.has(child):
                        self._follow(child)
                        parents.append(child)
                except BadArgument:
                    raise
                except MarkerError as error:
                    self._members.note(child, error)

    def _take(self, news: News) -> None:
        if news.kind is Kind.ENDED:
            self._alive.discard(news.pid)
            if self._program and news.pid == self._program.pid:
                self._program.note_end(news.status)
            hold = self._holds.pop(news.pid, None)
            if hold and (hold.is_overdue or _has_begun(news.status)):
                self._note_unseen(hold)
            self._note_end(news.pid, Ending(news.status & 0x7F, news.status >> 8 & 0xFF))
            return
        self._alive.add(news.pid)
        if news.kind is Kind.FORKED:
            self._members.begin(news.pid)
            self._follower.release(news.pid)
            return
        if news.kind is Kind.EXECUTED:
            self._note_end(news.pid, None)
        if news.hold:
            self._holds[news.pid] = news.hold
        elif news.problem:
            self.missed.append(f"process {news.pid} {news.problem}; it is not traced")

    def _note_end(self, pid: int, ending: Ending | None) -> None:
        for member in self._members.of(pid):
            self._members.note_end(member, ending)

    def _begin_held(self, hold: Hold) -> None:
        problem = self._members.attempt(hold.pid)  # what ends here leaves it to be released
        del self._holds[hold.pid]
        self._members.note(hold.pid, problem)
        try:
            memory = hold.open_memory()
        except MarkerError:
            if isinstance(problem, (NoSuchProcess, TargetGone)) and hold.is_overdue:
                self._note_unseen(hold)
            return  # it has ended
        try:
            if not hold.release(memory):
                self.missed.append(f"process {hold.pid} may have begun before its markers were on")
        except MarkerError:
            memory.close()
            return
        self._leaving.append((hold, memory, time.monotonic() + _REMOVE_S))

    def _note_unseen(self, hold: Hold) -> None:
        """Of a program that began by itself, and has ended before its markers were on."""
        self.missed.append(
            f"process {hold.pid} ended before its markers were on, for which it waits "
            f"{hold.patience_s:g} s at most; what was found out about its file is kept, so the "
            "next time takes less"
        )

    def _remove_holds(self) -> None:
        """Take the holds away that were left meanwhile."""
        leaving, self._leaving = self._leaving, []
        for hold, memory, until in leaving:
            is_done = True
            with suppress(MarkerError):
                is_done = hold.try_to_remove(memory)
            if is_done or time.monotonic() > until:
                memory.close()
            else:
                self._leaving.append((hold, memory, until))

    def _let_go(self) -> None:
        """Release all that is held, with its markers off, and end the follower. Until its end it
        holds what is executed, so that is looked for once more behind it."""
        with ExitStack() as stack:
            stack.callback(self._release_all)
            stack.callback(self._follower.close)
            self._release_all()
            while self._leaving:
                time.sleep(_POLL_S)
                self._remove_holds()

    def _release_all(self) -> None:
        """Release what was made or executed, and not looked at yet."""
        while news := self._follower.next():
            if news.kind is Kind.FORKED:
                # The markers of its parent may have been on when it was made.
                self._members.undo(news.pid)
            elif news.kind is Kind.ENDED:
                self._take(news)
            elif news.hold:
                self._holds[news.pid] = news.hold
        for hold in self._holds.values():
            # The hold stays where the program has not come to it yet.
            with suppress(MarkerError), hold.open_memory() as memory:
                hold.release(memory)
        self._holds.clear()


def _has_begun(status: int) -> bool:
    """Whether a program that was held has begun, by its status at its end: in the hold it does not
    exit, and before that the loader does only where a library is missing."""
    return os.WIFEXITED(status) and os.WEXITSTATUS(status) != _NO_LIBRARY
