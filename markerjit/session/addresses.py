"""What stands at addresses of a process's code, such as those that functions return to: the
function, and how far behind its start.

Names are looked up in what the process had mapped at the first look, in the files of these objects
where it has ended. What this does not do: name data.
"""

from __future__ import annotations

import os
from contextlib import suppress

from markerjit.elf.demangle import demangled
from markerjit.errors import NoSuchProcess, TargetGone
from markerjit.session.target import Target
from markerjit.unwind.names import FrameNames
from markerjit.unwind.objects import ProcessCode


class AddressNames:
    """The names of a process's addresses; each is looked up once."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._frames: FrameNames | None = None
        self._known: dict[int, str] = {}

    def prepare(self) -> None:
        """Look at what is mapped now: the process may end before the first name is needed."""
        with suppress(TargetGone, NoSuchProcess):
            self._names()

    def of(self, address: int) -> str:
        """`kv_get+0x1f`; `libc.so.6+0x2a1f0` where no symbol is known; the number where no code is.
        An address behind a call is in the function of the call."""
        if address not in self._known:
            if self._target.closed:
                return f"{address:#x}"
            try:
                self._known[address] = self._look_up(address)
            except (TargetGone, NoSuchProcess):
                return f"{address:#x}"
        return self._known[address]

    def _look_up(self, address: int) -> str:
        frame = self._names().frame(address, exact=False)
        if not frame.object:
            return f"{address:#x}"
        if not frame.function:
            return f"{os.path.basename(frame.object)}+{frame.place:#x}"
        return f"{demangled(frame.function)}+{frame.offset:#x}"

    def _names(self) -> FrameNames:
        target = self._target
        if self._frames is None:
            with target.memory.watched():
                code = ProcessCode(target.memory.read, target.seen.maps)
            self._frames = FrameNames(target.pid, code, outlives=True)
        return self._frames
