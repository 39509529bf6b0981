"""Files of lines or packets.

They are written so that a reader can follow them. Lines can be read from a truncated file.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterator
from io import RawIOBase
from itertools import islice
from typing import BinaryIO

from markerjit.errors import Refused
from markerjit.trace.reading import open_to_read

_TAIL = 1 << 16


def create(path: str, *, force: bool = False) -> BinaryIO:
    """A new file, or with `force` an emptied one. Raises Refused where it cannot be opened."""
    try:
        return open(path, "wb" if force else "xb")
    except FileExistsError:
        raise exists(path) from None
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        raise Refused(f"cannot write {path}: {error.strerror}") from error


def exists(path: str) -> Refused:
    """The error for a file that would be overwritten without `force`."""
    return Refused(f"{path} exists already; take another name, or --force to overwrite it")


class WholeWriter:
    """A file of whole lines or packets, which can be read as soon as they are written.

    Where the disk is full, a partial line or packet is removed again, and later writes raise the
    same error. `whole` gives the number of leading bytes that are whole lines or packets.
    """

    def __init__(self, path: str, whole: Callable[[bytes], int], *, force: bool = False) -> None:
        self._whole = whole
        # No buffer: close would write it, behind a gap, where the disk has room again.
        self._file: RawIOBase = create(path, force=force).detach()  # type: ignore[attr-defined]
        self._size = 0
        self._error: OSError | None = None

    def write(self, piece: bytes) -> None:
        """Add lines or packets."""
        if self._error is not None:
            raise OSError(self._error.errno, self._error.strerror)
        rest = memoryview(piece)
        try:
            while rest:
                rest = rest[self._file.write(rest) :]
        except OSError as error:
            self._error = error
            whole = self._whole(piece[: len(piece) - len(rest)])
            with contextlib.suppress(OSError):  # a pipe has no size
                os.ftruncate(self._file.fileno(), self._size + whole)
            raise
        self._size += len(piece)

    def write_text(self, text: str) -> None:
        """Add lines."""
        self.write(text.encode("utf-8", "backslashreplace"))

    def close(self) -> None:
        """Close the file. Does not write, so it also succeeds where the disk is full."""
        self._file.close()


def whole_lines(data: bytes) -> int:
    """The number of leading bytes that are whole lines."""
    return data.rfind(b"\n") + 1


def read_lines(path: str) -> Iterator[tuple[str, bool]]:
    """Each line without its newline, and whether it had one: the last of a cut file has none."""
    with os.fdopen(open_to_read(path), "rb") as file:
        for line in file:
            yield decoded(line).rstrip("\n"), line.endswith(b"\n")


def pieces_of_lines(path: str, most: int) -> Iterator[list[bytes]]:
    """The lines, with their newlines, at most so many at a time."""
    with os.fdopen(open_to_read(path), "rb") as file:
        while lines := list(islice(file, most)):
            yield lines


def decoded(line: bytes) -> str:
    """The text of a line. Bytes that are none are shown as escapes."""
    return line.decode("utf-8", "backslashreplace")


def first_lines(path: str, count: int) -> list[str]:
    """The first `count` lines."""
    lines = []
    for line, _ in read_lines(path):
        lines.append(line)
        if len(lines) == count:
            break
    return lines


def last_lines(path: str, count: int) -> list[str]:
    """The last `count` lines, without reading the whole file."""
    with os.fdopen(open_to_read(path), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        tail = b""
        while len(tail) < size and tail.rstrip(b"\n").count(b"\n") < count:
            start = max(0, size - max(_TAIL, 2 * len(tail)))
            file.seek(start)
            tail = file.read(size - start)
    lines = tail.decode("utf-8", "backslashreplace").rstrip("\n").split("\n")
    return lines[-count:]
