"""Results of earlier verifications, by name: small files in the user's cache directory.

A file that another user could have written is not believed, and nothing is written where another
user could put a link in our way. So there is no cache for root in another user's HOME (the sudo of
some systems keeps it). Files are created under unguessable names, and then renamed. A cache that
cannot be used is not an error.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress

_MOST = 64
"""Bytes of what is remembered."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def recall(name: str) -> str | None:
    """The text stored under this name, or None."""
    with suppress(OSError, ValueError), _directory(make=False) as directory:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        file = os.open(name, flags, dir_fd=directory)
        try:
            about = os.fstat(file)
            if stat.S_ISREG(about.st_mode) and _is_ours(about):
                return os.read(file, _MOST).decode("ascii")
        finally:
            os.close(file)
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


@contextmanager
def _directory(*, make: bool) -> Iterator[int]:
    """A descriptor of the directory. Raises OSError where it, or one on the way, is not ours."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    if make and _nearest_is_ours(base):
        os.makedirs(base, mode=0o700, exist_ok=True)
    directory = os.open(base, _DIRECTORY)  # a link of the user's own may lead to it
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            raise PermissionError("another user's cache")
        for part in ("markerjit", "verified"):
            if make:
                with suppress(FileExistsError):
                    os.mkdir(part, 0o700, dir_fd=directory)
            inner = os.open(part, _DIRECTORY | os.O_NOFOLLOW, dir_fd=directory)
            os.close(directory)
            directory = inner
            if not _is_ours(os.fstat(directory)):
                raise PermissionError("another user can write there")
        yield directory
    finally:
        os.close(directory)


def _nearest_is_ours(path: str) -> bool:
    """Whether what is there of a path ends in a directory of ours, so that making the rest leaves
    nothing in another user's."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return os.stat(path).st_uid == os.geteuid()


def _is_ours(about: os.stat_result) -> bool:
    """Whether only we can write it."""
    return about.st_uid == os.geteuid() and not about.st_mode & _OTHERS_WRITE
