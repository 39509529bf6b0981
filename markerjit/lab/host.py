"""The sacrificial child: maps an image and runs threads in it until it dies or is ended.

It is a program of its own and imports nothing of ours, so that it starts at once and has nothing to
lose. Its parent maps the same words, and can read the counts even after the child has died.

    host.py PARENT CODE_FD DATA_FD CODE DATA ENTRY HANDLER THREADS SECONDS

It dies with its parent, leaves no core file, and ends by itself after SECONDS.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
import sys
import threading

_PR_SET_PDEATHSIG = 1
_READ_WRITE, _READ_EXECUTE = 3, 5
_SHARED, _PRIVATE, _FIXED_NOREPLACE = 1, 2, 0x100000
_SA_SIGINFO, _SA_NODEFER = 4, 0x40000000


class _Sigaction(ctypes.Structure):
    """struct sigaction of the C library."""

    _fields_ = [
        ("handler", ctypes.c_uint64),
        ("mask", ctypes.c_uint64 * 16),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_uint64),
    ]


def main() -> None:
    """Run until standard input ends."""
    parent, code_fd, data_fd, code, data, entry, handler, threads, seconds = map(int, sys.argv[1:])
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # the parent died before that call
        os._exit(1)
    # 1 and not 0: a core file is piped to a collecting program unless the limit is 1 (core(5))
    resource.setrlimit(resource.RLIMIT_CORE, (1, 1))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds * (threads + 1),) * 2)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(seconds)

    _map(libc, code, code_fd, _READ_EXECUTE, _PRIVATE)
    _map(libc, data, data_fd, _READ_WRITE, _SHARED)
    if handler:
        action = _Sigaction(handler=handler, flags=_SA_SIGINFO | _SA_NODEFER)
        libc.sigaction(signal.SIGTRAP, ctypes.byref(action), None)
    run = ctypes.CFUNCTYPE(None)(entry)  # without the interpreter's lock
    for _ in range(threads):
        threading.Thread(target=run, daemon=True).start()
    os.write(1, b"ready\n")
    os.read(0, 1)
    os._exit(0)


def _map(libc: ctypes.CDLL, address: int, fd: int, protection: int, flags: int) -> None:
    size = os.fstat(fd).st_size
    libc.mmap.restype = ctypes.c_uint64
    libc.mmap.argtypes = [*[ctypes.c_uint64] * 2, *[ctypes.c_int] * 3, ctypes.c_uint64]
    if libc.mmap(address, size, protection, flags | _FIXED_NOREPLACE, fd, 0) != address:
        os._exit(2)


if __name__ == "__main__":
    main()
