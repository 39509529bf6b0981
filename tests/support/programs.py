"""The checkout, its make, and the programs that know the truth.

A truth program prints `ready key=value …` once it runs, answers one line for each line on its
standard input (`counts` gives `counts a=1 b=2`), and ends on `quit` or when its input ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import subprocess
import tempfile
from pathlib import Path

import pytest

from tests.support.timing import HANG_S, Hangs, Limited, Wait

ROOT = Path(__file__).resolve().parents[2]


def make(*goals: str) -> None:
    """Run make in the checkout; one at a time, as several test runs may share it."""
    (ROOT / "build").mkdir(exist_ok=True)
    environment = {k: v for k, v in os.environ.items() if k not in {"MAKEFLAGS", "MFLAGS"}}
    with (ROOT / "build" / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = subprocess.run(
            ["make", "-s", *goals],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode != 0:
        pytest.fail(f"make {' '.join(goals)}:\n{done.stdout}{done.stderr}", pytrace=False)


class Target:
    """A running truth program. Lines go in, lines come out, each within a time limit."""

    def __init__(self, path: Path, *args: str, timeout_s: float = HANG_S) -> None:
        self.path = path
        self.timeout_s = timeout_s
        self._unread = b""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115  (closed in end())
        self.process = Limited(
            [path, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> None:
        """Wait for the line `ready …`; its words are then in `self.ready`."""
        line = self.read_line()
        word, *pairs = line.split()
        assert word == "ready", f"{self.path.name} began with {line!r}, expected `ready …`"
        self.ready = dict(pair.split("=", 1) for pair in pairs if "=" in pair)

    def send(self, line: str) -> None:
        """Send one line, and do not wait for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()

    def command(self, line: str) -> str:
        """Send one line and return the answer."""
        try:
            self.send(line)
        except BrokenPipeError:
            raise AssertionError(f"{self._who()} does not listen: {self._state()}") from None
        return self.read_line()

    def ask(self, question: str) -> dict[str, int]:
        """The numbers of an answer such as `counts a=1 b=2`."""
        answer = self.command(question)
        word, *pairs = answer.split()
        assert word == question.split()[0], f"{question!r} was answered with {answer!r}"
        return {name: int(value) for name, value in (pair.split("=", 1) for pair in pairs)}

    def read_line(self) -> str:
        assert self.process.stdout is not None
        wait = Wait(f"a line of {self._who()}", self.timeout_s)
        while b"\n" not in self._unread:
            wait.for_input(self.process.stdout)
            more = os.read(self.process.stdout.fileno(), 1 << 16)
            if not more:
                raise AssertionError(f"{self._who()} closed its output: {self._state()}")
            self._unread += more
        line, self._unread = self._unread.split(b"\n", 1)
        return line.decode()

    def wait(self) -> int:
        """The exit code (negative: minus the signal), once the program has ended."""
        return self.process.wait(self.timeout_s)

    def end(self) -> int | None:
        """Kill what still runs. Returns the exit code of a program that had already ended."""
        code = self.process.poll()
        if code is None:
            # Stopped and traced programs too die of SIGKILL, and it is our own child by its pid.
            self.process.kill()
            self.process.wait(self.timeout_s)
        for stream in (self.process.stdin, self.process.stdout, self._errors):
            with contextlib.suppress(BrokenPipeError):
                stream.close()  # type: ignore[union-attr]
        return code

    def errors(self) -> str:
        """What the program has written to its standard error."""
        self._errors.seek(0)
        return self._errors.read().decode(errors="replace")

    def _who(self) -> str:
        return f"{self.path.name} (pid {self.pid})"

    def _state(self) -> str:
        with contextlib.suppress(Hangs):
            self.process.wait(0.5)
        code = self.process.returncode
        ended = (
            "still runs"
            if code is None
            else f"died of {signal.Signals(-code).name}"
            if code < 0
            else f"ended with code {code}"
        )
        return f"{ended} {self.errors()}".strip()
