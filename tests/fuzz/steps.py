"""A bound on the work of a decoder that is counted and not timed: lines of the package executed.

What this does not do: look into the interpreter and into C. One `find` in a megabyte is one line.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

import markerjit

_PACKAGE = markerjit.__path__[0]


class Stepping:
    """`taken` counts lines so far."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0

    def enter(self, frame: FrameType, event: str, arg: Any) -> Any:
        """sys.settrace's function: which frames are counted."""
        return self.step if frame.f_code.co_filename.startswith(_PACKAGE) else None

    def step(self, frame: FrameType, event: str, arg: Any) -> Any:
        if event == "line":
            self.taken += 1
            assert self.taken <= self.most, f"still busy after {self.most} lines"
        return self.step


@contextmanager
def at_most(lines: int) -> Iterator[Stepping]:
    """Whatever takes more lines of the package than this ends with AssertionError."""
    stepping = Stepping(lines)
    before = sys.gettrace()
    sys.settrace(stepping.enter)
    try:
        yield stepping
    finally:
        sys.settrace(before)
