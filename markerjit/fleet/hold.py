"""The loop in which a program waits at its entry point: native/src/stop/launch.c.

Its libraries are mapped and initialised there. What it runs itself, its constructors and `main`,
comes afterwards.
"""

from __future__ import annotations

import time
from contextlib import suppress

from markerjit.errors import MarkerError, MemoryFault, NoSuchProcess, Refused
from markerjit.memory import ProcessMemory
from markerjit.model import Edit, RemoteAddress
from markerjit.patch.apply import apply
from markerjit.patch.inside import with_nobody_inside
from markerjit.patch.plan import Plan
from markerjit.proc.permission import why_not
from markerjit.proc.positions import thread_positions
from markerjit.remote import native

_RELEASED = (1).to_bytes(4, "little")
_ADDRESS_BYTES = 8


class Hold:
    """The hold of a program that executes a file. It begins by itself when this process is gone,
    and when its patience is over."""

    def __init__(self, launched: native.Launched) -> None:
        self.pid: int = launched.pid
        self.patience_s: float = launched.patience_ms / 1000
        self._launched = launched
        self._was_inside = self._has_begun = self._released_in_time = False
        self._since = time.monotonic()

    def is_waiting(self) -> bool:
        """Whether the program sleeps in its hold, behind the first instruction of that."""
        inside = range(self._launched.hold + 1, self._launched.hold + self._launched.size)
        with suppress(NoSuchProcess):
            if any(thread.pc in inside for thread in thread_positions(self.pid)):
                self._was_inside = True
                return True
        return False

    def has_begun(self) -> bool:
        """Whether the program has left its hold: by itself, because its patience was over, where it
        was not released."""
        if not self._has_begun:
            place, size = RemoteAddress(self._launched.place), _ADDRESS_BYTES
            try:
                with self.open_memory() as memory:
                    entry = int.from_bytes(memory.read(place, size), "little")
            except MemoryFault:  # its stack is that of another program
                entry = 0
            except MarkerError:
                return False
            self._has_begun = entry != self._launched.hold
            self._was_inside |= self._has_begun
        return self._has_begun

    @property
    def is_overdue(self) -> bool:
        """Whether its patience is over by now, as far as can be told."""
        return time.monotonic() - self._since >= self.patience_s

    def open_memory(self) -> ProcessMemory:
        """The memory of the program, which the caller closes. Raises MarkerError."""
        return ProcessMemory(self.pid, why_not=why_not)

    def release(self, memory: ProcessMemory) -> bool:
        """Let the program begin. Returns False where it may have begun by itself. Raises
        MarkerError where it has ended."""
        memory.write(RemoteAddress(self._launched.released), _RELEASED)
        in_time = not self._has_begun and not self.is_overdue
        self._released_in_time |= in_time
        return self._released_in_time

    def try_to_remove(self, memory: ProcessMemory) -> bool:
        """Put back what was where the hold is. Returns False while the program is still inside, or
        has never been seen there: it may be yet to come.

        It does not come back to the first instruction, of which the loader's registers and stack
        still have the address. A hold that stays behind is executed by nobody. So each part of it
        may be put back without the others, and no journal is needed. Raises MarkerError.
        """
        if not self._was_inside:
            return False
        launched = self._launched
        first = RemoteAddress(launched.hold)
        empty = with_nobody_inside(first, memory.read(first, launched.size), "the hold")
        now = bytearray(launched.code[: launched.size])
        at = launched.released - launched.hold
        now[at : at + len(_RELEASED)] = _RELEASED
        before = bytes(launched.before[: launched.size])
        edits = [
            Edit(
                RemoteAddress(launched.hold + start),
                bytes(now[start : start + native.MAX_EDIT]),
                before[start : start + native.MAX_EDIT],
                "the hold",
                True,
            )
            for start in range(0, launched.size, native.MAX_EDIT)
        ]
        plan = Plan("put back what was where the hold is", (*empty, *edits))
        process = native.NativeTarget(
            pid=self.pid, pidfd=memory.pidfd, mem_fd=memory.fileno(), mapped=b"", mapped_size=0
        )
        try:
            apply(plan, process, None)
        except Refused as refused:
            if not refused.try_again:  # as where a thread is still inside
                raise
            return False
        return True
