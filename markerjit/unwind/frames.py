"""The frames of a stack, with names: as values."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markerjit.frames import Frame, StackText
from markerjit.tuples import NamedTuple, brief

__all__ = ["Frame", "WalkedStack"]

if TYPE_CHECKING:  # those who show stacks need nothing of what finds them
    from markerjit.unwind.walk import StackEnd


class WalkedStack(NamedTuple):
    """The stack of an event.

    frames  the innermost first
    end     why there are no more: nothing has called the last one; or no table has its code, or
            what stands on the stack cannot be, or it is deeper
    """

    frames: tuple[Frame, ...]
    end: StackEnd

    def __repr__(self) -> str:
        return brief(self)

    @property
    def labels(self) -> tuple[str, ...]:
        """What the functions are called, as samples have them: the first caller first, and above it
        why the stack ends there."""
        end = (str(self.end),) if self.end else ()
        return (*end, *(frame.label for frame in reversed(self.frames)))

    @property
    def text(self) -> StackText:
        """The same as the value of a field."""
        return StackText.of(self.frames, str(self.end))
