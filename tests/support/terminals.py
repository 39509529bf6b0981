"""Commands in a pseudo-terminal of a width: what they print, and what a screen shows of it."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import termios
from contextlib import ExitStack

from tests.support.commands import ENVIRONMENT, forked

_PART = re.compile(r"\x1b\[([\d;]*)([A-Za-z])|([\r\n])|([^\x1b\r\n]+)")


def screen_of(text: str, *, lines: int = 24) -> list[str]:
    """The lines of a terminal behind such a text, those that have left its screen first. It knows
    what is sent there: letters, ends of lines, CPL, ED, EL and colours, of ECMA-48. No line may be
    wider than the screen."""
    shown = [""]
    row = column = 0
    assert _PART.sub("", text) == ""
    for count, command, end, letters in _PART.findall(text):
        if letters:
            before = shown[row].ljust(column)[:column]
            shown[row] = f"{before}{letters}{shown[row][column + len(letters) :]}"
            column += len(letters)
        elif end == "\r":
            column = 0
        elif end:
            row, column = row + 1, 0
            shown += [""] * (row + 1 - len(shown))
        elif command == "F":
            row, column = max(row - int(count or 1), len(shown) - lines, 0), 0
        elif command in "JK":
            shown[row] = shown[row][:column]
            if command == "J":
                shown[row + 1 :] = [""] * (len(shown) - row - 1)
    return shown


def in_terminal(
    *words: object, columns: int = 80, errors: int | None = None, **environment: str
) -> str:
    """What a command prints in a terminal, with `TERM`, and without `NO_COLOR` and a pager.
    `errors` is a descriptor for its standard error, in place of the terminal."""
    return ended_in_terminal(*words, columns=columns, errors=errors, **environment)[1]


def ended_in_terminal(
    *words: object, columns: int = 80, errors: int | None = None, **environment: str
) -> tuple[int, str]:
    """The exit code of such a command, and what it prints."""
    controller, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    left_out = ("NO_COLOR", "COLUMNS")
    kept = {name: value for name, value in ENVIRONMENT.items() if name not in left_out}
    surroundings = {**kept, "TERM": "xterm", "PAGER": "cat", **environment}
    with ExitStack() as stack:
        stack.callback(os.close, controller)
        nothing = os.open(os.devnull, os.O_RDONLY)
        streams = [nothing, terminal, terminal if errors is None else errors]
        with forked(list(map(str, words)), streams, surroundings) as command:
            os.close(nothing)
            os.close(terminal)
            shown = _read_all(controller)
            code = command.exit_code()
    return code, shown.replace("\r\n", "\n")


def _read_all(controller: int) -> str:
    data = b""
    while True:
        try:
            piece = os.read(controller, 1 << 16)
        except OSError:  # the other end was closed
            piece = b""
        if not piece:
            return data.decode()
        data += piece
