"""A process whose threads run loops together: native/bench/active/crew.c."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markerjit.apps.bench.sampling import core
from markerjit.apps.bench.sampling.child import Child


class Crew(Child):
    """Loops of some objects, run by up to as many threads as there are CPUs, each on its own.
    `under` is a command that starts the program, and `popen` are more arguments of
    subprocess.Popen."""

    def __init__(
        self,
        program: Path,
        objects: Sequence[Path | str],
        cpus: Sequence[int],
        popen: Mapping[str, Any] | None = None,
        under: Sequence[object] = (),
    ) -> None:
        self.size = len(cpus)
        self.objects = objects
        command = [*under, program, ",".join(map(str, cpus)), *objects]
        super().__init__("crew", command, popen=popen)

    @property
    def threads(self) -> list[int]:
        """The ids of all its threads."""
        return [int(name) for name in os.listdir(f"/proc/{self.pid}/task")]

    def run(self, index: int, times: int, repeat: int, threads: int) -> list[core.Taken]:
        """What some rounds of a loop took, for each repetition: the mean over the threads, and the
        largest share of their cores. Threads of ours may share one."""
        return core.read(self.ask(f"run {index} {times} {repeat} {threads}", "ran"))

    def truth(self) -> list[int]:
        """The rounds that each loop has made since the start, warming up included."""
        return [int(word) for word in self.ask("truth").split()]

    def place(self, index: int) -> int:
        """The address of an object's `bench_place`."""
        return int(self.ask(f"where {index}"), 16)
