"""Running the builds of a program against each other, until the intervals are narrow or the time is
up.

A round has each form in each layout on one CPU, all of them in random order, some times over; the
least that each took counts. What a neighbour on the same core or host takes only adds, and stays
for a second or more: so the runs are short, and the times over are seconds apart. What is taken is
CPU time, as a percentage of what the baseline took in the same round and layout: the time by the
clock has in it what else the machine did meanwhile.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from markerjit.apps.bench.api import BASELINE, Comparison, Form, is_narrow

if TYPE_CHECKING:
    from markerjit.apps.bench.api import Array

Runs = Mapping[tuple[str, int], Callable[[], float]]
"""By form and layout, what runs it and says how many seconds of a CPU it took."""
_FEWEST_ROUNDS = 4
_LOOK_EVERY = 5


class Limits(NamedTuple):
    """When to stop: after so many seconds, or when every interval is this narrow (half of it, in
    percent)."""

    seconds: float
    half_width: float = 0.1


class Timed(NamedTuple):
    """The results, in percent of the baseline, and in seconds: layouts by rounds. `repeat` is how
    often everything ran in a round."""

    comparison: Comparison
    seconds: dict[str, Array]
    repeat: int


def compare(
    forms: Sequence[Form], layouts: int, runs: Runs, limits: Limits,
    progress: Callable[[float], None] = lambda done: None, *, repeat: int = 6, seed: int = 0,
) -> Timed:  # fmt: skip
    """Run them in rounds. Everything runs once before, to warm up, and to see how long it takes: in
    a round it runs `repeat` times, or less often where the time would not hold the fewest rounds.
    Takes longer than the limit only where it does not hold them with one time each."""
    chance = random.Random(seed)
    all_runs = [(form.name, layout) for form in forms for layout in range(layouts)]
    rounds: list[dict[str, list[float]]] = []
    began = time.monotonic()

    def spent() -> float:
        return time.monotonic() - began

    def pass_over(took: dict[str, list[float]]) -> None:
        for form, layout in chance.sample(all_runs, len(all_runs)):
            took[form][layout] = min(runs[form, layout](), took[form][layout])
            progress(min(1.0, spent() / max(limits.seconds, 1e-9)))

    pass_over(_unknown(forms, layouts))
    fitting = (limits.seconds - spent()) / (_FEWEST_ROUNDS * max(spent(), 1e-9))
    repeat = max(1, min(repeat, int(fitting)))
    while True:
        rounds.append(took := _unknown(forms, layouts))
        for _ in range(repeat):
            pass_over(took)
        if len(rounds) < _FEWEST_ROUNDS:
            continue
        if spent() * (1 + 1 / len(rounds)) > limits.seconds:  # no room for another
            return timed(forms, rounds, repeat)
        if len(rounds) % _LOOK_EVERY == 0:
            result = timed(forms, rounds, repeat)
            if is_narrow(result.comparison, limits.half_width):
                return result


def _unknown(forms: Sequence[Form], layouts: int) -> dict[str, list[float]]:
    return {form.name: [math.inf] * layouts for form in forms}


def timed(
    forms: Sequence[Form], rounds: Sequence[Mapping[str, Sequence[float]]], repeat: int
) -> Timed:
    """The results of rounds, which have by form the seconds in each layout."""
    seconds = {form.name: np.array([each[form.name] for each in rounds]).T for form in forms}
    percent = {name: 100 * taken / seconds[BASELINE] for name, taken in seconds.items()}
    comparison = Comparison(percent, {form.name: form.baseline for form in forms}, 1)
    return Timed(comparison, seconds, repeat)
