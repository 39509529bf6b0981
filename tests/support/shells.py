"""Interactive shells in a pseudo-terminal, whose Tab key is pressed."""

from __future__ import annotations

import os
import pty
import re
import shutil
import signal
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.timing import Hangs, Wait, reaped

PACKAGES = {"bash": "bash", "zsh": "zsh", "fish": "fish"}
WORDS = {
    "bash": ["bash", "--norc", "--noprofile", "-i"],
    "zsh": ["zsh", "-f", "-i"],
}


def need_shell(name: str) -> None:
    """Skip where a shell is not installed."""
    if shutil.which(name) is None:
        pytest.skip(f"needs {name} (Debian package {PACKAGES[name]})")


class Shell:
    """A shell that waits for keys. A line that is ended gives what it printed."""

    def __init__(self, terminal: int) -> None:
        self._terminal = terminal
        self._number = 0
        self._unread = ""

    def run(self, line: str) -> str:
        """Run a line and return what was printed, without the line as it was typed."""
        self._number += 1
        mark = f"end-{self._number}"
        os.write(self._terminal, f"{line}; echo; echo e''nd-{self._number}\n".encode())
        return self._until(rf"\n{mark}\r?\n")

    def completed(self, typed: str) -> list[str]:
        """The words of a line after Tab was pressed behind what was typed."""
        self._number += 1
        # C-a goes to the start of the line, C-e to its end.
        keys = f"{typed}\t\x01printf '<%s>' begin-{self._number} \x05\n"
        os.write(self._terminal, keys.encode())
        printed = self._until(rf"<begin-{self._number}>((?:<[^>]*>)*)")
        return re.findall(r"<([^>]*)>", printed.rpartition(f"<begin-{self._number}>")[2])

    def wait_for_list(self, typed: str, *entries: str) -> None:
        """Press Tab, and wait until all of these entries are listed. The shell has to list also
        where it can add characters: another Tab would come while it still looks, and what it
        then shows depends on which of the two it has seen."""
        os.write(self._terminal, f"{typed}\t".encode())
        self._until("".join(rf"(?=.*{re.escape(entry)}\s)" for entry in entries) + ".*\n")

    def _until(self, pattern: str) -> str:
        wait = Wait(f"{pattern} of the shell")
        while True:
            match = re.search(pattern, self._unread, re.DOTALL)
            if match and match.end() < len(self._unread):  # a prompt stands behind it
                printed, self._unread = self._unread[: match.end()], self._unread[match.end() :]
                return printed
            try:
                wait.for_input(self._terminal)
            except Hangs as error:
                raise Hangs(f"{error}\nit printed {self._unread!r}") from None
            self._unread += os.read(self._terminal, 1 << 16).decode(errors="replace")


@contextmanager
def shell(name: str, folder: Path) -> Iterator[Shell]:
    """An interactive shell without anybody's settings, in a folder."""
    need_shell(name)
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(folder)
        os.environ.update(HOME=str(folder), TERM="dumb", PS1="> ", HISTFILE="")
        os.execvp(WORDS[name][0], WORDS[name])
    try:
        termios.tcsetwinsize(terminal, (50, 200))
        yield Shell(terminal)
    finally:
        os.kill(pid, signal.SIGKILL)
        reaped(pid)
        os.close(terminal)
