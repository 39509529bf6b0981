"""Rounds of loops whose executions cost anything from a nanosecond to a millisecond.

As in compare.py, each form runs once in each of its layouts in a round, in random order. There are
two differences. The number of executions depends on the form, so that each run takes about a slice.
And each round has a turn for every number of threads.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from markerjit.apps.bench.active.crew import Crew
from markerjit.apps.bench.active.listeners import most_executions
from markerjit.apps.bench.sampling import core
from markerjit.apps.bench.sampling.compare import SLICE_NS, Comparison, comparison_of
from markerjit.apps.bench.sampling.form import BASELINE
from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple

REPEAT = 3
_FEWEST = 4
"""The least executions of a loop, however much they cost."""
_FEWEST_ROUNDS = 12
_LOOK_EVERY = 25
_NARROW = 0.01
"""Half of a narrow interval: in nanoseconds, or as a part of the cost, whichever is more."""


Pair = tuple[int, str]
"""A number of threads, and a form."""
Sample = tuple[float, float]
"""The time of an execution, in ns, and the share of the core (core.py)."""
Round = Mapping[Pair, Sequence[Sample]]
"""A sample for each layout."""


class Loop(NamedTuple):
    """A form: its crew, the number of its object in each layout, and the work before a number of
    threads runs it and after it has run. If each execution leaves a `record` of this many bytes,
    the form runs only for as long as its ring has room."""

    crew: Crew
    numbers: Sequence[int]
    record: int = 0
    before: Callable[[int], None] = lambda threads: None
    after: Callable[[], None] = lambda: None

    def took(self, layout: int, times: int, threads: int) -> core.Taken:
        """The shortest of some repeats."""
        self.before(threads)
        best = core.least(self.crew.run(self.numbers[layout], times, REPEAT, threads))
        self.after()
        return best


class Rounds(NamedTuple):
    """The result for one number of threads: the comparison, and by form the executions of each
    thread in one run of its loop. `failed` are the forms that ended in the middle, with the
    reason."""

    comparison: Comparison
    executions: dict[str, int]
    failed: dict[str, str]


def rounds(
    loops: Mapping[str, Loop],
    settings: Sequence[int],
    seconds: float,
    progress: Callable[[float], None],
    *,
    seed: int = 0,
) -> dict[int, Rounds]:
    """Run loops with each of these numbers of threads, until the intervals are narrow or the time
    is up, but for a minimum of rounds. Raises MarkerError where the baseline cannot be run."""
    chance = random.Random(seed)
    forms = list(loops)
    pairs = [(threads, form) for threads in settings for form in forms]
    began = time.monotonic()
    failed: dict[str, str] = {}
    times: dict[Pair, int] = {}
    for threads, form in pairs:
        with _noting(form, failed):
            times[threads, form] = executions(loops[form], threads)
    layouts = range(len(loops[BASELINE].numbers))
    past: list[Round] = []
    while True:
        took: dict[Pair, list[Sample]] = {pair: [(0.0, 0.0)] * len(layouts) for pair in pairs}
        for layout in layouts:
            for pair in chance.sample(pairs, len(pairs)):
                threads, form = pair
                if form not in failed:
                    with _noting(form, failed):
                        ns, share = loops[form].took(layout, times[pair], threads)
                        took[pair][layout] = ns / times[pair], share
        past.append(took)
        spent = time.monotonic() - began
        progress(min(1.0, spent / max(seconds, 1e-9)))
        is_over = len(past) >= _FEWEST_ROUNDS and spent > seconds
        if is_over or len(past) % _LOOK_EVERY == 0:
            running = [form for form in forms if form not in failed]
            results = {
                threads: _rounds(running, threads, past, times)._replace(failed=failed)
                for threads in settings
            }
            if is_over or all(_is_narrow(result.comparison) for result in results.values()):
                return results


@contextmanager
def _noting(form: str, failed: dict[str, str]) -> Iterator[None]:
    """Note the failure of a form. A debugger that dies takes its program along, and the other forms
    go on. A failure of the baseline is raised, because there is no comparison without it."""
    try:
        yield
    except MarkerError as error:
        if form == BASELINE:
            raise
        failed[form] = str(error)


def executions(loop: Loop, threads: int) -> int:
    """The executions of a loop that take about a slice."""
    most = most_executions(REPEAT, loop.record) if loop.record else 1 << 40
    times = _FEWEST
    while (took := loop.took(0, times, threads).ns) < SLICE_NS // 2 and times < most:
        times = min(most, max(times + 1, times * SLICE_NS // max(took, 1000)))
    return min(most, max(_FEWEST, times * SLICE_NS // took))


def _rounds(
    forms: Sequence[str],
    threads: int,
    past: Sequence[Round],
    times: Mapping[Pair, int],
) -> Rounds:
    taken = {form: np.array([took[threads, form] for took in past]) for form in forms}
    own = {form: times[threads, form] for form in forms}
    return Rounds(comparison_of(taken, dict.fromkeys(forms, BASELINE), own[BASELINE]), own, {})


def _is_narrow(comparison: Comparison) -> bool:
    """Whether all intervals are narrow. An interval takes a while to compute, so the forms that
    stay wide for longest come first."""
    costs = (comparison.cost(form) for form in reversed(comparison.samples))
    return all(cost.half_width <= max(_NARROW, _NARROW * abs(cost.value)) for cost in costs)
