"""`-o -`: a trace on standard output, in any format.

The trace is written into a file of its own in a temporary folder, and that is copied to standard
output while it grows: so a reader that pauses costs room on the disk, and no events. What was
copied is given back to the disk. CTF is a directory, and comes as a tar archive when it is
complete.

What this does not do: wait for a reader that has gone for good. The caller's `write` decides that.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import markerjit
from markerjit.cli import signals
from markerjit.cli.recording import SUFFIXES
from markerjit.errors import Refused

_ARROW_MAGIC = 8
"""Bytes of an Arrow file before what is a stream of Arrow's."""
_AT_ONCE = 1 << 20
_KEEP_SIZE, _PUNCH_HOLE = 1, 2  # of fallocate(2)


def is_standard_output(options: argparse.Namespace) -> bool:
    """Whether the events go to standard output as a trace. Raises Refused where that cannot be."""
    name = options.format
    if "{" in (name or ""):  # a template of lines, which are no trace
        if options.output == "-":
            raise Refused("a template is for lines that are printed; leave out -o -")
        return False
    if options.output != "-":
        if name and options.output:
            raise Refused("FILE is in the format of its suffix; --format is for -o -")
        if name:
            raise Refused(f"--format {name} is for -o -; without it events are printed as lines")
        return False
    if options.json:
        raise Refused("-o - writes only the events to standard output; leave out --json")
    if name not in (None, "text", "jsonl") and sys.stdout.isatty():
        raise Refused(f"{name} is not for a terminal; send it into a pipe or a file")
    return True


def file_name(options: argparse.Namespace) -> str | None:
    """The name of the file that is written; where there is none, one that says the format."""
    if options.output != "-":
        return str(options.output) if options.output else None
    return f"trace{SUFFIXES[options.format or 'text']}"


def check(options: argparse.Namespace) -> None:
    """Raise Refused and Unsupported where a trace of this format cannot be written, before anything
    is switched on."""
    with spool_path(options) as path:
        markerjit.check_output(path)


def check_several(options: argparse.Namespace) -> None:
    """Raise Refused where several processes cannot be written in this format."""
    if options.format != "ctf" and not markerjit.is_joint(file_name(options) or ""):
        raise Refused(
            "several processes are written as CTF (--format ctf), jsonl, perfetto, parquet or arrow"
        )


@contextmanager
def spool_path(options: argparse.Namespace) -> Iterator[str]:
    """Where the trace is written. It is removed at the end."""
    import tempfile

    with tempfile.TemporaryDirectory(prefix="markerjit-") as folder:
        yield os.path.join(folder, file_name(options) or "")


class Copier:
    """Copies a trace that is being written at `path`, by `write`."""

    def __init__(self, path: str, write: Callable[[bytes], object]) -> None:
        self._path = path
        self._write = write
        self._file: int | None = None
        self._at = _ARROW_MAGIC if path.endswith(".arrow") else 0

    def copy_new(self) -> None:
        """Copy what was added to the file. A directory is not copied before its end."""
        if self._file is None:
            if not os.path.isfile(self._path):
                return
            self._file = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        begun = self._at
        while data := os.pread(self._file, _AT_ONCE, self._at):
            self._at += len(data)
            self._write(data)
        if self._at > begun:
            _give_back(self._file, self._at)

    def end(self) -> None:
        """Copy what is left, of a trace that is complete."""
        if os.path.isdir(self._path):
            self._copy_archive()
        else:
            self.copy_new()
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _copy_archive(self) -> None:
        import tarfile

        file: Any = _Writing(self._write)
        with tarfile.open(fileobj=file, mode="w|") as archive:
            archive.add(self._path, arcname=os.path.basename(self._path))


class _Writing:
    """A file for tarfile, which only writes."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write

    def write(self, data: bytes) -> int:
        """Pass it on."""
        self._write(data)
        return len(data)


@contextmanager
def saved_to_standard_output(options: argparse.Namespace) -> Iterator[bool]:
    """Within, `options.output` is a file, which goes to standard output at the end; where that was
    asked for, as the result says."""
    if not is_standard_output(options):
        yield False
        return
    with signals.Raised(), spool_path(options) as path:
        options.output = path
        yield True
        sys.stdout.flush()
        Copier(path, _write_all).end()


def _write_all(data: bytes) -> None:
    sys.stdout.buffer.write(data)


def _give_back(file: int, size: int) -> None:
    """Free the room of the first bytes of a file, where its file system can do that."""
    import ctypes

    fallocate = ctypes.CDLL(None, use_errno=True).fallocate
    fallocate.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    with suppress(AttributeError):
        fallocate(file, _KEEP_SIZE | _PUNCH_HOLE, 0, size)
