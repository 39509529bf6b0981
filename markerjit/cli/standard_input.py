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
    from types import FrameType

_MAGICS = {b"PAR1": ".parquet", b"ARROW1": ".arrow", b"\n": ".pftrace", b"{": ".jsonl"}
_CHROME = (b'{"traceEvents"', b"[")
_LOOKED_AT = 64


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
            path = os.path.join(folder, f"standard-input{_suffix(first)}")
            with open(path, "wb") as file:
                file.write(first)
                shutil.copyfileobj(source, file)
        yield path


def _suffix(first: bytes) -> str:
    text = first.lstrip()
    if text.startswith(_CHROME):
        return ".json"
    for magic, suffix in _MAGICS.items():
        if (text if magic == b"{" else first).startswith(magic):
            return suffix
    raise Refused(
        "standard input is empty"
        if not first
        else "standard input does not begin as JSON lines, Chrome's JSON, Parquet, Arrow or "
        "Perfetto do; CTF is a directory, and text has no types: give their path"
    )
