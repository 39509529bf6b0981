"""The stacks of events by their numbers, with the names of their functions, for one reader.

Names are looked up when a stack is first seen here, by what is mapped then. While the process runs
the reader has the directory of its code made anew when other code is mapped (arena/stacks.py).
"""

from __future__ import annotations

from contextlib import suppress

from markerjit.arena.stacks import StackMemory, stacks_of
from markerjit.errors import MarkerError
from markerjit.memory.maps import read_maps_text
from markerjit.session.switch import Switcher
from markerjit.unwind.frames import WalkedStack
from markerjit.unwind.names import FrameNames
from markerjit.unwind.objects import ProcessCode


class WalkedStacks:
    """The stacks of a process."""

    def __init__(self, switcher: Switcher) -> None:
        self._switcher = switcher
        self._known: dict[int, WalkedStack | None] = {}
        self._maps_text = ""
        self._lost = 0
        self._names: FrameNames | None = None

    def look(self) -> None:
        """Before stacks are read: see what is mapped. What cannot be seen, because the process has
        ended or another controller is at work, stays as it was."""
        target = self._switcher.target
        with suppress(MarkerError):
            if read_maps_text(target.pid) == self._maps_text:
                return
            with self._switcher.turn() as turn:  # which has the directory made anew
                maps_text, maps = turn.seen.maps_text, turn.seen.maps
                code = ProcessCode(target.memory.read, maps)
                self._names = FrameNames(target.pid, code, outlives=True)
                self._maps_text = maps_text

    def of(self, number: int) -> WalkedStack | None:
        """The stack with this number; None where it is not known."""
        if number not in self._known:
            memory = self._memory
            stack = memory.stack(number) if memory else None
            if stack is None or self._names is None:
                return None
            self._known[number] = self._names.stack(stack)
        return self._known[number]

    @property
    def lost(self) -> int:
        """How many events have no stack, because there was no room for it."""
        with suppress(MarkerError):  # at the end, what was seen last
            memory = self._memory
            self._lost = memory.lost if memory else 0
        return self._lost

    @property
    def _memory(self) -> StackMemory | None:
        arena = self._switcher.target.seen.arena
        return stacks_of(arena) if arena else None
