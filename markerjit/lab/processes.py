"""The processes that experiments start. Another thread can end them, and so what waits for them."""

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
"""With a pidfd of each: a pid may be of another process when its own has been waited for."""


def start(
    command: Sequence[str], *, stdin: int, stderr: int, pass_fds: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process whose output is a pipe to us. `end` has to be called for it."""
    with _lock:
        process = subprocess.Popen(
            command, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, pass_fds=pass_fds,
            bufsize=0, start_new_session=True,  # Ctrl-C is for us, whose end is the process's
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
    """Kill all that run. What waits for them goes on, and calls `end`."""
    with _lock:
        for pidfd in _running.values():
            with suppress(ProcessLookupError):  # it has died, and was waited for
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)


def ending_of(process: subprocess.Popen[bytes], wait_s: float) -> str:
    """What became of our child within this time: `alive`, the name of the signal that it died of,
    or its exit code."""
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
