"""The frames of a stack, with names: as values."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from markerjit.tuples import NamedTuple

if TYPE_CHECKING:  # those who show stacks need nothing of what finds them
    from markerjit.unwind.walk import StackEnd


class Frame(NamedTuple):
    """A frame of a stack.

    address   where it goes on, in the process
    object    the path of the object, "" where none is there
    place     the address in the object file; 0 without an object
    function  its symbol, "" where none is known
    offset    from where the function begins; 0 where that is not known
    """

    address: int
    object: str
    place: int
    function: str
    offset: int

    @property
    def label(self) -> str:
        """The function: its symbol, or its place in the object."""
        if self.function or not self.object:
            return self.function or "[no object]"
        return f"{os.path.basename(self.object)}+{self.place - self.offset:#x}"


class WalkedStack(NamedTuple):
    """The stack of an event.

    frames  the innermost first
    end     why there are no more: nothing has called the last one; or no table has its code, or
            what stands on the stack cannot be, or it is deeper
    """

    frames: tuple[Frame, ...]
    end: StackEnd

    @property
    def labels(self) -> tuple[str, ...]:
        """What the functions are called, as samples have them: the first caller first, and above it
        why the stack ends there."""
        end = (str(self.end),) if self.end else ()
        return (*end, *(frame.label for frame in reversed(self.frames)))
