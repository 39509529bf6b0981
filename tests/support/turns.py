"""The turns of the threads of truth_threads, in the events that they left."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from tests.support.programs import Target
from tests.support.timing import wait_until

Turn = tuple[int, int]
"""Which thread it was, and its how manieth turn."""


def turns_in(path: Path) -> list[Turn]:
    """Of the events in a file of JSON lines. The last line may be cut, and the summary is none."""
    pairs = []
    for line in path.read_text().splitlines(keepends=True):
        if line.endswith("\n") and '"summary"' not in line:
            pairs.append(tuple(json.loads(line)["fields"].values()))
    return pairs


def let_turn(program: Target) -> None:
    """Wait until a running program has passed its marker some twenty times more."""
    turns = program.ask("counts")["truth_loop"]
    wait_until(lambda: program.ask("counts")["truth_loop"] >= turns + 20, "turns")


def by_thread(turns: Sequence[Turn]) -> dict[int, list[int]]:
    """The turns of each thread, in the order in which they come."""
    by_thread: dict[int, list[int]] = {}
    for who, n in turns:
        by_thread.setdefault(who, []).append(n)
    return by_thread
