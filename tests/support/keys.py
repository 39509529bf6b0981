"""What truth_keys says of its events, by key, and how it is run."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, NamedTuple

import markerjit
from markerjit.abi import CONTROL, Control


class Truth(NamedTuple):
    """What the program says of a key."""

    count: int
    sum: int
    least: int
    most: int


def truth_of(program: Any, folder: Path) -> dict[int, Truth]:
    """Of each key that was passed, while the program stands still."""
    path = folder / "told"
    program.ask(f"tell {path}")
    lines = [list(map(int, line.split())) for line in path.read_text().splitlines()]
    return {key: Truth(*rest) for key, *rest in lines}


def run_for_a_while(program: Any, seconds: float = 0.1) -> None:
    program.ask("resume")
    time.sleep(seconds)
    program.ask("pause")


def forbid_sequences(pid: int) -> None:
    """The runtime of a process uses no restartable sequences any more."""
    with markerjit.attach(pid) as session:
        arena = session._target.seen.arena
        assert arena
        place = CONTROL + Control.rseq_offset.offset
        arena.store.write(place, bytes(4))
