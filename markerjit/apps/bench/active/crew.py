"""A process whose threads run loops together: native/bench/crew.c."""

from __future__ import annotations

import os
import select
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from markerjit.errors import MarkerError

_ANSWER_S = 60


class Crew:
    """Loops of some objects, run by up to as many threads as there are CPUs, each on its own."""

    def __init__(self, program: Path, objects: Sequence[Path], cpus: Sequence[int]) -> None:
        self._process = subprocess.Popen(
            [program, ",".join(map(str, cpus)), *map(str, objects)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            process_group=0,  # Ctrl-C is for us: we end it in order
        )
        self.size = len(cpus)
        self._line()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    @property
    def threads(self) -> list[int]:
        """All of its threads, by their ids."""
        return [int(name) for name in os.listdir(f"/proc/{self.pid}/task")]

    def run(self, index: int, times: int, repeat: int, threads: int) -> list[int]:
        """How long so many rounds of a loop took, in ns: the mean over the threads, for each
        repetition."""
        return self._ask(f"run {index} {times} {repeat} {threads}")

    def truth(self) -> list[int]:
        """How many rounds each loop has made since the start, warming up included."""
        return self._ask("truth")

    def place(self, index: int) -> int:
        """The address of an object's `bench_place`."""
        self._say(f"where {index}")
        return int(self._line().split()[1], 16)

    def end(self) -> None:
        """Let it end by itself, and wait for that."""
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()

    def close(self) -> None:
        """End it, whatever it does."""
        end(self._process)

    def _ask(self, line: str) -> list[int]:
        self._say(line)
        return [int(word) for word in self._line().split()[1:]]

    def _say(self, line: str) -> None:
        assert self._process.stdin
        with suppress(BrokenPipeError):  # the line that is missing says more
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()

    def _line(self) -> str:
        assert self._process.stdout and self._process.stderr
        if not select.select([self._process.stdout], [], [], _ANSWER_S)[0]:
            self.close()
            raise MarkerError(f"the bench's crew did not answer for {_ANSWER_S} s")
        line = self._process.stdout.readline()
        if not line:
            errors = self._process.stderr.read().strip() or "nobody says why"
            self.close()
            raise MarkerError(f"the bench's crew ended with {self._process.returncode}: {errors}")
        return line


def end(process: subprocess.Popen[str]) -> None:
    """Kill it, and close its pipes; it may have ended already."""
    process.kill()
    process.wait()
    for stream in (process.stdin, process.stdout, process.stderr):
        if stream:
            with suppress(BrokenPipeError):  # what it was not told
                stream.close()
