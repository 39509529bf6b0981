"""A trace that comes from standard input: kept in a file until it was read.

Formats are read more than once, and from several places, so a pipe is not enough. The first bytes
say which format it is.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from markerjit.cli import signals
from markerjit.errors import Refused

if TYPE_CHECKING:
    import tarfile
    from types import FrameType

_MAGICS = {
    b"PAR1": ".parquet",
    b"ARROW1": ".arrow",
    b"\xff\xff\xff\xff": ".arrow",
    b"\n": ".pftrace",
    b"{": ".jsonl",
    b"# trace ": ".txt",
}
_ARROW_STREAM, _ARROW_FILE = b"\xff\xff\xff\xff", b"ARROW1\0\0"
"""The first bytes of a stream, and those that stand before it in a file."""
_TAR_AT, _TAR = 257, b"ustar"
_CHROME = (b'{"traceEvents"', b"[")
_LOOKED_AT, _LOOKED_AT_OF_TAR = 64, 512


class FirstForTheWriter(signals.Raised):
    """The first Ctrl-C is for the program that writes into the pipe, such as `trace`. It gets the
    same signal, and what it still writes is read."""

    _is_first = True

    def _handler(self, number: int, frame: FrameType | None) -> None:
        if number != signal.SIGINT or not self._is_first:
            super()._handler(number, frame)
        self._is_first = False


@contextmanager
def spooled() -> Iterator[str]:
    """The path of a file with all of standard input, whose suffix says the format; it is removed at
    the end. Raises Refused for a terminal, and for what no format begins with."""
    if sys.stdin is None or sys.stdin.isatty():
        raise Refused("standard input is a terminal; `read -` is for a pipe or a file")
    source = sys.stdin.buffer
    with tempfile.TemporaryDirectory(prefix="markerjit-") as folder:
        with FirstForTheWriter():
            first = source.read(_LOOKED_AT)
            if first and _suffix_of(first) is None:
                first += source.read(_LOOKED_AT_OF_TAR - _LOOKED_AT)
            is_archive = first[_TAR_AT:].startswith(_TAR)
            path = os.path.join(folder, f"standard-input{'.tar' if is_archive else _suffix(first)}")
            with open(path, "wb") as file:
                if first.startswith(_ARROW_STREAM):
                    file.write(_ARROW_FILE)
                file.write(first)
                shutil.copyfileobj(source, file)
        yield _unpacked(path) if is_archive else path


def _unpacked(archive: str) -> str:
    """The trace in a tar archive of CTF, as -o - writes it. Raises Refused where there is more than
    one directory in it, or anything else."""
    import tarfile  # few traces come as an archive

    folder = os.path.dirname(archive)
    try:
        with tarfile.open(archive) as tar:
            members = tar.getmembers()
            if not all(member.isfile() or member.isdir() for member in members):
                raise Refused("the archive on standard input has more than files and directories")
            for member in members:
                _extract(tar, member, folder)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise Refused(f"the archive on standard input cannot be read: {error}") from error
    names = {member.name.split("/")[0] for member in members}
    if len(names) != 1:
        raise Refused("the archive on standard input holds no directory, as a CTF trace is")
    return os.path.join(folder, *names)


def _extract(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: str) -> None:
    """A file or directory of an archive. The filters of `extractall`, which keep names inside, are
    not in every Python 3.11. Raises Refused for a name that leads out of the folder."""
    parts = member.name.split("/")
    if ".." in parts or "" in parts or not member.name.isprintable():
        raise Refused("the archive on standard input has a file whose name leads out of it")
    path = os.path.join(folder, *parts)
    if member.isdir():
        os.makedirs(path, exist_ok=True)
        return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    content = tar.extractfile(member)
    assert content is not None  # it is a file
    with content, open(path, "xb") as file:
        shutil.copyfileobj(content, file)


def _suffix_of(first: bytes) -> str | None:
    """How a file that begins so ends; None where it is of no format."""
    text = first.lstrip()
    if text.startswith(_CHROME):
        return ".json"
    for magic, suffix in _MAGICS.items():
        if (text if magic == b"{" else first).startswith(magic):
            return suffix
    return None


def _suffix(first: bytes) -> str:
    suffix = _suffix_of(first)
    if suffix:
        return suffix
    raise Refused(
        "standard input is empty"
        if not first
        else "standard input does not begin as JSON lines, Chrome's JSON, Parquet, Arrow, Perfetto "
        "or a tar archive of CTF do; lines without a header have no types: give their path"
    )
