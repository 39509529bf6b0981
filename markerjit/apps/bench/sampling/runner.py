"""The process in which variants run, with all of their objects loaded.

The program is native/bench/dormant/runner.c.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from markerjit.apps.bench.sampling import core
from markerjit.apps.bench.sampling.child import Child

# LTTng's listener must not delay a variant by waiting for a daemon that is not there.
_ENVIRONMENT = {"LTTNG_UST_REGISTER_TIMEOUT": "0", "LTTNG_UST_WITHOUT_BADDR_STATEDUMP": "1"}


class Runner(Child):
    """Runs the objects by their index, on one CPU."""

    def __init__(self, program: Path, objects: Sequence[Path], *, cpu: int) -> None:
        super().__init__("runner", [program, cpu, *objects], environment=_ENVIRONMENT)

    def run(self, index: int, times: int, repeat: int = 1) -> list[core.Taken]:
        """What `times` rounds of an object's loop took, for each of `repeat` repetitions."""
        return core.read(self.ask(f"run {index} {times} {repeat}", "ran"))
