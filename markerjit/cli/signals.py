"""Signals that ask a command to end: SIGINT (Ctrl-C), SIGTERM and SIGHUP.

- A command that only looks ends at once (`end_at_once`), without a word.
- One that has started programs or writes a file tidies up first (`Raised`).
- One that changes a process finishes the change first (`Held`): a change that is left half done
  has to be repaired by somebody.

In all of them the exit code is 128 and the number of the signal, as a shell has it. A signal that
is ignored stays ignored: nohup, and a shell without job control, want it so. `trace` and a `record`
that waits have handlers of their own, because to them a signal is the normal end.
"""

from __future__ import annotations

import os
import signal

TYPE_CHECKING = False  # type checkers take it for true; typing is not imported this early

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType, TracebackType
    from typing import Any, Self

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Interrupted(KeyboardInterrupt):
    """A signal came. `code` is the exit code."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


def end_at_once() -> None:
    """From now on a signal ends the command where it is. Nothing is raised: an exception inside of
    an import or a finaliser would be shown, or swallowed."""
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
    """Inside of the `with`, signals are only noted. `code` is then the exit code that they ask for,
    0 without one.

    The block has to come to its end by itself. A switch does: all its waits have time limits.
    """

    def __init__(self) -> None:
        super().__init__()
        self.code = 0

    def _handler(self, number: int, frame: FrameType | None) -> None:
        self.code = 128 + number


def _handle(handler: Callable[[int, FrameType | None], None]) -> dict[signal.Signals, Any]:
    """Set it for every signal that is not ignored. Returns the handlers there were."""
    before = {number: signal.getsignal(number) for number in _ENDING}
    taken = {number: old for number, old in before.items() if old is not signal.SIG_IGN}
    for number in taken:
        signal.signal(number, handler)
    return taken
