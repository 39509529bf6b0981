"""What the kinds of memory have in common: the protocol, and how /proc says no."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Protocol

from markerjit.errors import MarkerError, NoSuchProcess, NotPermitted, Unsupported
from markerjit.model import RemoteAddress

_PF_EXITING = 0x4
"""Of the flags in /proc/PID/stat: include/linux/sched.h."""

WhyNot = Callable[[int], str]
"""From a pid that we may not look at to a sentence that names the rule, and the way round."""


class Memory(Protocol):
    """Memory that can be read and written. Both do all of it or raise `MemoryFault`."""

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """Exactly `size` bytes at `address`."""
        ...

    def write(self, address: RemoteAddress, data: bytes) -> None:
        """Put `data` at `address`, whatever the page's protection. Does not read it back."""
        ...


def plain_refusal(pid: int) -> str:
    """The sentence for somebody who did not pass a better one."""
    return f"cannot look at process {pid}: not permitted"


def has_ended(pid: int) -> bool:
    """Whether a process that was there is at its end: it is gone, a zombie, or on its way to that
    and has given its memory up. Then the kernel answers as if it were somebody else's, or had never
    had any memory, and those answers mean nothing.

    A process goes on when its first thread ends alone. Authority: proc_pid_stat(5), do_exit in
    kernel/exit.c, zap_other_threads in kernel/signal.c.
    """
    try:
        if not _is_exiting(f"/proc/{pid}"):
            return False
        tasks = [f"/proc/{pid}/task/{tid}" for tid in os.listdir(f"/proc/{pid}/task")]
    except (FileNotFoundError, ProcessLookupError):
        return not _exists(pid)
    except OSError:
        return False
    return all(map(_is_ending, tasks))


def _is_ending(task: str) -> bool:
    """Whether a thread is at its end, or will be as soon as it runs: where all are to end, each has
    got a SIGKILL of its own."""
    try:
        if _is_exiting(task):
            return True
        with open(f"{task}/status", "rb", buffering=0) as file:
            pending = file.read().partition(b"\nSigPnd:")[2].split(maxsplit=1)[0]
    except OSError:
        return True
    return bool(int(pending, 16) & 1 << signal.SIGKILL - 1)


def _is_exiting(task: str) -> bool:
    with open(f"{task}/stat", "rb", buffering=0) as file:
        fields = file.read().rpartition(b")")[2].split()
    state, flags = fields[0], int(fields[6])
    return state in (b"Z", b"X") or bool(flags & _PF_EXITING)


def _exists(pid: int) -> bool:
    """Where /proc hides it, too."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True


def proc_error(pid: int, error: OSError, why_not: WhyNot) -> MarkerError:
    """What an OSError from opening or reading a file of /proc/PID means."""
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
