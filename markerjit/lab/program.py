"""A sacrificial program with markers, compiled with the product, so that no compiler is needed.

It ends with the `with`, and also with the lab, however the lab ends.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from markerjit.errors import MarkerError
from markerjit.lab.processes import end, ending_of, start
from markerjit.memory.process import ProcessMemory
from markerjit.model import RemoteAddress

LIMIT_S = 30
_NATIVE = Path(__file__).parents[1] / "_native" / "lab"


def built(name: str) -> str:
    """The path of a program or shared object in `_native/lab`. Raises MarkerError where it was not
    built."""
    path = _NATIVE / name
    if not os.access(path, os.X_OK):
        raise MarkerError(f"{name} is not built; run make native, or install the package again")
    return str(path)


class Program:
    """A program in `_native/lab` that reports the turns of its threads. Raises MarkerError where it
    was not built or does not start."""

    def __init__(self, name: str) -> None:
        self._process = start(
            [built(name), str(os.getpid())], stdin=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def __enter__(self) -> Self:
        try:
            self._line()
            self._memory = ProcessMemory(self.pid)
        except BaseException:
            end(self._process)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._memory.close()
        end(self._process)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Whether the program has not died yet."""
        return self._process.poll() is None

    def ending(self, wait_s: float = 0) -> str:
        """`alive`, or the name of the signal that the program died of. Waits up to `wait_s` for its
        death."""
        return ending_of(self._process, wait_s)

    def read(self, address: int, size: int) -> bytes:
        """Bytes of the program's memory. Raises TargetGone when it has died."""
        return self._memory.read(RemoteAddress(address), size)

    def turns(self) -> int:
        """The turns that its threads have made so far. Raises MarkerError when it has died."""
        assert self._process.stdin
        try:
            self._process.stdin.write(b"\n")
        except BrokenPipeError:
            raise MarkerError("the program of this experiment has ended") from None
        return self._line()

    def _line(self) -> int:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise MarkerError("the program of this experiment has ended")
        return int(line)
