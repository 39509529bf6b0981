"""Files of /proc, and /proc/PID/stat of a process or of one of its threads: proc_pid_stat(5). Files
that a process has open, identified by device and inode, not by number or name: stat(2)."""

from __future__ import annotations

import os

from markerjit.tuples import NamedTuple

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


class FileId(NamedTuple):
    """The identity of a file, as stat(2) has it."""

    device: int
    inode: int


def file_at(path: str) -> FileId | None:
    """The file that a link of /proc/PID/fd leads to; None where stat fails."""
    try:
        status = os.stat(path)
    except OSError:
        return None
    return FileId(status.st_dev, status.st_ino)
