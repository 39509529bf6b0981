"""Directories of the user's own: nothing is read from one that another user could have written,
and nothing is written where another user could put a link in our way."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress

_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def cache_folder() -> str:
    """Where the user's caches are."""
    return os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")


def config_folder() -> str:
    """Where the user's configuration is."""
    return os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")


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


def cache_directory(name: str, *, make: bool = False) -> AbstractContextManager[int]:
    """A descriptor of one of our directories in the user's cache. Raises as `own_directory`."""
    return own_directory(cache_folder(), ("markerjit", name), make=make)


def read_linked_file(path: str) -> bytes:
    """A regular file of ours or of root, to which links may lead. Raises OSError where it is none,
    PermissionError for another user's."""
    file = os.open(path, _FILE & ~os.O_NOFOLLOW)
    with os.fdopen(file, "rb") as content:
        about = os.fstat(file)
        if about.st_uid not in (0, os.geteuid()):
            raise PermissionError("it is another user's")
        if not stat.S_ISREG(about.st_mode):
            raise OSError("it is not a regular file")
        return content.read()


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


def write_own_file(directory: int, name: str, content: bytes) -> None:
    """Put a file into a directory, in the place of one of this name: all of it or nothing, under a
    name that nobody can guess until it is whole. Raises OSError."""
    temporary = f".{os.urandom(8).hex()}"
    file = os.open(temporary, _NEW_FILE, 0o600, dir_fd=directory)
    try:
        with os.fdopen(file, "wb") as out:
            out.write(content)
        os.replace(temporary, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=directory)
        raise


def _nearest_is_ours(path: str) -> bool:
    """Whether what is there of a path ends in a directory of ours, so that making the rest leaves
    nothing in another user's."""
    while not os.path.lexists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    return os.stat(path).st_uid == os.geteuid()


def _is_ours(about: os.stat_result) -> bool:
    """Whether only we can write it."""
    return about.st_uid == os.geteuid() and not about.st_mode & _OTHERS_WRITE
