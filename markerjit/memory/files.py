"""Files that a process has open, known by what they are and not by their numbers or names."""

from __future__ import annotations

import os
from typing import NamedTuple


class FileId(NamedTuple):
    """A file, as stat(2) has it."""

    device: int
    inode: int


def file_at(path: str) -> FileId | None:
    """What a link of /proc/PID/fd leads to; None where there is nothing, or it may not be seen."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return FileId(found.st_dev, found.st_ino)
