"""Processes that are followed: what they start is known before its first instruction.

A door to native/src/stop/follow.c, where a thread of ours traces all of them. Sessions with these
processes stop them through that thread. There is one follower in a process. It lets all go when it
ends, and the kernel does when this process ends.
"""

from __future__ import annotations

import ctypes
import os
from enum import IntEnum

from markerjit.arena.needed import NEEDED
from markerjit.errors import NoSuchProcess, Refused
from markerjit.fleet.hold import Hold
from markerjit.memory import ProcessMemory, stat_fields
from markerjit.proc.permission import check_before_stopping, read_status, why_not
from markerjit.remote import native
from markerjit.remote.filters import Filters
from markerjit.remote.outcome import explain_failure
from markerjit.tuples import NamedTuple


class Kind(IntEnum):
    """What has happened in a family."""

    FORKED = native.FORKED
    """A process was made, and is held before its first instruction until it is released."""

    EXECUTED = native.EXECUTED
    """A process executes a file, and waits in its hold unless it has none."""

    ENDED = native.ENDED
    """A process has ended."""

    SHARING = native.SHARING
    """A process was made in the memory of its parent, as by vfork. It was not held."""


class News(NamedTuple):
    """Something that has happened. `status` is as wait(2) has it, for a process that has ended;
    `hold` is where a process waits that executes a file, None for one that does not wait, and then
    `problem` says why, as "executed a file that …"."""

    kind: Kind
    pid: int
    parent: int
    status: int
    hold: Hold | None
    problem: str = ""


_NO_HOLD = {
    native.NO_ROOM: "that leaves no room behind its code for a wait",
    native.NOT_64_BIT: "of 32 bits",
    native.FILTERED: (
        "under a seccomp filter that does not allow a wait there (kill, nanosleep and "
        "restart_syscall), or cannot be read"
    ),
}
"""What is said of a file behind which no wait could be put."""


def _parent(pid: int) -> int:
    try:
        return int(stat_fields(f"/proc/{pid}")[1])
    except (OSError, IndexError):
        raise NoSuchProcess(pid) from None


class Follower:
    """Follows processes until `close`. A program that one of them executes waits for its hold to be
    left for `patience_s` at most. Raises Refused where this process follows others already."""

    _is_there = False

    def __init__(self, patience_s: float) -> None:
        if Follower._is_there:
            raise Refused("this process follows others already; end that first", try_again=True)
        self._is_open = Follower._is_there = True
        self._patience_ms = round(patience_s * 1000)

    def follow(self, pid: int, *, is_ours: bool = False) -> None:
        """Follow a process, and from now on all that it starts. Raises what a stop raises, and
        Unsupported for a process whose seccomp filters cannot be read, or do not allow the calls
        that are needed. The caller must set `is_ours` for a child of ours whose exit status is
        taken."""
        check_before_stopping(pid, is_followed=native.is_followed(pid))
        if pid == os.getpid():
            raise Refused("this process cannot follow itself")
        if not is_ours and _parent(pid) == os.getpid():
            raise Refused(
                f"process {pid} is a child of this process, which could not wait for it while it "
                "is followed; follow it from another process"
            )
        if read_status(pid).seccomp:
            # Following makes no system call in it. But a sleep that a stop has interrupted goes on
            # by restart_syscall, and its children are stopped whenever they take a signal.
            Filters(pid, lambda: NEEDED, can_trust=False).check(set())
        with ProcessMemory(pid, why_not=why_not) as memory:
            report = native.Report()
            target = native.NativeTarget(
                pid=pid, pidfd=memory.pidfd, mem_fd=memory.fileno(), mapped=b"", mapped_size=0
            )
            status = native.library().mj_follow(
                ctypes.byref(target), self._patience_ms, ctypes.byref(report)
            )
        if status != native.OK:
            raise explain_failure(pid, status, report)

    def has(self, pid: int) -> bool:
        """Whether a process is followed. One that was made just now is, before there is news of
        it: the kernel begins to trace it at its birth. Raises NoSuchProcess."""
        tracer = read_status(pid).tracer
        return bool(tracer) and os.path.exists(f"/proc/self/task/{tracer}")

    def next(self) -> News | None:
        """What has happened next; None if there is nothing more."""
        followed = native.Followed()
        if not native.library().mj_follow_next(ctypes.byref(followed)):
            return None
        kind = Kind(followed.kind)
        hold, problem = None, ""
        if kind is Kind.EXECUTED and followed.status == native.OK:
            hold = Hold(native.Launched.from_buffer_copy(followed.hold))
        elif kind is Kind.EXECUTED:
            why = _NO_HOLD.get(followed.status, "that could not be made to wait")
            problem = f"executed a file {why}"
        return News(kind, followed.pid, followed.parent, followed.status, hold, problem)

    def wait(self, most_s: float) -> None:
        """Wait until something has happened, for so long at most."""
        native.library().mj_follow_wait(max(1, int(most_s * 1000)))

    def release(self, pid: int) -> None:
        """Let a process begin that is held, unless it has ended."""
        native.library().mj_follow_release(pid)

    def totals(self) -> native.FollowTotals:
        """Counts and times since the first process was followed."""
        totals = native.FollowTotals()
        native.library().mj_follow_totals(ctypes.byref(totals))
        return totals

    def close(self) -> None:
        """Let all processes go. May be called again."""
        if self._is_open:
            native.library().mj_follow_end()
            self._is_open = Follower._is_there = False
