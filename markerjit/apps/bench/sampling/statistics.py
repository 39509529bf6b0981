"""Differences with intervals, and the verdicts on them.

A *series* has the times of one variant: an array of layouts by rounds, in nanoseconds for each
execution. All variants of a round were run within some milliseconds of each other, in random order,
so the difference to the baseline is taken within the round. Its estimate is the median over rounds,
and the mean over layouts: layout alone changes results, and no layout is the right one. A round
that is not to be taken in a layout is a NaN there (core.py). Each layout must have one that is.

The interval covers both. For rounds it comes from the bootstrap (Efron 1979), with the same rounds
drawn in all layouts. For layouts it comes from Student's t, because a few layouts are a small
sample of all possible ones. (Resampling so few would miss the truth in a fifth of all cases.) Both
are independent, so they add up as the root of the sum of their squares. The baseline is measured
twice. The difference between the two is the noise floor, and nothing smaller is called a
difference.
"""

from __future__ import annotations

from functools import lru_cache
from math import hypot
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.apps.bench.sampling.figures import NS, Unit
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[np.float64]]
    Counts = np.ndarray[Any, np.dtype[np.int32]]

RESAMPLES = 2000
_TAIL = 2.5  # percent, at each end of an interval
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Student's t for 95 %, by degrees of freedom from 1 on."""
FEWEST = 6
"""The least values for an interval. With fewer, even their whole range is less than an interval of
95 % for their median."""
UNEVEN = 0.003
"""The unevenness of a processor's speed from one loop to the next, as a part of a whole round.
Known costs (controls.py) were wrong by this much, although their intervals were narrower."""


class Estimate(NamedTuple):
    """A value with its 95 % interval."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    def text(self, unit: Unit = NS) -> str:
        """The value and its interval, to be shown."""
        return f"{unit.amount(self.value)} ({unit.span(self.low, self.high)})"


def difference(series: Array, baseline: Array, *, seed: int = 0) -> Estimate:
    """The extra time of a variant over the baseline."""
    return estimate(series - baseline, seed=seed)


def level(series: Array, *, seed: int = 0) -> Estimate:
    """The time of a variant."""
    return estimate(series, seed=seed)


def estimate(values: Array, *, seed: int = 0) -> Estimate:
    """An estimate from values by layout and round: the mean over layouts of the medians over
    rounds. The same values give the same interval."""
    of_rounds = over_rounds(values, seed=seed)
    layouts = len(values)
    if layouts == 1:
        return of_rounds
    spread = float(np.nanmedian(values, axis=1).std(ddof=1))
    aside = _t(layouts - 1) * spread / layouts**0.5
    value, low, high = of_rounds
    return Estimate(value, value - hypot(value - low, aside), value + hypot(high - value, aside))


def over_rounds(values: Array, *, seed: int = 0) -> Estimate:
    """An estimate for just these layouts. More rounds can make its interval narrower."""
    layouts, rounds = values.shape
    times_drawn = _resamples(rounds, seed)
    means = np.zeros(RESAMPLES)
    for series in values:
        means += _medians(series, times_drawn) / layouts
    low, high = np.percentile(means, [_TAIL, 100 - _TAIL])
    return Estimate(float(np.nanmedian(values, axis=1).mean()), float(low), float(high))


@lru_cache(maxsize=4)
def _resamples(rounds: int, seed: int) -> Counts:
    """The number of times that each round was drawn, in a column for each resample."""
    drawn = np.random.default_rng(seed).integers(rounds, size=(RESAMPLES, rounds))
    places = drawn * RESAMPLES + np.arange(RESAMPLES)[:, np.newaxis]
    counts = np.bincount(places.ravel(), minlength=rounds * RESAMPLES)
    return counts.reshape(rounds, RESAMPLES).astype(np.int32)


def _medians(series: Array, times_drawn: Counts) -> Array:
    """The median of each resample. The series is sorted once instead of each resample: the median
    is the value at which half of the draws are at or below it."""
    order = series.argsort()[: np.isfinite(series).sum()]  # a NaN comes last
    ordered, draws = series[order], times_drawn[order].cumsum(axis=0, dtype=np.int32)
    count = draws[-1]  # the two values in the middle are the same for an odd number
    low, high = ((draws <= middle).sum(axis=0) for middle in ((count - 1) // 2, count // 2))
    last = len(ordered) - 1  # of a resample that has none of them
    medians: Array = (ordered[np.minimum(low, last)] + ordered[np.minimum(high, last)]) / 2
    return medians


def _t(freedom: int) -> float:
    return _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.56 / freedom


def floor(again: Estimate, level: Estimate) -> float:
    """The noise floor, below which nothing is called a difference: the difference between two runs
    of the same code, and never less than the unevenness of the processor's own clock."""
    return max(reach(again), UNEVEN * level.value)


def reach(again: Estimate) -> float:
    """The most by which two runs of the same code seemed to differ."""
    return max(abs(again.low), abs(again.high))


def is_noisy(baseline: Array, noise_floor: float, control: Estimate | None, unit: Unit = NS) -> str:
    """The reason why a comparison has no verdict, "" where it has one. A call is the control: if it
    does not stand out of the noise, nothing does."""
    spread = np.nanpercentile(baseline, [5, 50, 95], axis=1)
    low, middle, high = (np.median(row) for row in spread)
    floor = unit.amount(noise_floor)
    if control and control.low <= noise_floor:
        return (
            f"no verdict, the machine is too noisy: a call does not show ({control.text(unit)}), "
            f"and the same twice differed by up to {floor}"
        )
    if high - low > middle:
        span = f"{unit.amount(float(low))} to {unit.amount(float(high))}"
        return f"no verdict, the machine is too noisy: the same took {span}"
    return differs_from_itself(float(middle), noise_floor, unit)


def differs_from_itself(level: float, noise_floor: float, unit: Unit = NS) -> str:
    """The reason why there is no verdict where the floor is more than half of the time of the
    baseline."""
    if noise_floor <= level / 2:
        return ""
    return (
        f"no verdict, the machine is too noisy: the same, which took {unit.amount(level)}, "
        f"differed from itself by up to {unit.amount(noise_floor)}"
    )


def verdict(cost: Estimate, noise_floor: float, baseline: str, unit: Unit = NS) -> str:
    """The verdict on a difference, in words."""
    span = unit.span(cost.low, cost.high)
    if cost.low <= 0 <= cost.high or abs(cost.value) <= noise_floor:
        return f"not distinguishable from {baseline}: {span}"
    more = "more" if cost.value > 0 else "less"
    return f"{unit.amount(abs(cost.value))} {more} than {baseline}: {span}"
