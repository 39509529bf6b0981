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
    """What came out, in percent of the baseline, and in seconds: layouts by rounds."""

    comparison: Comparison
    seconds: dict[str, Array]


def compare(
    forms: Sequence[Form], layouts: int, runs: Runs, limits: Limits,
    progress: Callable[[float], None] = lambda done: None, *, repeat: int = 6, seed: int = 0,
) -> Timed:  # fmt: skip
    """Run them in rounds; the first is to warm up, and is not kept."""
    chance = random.Random(seed)
    rounds: list[dict[str, list[float]]] = []
    began = time.monotonic()
    is_warm = False
    while True:
        took = {form.name: [math.inf] * layouts for form in forms}
        all_runs = [(form.name, layout) for form in forms for layout in range(layouts)]
        for _ in range(repeat):
            for form, layout in chance.sample(all_runs, len(all_runs)):
                took[form][layout] = min(runs[form, layout](), took[form][layout])
        if is_warm:
            rounds.append(took)
        is_warm = True
        spent = time.monotonic() - began
        progress(min(1.0, spent / max(limits.seconds, 1e-9)))
        if len(rounds) < _FEWEST_ROUNDS:
            continue
        if spent > limits.seconds:
            return timed(forms, rounds)
        if len(rounds) % _LOOK_EVERY == 0:
            result = timed(forms, rounds)
            if is_narrow(result.comparison, limits.half_width):
                return result


def timed(forms: Sequence[Form], rounds: Sequence[Mapping[str, Sequence[float]]]) -> Timed:
    """Of rounds, by form the seconds in each layout."""
    seconds = {form.name: np.array([each[form.name] for each in rounds]).T for form in forms}
    percent = {name: 100 * taken / seconds[BASELINE] for name, taken in seconds.items()}
    return Timed(Comparison(percent, {form.name: form.baseline for form in forms}, 1), seconds)
