"""A program that fills rings: native/bench/reading/fill.c."""

from __future__ import annotations

from pathlib import Path

from markerjit.apps.bench.sampling.child import Child

MARKERS = "fill_*"


class Fill(Child):
    """Passes events when it is asked to."""

    def __init__(self, program: Path) -> None:
        super().__init__("fill", [program])

    def run(self, cpu: int, kind: str, events: int, apart: int = 0) -> int:
        """Pass events of a kind on a CPU, a number of ticks apart. Returns the time of that, in
        ns."""
        return int(self.ask(f"run {cpu} {kind} {events} {apart}").partition("=")[2])
