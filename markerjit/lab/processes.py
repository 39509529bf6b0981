"""The processes that experiments start. Another thread can kill them all, which also ends the
waiting for them."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress

ALIVE = "alive"
_END_S = 10
_lock = threading.Lock()
_running: dict[subprocess.Popen[bytes], int] = {}
"""The running processes, each with its pidfd: once a process was waited for, its pid may belong to
another one."""


def start(
    command: Sequence[str], *, stdin: int, stderr: int, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process whose output is a pipe to us. The caller must call `end` for it."""
    with _lock:
        process = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, pass_fds=pass_fds,
            bufsize=0, start_new_session=True,  # Ctrl-C is for us, and the process ends with us
        )  # fmt: skip
        try:
            _running[process] = os.pidfd_open(process.pid)
        except BaseException:
            _end(process)
            raise
    return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process that was started here, wait for it, and close its pipes."""
    with _lock:
        pidfd = _running.pop(process)
    os.close(pidfd)
    _end(process)


def kill_all() -> None:
    """Kill all running processes. The threads that wait for them go on, and call `end`."""
    with _lock:
        for pidfd in _running.values():
            with suppress(ProcessLookupError):  # the process has died, and was waited for
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def ending_of(process: subprocess.Popen[bytes], wait_s: float) -> str:
    """The state of our child after waiting up to `wait_s` for its end: `alive`, the name of the
    signal that it died of, or its exit code."""
    try:
        status = process.wait(wait_s) if wait_s else process.poll()
    except subprocess.TimeoutExpired:
        return ALIVE
    if status is None:
        return ALIVE
    return signal.Signals(-status).name if status < 0 else f"exit code {status}"


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    process.wait(_END_S)
    for stream in (process.stdin, process.stdout):
        if stream:
            stream.close()
