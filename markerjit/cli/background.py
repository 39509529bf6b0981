"""A process of ours in the background: it waits beside a target, after the command has ended.

It has a session of its own, so that it survives the end of the terminal, and nothing on standard
input and output. Its messages go to standard error if that is a file, and to the system's log
otherwise. It holds no terminal and no pipe: whoever waits for their end does not wait for it.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import syslog
from contextlib import suppress


def go_into_background() -> int:
    """Returns 0 in the process that waits, and its pid in the process that goes back to the
    shell."""
    child = os.fork()
    if child:
        return child
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nothing, number)
    if not _is_file(2):
        os.dup2(nothing, 2)
        sys.stderr = SystemLog()
    os.close(nothing)
    _close_inherited()
    return 0


def _close_inherited() -> None:
    """Close what the command was started with besides: what we opened is closed on exec."""
    for number in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # that of the listing
            if number > 2 and os.get_inheritable(number):
                os.close(number)


def _is_file(descriptor: int) -> bool:
    """False of a terminal and a pipe, whose readers, such as ssh or a shell with `$(...)`, wait
    until we close it."""
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # closed
        return False


class SystemLog(io.TextIOBase):
    """Standard error of a process in the background that has none. Each line goes to syslog(3)."""

    def write(self, text: str) -> int:
        for line in filter(None, text.splitlines()):
            syslog.syslog(syslog.LOG_ERR, line)
        return len(text)
