"""Differences with intervals, and what may be said of them.

A *series* holds what one variant took: an array of layouts by rounds, in nanoseconds for each
execution. All variants of a round were run within some milliseconds of each other, in random order,
so the difference to the baseline is taken within the round. Its estimate is the median over rounds,
and the mean over layouts: layout alone moves results, and no layout is the right one.

The interval is by bootstrap (Efron 1979), rounds and layouts both drawn anew: with few layouts that
differ it is wide, as it should be. Two variants that are the same are measured along as any other;
what they seem to differ by is the noise floor, and nothing smaller is called a difference.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from markerjit.apps.bench.figures import figure, signed

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[np.float64]]

RESAMPLES = 2000
CONFIDENCE = 0.95
UNEVEN = 0.003
"""A processor's speed is not the same from one loop to the next: known costs (controls.py) came out
wrong by so much of a whole round, where their intervals were narrower than that."""


class Estimate(NamedTuple):
    """A value with its 95 % interval, in ns."""

    value: float
    low: float
    high: float

    @property
    def half_width(self) -> float:
        """Half of the interval."""
        return (self.high - self.low) / 2

    def __str__(self) -> str:
        return f"{signed(self.value)} ns ({signed(self.low)} … {signed(self.high)})"


def difference(series: Array, baseline: Array, *, seed: int = 0) -> Estimate:
    """How much more a variant takes than the baseline."""
    return estimate(series - baseline, seed=seed)


def level(series: Array, *, seed: int = 0) -> Estimate:
    """How much a variant takes."""
    return estimate(series, seed=seed)


def estimate(values: Array, *, seed: int = 0) -> Estimate:
    """Of values by layout and round: the mean over layouts of the medians over rounds. The same
    values give the same interval."""
    chance = np.random.default_rng(seed)
    layouts, rounds = values.shape
    drawn = chance.integers(rounds, size=(RESAMPLES, rounds))
    medians = np.stack([np.median(one[drawn], axis=1) for one in values])
    which = chance.integers(layouts, size=(layouts, RESAMPLES))
    means = np.take_along_axis(medians, which, axis=0).mean(axis=0)
    tail = (1 - CONFIDENCE) / 2 * 100
    low, high = np.percentile(means, [tail, 100 - tail])
    return Estimate(float(np.median(values, axis=1).mean()), float(low), float(high))


def floor(again: Estimate, level: Estimate) -> float:
    """Below this nothing is a difference: what code that is the same seemed to differ by, and never
    less than the unevenness of the processor's own clock."""
    return max(abs(again.low), abs(again.high), UNEVEN * level.value)


def is_noisy(baseline: Array, noise_floor: float, control: Estimate | None) -> str:
    """Why nothing can be said of a comparison; "" where something can. A call is the control: where
    that does not stand out of the noise, nothing does."""
    if control and control.low <= noise_floor:
        return (
            f"no verdict, the machine is too noisy: a call does not show ({control}), and the same "
            f"code twice differed by up to {noise_floor:.2f} ns"
        )
    low, middle, high = (np.median(one) for one in np.percentile(baseline, [5, 50, 95], axis=1))
    if high - low > middle:
        return (
            f"no verdict, the machine is too noisy: the same loop took {low:.2f} to {high:.2f} ns"
        )
    return ""


def verdict(one: Estimate, noise_floor: float, baseline: str, *, unit: str = "ns") -> str:
    """What may be said of a difference, in words."""
    span = f"{signed(one.low)} … {signed(one.high)} {unit}"
    if one.low <= 0 <= one.high or abs(one.value) <= noise_floor:
        return f"not distinguishable from {baseline}: {span}"
    more = "more" if one.value > 0 else "less"
    return f"{figure(abs(one.value))} {unit} {more} than {baseline}: {span}"
