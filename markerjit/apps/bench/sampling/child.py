"""A program of the bench that answers lines with lines, and its errors."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from markerjit.errors import MarkerError

_READ = 1 << 16
_TAIL = 4096
"""The last bytes of standard error that are kept. The others are read too, because the program
would block on a full pipe in the middle of a loop."""
_END_S = 10


class Child:
    """A program that has printed `ready`. Raises MarkerError when it ends by itself, is silent for
    too long, or gives an unexpected answer. The caller must close it."""

    def __init__(
        self,
        name: str,
        command: Sequence[object],
        *,
        environment: Mapping[str, str] | None = None,
        silent_s: float = 60,
        popen: Mapping[str, Any] | None = None,
    ) -> None:
        self._name = name
        self._silent_s = silent_s
        self._process = subprocess.Popen(
            list(map(str, command)),
            **{"env": {**os.environ, **(environment or {})}, **(popen or {})},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            process_group=0,  # Ctrl-C is for us: we end it in order
        )
        assert self._process.stdin and self._process.stdout and self._process.stderr
        self._input = self._process.stdin
        self._output = self._process.stdout
        self._complaints = self._process.stderr
        self._unread = self._tail = b""
        try:
            self._expect("ready")
        except BaseException:
            self.close()
            raise

    @property
    def pid(self) -> int:
        """The pid of the program."""
        return self._process.pid

    def ask(self, line: str, word: str = "") -> str:
        """The answer to a line, without its first word, which must be `word`, by default the first
        word of the line."""
        with suppress(BrokenPipeError):  # the answer that is missing says more
            self._input.write(f"{line}\n".encode())
            self._input.flush()
        return self._expect(word or line.split()[0])

    def end(self) -> None:
        """Wait for the program to end by itself. Raises MarkerError where it does not, or fails."""
        self._input.close()
        try:
            code = self._process.wait(self._silent_s)
        except subprocess.TimeoutExpired:
            raise MarkerError(f"{self} does not end") from None
        if code:
            raise self._ended()

    def close(self) -> None:
        """End the program, whatever it does."""
        end(self._process)

    def __str__(self) -> str:
        return f"the bench's {self._name}"

    def _expect(self, word: str) -> str:
        line = self._line()
        first, _, rest = line.partition(" ")
        if first != word:
            raise MarkerError(f"{self} said {line!r}, not {word}")
        return rest

    def _line(self) -> str:
        deadline = time.monotonic() + self._silent_s
        with selectors.DefaultSelector() as selector:
            selector.register(self._output, selectors.EVENT_READ)
            selector.register(self._complaints, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                ready = {key.fileobj for key, _ in selector.select(deadline - time.monotonic())}
                if not ready:
                    raise MarkerError(f"{self} was silent for {self._silent_s:g} s")
                if self._complaints in ready and not self._read_complaints():
                    selector.unregister(self._complaints)
                if self._output in ready:
                    more = os.read(self._output.fileno(), _READ)
                    if not more:
                        raise self._ended()
                    self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode(errors="replace")

    def _read_complaints(self) -> bytes:
        more = os.read(self._complaints.fileno(), _READ)
        self._tail = (self._tail + more)[-_TAIL:]
        return more

    def _ended(self) -> MarkerError:
        """An error that says how the program ended, with its last output."""
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_END_S)
        os.set_blocking(self._complaints.fileno(), False)  # what it started may still have it
        with suppress(BlockingIOError):
            while self._read_complaints():
                pass
        complaint = self._tail.decode(errors="replace").strip()
        return MarkerError(
            f"{self} {_how(self._process.returncode)}{f': {complaint}' if complaint else ''}"
        )


def _how(code: int | None) -> str:
    if code is None:
        return "has closed its output"
    if code >= 0:
        return f"ended with code {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:  # those of real time have no name
        return f"was ended by signal {-code}"


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, and close its pipes. It may have ended already."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with suppress(BrokenPipeError):  # what it was not told
                stream.close()
