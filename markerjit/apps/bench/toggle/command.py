"""The time of a switch by the command line: a process from its start to its end."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from functools import partial
from importlib.util import cache_from_source
from pathlib import Path

import markerjit
from markerjit.apps.bench.toggle.enough import LEAST, PATIENCE, TooSlow, is_over
from markerjit.apps.bench.toggle.host import Host
from markerjit.apps.bench.toggle.program import MARKER
from markerjit.apps.bench.toggle.ways import DIRECTIONS
from markerjit.errors import MarkerError

PASS, PASS_AGAIN = "python -c pass", "python -c pass, again"
"""A bare interpreter: the least that any command in Python takes."""
_SHORTEST_S = 15.0
_BARE = (sys.executable, "-c", "pass")


def _is_compiled() -> bool:
    """Whether commands find bytecode beside their modules, as pip leaves it there."""
    command = Path(markerjit.__file__).with_name("cli") / "main.py"
    return os.path.exists(cache_from_source(str(command)))


def command_name(direction: str) -> str:
    """The name of the form."""
    return f"markerjit {direction}"


class Commands:
    """Commands on a process whose threads run. Their bytecode is at hand, as it is after an
    installation. Without it each of them would compile fifty modules."""

    def __init__(self, host: Host, chance: random.Random) -> None:
        self._host = host
        self._chance = chance
        self._took: dict[str, list[float]] = {}
        root = str(Path(markerjit.__file__).parent.parent)
        path = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
        self._environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": ""}
        if not _is_compiled():
            self._environment["PYTHONPYCACHEPREFIX"] = str(host.directory / "pycache")

    def until(self, seconds: float) -> dict[str, list[float]]:
        """Measure for some seconds. Returns times in ns, by form. Raises TooSlow, MarkerError."""
        began, rounds = time.monotonic(), 0
        self._pair()  # the first one is another: it compiles what the others find
        self._took.clear()
        if (took := time.monotonic() - began) * LEAST > max(seconds, _SHORTEST_S) * PATIENCE:
            raise TooSlow(f"markerjit on and off take {took:.1f} s there: --seconds is too short")
        began = time.monotonic()
        while True:
            for direction in self._chance.sample((PASS, PASS_AGAIN, ""), 3):
                if direction:
                    self._host.during(partial(self._timed, direction, _BARE))
                else:
                    self._pair()
            rounds += 1
            spent = time.monotonic() - began
            if is_over(rounds, spent, seconds):
                return self._took

    def _pair(self) -> None:
        for direction in DIRECTIONS:
            command = [sys.executable, "-m", "markerjit.cli.main", direction,
                       str(self._host.crowd.pid), MARKER]  # fmt: skip
            timed = partial(self._timed, command_name(direction), command)
            self._host.during(timed, direction)

    def _timed(self, name: str, command: Sequence[str]) -> None:
        start = time.perf_counter_ns()
        process = subprocess.run(
            command, env=self._environment, stdin=subprocess.DEVNULL, capture_output=True,
            check=False,
        )  # fmt: skip
        took = time.perf_counter_ns() - start
        if process.returncode:
            raise MarkerError(f"{name}: {process.stderr.decode(errors='replace').strip()}")
        self._took.setdefault(name, []).append(took)
