"""Results of earlier verifications and scans, by name: small files in the user's cache directory.

A file that another user could have written is not believed, and nothing is written where another
user could put a link in our way. So there is no cache for root in another user's HOME (the sudo of
some systems keeps it). Files are created under unguessable names, and then renamed. A cache that
cannot be used is not an error.
"""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, suppress

from markerjit.sites.ours import own_directory, read_own_file

_MOST = 64
"""Bytes of a digest."""


def recall(name: str, most: int = _MOST) -> str | None:
    """The text stored under this name, of which at most so many bytes are read, or None."""
    with suppress(OSError, ValueError), _directory(make=False) as directory:
        return read_own_file(directory, name, most).decode("ascii")
    return None


def remember(name: str, content: str) -> None:
    """Remember it, or not, where that cannot be done."""
    with suppress(OSError, ValueError), _directory(make=True) as directory:
        temporary = f".{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(temporary, flags, 0o600, dir_fd=directory)
        try:
            with os.fdopen(file, "w", encoding="ascii") as out:
                out.write(content)
            os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=directory)
            raise


def _directory(*, make: bool) -> AbstractContextManager[int]:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return own_directory(base, ("markerjit", "verified"), make=make)
