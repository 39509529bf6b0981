"""`PATTERN -- COMMAND ARGS...`: a program is started, is the target, and has the last word.

It waits at its entry point until its markers are on. The command ends with the program, and has its
exit code. Signals of the terminal are the program's, and a SIGTERM is passed on to it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable

import markerjit
from markerjit.cli import output, targets
from markerjit.cli.end import End

_PATIENCE_S = 600.0
"""To plan all functions of a large program takes a minute or two, the first time."""


def run_program(
    options: argparse.Namespace,
    end: End,
    body: Callable[[targets.Chosen, markerjit.Launched], object],
) -> int:
    """Start the program of the options, call `body` when it waits, and return its exit code. `body`
    lets it go, and says itself what went wrong for single processes."""
    with markerjit.Launched(options.program, patience=_PATIENCE_S) as program:
        if end.has_come:  # a signal, before there was a program to have it
            return 130
        end.leave_signals_to(program)
        if not program.wait_until_held():
            output.say("markerjit: the program ended before its entry point", error=True)
            return program.wait()
        try:
            body(targets.Chosen([program.pid], by_pid=True), program)
        except markerjit.MarkerError as error:
            if not program.has_begun:
                if isinstance(error, markerjit.NoMarkers | markerjit.UnknownMarker):
                    _name_file(error, program.pid, options.program[0])
                raise
            for line in (f"markerjit: {error}", *getattr(error, "__notes__", ())):
                output.say(line, error=True)
        return program.wait()


def _name_file(error: markerjit.MarkerError, pid: int, program: str) -> None:
    """Have an error name the file as what to look at: the process has not begun, and will not."""
    from shlex import quote  # a command says it seldom
    from shutil import which

    file = quote(which(program) or program)
    error.args = (str(error).replace(f"list {pid} ", f"list {file} "),)


def let_go(program: markerjit.Launched | None) -> None:
    """Let a program begin, if one was started, now that its markers are on."""
    if program and not program.go():
        output.say("the program had begun before its markers were on", error=True)
