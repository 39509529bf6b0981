"""A pager for what is printed on a terminal, as git and man have one: MARKERJIT_PAGER, PAGER, or
less. In a pipe or a file there is none.

less gets the options FRX, unless LESS says others: it ends by itself where a screen is enough,
passes colours on, and leaves the text on the screen. `cat` or nothing as the pager is none.
"""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from io import TextIOWrapper

from markerjit.cli import output, signals

_OPTIONS = {"LESS": "FRX", "LV": "-c"}
"""Options of pagers that are set in the environment, where nothing is set."""


@contextmanager
def paged() -> Iterator[None]:
    """Within, standard output goes through a pager, if it is a terminal and there is one; and so
    does standard error, where it is the same terminal. Waits for the user to leave the pager.
    Raises BrokenPipeError where that was before the end, and Interrupted for a signal."""
    command = _command()
    if not command:
        yield
        return
    pager = subprocess.Popen(command, stdin=subprocess.PIPE, env=_OPTIONS | os.environ)
    assert pager.stdin
    lines = TextIOWrapper(pager.stdin, encoding=sys.stdout.encoding, errors="backslashreplace")
    errors = lines if output.is_one_terminal() else sys.stderr
    try:
        with (
            output.as_on_terminal(), redirect_stdout(lines), redirect_stderr(errors),
            signals.Raised(),  # Ctrl-C ends us; the pager shows what it has
        ):  # fmt: skip
            yield
            lines.flush()
    finally:
        with suppress(BrokenPipeError):
            lines.close()
        _wait(pager)


def _command() -> list[str]:
    """The pager; none where the output is no terminal that one can be used on."""
    if not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        return []
    text = next(
        (os.environ[name] for name in ("MARKERJIT_PAGER", "PAGER") if name in os.environ), "less"
    )
    try:
        words = shlex.split(text)
    except ValueError:  # a quote that is not closed
        return []
    return words if words and words != ["cat"] and shutil.which(words[0]) else []


def _wait(pager: subprocess.Popen[bytes]) -> None:
    """Ctrl-C is for the pager."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
