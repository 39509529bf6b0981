"""The seccomp filters of a process's threads: whether they allow the system calls that we need.

The filters are read (PTRACE_SECCOMP_GET_FILTER; native/src/stop/filters.c) and run here on each of
the calls, for each thread: any may be borrowed, and the runtime works in all of them. An answer is
valid for a thread as long as its number of filters does not change, because filters are only ever
added. The native part compares that count again when it borrows a thread.

What this does not do: say which calls those are (markerjit/arena/needed.py).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import TYPE_CHECKING

from markerjit.errors import NoSuchProcess, NotPermitted, Refused, Unsupported
from markerjit.proc.permission import Filtered, filtered_threads
from markerjit.remote import native
from markerjit.remote.outcome import explain_failure
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:  # imported when a thread is under filters: most are under none
    from markerjit.proc.bpf import Filter

STRICT_MODE = 1

_INSTRUCTION_SIZE = 8
_WAY_ROUND = (
    "start the program without the filter (systemd: SystemCallFilter=, containers: "
    "seccomp=unconfined), or switch its markers from inside, see markerjit/probes.h"
)
_TRUST = (
    "give --seccomp trust-errno if you know that its filters answer with an error and never kill"
)
_NO_TRUST = "which is needed to follow it, also with --seccomp trust-errno"


class NeededCall(NamedTuple):
    """A system call that is made in the target, by us or by the runtime.

    args          None for an argument that is not known beforehand
    may_fail      whether the caller can handle an error
    must_succeed  whether an error would harm the program, so that it can never be accepted
    """

    name: str
    number: int
    args: tuple[int | None, ...]
    may_fail: bool = False
    must_succeed: bool = False

    def __str__(self) -> str:
        return self.name


class Filters:
    """The filters of the threads of one process. With `trust` we assume that a filter answers a
    forbidden call with an error and never kills. Filters that can be read are checked all the
    same. `can_trust`: whether that is possible at all, for what is said where they cannot be."""

    def __init__(
        self,
        pid: int,
        needed: Callable[[], tuple[NeededCall, ...]],
        *,
        trust: bool = False,
        can_trust: bool = True,
    ) -> None:
        self._pid = pid
        self._needed = needed
        self._trust = trust
        self._remedy = _TRUST if can_trust else _NO_TRUST
        self._allowed: set[Filtered] = set()

    def check(self, plain: set[int]) -> None:
        """Ask about all threads. Those in `plain` have no filter and are skipped; others that have
        none are added to it.

        Raises Unsupported with the call that a filter does not allow, or where filters cannot be
        read; Refused (try again) for a filter that comes just now; TargetGone.
        """
        if self._pid == os.getpid():
            return
        allowed = set()
        for thread in filtered_threads(self._pid, plain):
            if thread not in self._allowed:
                with suppress(NoSuchProcess):  # that thread has ended
                    self._ask(thread)
            allowed.add(thread)
        self._allowed = allowed

    @property
    def allowed(self) -> Sequence[Filtered]:
        """The threads under filters that were allowed by the last check."""
        return sorted(self._allowed)

    def tell(self, target: native.NativeTarget) -> None:
        """Name the threads to the native part, which borrows no other threads that have filters."""
        if not self._allowed:  # as most; the type of an empty array would be made each time
            return
        known = (native.KnownThread * len(self._allowed))(
            *(native.KnownThread(thread.tid, thread.filters) for thread in self.allowed)
        )
        target.known, target.known_count = known, len(known)
        target.repeats_sleeps = self._trust

    def _ask(self, thread: Filtered) -> None:
        subject = f"thread {thread.tid} of process {self._pid}"
        if thread.mode == STRICT_MODE:
            raise Unsupported(
                f"{subject} runs under seccomp (mode 1, strict), which kills it at any system "
                f"call but read, write and exit, so markerjit does not touch it; {_WAY_ROUND}"
            )
        try:
            filters = read_filters(self._pid, thread.tid)
        except NotPermitted as error:
            if self._trust:
                return
            raise Unsupported(
                f"{subject} runs under seccomp (mode 2): {error}, and a filter may kill the "
                f"process at the first system call made for us; run markerjit as root outside of "
                f"containers, {self._remedy}, {_WAY_ROUND}"
            ) from None
        if len(filters) != thread.filters and thread.counted:
            raise Refused(
                f"{subject} was given a seccomp filter just now; try again", try_again=True
            )
        reason = objection(filters, self._needed(), trust=self._trust)
        if reason:
            raise Unsupported(
                f"{subject} runs under seccomp, and {reason}, so markerjit does not touch it; "
                f"{_WAY_ROUND}"
            )


@lru_cache(maxsize=64)  # the threads of a process mostly have the same
def objection(
    filters: tuple[Filter, ...], needed: tuple[NeededCall, ...], *, trust: bool = False
) -> str:
    """The objection of a thread's filters to one of these calls, in words; "" for none."""
    from markerjit.proc.bpf import ERRNO, CallData, LooksAtUnknown, run_filters

    for call in needed:
        try:
            action = run_filters(filters, CallData(call.number, call.args))
        except LooksAtUnknown as unknown:
            return f"a filter looks at {unknown.part} of {call}, which is not known beforehand"
        if action.allows:
            continue
        fails = action.kind == ERRNO and action.data
        if fails and (call.may_fail or (trust and not call.must_succeed)):
            continue
        return f"its filter does not allow {call}: it {action}"
    return ""


def read_filters(pid: int, tid: int) -> tuple[Filter, ...]:
    """The filters of a thread, the oldest first. The thread is stopped for some 50 µs.

    Raises NotPermitted where we may not read them; Unsupported for a filter in another form;
    NoSuchProcess where the thread has ended; Refused where it does not stop.
    """
    target = native.NativeTarget(pid=pid, pidfd=-1, mem_fd=-1)
    room, report = native.Filters(), native.Report()
    status = native.library().mj_read_filters(target, tid, room, report)
    if status == native.GONE:
        raise NoSuchProcess(tid)
    if status == native.ERRNO and report.tid == tid:
        _explain_errno(report.error)
    if status != native.OK:
        raise explain_failure(pid, status, report)
    return tuple(_filters(room))


def _explain_errno(error: int) -> None:
    if error == errno.EACCES:
        raise NotPermitted(
            "its filters cannot be read without CAP_SYS_ADMIN, or from under a filter of our own"
        )
    if error in (errno.EIO, errno.EINVAL):
        raise NotPermitted("this kernel does not let filters be read (CONFIG_CHECKPOINT_RESTORE)")
    if error == errno.EMEDIUMTYPE:
        raise Unsupported("a seccomp filter is not in the classic form, so it cannot be judged")


def _filters(room: native.Filters) -> Iterator[Filter]:
    from markerjit.proc.bpf import BadFilter, parse_filter

    code = memoryview(room.code).cast("B")
    at = 0
    for index in range(room.count):
        size = room.lengths[index] * _INSTRUCTION_SIZE
        try:
            yield parse_filter(bytes(code[at : at + size]))
        except BadFilter as error:
            raise Unsupported(f"a seccomp filter cannot be judged: {error}") from None
        at += size
