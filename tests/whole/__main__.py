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
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import markerjit
from markerjit.calls.graph import NotOpened
from markerjit.errors import MarkerError
from markerjit.session.called import plan_functions
from markerjit.session.openings import silent
from markerjit.sites import parse_name
from tests.whole.programs import PROGRAMS, Missing, Program, Running

COLUMNS = (
    ("program", 14), ("functions", 10), ("open", 10), ("exits", 10), ("entered", 16), ("left", 16),
    ("differ", 8), ("on", 8), ("off", 8), ("work", 8), ("open ", 8),
)  # fmt: skip
_SHOWN = 10
BOTH = ("", ":return")


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
    chosen = [program for program in PROGRAMS if not names or program.name in names]
    if not chosen:
        known = ", ".join(program.name for program in PROGRAMS)
        print(f"WHOLE names none of the programs {known}", file=sys.stderr)
        return 2
    print("".join(f"{title:>{width}}" for title, width in COLUMNS))
    wrong: list[str] = []
    for program in chosen:
        try:
            outcome = run(program, rounds)
        except Missing as missing:
            print(f"{program.name:>14}  not here: {missing}")
            continue
        print(line(program.name, outcome), flush=True)
        for name, more in Counter(outcome.differing).most_common(_SHOWN):
            print(f"{'':14}  {name}: {more:,} more entered than left")
        wrong += [f"{program.name}: {each}" for each in outcome.wrong]
    print("\n".join(wrong) or "as it should be")
    return 1 if wrong else 0


def line(name: str, outcome: Outcome) -> str:
    """The line of a program."""
    numbers = (
        outcome.functions, outcome.opened, outcome.exits, outcome.entered, outcome.left,
        len(outcome.differing),
    )  # fmt: skip
    cells = [name, *(f"{number:,}" for number in numbers), *(f"{s:.2f}" for s in outcome.took)]
    return "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))


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


def all_of(
    session: markerjit.Session, running: Running, select: str = "*"
) -> tuple[str, list[NotOpened]]:
    """A pattern of all functions with such names that can be open at the entry and at every exit at
    once, without breakpoints, which a thread that blocks their signal would not survive; and the
    others."""
    entries = ",".join(f"func:{each}:{select}" for each in running.objects)
    name = parse_name(entries)
    planned = plan_functions(session._target, name, breakpoints=False, progress=silent)
    closed = sorted({each.name for each in planned.not_opened})
    parts = [f"func:{each}:{select}{behind}" for each in running.objects for behind in BOTH]
    parts += [f"!func:{each}{behind}" for each in closed for behind in BOTH]
    return ",".join(parts), list(planned.not_opened)


def hits_of(
    states: list[markerjit.MarkerStatus],
) -> tuple[Counter[str], Counter[str], Counter[str]]:
    """By the name of the function, how often it was entered and left, and how many exits it has, of
    those that are open."""
    entered: Counter[str] = Counter()
    left: Counter[str] = Counter()
    exits: Counter[str] = Counter()
    for state in states:
        if not state.mode:
            continue
        name = state.name.removeprefix("func:")
        if name.endswith(":return"):
            name = name.removesuffix(":return")
            left[name] += state.hits
            exits[name] += len(state.sites)
        else:
            entered[name] += state.hits
    return entered, left, exits


def code_of(running: Running) -> bytes:
    """The bytes of the code of the objects that are opened."""
    parts = []
    proc = Path(f"/proc/{running.pid}")
    with (proc / "maps").open() as maps, (proc / "mem").open("rb") as memory:
        for text in maps:
            fields = text.split(maxsplit=5)
            path = fields[5].strip() if len(fields) > 5 else ""
            if "x" in fields[1] and any(
                fnmatch(path, each) or fnmatch(Path(path).name, each) for each in running.objects
            ):
                start, end = (int(number, 16) for number in fields[0].split("-"))
                memory.seek(start)
                parts.append(memory.read(end - start))
    assert parts
    return b"".join(parts)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MarkerError as error:
        sys.exit(str(error))
