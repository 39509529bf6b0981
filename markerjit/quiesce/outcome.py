"""What the native helper reports, as exceptions that say what to do."""

from __future__ import annotations

import errno
import os

from markerjit.errors import MarkerError, NotPermitted, Refused, TargetGone, Unsupported
from markerjit.quiesce import native
from markerjit.quiesce.permission import why_not


def explain_failure(pid: int, status: int, report: native.Report) -> MarkerError:
    """The exception for a failed stop, borrow or write of `pid`; the target runs on unharmed.

    UNEXPECTED and CALL_FAILED are for the caller, who knows what the index means.
    """
    if status == native.GONE:
        return TargetGone(pid)
    if status == native.BUSY:
        return Refused(
            f"thread {report.tid} of process {pid} did not stop in time: it waits in the kernel "
            "where nothing interrupts it (vfork, disk); try again",
            try_again=True,
        )
    if status == native.IN_SPAN:
        return Refused(
            f"thread {report.tid} stands inside a site; nothing was written; try again",
            try_again=True,
        )
    if status == native.NO_THREAD:
        return Refused(
            f"no thread of process {pid} can be borrowed now: is it stopped (SIGSTOP)? "
            f"continue it with kill -CONT {pid} and try again",
            try_again=True,
        )
    if status == native.NOT_64_BIT:
        return Unsupported(f"process {pid} runs 32-bit code; markerjit is for x86-64")
    if status in (native.NOT_VERIFIED, native.NOT_UNDONE):
        found = bytes(report.found).hex(" ")
        undone = "was rolled back" if status == native.NOT_VERIFIED else "COULD NOT be rolled back"
        return MarkerError(
            f"edit {report.index} read back as {found} after writing; the change {undone}"
        )
    if report.error in (errno.EPERM, errno.EACCES):
        return NotPermitted(why_not(pid, report.tid))
    return MarkerError(f"cannot change process {pid}: {os.strerror(report.error)}")
