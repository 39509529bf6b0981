"""Whether a switch has happened: all of the program's code is compared with what it was before the
first switch, or with what it was when all sites were seen to be on.

Of a mode whose code never changes, the slots are looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from markerjit.apps.bench.toggle.ways import OFF, ON
from markerjit.errors import MarkerError
from markerjit.lowlevel import ProcessMemory, read_maps
from markerjit.model import RemoteAddress

_POINTER = 8


class State:
    """The code of a program in a process, which is off when this is made. In `slots` a marker's
    probe stands; give them where the code does not change."""

    def __init__(self, pid: int, path: Path, sites: int, slots: Sequence[int] = ()) -> None:
        self._spans = [
            (mapping.start, mapping.size) for mapping in read_maps(pid)
            if mapping.executable and mapping.path == str(path)
        ]  # fmt: skip
        if not self._spans:
            raise MarkerError(f"process {pid} has no code of {path}")
        self._changes = 0 if slots else sites
        self._slots = [RemoteAddress(slot) for slot in slots]
        self._memory = ProcessMemory(pid)
        try:
            self._known = {OFF: self._code()}
        except BaseException:
            self.close()
            raise

    def check(self, direction: str) -> None:
        """Check that all sites are switched in this direction. Raises MarkerError."""
        code = self._code()
        if direction not in self._known:
            changed = bytes_that_differ(code, self._known[OFF])
            if changed != self._changes:
                raise MarkerError(f"{changed} bytes of code differ where {self._changes} should")
            self._known[direction] = code
        elif code != self._known[direction]:
            changed = bytes_that_differ(code, self._known[direction])
            raise MarkerError(f"{changed} bytes of code are not as they should be ({direction})")
        for slot in self._slots:
            if any(self._memory.read(slot, _POINTER)) != (direction == ON):
                raise MarkerError(f"the slot at {slot:#x} is not {direction}")

    def close(self) -> None:
        """Let the memory go."""
        self._memory.close()

    def _code(self) -> bytes:
        return b"".join(self._memory.read(start, size) for start, size in self._spans)


def bytes_that_differ(before: bytes, after: bytes) -> int:
    """How many bytes differ between two texts of one length."""
    arrays = (np.frombuffer(each, dtype=np.uint8) for each in (before, after))
    return int(np.count_nonzero(np.not_equal(*arrays)))
