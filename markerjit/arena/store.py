"""An arena's bytes: the memfd, or the target's memory where its descriptor of that is gone."""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import closing

from markerjit.errors import MarkerError
from markerjit.memory import Memory
from markerjit.model import RemoteAddress

_PUNCH_HOLE, _KEEP_SIZE = 2, 1  # fallocate(2)


class FileStore:
    """The arena through a descriptor of the memfd, which outlives the target. All of it raises
    MarkerError after `close`."""

    gives_back = True
    """Whether `release` does anything."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes. Raises MarkerError where the file ends before."""
        descriptor = self._open()
        data = os.pread(descriptor, size, offset)
        while len(data) < size:  # a signal or a lack of memory may cut a read short
            end = offset + len(data)
            part = os.pread(descriptor, size - len(data), end)
            if not part:
                raise MarkerError(f"the arena ends at {end:#x}; was it truncated?")
            data += part
        return data

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`, or MarkerError: what stands before the place where it failed is written.

        The kernel writes less than it is asked to where the memory of our control group is full.
        """
        descriptor, size = self._open(), len(data)
        while data:
            try:
                written = os.pwrite(descriptor, data, offset)
            except OSError as error:
                raise _not_written(size, error) from error
            if written == len(data):
                return
            if not written:
                raise _not_written(size, OSError(errno.ENOSPC, "nothing was taken"))
            data, offset = data[written:], offset + written

    def grow(self, size: int) -> None:
        """Make the memfd at least this large. Raises MarkerError."""
        descriptor = self._open()
        try:
            if os.fstat(descriptor).st_size < size:
                os.ftruncate(descriptor, size)
        except OSError as error:
            raise MarkerError(
                f"cannot have {size >> 10} KiB for the runtime: {reason(error)}"
            ) from error

    def release(self, offset: int, size: int) -> None:
        """Give the memory of these bytes back; they read as zeros. Does nothing where that is not
        possible: it only saves memory."""
        libc = ctypes.CDLL(None)
        length, start = ctypes.c_int64(size), ctypes.c_int64(offset)
        libc.fallocate(self._open(), _PUNCH_HOLE | _KEEP_SIZE, start, length)

    def used(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """Where something was ever written between there and `size` bytes behind: from, and up to,
        rounded to pages."""
        at, end = offset, offset + size
        descriptor = self._open()
        while at < end:
            try:
                at = os.lseek(descriptor, at, os.SEEK_DATA)
                hole = os.lseek(descriptor, at, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # nothing but a hole is left
                    return
                raise
            if at < end:
                yield at, min(hole, end)
            at = hole

    def fileno(self) -> int:
        """The descriptor, for the native part."""
        return self._open()

    def close(self) -> None:
        """Close the descriptor. From now on everything here raises MarkerError: the number may be
        that of another file soon. May be called again."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> int:
        if self._descriptor < 0:
            raise MarkerError(
                "the runtime's memory was released with its session, so this cannot be used any "
                "more; attach again"
            )
        return self._descriptor


def _not_written(size: int, error: OSError) -> MarkerError:
    return MarkerError(f"cannot write {size} bytes into the runtime's memory: {reason(error)}")


def reason(error: OSError) -> str:
    """Why memory of an arena could not be had, or written."""
    limit = "is the memory of our control group used up?"
    if error.errno == errno.EFBIG:
        limit = "our own limit of file sizes (ulimit -f) holds for it"
    return f"{error.strerror}; {limit}"


class MemoryStore:
    """The arena through the target's memory, where its descriptor is gone, or is its parent's.
    `open_file` gives a descriptor for a look at what was written, or None."""

    gives_back = False

    def __init__(
        self,
        memory: Memory,
        base: RemoteAddress,
        open_file: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._memory = memory
        self._base = base
        self._open_file = open_file

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes."""
        return self._memory.read(RemoteAddress(self._base + offset), size)

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`."""
        self._memory.write(RemoteAddress(self._base + offset), data)

    def release(self, offset: int, size: int) -> None:
        """Not possible from here."""

    def used(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        """As of a FileStore. Nothing without a descriptor: a look for it would fill the holes with
        pages."""
        descriptor = self._open_file()
        if descriptor is None:
            return iter(())
        with closing(FileStore(descriptor)) as store:
            return iter([*store.used(offset, size)])

    def close(self) -> None:
        """Nothing to close: the memory is not ours."""
