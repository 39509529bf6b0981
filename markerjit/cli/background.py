"""A process of ours in the background: it waits beside a target, after the command has ended.

It has a session of its own, so that it survives the end of the terminal, and nothing on standard
input and output. Its messages go to standard error if that is a terminal or a file, and to the
system's log otherwise.
"""

from __future__ import annotations

import io
import os
import stat
import sys
import syslog


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
    if not _may_stay_open(2):
        os.dup2(nothing, 2)
        sys.stderr = SystemLog()
    return 0


def _may_stay_open(descriptor: int) -> bool:
    """True of a terminal and a file. The reader of a pipe, such as ssh or a shell with `$(...)`,
    waits until we close it."""
    try:
        return os.isatty(descriptor) or stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:  # closed
        return False


class SystemLog(io.TextIOBase):
    """Standard error of a process in the background that has none. Each line goes to syslog(3)."""

    def write(self, text: str) -> int:
        for line in filter(None, text.splitlines()):
            syslog.syslog(syslog.LOG_ERR, line)
        return len(text)
