"""The process in which variants run: native/bench/runner.c, with all of their objects loaded."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from markerjit.errors import MarkerError

# LTTng's listener must not keep a variant waiting for a daemon that is not there.
_ENVIRONMENT = {"LTTNG_UST_REGISTER_TIMEOUT": "0", "LTTNG_UST_WITHOUT_BADDR_STATEDUMP": "1"}


class Runner:
    """Runs the objects by their index, on one CPU."""

    def __init__(self, program: Path, objects: Sequence[Path], *, cpu: int) -> None:
        self._process = subprocess.Popen(
            [program, str(cpu), *map(str, objects)],
            env={**os.environ, **_ENVIRONMENT},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._line()

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def run(self, index: int, times: int, repeat: int = 1) -> list[int]:
        """How long so many rounds of an object's loop took, in ns, each of `repeat` times."""
        assert self._process.stdin
        self._process.stdin.write(f"run {index} {times} {repeat}\n")
        self._process.stdin.flush()
        return [int(word) for word in self._line().split()[1:]]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            _, errors = self._process.communicate()
            raise MarkerError(f"the bench's runner ended: {errors.strip() or 'nobody says why'}")
        return line
