"""The victim as a process: lines in, lines out, and its last words.

It knows nothing of combinations. A victim is killed and waited for in every case.
"""

from __future__ import annotations

import contextlib
import selectors
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from tests.support.timing import Limited

ROOT = Path(__file__).resolve().parent.parent.parent
VICTIM = ROOT / "build" / "torture" / "victim"
PLUGIN = ROOT / "build" / "targets" / "truth_plugin.so"

# One answer may take a chunk of flips. A victim that is silent for longer than this hangs.
SILENCE_S = 120


class Died(Exception):
    """The victim ended or hung; the message has its last words."""


class Victim:
    """A running victim, or another program that answers in the same way."""

    def __init__(self, arguments: list[str], program: Path = VICTIM) -> None:
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in end())
        self._unread = b""
        self.process = Limited(
            [program, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            bufsize=0,
        )
        self.ready = dict(_pairs(self._read_line()))

    @property
    def pid(self) -> int:
        return self.process.pid

    def command(self, line: str) -> dict[str, str]:
        """Send a line; the words `name=value` of the answer."""
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.write(line.encode() + b"\n")
        return dict(_pairs(self._read_line()))

    def ask(self, line: str) -> dict[str, int]:
        """The same, as numbers."""
        return {name: int(value, 0) for name, value in self.command(line).items()}

    def end(self) -> None:
        """Kill what still runs, and wait for it."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            stream.close()  # type: ignore[union-attr]

    def _read_line(self) -> str:
        assert self.process.stdout is not None
        deadline = time.monotonic() + SILENCE_S
        with selectors.DefaultSelector() as selector:
            selector.register(self.process.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if not selector.select(max(0, deadline - time.monotonic())):
                    raise Died(f"silent for {SILENCE_S} s")
                more = self.process.stdout.read(1 << 16)
                if not more:
                    raise Died(self._last_words())
                self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        if line.startswith(b"died"):
            raise Died(line.decode())
        return line.decode()

    def _last_words(self) -> str:
        code = self.process.wait()
        self._errors.seek(0)
        return f"exit code {code} {self._errors.read().decode(errors='replace')}".strip()


def _pairs(line: str) -> Iterator[tuple[str, str]]:
    for word in line.split():
        name, equals, value = word.partition("=")
        if equals:
            yield name, value


@contextlib.contextmanager
def victim(arguments: list[str], program: Path = VICTIM) -> Iterator[Victim]:
    """A victim that is ended in every case."""
    started = Victim(arguments, program)
    try:
        yield started
    finally:
        started.end()
