"""A process that a signal handler keeps inside a span (tests/unit/stop/frames.c)."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

from markerjit.model import Edit, RemoteAddress
from tests.support.children import SOURCES, Child

PIECE = 32 * 1024  # of a stack, searched at once
SEGMENTS = bytes.fromhex("330000000000 2b00")  # cs, gs, fs and ss in a frame


class Handling(Child):
    """A process with a thread in a handler, which was called inside the span."""

    source = SOURCES / "frames.c"

    def __init__(self, program: Path, kind: str, depth: int = 0) -> None:
        super().__init__(program, kind, str(depth))
        self.span, self.call, self.tid = (self.places[name] for name in ("span", "call", "tid"))

    def replace(
        self, address: int, old: bytes, new: bytes, library: ctypes.CDLL | None = None
    ) -> int:
        """One edit, while all threads stand; the status."""
        edits = [Edit(RemoteAddress(address), old, new, "", True)]
        return self.apply(edits, library=library)

    def go_on(self) -> None:
        self.input.send(b"x")

    def wait_asleep(self) -> None:
        self.wait_state("S")

    def distance_to_frame(self) -> int:
        """From the stack pointer of the thread, which waits, to the segments in the frame that is
        on the same stack."""
        self.wait_asleep()
        stack_pointer = int(Path(f"/proc/{self.pid}/syscall").read_text().split()[-2], 16)
        stack = os.pread(self.memory, 2 * PIECE, stack_pointer)
        return stack.index(SEGMENTS)
