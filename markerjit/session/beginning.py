"""Programs that wait for us at their entry points, and have executed nothing of their own.

What such a program does with SIGTRAP is not known yet. Some take the signal for themselves where
they begin, as vim does, and a breakpoint of ours would then end them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:  # most commands start no program
    from weakref import WeakSet

NOT_BEGUN = (
    "cannot be opened yet: it needs a breakpoint, and the program has not begun: it may still take "
    "SIGTRAP for itself, and a breakpoint would end it; switch it on later, or with --mode int3"
)


class Waiting(Protocol):
    """A program that waits."""

    pid: int

    def __hash__(self) -> int: ...


_waiting: list[WeakSet[Waiting]] = []
"""The programs that wait, once there was one."""


def note_waiting(program: Waiting) -> None:
    """This one waits, until `note_begun`, or for as long as it is known."""
    from weakref import WeakSet

    if not _waiting:
        _waiting.append(WeakSet())
    _waiting[0].add(program)


def note_begun(program: Waiting) -> None:
    """It begins."""
    for programs in _waiting:
        programs.discard(program)


def has_not_begun(pid: int) -> bool:
    """Whether a process is a program that waits."""
    return any(program.pid == pid for programs in _waiting for program in programs)
