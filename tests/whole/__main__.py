"""`make whole`: real programs under their own work, with every function open at entry and exits.

Each program does its work untouched, and then again with all its functions counted where they are
entered and where they are left. It must come to the same result. Every function must be left as
often as it was entered, but for those that end by a throw, longjmp or the end of a thread. And its
code must be byte for byte what it was after all is off again.

    WHOLE          programs, by name; all by default
    WHOLE_ROUNDS   how often each does its work with all open; 1 by default

Prints a line for each program, then what is not as it should be. The exit code is 1 if something is
not. A program that is not on this machine is named with the package to install.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import markerjit
from markerjit.errors import MarkerError
from tests.whole.functions import all_of, code_of, hits_of
from tests.whole.programs import Program, Running
from tests.whole.table import Row, print_table

COLUMNS = (
    ("program", 14), ("functions", 10), ("open", 10), ("exits", 10), ("entered", 16), ("left", 16),
    ("differ", 8), ("on", 8), ("off", 8), ("work", 8), ("open ", 8),
)  # fmt: skip
_SHOWN = 10


class Outcome(NamedTuple):
    """What came of a program.

    functions  those that it has; `opened`: those that are open at the entry and at all exits
    exits      of those
    differing  by name, how often more it was entered than left
    took       seconds: switching on, switching off, the work untouched, and with all open
    """

    functions: int
    opened: int
    exits: int
    entered: int
    left: int
    differing: dict[str, int]
    wrong: list[str]
    took: tuple[float, float, float, float]


def main() -> int:
    """Run the programs that are asked for; the exit code."""
    names = os.environ.get("WHOLE", "").split()
    rounds = int(os.environ.get("WHOLE_ROUNDS", "1"))
    return print_table(names, COLUMNS, lambda program: row(run(program, rounds)))


def row(outcome: Outcome) -> Row:
    """The line of a program, and the functions that differ most."""
    numbers = (
        outcome.functions, outcome.opened, outcome.exits, outcome.entered, outcome.left,
        len(outcome.differing),
    )  # fmt: skip
    cells = [*(f"{number:,}" for number in numbers), *(f"{s:.2f}" for s in outcome.took)]
    notes = [
        f"{name}: {more:,} more entered than left"
        for name, more in Counter(outcome.differing).most_common(_SHOWN)
    ]
    return Row(cells, outcome.wrong, notes)


def run(program: Program, rounds: int) -> Outcome:
    """Let a program do its work, untouched and then with all its functions open."""
    with tempfile.TemporaryDirectory(prefix="mj-whole-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        first, second = Path(name) / "first", Path(name) / "second"
        first.mkdir()
        second.mkdir()
        with program.running(first) as untouched:
            start = time.monotonic()
            expected = program.work(untouched)
            alone_s = time.monotonic() - start
        if lack := program.lacks(expected):
            raise MarkerError(f"untouched, {lack}")
        with program.running(second) as running:
            return _opened(program, running, expected, rounds, alone_s)


def _opened(
    program: Program, running: Running, expected: str, rounds: int, alone_s: float
) -> Outcome:
    wrong: list[str] = []
    before = code_of(running)
    with markerjit.attach(running.pid) as session:
        pattern, closed = all_of(session, running)
        start = time.monotonic()
        session.on(pattern)
        on_s = time.monotonic() - start
        start = time.monotonic()
        for _ in range(rounds):
            if (result := program.work(running)) != expected:
                wrong.append(f"the result is {result}, and untouched it was {expected}")
        work_s = (time.monotonic() - start) / rounds
        states = session.statistics(pattern)
        entered, left, exits = hits_of(states)
        start = time.monotonic()
        session.off(pattern)
        off_s = time.monotonic() - start
    if code_of(running) != before:
        wrong.append("after off the code is not what it was")
    if not sum(entered.values()):
        wrong.append("no function was entered")
    both = entered.keys() & left.keys()
    differing = {name: entered[name] - left[name] for name in both if entered[name] != left[name]}
    may_end = re.compile(program.unfinished)
    wrong += [
        f"{name} was entered {entered[name]:,} times and left {left[name]:,} times"
        for name, more in differing.items()
        if more < 0 or not may_end.fullmatch(name)
    ]
    return Outcome(
        len(both) + len(closed),
        len(both), sum(exits[name] for name in both),
        sum(entered[name] for name in both), sum(left[name] for name in both),
        differing, wrong, (on_s, off_s, alone_s, work_s),
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
