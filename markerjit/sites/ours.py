"""Directories of the user's own: nothing is read from one that another user could have written,
and nothing is written where another user could put a link in our way."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def own_directory(base: str, parts: Sequence[str], *, make: bool = False) -> Iterator[int]:
    """A descriptor of the directory of these parts inside of `base`, made where it is not there.
    Raises OSError where it, or a directory on the way, is not ours."""
    if make and _nearest_is_ours(base):
        os.makedirs(base, mode=0o700, exist_ok=True)
    directory = os.open(base, _DIRECTORY)  # a link of the user's own may lead to it
    try:
        if os.fstat(directory).st_uid != os.geteuid():
            raise PermissionError("it is another user's")
        for part in parts:
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


def read_own_file(directory: int, name: str, most: int) -> bytes:
    """At most so many bytes of a file in a directory. Raises OSError where it is not ours."""
    file = os.open(name, _FILE, dir_fd=directory)
    try:
        about = os.fstat(file)
        if not stat.S_ISREG(about.st_mode):
            raise PermissionError("it is not a regular file")
        if not _is_ours(about):
            raise PermissionError("another user can write it")
        return os.read(file, most)
    finally:
        os.close(file)


def _nearest_is_ours(path: str) -> bool:
    """Whether what is there of a path ends in a directory of ours, so that making the rest leaves
    nothing in another user's."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return os.stat(path).st_uid == os.geteuid()


def _is_ours(about: os.stat_result) -> bool:
    """Whether only we can write it."""
    return about.st_uid == os.geteuid() and not about.st_mode & _OTHERS_WRITE
