"""Signals that ask a command to end: SIGINT (Ctrl-C), SIGTERM and SIGHUP.

- A command that only looks ends at once (`end_at_once`), without a word.
- A command that has started programs, or writes a file, tidies up first (`Raised`).
- A command that changes a process finishes the change first (`Held`), because a change that is left
  half done would have to be repaired.

The exit code is always 128 and the number of the signal, as a shell has it. A signal that is
ignored stays ignored, as nohup and a shell without job control want it. `trace` and a `flight
start` that waits have handlers of their own, because to them a signal is the normal end.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # type checkers take it for true; typing is not imported this early

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, Self, TypeVar

    T = TypeVar("T")

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal came. `code` is the exit code."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


def end_at_once() -> None:
    """From now on a signal ends the command where it is. Nothing is raised, because an exception
    inside of an import or a finaliser would be shown, or swallowed."""
    _handle(lambda number, _: os._exit(128 + number))


class _Handled:
    """Signals have another handler inside of the `with`."""

    def __init__(self) -> None:
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        self._before = _handle(self._handler)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handler(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError


class Raised(_Handled):
    """Inside of the `with`, a signal raises Interrupted."""

    def _handler(self, number: int, frame: FrameType | None) -> None:
        raise Interrupted(number)


class Held(_Handled):
    """Inside of the `with`, signals are only noted. `code` is the exit code that they ask for, or 0
    without a signal.

    The block has to end by itself. A switch does, because all its waits have time limits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.code = 0

    def _handler(self, number: int, frame: FrameType | None) -> None:
        self.code = 128 + number


class EndsWait(Held):
    """Inside of the `with`, a signal ends `wait` and nothing else. What is in progress is finished
    as with Held, and so is what comes after the wait."""

    def __init__(self) -> None:
        super().__init__()
        self._waiting = False

    def wait(self, wait: Callable[[], T]) -> T:
        """Call `wait`. Raises Interrupted at a signal, also at one that has come before."""
        try:
            self._waiting = True
            if self.code:
                raise Interrupted(self.code - 128)
            return wait()
        finally:
            self._waiting = False

    def _handler(self, number: int, frame: FrameType | None) -> None:
        super()._handler(number, frame)
        if self._waiting:
            raise Interrupted(number)


def _handle(handler: Callable[[int, FrameType | None], None]) -> dict[signal.Signals, Any]:
    """Set the handler of every signal that is not ignored. Returns the handlers before."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    replaced = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in replaced:
        signal.signal(number, handler)
    return replaced
