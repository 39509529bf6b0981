"""Objects that were compiled before: kept in the user's cache, by all that they are made of.

The key of an object has the compiler, by its path, size and time; the command; and the bytes of its
source and of every header in the folders that are named. Headers of the system are not in it: of a
form that needs one (LTTng, sdt.h) nothing is kept. What another user could have written is not
believed, and a cache that cannot be used is no error. It holds 256 MiB at most; what was not used
for longest goes first.
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
"""Bytes of all objects, and of one."""


def made_or_kept(
    target: Path, command: Sequence[str], parts: Sequence[Path], make: Callable[[], None]
) -> None:
    """Have the object that the command makes: by `make`, or as it was made before of the same
    `parts`, which are files and folders with headers. The command is without the target, and
    without names that differ from run to run."""
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
