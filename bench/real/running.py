"""Running a built program, and what it says of itself: gate.c is linked to it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, NamedTuple

from markerjit.errors import MarkerError
from real.programs import SCRATCH

_MEMORY = Path("/dev/shm")
_PATIENCE_S = 60
"""What an end may take."""


class Report(NamedTuple):
    """What a run took, in seconds: on a CPU, user and system together, and by the clock. `passed`
    is how often each marker was passed, where the program was built to count that."""

    cpu: float
    wall: float
    passed: dict[str, int]


class Child:
    """A program that waits before main until `go`, and with its results until `leave`."""

    def __init__(
        self, path: Path, arguments: Sequence[str], scratch: Path, *, cpu: int | None, gated: bool,
        prefix: Sequence[str] = (),
    ) -> None:  # fmt: skip
        self._path = path
        command = [
            *prefix,
            path,
            *(argument.replace(SCRATCH, str(scratch)) for argument in arguments),
        ]
        with ExitStack() as stack:
            self.output = stack.enter_context(tempfile.TemporaryFile("w+"))
            reads, self._gate = os.pipe()
            stack.callback(os.close, self._gate)
            report, writes = os.pipe()
            self._report: IO[str] = stack.enter_context(os.fdopen(report))
            environment = {"PATH": os.defpath, "LC_ALL": "C", "REAL_REPORT": str(writes)}
            if cpu is not None:
                environment["REAL_CPU"] = str(cpu)
            if gated:
                environment["REAL_GATE"] = str(reads)
            try:
                self.process = subprocess.Popen(
                    command, env=environment, pass_fds=(writes, reads), stdin=subprocess.DEVNULL,
                    stdout=self.output, stderr=subprocess.STDOUT,
                )  # fmt: skip
            finally:
                os.close(writes)
                os.close(reads)
            stack.callback(self._kill)
            self._expect("ready")
            self._stack = stack.pop_all()

    @property
    def pid(self) -> int:
        """Of the program."""
        return self.process.pid

    def go(self) -> None:
        """Let it run, or leave."""
        os.write(self._gate, b"\n")

    def report(self) -> Report:
        """What it took; waits until its work is done. Raises MarkerError when it ended early."""
        _, cpu, wall = self._expect("took")
        passed: dict[str, int] = {}
        for line in self._report:
            word, *rest = line.split()
            if word == "end":
                return Report(int(cpu) / 1e9, int(wall) / 1e9, passed)
            name, times = rest
            passed[name] = passed.get(name, 0) + int(times)
        raise self._ended()

    def wait(self) -> None:
        """Until it has ended. Raises MarkerError where it does not end well."""
        if self._code():
            raise self._ended()

    def printed(self) -> str:
        """What it has printed."""
        self.output.seek(0)
        return self.output.read()

    def end(self) -> None:
        """Kill what still runs."""
        self._stack.close()

    def _kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def _expect(self, word: str) -> list[str]:
        words = self._report.readline().split()
        if words[:1] != [word]:
            raise self._ended()
        return words

    def _code(self) -> int:
        try:
            return self.process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise MarkerError(f"{self._path.name} does not end in {_PATIENCE_S} s") from None

    def _ended(self) -> MarkerError:
        code = self._code()
        last = " ".join(self.printed().splitlines()[-1:])
        return MarkerError(f"{self._path.name} ended with {code}: {last or 'it says nothing'}")


@contextmanager
def started(
    path: Path, arguments: Sequence[str], *, cpu: int | None = None, gated: bool = False,
    prefix: Sequence[str] = (),
) -> Iterator[Child]:  # fmt: skip
    """A program that has not come to its main yet, or at least a moment ago; gone at the end. Its
    files are in memory where there is such a place."""
    where = _MEMORY if os.access(_MEMORY, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="markerjit-real-", dir=where) as name:
        child = Child(path, arguments, Path(name) / "scratch", cpu=cpu, gated=gated, prefix=prefix)
        try:
            yield child
        finally:
            child.end()


def run(path: Path, arguments: Sequence[str], *, cpu: int | None = None) -> Report:
    """Run it once. Raises MarkerError where it does not end well."""
    with started(path, arguments, cpu=cpu) as child:
        report = child.report()
        child.wait()
        return report
