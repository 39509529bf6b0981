"""What stands at addresses of a process's code, such as those that functions return to: the
function, and how far behind its start.

Names are looked up in what the process had mapped at one of the looks, in the files of these
objects where it has ended. What this does not do: name data.
"""

from __future__ import annotations

import os

from markerjit.elf.demangle import demangled
from markerjit.frames import UNKNOWN_OBJECT
from markerjit.session.seen_code import SeenCode
from markerjit.session.target import Target


class AddressNames:
    """The names of a process's addresses; each is looked up once, unless other code is mapped."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._code = SeenCode(target)
        self._known: dict[int, str] = {}
        self.look()  # the process may end before the first name is needed

    def look(self) -> None:
        """Before names are asked for: see what is mapped, as long as the process is there."""
        if self._code.look():
            self._known.clear()

    def of(self, address: int) -> str:
        """`kv_get+0x1f`; `libc.so.6+0x2a1f0` where no symbol is known; the number where no code is,
        and that with `[unknown object]` where more than one object was seen. An address behind a
        call is in the function of the call."""
        if address not in self._known:
            if self._target.closed:
                return f"{address:#x}"
            self._known[address] = self._look_up(address)
        return self._known[address]

    def _look_up(self, address: int) -> str:
        frame = self._code.frame(address)
        if frame.object == UNKNOWN_OBJECT:
            return f"{UNKNOWN_OBJECT} {address:#x}"
        if not frame.object:
            return f"{address:#x}"
        if not frame.function:
            return f"{os.path.basename(frame.object)}+{frame.place:#x}"
        return f"{demangled(frame.function)}+{frame.offset:#x}"
