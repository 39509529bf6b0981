"""Files that a process has open, identified by device and inode, not by number or name: stat(2)."""

from __future__ import annotations

import os

from markerjit.tuples import NamedTuple


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
