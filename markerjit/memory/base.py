"""The protocol of all kinds of memory, and the errors of /proc."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Protocol

from markerjit.errors import MarkerError, NoSuchProcess, NotPermitted, Unsupported
from markerjit.memory.stat import stat_fields
from markerjit.model import RemoteAddress

_PF_EXITING = 0x4
"""A flag of /proc/PID/stat; include/linux/sched.h."""

WhyNot = Callable[[int], str]
"""Given a pid that we may not read, returns a sentence with the rule and a remedy."""


class Memory(Protocol):
    """Memory that can be read and written. Both do all of it or raise `MemoryFault`."""

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """Exactly `size` bytes at `address`."""
        ...

    def write(self, address: RemoteAddress, data: bytes) -> None:
        """Put `data` at `address`, whatever the page's protection. Does not read it back."""
        ...


def plain_refusal(pid: int) -> str:
    """The default `WhyNot`: a sentence without the rule."""
    return f"cannot look at process {pid}: not permitted"


def has_ended(pid: int) -> bool:
    """Whether an existing process has ended: it is gone, a zombie, or exiting and without memory.

    The kernel answers for such a process as if it belonged to another user, or had never had any
    memory. Those answers must not be taken for facts about it. A process continues when only its
    first thread ends. Authority: proc_pid_stat(5), do_exit in kernel/exit.c, zap_other_threads in
    kernel/signal.c.
    """
    try:
        if not _is_exiting(f"/proc/{pid}"):
            return False
    except (FileNotFoundError, ProcessLookupError):
        return not _exists(pid)
    except OSError:
        return False
    return is_ending(pid)


def is_ending(pid: int) -> bool:
    """Whether a process has ended, or was killed and has no CPU yet to end on. Either way it
    executes no more of its own code. Reads two files for each thread."""
    try:
        tasks = [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return not _exists(pid)
    except OSError:
        return False
    return all(map(_is_ending, tasks))


def _is_ending(task: str) -> bool:
    """Whether a thread has ended, or will end as soon as it runs.

    When a process is killed, the kernel sends each of its threads a SIGKILL.
    """
    try:
        if _is_exiting(task):
            return True
        with open(f"{task}/status", "rb", buffering=0) as file:
            pending = file.read().partition(b"\nSigPnd:")[2].split(maxsplit=1)[0]
    except OSError:
        return True
    return bool(int(pending, 16) & 1 << signal.SIGKILL - 1)


def _is_exiting(task: str) -> bool:
    fields = stat_fields(task)
    state, flags = fields[0], int(fields[6])
    return state in (b"Z", b"X") or bool(flags & _PF_EXITING)


def _exists(pid: int) -> bool:
    """Whether the process exists, even where /proc hides it."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def proc_error(pid: int, error: OSError, why_not: WhyNot) -> MarkerError:
    """The error to raise for an OSError from opening or reading a file of /proc/PID."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return NoSuchProcess(pid)
        case errno.ESRCH | errno.EACCES | errno.EPERM if has_ended(pid):
            return NoSuchProcess(pid, ended=True)
        case errno.ESRCH:
            return Unsupported(f"process {pid} has no memory: it is a kernel thread")
        case errno.EACCES | errno.EPERM:
            return NotPermitted(why_not(pid))
        case _:
            return MarkerError(f"cannot look at process {pid}: {error.strerror}")
