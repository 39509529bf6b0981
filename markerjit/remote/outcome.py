"""Exceptions for the reports of the native helper, which say what to do."""

from __future__ import annotations

import errno
import os

from markerjit.errors import (
    ChangeFailed,
    MarkerError,
    NotPermitted,
    NotRolledBack,
    NotVerified,
    Refused,
    TargetGone,
    Unsupported,
)
from markerjit.memory.base import is_ending
from markerjit.proc.permission import why_not
from markerjit.remote import native


def explain_failure(pid: int, status: int, report: native.Report) -> MarkerError:
    """The exception for a failed stop, borrow or write of `pid`. The target continues unharmed.

    The caller handles UNEXPECTED and CALL_FAILED, because it knows the meaning of the index.
    """
    if status == native.GONE or is_ending(pid):  # a killed thread does not stop in time, either
        return TargetGone(pid)
    if status == native.BUSY and report.borrowed:
        return Refused(
            f"thread {report.tid} of process {pid} did not return from a call that it made for us "
            "(is another thread stuck in a page fault, or the process frozen?); it continues by "
            f"itself when the call ends; then run markerjit repair {pid}",
            try_again=True,
        )
    if status == native.BUSY:
        return Refused(
            f"thread {report.tid} of process {pid} did not stop in time: it is in an "
            "uninterruptible wait in the kernel (vfork, disk); try again",
            try_again=True,
        )
    if status == native.IN_SPAN:
        return Refused(
            f"thread {report.tid} is inside a site, or returns into it from a signal handler; "
            "nothing was written; try again",
            try_again=True,
        )
    if status == native.STACK_UNKNOWN:
        return Refused(
            f"the stack of thread {report.tid} cannot be searched for signal frames (its stack "
            "pointer is invalid, or all stacks together exceed 256 MiB); nothing was written; "
            "try again",
            try_again=True,
        )
    if status == native.NO_THREAD:
        return Refused(
            f"no thread of process {pid} can be borrowed now: is it stopped (SIGSTOP)? "
            f"continue it with kill -CONT {pid} and try again",
            try_again=True,
        )
    if status == native.SIGTRAP_BLOCKED:
        return Refused(
            f"thread {report.tid} blocks SIGTRAP: a breakpoint would kill the process; use the "
            "mode that the site was compiled for"
        )
    if status == native.OTHER_TRAP:
        return other_trap(pid)
    if status == native.MOVED:
        return Refused(
            f"an object of process {pid} was loaded or unloaded just now; try again",
            try_again=True,
        )
    if status == native.DISTURBED:
        return Refused(
            f"another tool changed code of process {pid} between the sites at the same moment (a "
            "uprobe inserted or removed?); all was rolled back; try again, and if a uprobe was "
            "inserted, check that it counts",
            try_again=True,
        )
    if status == native.FAULTED:
        return Refused(
            f"thread {report.tid} of process {pid} faulted in code that it ran for us (was an "
            f"object unloaded just now?); it continues where it was; run markerjit repair {pid}",
            try_again=True,
        )
    if status == native.NOT_64_BIT:
        return Unsupported(f"process {pid} runs 32-bit code; markerjit is for x86-64")
    if status == native.NOT_VERIFIED:
        return NotVerified(report.index, bytes(report.found))
    if status == native.NOT_UNDONE:
        return NotRolledBack(pid, report.index, os.strerror(report.error))
    if status == native.NOT_SYNCED:
        passing = report.error in (errno.EAGAIN, errno.ESRCH)
        return Refused(_why_not_synced(pid, report), try_again=passing)
    if report.error in (errno.EPERM, errno.EACCES):
        return NotPermitted(why_not(pid, report.tid))
    written = f" at edit {report.index}, and was rolled back" if report.written else ""
    return ChangeFailed(
        f"cannot change process {pid}{written}: {os.strerror(report.error)}", report.index
    )


def other_trap(pid: int) -> Refused:
    """The error for a process in which another handler has taken the place of ours."""
    return Refused(
        f"process {pid} has put its own SIGTRAP handler in place of ours, and that would get the "
        "breakpoints; use the mode that the site was compiled for"
    )


def _why_not_synced(pid: int, report: native.Report) -> str:
    if report.error == errno.EAGAIN:
        return (
            f"thread {report.tid} of process {pid} did not answer the signal (does it block it?); "
            "all was rolled back"
        )
    if report.error == errno.ESRCH:
        return (
            f"the thread of process {pid} that was to fence its cores did not return from that "
            "call; all was rolled back; try again, or use --quiesce stop"
        )
    return (
        f"process {pid} cannot fence its cores ({os.strerror(report.error)}: is this a kernel "
        "without membarrier SYNC_CORE?); all was rolled back; use --quiesce stop"
    )
