"""What the kinds of memory have in common: the protocol, and how /proc says no."""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Protocol

from markerjit.errors import MarkerError, NoSuchProcess, NotPermitted, Unsupported
from markerjit.model import RemoteAddress

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


def proc_error(pid: int, error: OSError, why_not: WhyNot) -> MarkerError:
    """What an OSError from opening or reading a file of /proc/PID means."""
    match error.errno:
        case errno.ENOENT | errno.ENOTDIR:
            return NoSuchProcess(pid)
        case errno.ESRCH:
            return Unsupported(f"process {pid} has no memory: it is a zombie or a kernel thread")
        case errno.EACCES | errno.EPERM:
            return NotPermitted(why_not(pid))
        case _:
            return MarkerError(f"cannot look at process {pid}: {error.strerror}")
