"""`make armings`: all functions of a program switched on and off again and again, while it works.

The program does its work over and over, and meanwhile all its functions are opened where they are
entered and at all their exits, and closed again, by one session. Each work must come to the result
that it has untouched, each time that all is open functions must have been entered, and each time
that all is off the code must be byte for byte what it was at first.

    WHOLE     the programs, by name; redis-server by default
    ARMINGS   how often; 100 by default

Prints a line for each program, then what is not as it should be. The exit code is 1 if something is
not.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import markerjit
from markerjit.errors import MarkerError
from tests.whole.__main__ import all_of, code_of, hits_of
from tests.whole.programs import PROGRAMS, Missing, Program, Running

COLUMNS = (
    ("program", 14), ("functions", 10), ("times", 8), ("works", 8), ("entered", 16),
    ("on", 8), ("off", 8),
)  # fmt: skip


class Armings(NamedTuple):
    """What came of it.

    functions      that were open each time
    times          how often
    works          how often the program did its work meanwhile
    entered        how often functions were entered while they were open
    on_s, off_s    seconds that a switch took, each in the middle
    wrong          what was not as it should be
    """

    functions: int
    times: int
    works: int
    entered: int
    on_s: float
    off_s: float
    wrong: list[str]


class _Load:
    """A program that does its work again and again, in a thread of ours."""

    def __init__(self, program: Program, running: Running, expected: str) -> None:
        self.works = 0
        self.wrong: list[str] = []
        self._program, self._running, self._expected = program, running, expected
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """It works while the context lasts."""
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._thread.join()

    def _work(self) -> None:
        while not self._is_over.is_set():
            try:
                result = self._program.work(self._running)
            except Exception as error:
                self.wrong.append(f"it does not work any more: {error!r}")
                return
            self.works += 1
            if result != self._expected:
                self.wrong.append(f"the result is {result}, and untouched it was {self._expected}")


def arm(program: Program, times: int, select: str = "*") -> Armings:
    """Switch the functions of a program, as far as their names match, on and off so many times
    while it works."""
    with tempfile.TemporaryDirectory(prefix="mj-armings-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        with program.running(Path(name)) as running:
            expected = program.work(running)
            load = _Load(program, running, expected)
            with markerjit.attach(running.pid) as session:
                pattern, _ = all_of(session, running, select)
                before = code_of(running)
                with load.at_work():
                    return _armed(session, pattern, times, running, before, load)


def _armed(
    session: markerjit.Session,
    pattern: str,
    times: int,
    running: Running,
    before: bytes,
    load: _Load,
) -> Armings:
    functions = total = 0
    on_s: list[float] = []
    off_s: list[float] = []
    wrong = load.wrong
    for turn in range(1, times + 1):
        start = time.monotonic()
        session.on(pattern)
        on_s.append(time.monotonic() - start)
        works = load.works
        while load.works < works + 2 and not wrong:  # one that has begun since, to its end
            time.sleep(0.01)
        entered, left, _ = hits_of(session.statistics(pattern))
        functions = len(entered.keys() & left.keys())
        total += sum(entered.values())
        if not sum(entered.values()):
            wrong.append(f"no function was entered, the {turn}. time")
        start = time.monotonic()
        session.off(pattern)
        off_s.append(time.monotonic() - start)
        if code_of(running) != before:
            wrong.append(f"the code is not what it was, off for the {turn}. time")
        if wrong:
            break
    return Armings(
        functions, turn, load.works, total, statistics.median(on_s), statistics.median(off_s), wrong
    )  # fmt: skip


def main() -> int:
    """Arm the programs that are asked for; the exit code."""
    names = os.environ.get("WHOLE", "redis-server").split()
    times = int(os.environ.get("ARMINGS", "100"))
    chosen = [program for program in PROGRAMS if program.name in names]
    if not chosen or times < 1:
        known = ", ".join(program.name for program in PROGRAMS)
        print(f"WHOLE names none of the programs {known}, or ARMINGS is 0", file=sys.stderr)
        return 2
    print("".join(f"{title:>{width}}" for title, width in COLUMNS))
    wrong: list[str] = []
    for program in chosen:
        try:
            armings = arm(program, times)
        except Missing as missing:
            print(f"{program.name:>14}  not here: {missing}")
            continue
        print(line(program.name, armings), flush=True)
        wrong += [f"{program.name}: {each}" for each in armings.wrong]
    print("\n".join(wrong) or "as it should be")
    return 1 if wrong else 0


def line(name: str, armings: Armings) -> str:
    """The line of a program."""
    numbers = (armings.functions, armings.times, armings.works, armings.entered)
    cells = [name, *(f"{number:,}" for number in numbers)]
    cells += [f"{armings.on_s:.2f}", f"{armings.off_s:.2f}"]
    return "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, COLUMNS, strict=True))


if __name__ == "__main__":
    try:
        sys.exit(main())
    except MarkerError as error:
        sys.exit(str(error))
