"""What `alloc` and `calls` share: a trace whose numbers grow until its end, and their table.

On a terminal the table is drawn anew meanwhile, in place. Elsewhere it is printed once, at the end.

What this does not do: begin a trace, or know what is in the table.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import output
from markerjit.cli.end import End

if TYPE_CHECKING:
    Trace = markerjit.AllocationTrace | markerjit.CallTrace

ROWS = 20
"""Of a table, unless others are asked for."""
_REDRAW_S = 0.5
_POLL_S = 0.02


class Table:
    """Where the table is drawn."""

    def __init__(self, options: argparse.Namespace) -> None:
        # What a program that was started prints comes in between.
        self.is_live = sys.stdout.isatty() and not options.json and not options.program
        self._picture = output.Picture()

    def room(self, top: int | None) -> int:
        """How many rows fit, of so many that are asked for."""
        # Beside the header, a line below the table, and that of the cursor.
        return min(top or ROWS, max(1, output.height() - 3))

    def drawn(self) -> AbstractContextManager[None]:
        """What is printed within takes the place of the last table."""
        return self._picture.drawn()

    def whole(self) -> AbstractContextManager[None]:
        """The same, and all of it stays."""
        return self._picture.drawn(whole=True) if self.is_live else nullcontext()


def follow(trace: Trace, end: End, show_meanwhile: Callable[[], None] | None) -> None:
    """Poll a trace until its end, and show it now and then."""
    next_at = time.monotonic() + _REDRAW_S
    while not end.has_come and not trace.is_over():
        came = trace.poll()
        if show_meanwhile and time.monotonic() >= next_at:
            show_meanwhile()
            next_at = time.monotonic() + _REDRAW_S
        if not came:
            time.sleep(_POLL_S)


def failure_of(write: Callable[[], None]) -> markerjit.MarkerError | None:
    """Write a file, before our output may have no reader any more; the reason why that could not be
    done, which comes behind the table."""
    try:
        write()
    except markerjit.MarkerError as error:
        return error
    return None


def check_end(
    trace: Trace,
    end: End,
    pid: int,
    program: markerjit.Launched | None,
    failure: markerjit.MarkerError | None,
) -> None:
    """Raise what went wrong, or the reason for an end that was not asked for. A program that was
    started here ends its trace when it ends."""
    if failure and not (program and isinstance(failure, markerjit.TargetGone)):
        raise failure
    if trace.target_ended and not end.has_come and not program:
        raise markerjit.TargetGone(pid)
    if trace.dispossessed:
        raise markerjit.Refused(
            f"another controller has taken the functions of process {pid}; this is what was seen "
            "until then"
        )
