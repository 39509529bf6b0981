"""Files of /proc, and /proc/PID/stat of a process or of one of its threads: proc_pid_stat(5)."""

from __future__ import annotations

import os

_BLOCK = 8192


def read_proc(path: str) -> bytes:
    """All of a file of /proc, by half of the system calls that a file object makes. A switch reads
    a dozen of them. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        content = part = os.read(descriptor, _BLOCK)
        while part:
            part = os.read(descriptor, _BLOCK)
            content += part
        return content
    finally:
        os.close(descriptor)


def stat_fields(directory: str) -> list[bytes]:
    """The fields behind the name, which may have blanks and brackets of its own. The first one is
    the state, number 3 of the manual page. `directory` is such as /proc/7/task/8. Raises OSError.
    """
    return read_proc(f"{directory}/stat").rpartition(b")")[2].split()
