"""A memory barrier in every thread of a process, by the kernel: membarrier(2)."""

from __future__ import annotations

import ctypes
import os

from markerjit.errors import Unsupported

_SYS_MEMBARRIER = 324
_GLOBAL, _PRIVATE_EXPEDITED, _REGISTER_PRIVATE_EXPEDITED = 1 << 0, 1 << 3, 1 << 4
_PRIVATE_EXPEDITED_RSEQ, _REGISTER_PRIVATE_EXPEDITED_RSEQ = 1 << 7, 1 << 8


def barrier(pid: int) -> bool:
    """Execute a memory barrier in every thread of the process, and return once each has passed it.
    Returns False where the kernel cannot do it (before Linux 4.3, with nohz_full, or forbidden by
    seccomp).

    For our own process this takes microseconds. For another it is a barrier in all threads of the
    machine, and takes some ten milliseconds.
    """
    if pid == os.getpid() and not _command(_REGISTER_PRIVATE_EXPEDITED):
        return not _command(_PRIVATE_EXPEDITED)
    return not _command(_GLOBAL)


def abort_sequences() -> None:
    """Abort the restartable sequence that each thread of our own process is in. Raises Unsupported
    before Linux 5.10, and where seccomp forbids it."""
    if _command(_REGISTER_PRIVATE_EXPEDITED_RSEQ) or _command(_PRIVATE_EXPEDITED_RSEQ):
        raise Unsupported("the kernel has no membarrier for restartable sequences")


def _command(number: int) -> int:
    return int(ctypes.CDLL(None).syscall(_SYS_MEMBARRIER, number, 0, 0))
