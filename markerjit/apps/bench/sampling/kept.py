"""Objects that were compiled before, kept in the user's cache by everything they are made from.

The key of an object has the compiler, by its path, size and time; the command; and the bytes of its
source and of every header in the named folders. Headers of the system are not in the key, so a form
that needs one (LTTng, sdt.h) is not kept. A file that another user could have written is not
trusted, and a cache that cannot be used is not an error. The cache holds 256 MiB at most. The least
recently used objects are removed first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from pathlib import Path

from markerjit.ours import cache_directory, read_own_file, write_own_file

_PLACE = "bench"
_MOST = 256 << 20
_LARGEST = 32 << 20
"""The most bytes of all objects, and of one."""


def made_or_kept(
    target: Path, command: Sequence[str], parts: Sequence[Path], make: Callable[[], None]
) -> None:
    """Provide the object that the command makes, by `make`, or by a copy of one that was made from
    the same `parts` before. `parts` are files, and folders with headers. The command must not have
    the target, nor names that differ from run to run."""
    name = _key(command, parts)
    if not _fetch(name, target):
        make()
        _keep(name, target)


def tidy() -> None:
    """Remove the objects that were not used for longest, until the others are few enough."""
    with suppress(OSError), cache_directory(_PLACE) as directory:
        about = {name: os.stat(name, dir_fd=directory) for name in os.listdir(directory)}
        size = sum(each.st_size for each in about.values())
        for name in sorted(about, key=lambda name: about[name].st_mtime_ns):
            if size <= _MOST:
                break
            size -= about[name].st_size
            os.unlink(name, dir_fd=directory)


def _key(command: Sequence[str], parts: Sequence[Path]) -> str:
    digest = blake2b(digest_size=20)
    for word in (*_identity(command[0]), *command[1:], *map(_content, parts)):
        digest.update(f"{len(word)}:{word}".encode())
    return digest.hexdigest()


@cache
def _identity(compiler: str) -> tuple[str, ...]:
    path = os.path.realpath(shutil.which(compiler) or compiler)
    about = os.stat(path)
    return path, str(about.st_size), str(about.st_mtime_ns)


def _content(part: Path) -> str:
    """A digest of a file, or of the headers in a folder with their names."""
    return _of_folder(part) if part.is_dir() else blake2b(part.read_bytes()).hexdigest()


@cache
def _of_folder(folder: Path) -> str:
    digest = blake2b()
    for path in sorted(folder.rglob("*.h*")):
        digest.update(str(path.relative_to(folder)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _fetch(name: str, target: Path) -> bool:
    with suppress(OSError), cache_directory(_PLACE) as directory:
        data = read_own_file(directory, name, _LARGEST)
        if data:
            os.utime(name, dir_fd=directory, follow_symlinks=False)
            target.write_bytes(data)
            target.chmod(0o700)
            return True
    return False


def _keep(name: str, target: Path) -> None:
    with suppress(OSError), cache_directory(_PLACE, make=True) as directory:
        if target.stat().st_size <= _LARGEST:
            write_own_file(directory, name, target.read_bytes())
