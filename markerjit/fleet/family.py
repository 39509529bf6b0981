"""A family: processes and all that they start, traced from the first instruction of each.

    with markerjit.Family([pid], lambda session: session.trace("kv_*")) as family:
        while not family.is_over:
            new = family.poll()

A child of a fork has an arena and a session of its own, which are made before its first
instruction. A process that executes a file gets its session at the entry point of that: what ran
before, the loader and the constructors of libraries, is not traced. A child of vfork has the arena
of its parent until it executes a file.

All are held for the time that a session takes to begin: so a program with many short children
becomes slower. Their parents are not held for that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, ExitStack, suppress
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

from markerjit.arguments import check_callable, check_is
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
from markerjit.memory import ProcessMemory
from markerjit.model import Seccomp
from markerjit.session.session import Session

if TYPE_CHECKING:
    from markerjit.events.stream import EventStream

_AT_ONCE_S = 0.05
"""Time for new processes before the streams are polled again."""

_REMOVE_S = 2
_POLL_S = 0.001


class Member(NamedTuple):
    """A program of the family that is traced. A process that executes a file is another one."""

    pid: int
    session: Session
    trace: AbstractContextManager[EventStream]
    stream: EventStream


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


class Family:
    """Traces of processes and of all that they start, until `end_traces` or `close`.

    `request` returns the trace for a session. Raises what a session, a trace and following raise
    for any of `pids`. A `program` that was launched is the only one of them; its exit status is
    taken, and is told to it.

    failed   the processes that could not be traced, and why
    plain    number of programs that were started and have no such markers. One of `pids` may have
             none either
    missed   sentences for programs whose beginning was not traced
    """

    def __init__(
        self,
        pids: Iterable[int],
        request: Callable[[Session], AbstractContextManager[EventStream]],
        *,
        program: Launched | None = None,
        ring_size: int | None = None,
        seccomp: Seccomp | str = "read",
    ) -> None:
        check_callable("request", request)
        if program is not None:
            check_is("program", program, Launched)
        pids = checked_pids(pids)
        self.failed: list[Failed] = []
        self.missed: list[str] = []
        self.plain = 0
        self._request = request
        self._ring_size = ring_size
        self._seccomp = seccomp
        self._members: list[Member] = []
        self._alive = {*pids}
        self._holds: dict[int, Hold] = {}
        self._leaving: list[tuple[Hold, ProcessMemory, float]] = []
        self._program = program
        self._follower = Follower()
        try:
            for pid in pids:
                with ExitStack() as stack:
                    session = stack.enter_context(self._open(pid))
                    self._follower.follow(pid, is_ours=program is not None)
                    with suppress(NoMarkers, UnknownMarker):
                        self._add(session)
                        stack.pop_all()
        except BaseException:
            self.close()
            raise

    @property
    def members(self) -> list[Member]:
        """The programs that are traced now."""
        return list(self._members)

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

    def poll(self) -> list[Member]:
        """Begin the traces of what was started meanwhile; returns these. Call it often: what was
        started waits for it."""
        before = len(self._members)
        until = time.monotonic() + _AT_ONCE_S
        while time.monotonic() < until and (news := self._follower.next()):
            self._take(news)
        for hold in list(self._holds.values()):
            if hold.is_waiting():
                self._begin_held(hold)
        self._remove_holds()
        return self._members[before:]

    def wait(self, most_s: float) -> None:
        """Wait until something has happened, for so long at most."""
        self._follower.wait(_POLL_S if self._holds or self._leaving else most_s)

    def retire(self, member: Member) -> None:
        """End the trace of a program that is over, and whose events were read."""
        self._members.remove(member)
        with suppress(TargetGone, NoSuchProcess), ExitStack() as stack:
            stack.callback(member.session.close)
            stack.push(member.trace.__exit__)

    def end_traces(self) -> None:
        """End all traces, and let all processes go. A process that was made meanwhile has markers
        switched off that its parent had on. Raises the last error of those that could not be
        ended, when all others are."""
        with ExitStack() as stack:
            stack.callback(self._let_go)
            for member in self._members:
                stack.push(member.trace.__exit__)

    def close(self) -> None:
        """End the traces and the sessions. May be called again."""
        with ExitStack() as stack:
            stack.callback(self._follower.close)
            for member in self._members:
                stack.callback(member.session.close)
            stack.callback(self._members.clear)
            self.end_traces()

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

    def _take(self, news: News) -> None:
        if news.kind is Kind.ENDED:
            self._alive.discard(news.pid)
            if self._program and news.pid == self._program.pid:
                self._program.note_end(news.status)
            self._holds.pop(news.pid, None)
            return
        self._alive.add(news.pid)
        if news.kind is Kind.FORKED:
            self._begin(news.pid)
            self._follower.release(news.pid)
        elif news.hold:
            self._holds[news.pid] = news.hold
        elif news.kind is Kind.EXECUTED:
            self.missed.append(
                f"process {news.pid} executed a file that has no room for a wait, or does so under "
                "a seccomp filter; it is not traced"
            )

    def _begin(self, pid: int) -> None:
        """Begin the trace of a process that waits, if it has such markers."""
        try:
            with ExitStack() as stack:
                session = stack.enter_context(self._open(pid))
                self._add(session)
                stack.pop_all()
        except BadArgument:
            raise  # it is wrong for all
        except (NoMarkers, UnknownMarker):
            self.plain += 1
        except (NoSuchProcess, TargetGone):
            pass  # it was killed before its first instruction
        except MarkerError as error:
            self.failed.append(Failed(pid, error))

    def _open(self, pid: int) -> Session:
        return Session(pid, ring_size=self._ring_size, seccomp=self._seccomp)

    def _add(self, session: Session) -> None:
        trace = self._request(session)
        self._members.append(Member(session.pid, session, trace, trace.__enter__()))
        for member in self._members:
            member.stream.keep()  # to begin many takes longer than a lease

    def _begin_held(self, hold: Hold) -> None:
        del self._holds[hold.pid]
        self._begin(hold.pid)
        try:
            memory = hold.open_memory()
        except MarkerError:
            return  # it has ended
        try:
            if not hold.release(memory):
                self.missed.append(f"process {hold.pid} may have begun before its markers were on")
        except MarkerError:
            memory.close()
            return
        self._leaving.append((hold, memory, time.monotonic() + _REMOVE_S))

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
        """Release all that is held, with its markers off, and end the follower."""
        with ExitStack() as stack:
            stack.callback(self._follower.close)
            while news := self._follower.next():
                if news.kind is Kind.FORKED:
                    # The markers of its parent may have been on when it was made.
                    with (
                        suppress(MarkerError),
                        self._open(news.pid) as session,
                        self._request(session),
                    ):
                        pass
                elif news.kind is Kind.ENDED:
                    self._take(news)
                elif news.hold:
                    self._holds[news.pid] = news.hold
            for hold in self._holds.values():
                # The hold stays where the program has not come to it yet.
                with suppress(MarkerError), hold.open_memory() as memory:
                    hold.release(memory)
            self._holds.clear()
            while self._leaving:
                time.sleep(_POLL_S)
                self._remove_holds()
