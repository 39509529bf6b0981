"""Files that a command is to read or to write: refused before the work, not after it."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from typing import TYPE_CHECKING

from markerjit.errors import Refused

if TYPE_CHECKING:
    from pathlib import Path

DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Why a file cannot be written on, through no fault of ours."""


def check_new(paths: Sequence[Path | None]) -> None:
    """Raise Refused for a file that exists, cannot be written, or is named twice. None is a file
    that was not asked for."""
    seen = set()
    for path in filter(None, paths):
        if os.path.exists(path):  # also False where we may not look
            raise Refused(f"{path} exists already; take another name")
        if not os.access(path.parent, os.W_OK):
            raise Refused(f"cannot write {path}: there is no such directory, or it is not ours")
        if path.resolve() in seen:
            raise Refused(f"{path} would be written twice; take another name for one of them")
        seen.add(path.resolve())


def check_file(path: str) -> None:
    """Raise Refused for a file that cannot be read, and for a pipe or a device, which could block
    us."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise Refused(f"{path} is not a regular file")
        open(path, "rb").close()
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from None
