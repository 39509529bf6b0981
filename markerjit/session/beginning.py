"""Programs that wait for us at their entry points, and have executed nothing of their own.

What such a program does with SIGTRAP is not known yet. Some take the signal for themselves where
they begin, as vim does, and a breakpoint of ours would then end them.
"""

from __future__ import annotations

from typing import Protocol
from weakref import WeakSet

NOT_BEGUN = (
    "cannot be opened yet: it needs a breakpoint, and the program has not begun: it may still take "
    "SIGTRAP for itself, and a breakpoint would end it; switch it on later, or with --mode int3"
)


class Waiting(Protocol):
    """A program that waits."""

    pid: int

    def __hash__(self) -> int: ...


_waiting: WeakSet[Waiting] = WeakSet()


def note_waiting(program: Waiting) -> None:
    """This one waits, until `note_begun`, or for as long as it is known."""
    _waiting.add(program)


def note_begun(program: Waiting) -> None:
    """It begins."""
    _waiting.discard(program)


def has_not_begun(pid: int) -> bool:
    """Whether a process is a program that waits."""
    return any(program.pid == pid for program in _waiting)
