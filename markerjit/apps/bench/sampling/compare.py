"""Running variants against each other, until the intervals are narrow or the time is up."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from markerjit.apps.bench.sampling import core
from markerjit.apps.bench.sampling.build import Object, at_once
from markerjit.apps.bench.sampling.code import Code, look_at_all, rounds_to_count
from markerjit.apps.bench.sampling.core import Shared
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Progress
from markerjit.apps.bench.sampling.runner import Runner
from markerjit.apps.bench.sampling.statistics import (
    FEWEST,
    Estimate,
    difference,
    estimate,
    floor,
    level,
    over_rounds,
)
from markerjit.errors import Refused
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.apps.bench.sampling.statistics import Array

SLICE_NS = 200_000
"""The time of one run of a variant: short beside a time slice of the scheduler, long beside the
reading of a clock."""
_REPEAT = 3
_FEWEST_ROUNDS = 12
_LOOK_EVERY = 25
_AT_ONCE = 4
"""The number of processes in which instructions are counted. With only one, the progress bar would
not move."""
_MOST_TIMES = 1 << 32
"""More rounds than any real loop can run in a slice."""


class Limits(NamedTuple):
    """The end of a comparison: after these seconds, or when every interval is this narrow (ns)."""

    seconds: float
    half_width: float = 0.01


class Comparison(NamedTuple):
    """The result for one setting.

    samples     by form: layouts by rounds, ns for each execution
    executions  rounds of a loop, in one run of it
    others      the same for runs that the figures are not of, as something else had a part of the
                core meanwhile; `samples` have a NaN in their places. Empty where there are none
    alone       the part of the runs that had the core to themselves, from 0 to 1
    """

    samples: dict[str, Array]
    baselines: dict[str, str]
    executions: int
    others: Mapping[str, Array] = {}
    alone: float = 1.0

    def level(self, form: str) -> Estimate:
        """The time of one execution, with the code around it."""
        return level(self.samples[form])

    def cost(self, form: str) -> Estimate:
        """The time that a form adds to its baseline."""
        return difference(self.samples[form], self.samples[self.baselines[form]])

    def shared(self, form: str) -> Shared | None:
        """The figures of a form while something else has a part of the core. None where too few
        runs say so."""
        if not self.others:
            return None
        own = self.others[form]
        more = own - self.others[self.baselines[form]]
        if np.isfinite(more).sum(axis=1).min() < FEWEST:
            return None
        return Shared(level(own), estimate(more))

    def floor(self, again: str) -> float:
        """The noise floor, by a form that is its baseline once more."""
        return floor(self.cost(again), self.level(again))


def compare(
    objects: Sequence[Object],
    runner: Runner,
    limits: Limits,
    *,
    sites: int = 1,
    seed: int = 0,
    progress: Callable[[float], None] = lambda done: None,
) -> Comparison:
    """Run objects in rounds. In a round each form runs once for each of its layouts, all forms of a
    layout one after the other in random order. A sample is the least of some repeats (core.py)."""
    chance = random.Random(seed)
    layouts = sorted({variant.layout for variant in objects})
    forms = list(dict.fromkeys(variant.form.name for variant in objects))
    index = {(variant.form.name, variant.layout): number for number, variant in enumerate(objects)}
    times = _times(runner, index[forms[0], layouts[0]])
    rounds: list[list[list[tuple[float, float]]]] = []
    began = time.monotonic()
    while True:
        took = {form: [(0.0, 0.0)] * len(layouts) for form in forms}
        for place, layout in enumerate(layouts):
            for form in chance.sample(forms, len(forms)):
                ns, share = core.least(runner.run(index[form, layout], times, _REPEAT))
                took[form][place] = ns / times / sites, share
        rounds.append([took[form] for form in forms])
        spent = time.monotonic() - began
        progress(min(1.0, spent / max(limits.seconds, 1e-9)))
        is_over = len(rounds) >= _FEWEST_ROUNDS and spent > limits.seconds
        if is_over or len(rounds) % _LOOK_EVERY == 0:
            comparison = _comparison(forms, rounds, objects, times)
            if is_over or is_narrow(comparison, limits.half_width):
                return comparison


def _times(runner: Runner, index: int) -> int:
    """The rounds of a loop that take about a slice. Raises Refused where no number of them does."""
    times = 1
    while (took := min(runner.run(index, times, _REPEAT)).ns) < SLICE_NS // 2:
        if times > _MOST_TIMES:
            raise Refused(f"a loop of {times} rounds takes no time: is it optimised away?")
        times = max(times + 1, times * SLICE_NS // max(took, 1000))
    return max(1, times * SLICE_NS // took)


def _comparison(
    forms: Sequence[str],
    rounds: Sequence[Sequence[Sequence[tuple[float, float]]]],
    objects: Sequence[Object],
    times: int,
) -> Comparison:
    values = np.array(rounds)  # rounds, forms, layouts, and the two numbers of a sample
    taken = {form: values[:, number] for number, form in enumerate(forms)}
    baselines = {variant.form.name: variant.form.baseline for variant in objects}
    return comparison_of(taken, baselines, times)


def comparison_of(
    taken: Mapping[str, Array], baselines: dict[str, str], executions: int
) -> Comparison:
    """A comparison from times and shares of the core: by form, rounds by layouts by both."""
    samples = {form: values[:, :, 0].T for form, values in taken.items()}
    shares = {form: values[:, :, 1].T for form, values in taken.items()}
    parted = core.parted(samples, shares, baselines)
    return Comparison(parted.samples, baselines, executions, parted.others, parted.alone)


def is_narrow(comparison: Comparison, half_width: float) -> bool:
    """Whether all intervals over rounds are narrow. More rounds cannot change the differences
    between layouts."""
    base = comparison.baselines
    return all(
        over_rounds(own - comparison.samples[base[form]]).half_width <= half_width
        for form, own in comparison.samples.items()
    )


def compare_objects(
    objects: Sequence[Object],
    place: Place,
    limits: Limits,
    title: str,
    progress: Progress,
    *,
    sites: int = 1,
) -> Comparison:
    """Compare objects in a process of their own."""
    runner = Runner(place.runner, [variant.path for variant in objects], cpu=place.cpu)
    with closing(runner):
        return compare(
            objects, runner, limits, sites=sites, progress=lambda done: progress(title, done)
        )


def code_of(
    objects: Sequence[Object],
    place: Place,
    comparison: Comparison,
    sites: int = 1,
    progress: Callable[[float], None] = lambda done: None,
) -> dict[str, Code]:
    """The code of each form, from its first layout."""
    first = [variant for variant in objects if variant.layout == 0]
    rounds = rounds_to_count(comparison.level(first[0].form.name).value * sites)
    groups = [group for start in range(_AT_ONCE) if (group := first[start::_AT_ONCE])]
    codes = at_once(
        lambda group: look_at_all([each.path for each in group], place.runner, rounds, sites),
        groups, progress,
    )  # fmt: skip
    return {
        variant.form.name: code
        for group, own in zip(groups, codes, strict=True)
        for variant, code in zip(group, own, strict=True)
    }
