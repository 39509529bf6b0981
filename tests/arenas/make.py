"""Write down the arena of a process, for the tests that open arenas of every version.

    python tests/arenas/make.py PID FILE

What was ever written of it, up to the rings, is copied out of the process's memfd; nothing of
markerjit is imported, so it does not matter which version has made it. The images here are of
build/targets/truth_threads, in which that version had switched `truth_loop` on, and then off by
breakpoints and on again:

    session.enable("truth_loop", mode="int3"); session.disable("truth_loop")
    session.enable("truth_loop")

A file is JSON, compressed by lzma: the size of the arena, where the process had it, and the pieces
as offset and bytes in base 64.
"""

from __future__ import annotations

import base64
import json
import lzma
import os
import sys
from collections.abc import Iterator
from pathlib import Path

LINK = "/memfd:markerjit (deleted)"
MOST = 128 << 20
"""The code, the control block and the tables that a switch writes are before that."""


def main() -> None:
    pid, target = sys.argv[1:]
    descriptor = next(
        os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY)
        for number in os.listdir(f"/proc/{pid}/fd")
        if os.readlink(f"/proc/{pid}/fd/{number}") == LINK
    )
    maps = Path(f"/proc/{pid}/maps").read_text().splitlines()
    base = min(int(line.split("-")[0], 16) for line in maps if line.endswith(LINK))
    size = os.fstat(descriptor).st_size
    fragments = [
        [start, base64.b64encode(os.pread(descriptor, end - start, start)).decode()]
        for start, end in pieces(descriptor, min(size, MOST))
    ]
    image = {"size": size, "base": base, "pieces": fragments}
    Path(target).write_bytes(lzma.compress(json.dumps(image).encode(), preset=9))


def pieces(descriptor: int, end: int) -> Iterator[tuple[int, int]]:
    """Where something was written."""
    at = 0
    while at < end:
        try:
            start = os.lseek(descriptor, at, os.SEEK_DATA)
        except OSError:
            return
        at = os.lseek(descriptor, start, os.SEEK_HOLE)
        if start < end:
            yield start, min(at, end)


if __name__ == "__main__":
    main()
