"""`make armings`: all functions of a program switched on and off again and again, while it works.

The program does its work over and over, and meanwhile all its functions are opened where they are
entered and at all their exits, and closed again, by one session. Each work must come to the result
that it has untouched. Each time the same functions must be open, and have been entered, and each
time that all is off the code must be byte for byte what it was at first.

    WHOLE     the programs, by name; redis-server by default, and all if it is empty
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

import markerjit
from markerjit.errors import MarkerError
from tests.support.timing import HANG_S, wait_until
from tests.whole.functions import all_of, code_of, hits_of
from tests.whole.programs import LONGEST_WORK_S, Program, Running
from tests.whole.table import Row, print_table

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
    """A program that does its work again and again, in a thread of ours.

    limit_s   in which it does its work twice, if it does not hang
    """

    def __init__(self, program: Program, running: Running, expected: str, limit_s: float) -> None:
        self.works = 0
        self.wrong: list[str] = []
        self._program, self._running, self._expected = program, running, expected
        self._limit_s = limit_s
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """It works while the context lasts. Raises Hangs if it does not end its work then."""
        self._thread.start()
        try:
            yield
        finally:
            self._is_over.set()
            self._wait(lambda: not self._thread.is_alive(), "the end of the work")

    def wait_for_a_work(self) -> None:
        """Wait for a work that has begun since, or until something is wrong. Raises Hangs."""
        works = self.works
        self._wait(lambda: self.works >= works + 2 or self.wrong, "a work from begin to end")

    def _wait(self, condition: Callable[[], object], what: str) -> None:
        wait_until(condition, what, self._limit_s, 0.01)

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


def arm(program: Program, times: int, select: str = "*", limit_s: float = HANG_S) -> Armings:
    """Switch the functions of a program, as far as their names match, on and off so many times
    while it works. Raises Hangs if it takes longer than the limit to do its work twice."""
    with tempfile.TemporaryDirectory(prefix="mj-armings-", dir="/tmp") as name:
        os.chmod(name, 0o755)
        with program.running(Path(name)) as running:
            expected = program.work(running)
            if lack := program.lacks(expected):
                raise MarkerError(f"untouched, {lack}")
            load = _Load(program, running, expected, limit_s)
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
    functions: set[str] = set()
    total = 0
    on_s: list[float] = []
    off_s: list[float] = []
    wrong = load.wrong
    for turn in range(1, times + 1):
        start = time.monotonic()
        session.on(pattern)
        on_s.append(time.monotonic() - start)
        load.wait_for_a_work()
        entered, left, _ = hits_of(session.statistics(pattern))
        opened = entered.keys() & left.keys()
        functions = functions or opened
        total += sum(entered.values())
        if opened != functions:
            wrong.append(f"other functions are open in turn {turn}: {sorted(opened ^ functions)}")
        if not sum(entered.values()):
            wrong.append(f"no function was entered in turn {turn}")
        start = time.monotonic()
        session.off(pattern)
        off_s.append(time.monotonic() - start)
        if code_of(running) != before:
            wrong.append(f"the code is not what it was after turn {turn}")
        if wrong:
            break
    return Armings(
        len(functions), turn, load.works, total, statistics.median(on_s), statistics.median(off_s),
        wrong,
    )  # fmt: skip


def main() -> int:
    """Arm the programs that are asked for; the exit code."""
    names = os.environ.get("WHOLE", "redis-server").split()
    times = int(os.environ.get("ARMINGS", "100"))
    if times < 1:
        print(f"ARMINGS is {times}; at least 1 is needed", file=sys.stderr)
        return 2
    arming = partial(arm, times=times, limit_s=LONGEST_WORK_S)
    return print_table(names, COLUMNS, lambda program: row(arming(program)))


def row(armings: Armings) -> Row:
    """The line of a program."""
    numbers = (armings.functions, armings.times, armings.works, armings.entered)
    cells = [*(f"{number:,}" for number in numbers), f"{armings.on_s:.2f}", f"{armings.off_s:.2f}"]
    return Row(cells, armings.wrong)


if __name__ == "__main__":
    sys.exit(main())
