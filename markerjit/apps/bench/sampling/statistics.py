"""Differences with intervals, and what may be said of them.

A *series* holds what one variant took: an array of layouts by rounds, in nanoseconds for each
execution. All variants of a round were run within some milliseconds of each other, in random order,
so the difference to the baseline is taken within the round. Its estimate is the median over rounds,
and the mean over layouts: layout alone moves results, and no layout is the right one.

The interval has room for both: for rounds by bootstrap (Efron 1979), the same rounds drawn in all
layouts, and for layouts by Student's t, since a few layouts are a small sample of all that there
could be. (To draw so few anew would miss the truth in a fifth of all cases.) They are independent,
so the root of the sum of their squares holds. Two variants that are the same are measured along as
any other; what they seem to differ by is the noise floor, and nothing smaller is called a
difference.
"""

from __future__ import annotations

from math import hypot
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from markerjit.apps.bench.sampling.figures import NS, Unit

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[np.float64]]

RESAMPLES = 2000
_TAIL = 2.5  # percent, at each end of an interval
_T = (12.71, 4.30, 3.18, 2.78, 2.57, 2.45, 2.36, 2.31, 2.26, 2.23, 2.20, 2.18, 2.16, 2.14, 2.13)
"""Student's t for 95 %, by degrees of freedom from 1 on."""
FEWEST = 6
"""Values, below which their whole range is no interval of 95 % for their median."""
UNEVEN = 0.003
"""A processor's speed is not the same from one loop to the next: known costs (controls.py) came out
wrong by so much of a whole round, where their intervals were narrower than that."""


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
        """Both, for people."""
        return f"{unit.amount(self.value)} ({unit.span(self.low, self.high)})"


def difference(series: Array, baseline: Array, *, seed: int = 0) -> Estimate:
    """How much more a variant takes than the baseline."""
    return estimate(series - baseline, seed=seed)


def level(series: Array, *, seed: int = 0) -> Estimate:
    """How much a variant takes."""
    return estimate(series, seed=seed)


def estimate(values: Array, *, seed: int = 0) -> Estimate:
    """Of values by layout and round: the mean over layouts of the medians over rounds. The same
    values give the same interval."""
    of_rounds = over_rounds(values, seed=seed)
    layouts = len(values)
    if layouts == 1:
        return of_rounds
    spread = float(np.median(values, axis=1).std(ddof=1))
    aside = _t(layouts - 1) * spread / layouts**0.5
    value, low, high = of_rounds
    return Estimate(value, value - hypot(value - low, aside), value + hypot(high - value, aside))


def over_rounds(values: Array, *, seed: int = 0) -> Estimate:
    """The same for just these layouts: what more rounds can make narrower."""
    layouts, rounds = values.shape
    drawn = np.random.default_rng(seed).integers(rounds, size=(RESAMPLES, rounds))
    means = np.zeros(RESAMPLES)
    for one in values:
        means += np.median(one[drawn], axis=1) / layouts
    low, high = np.percentile(means, [_TAIL, 100 - _TAIL])
    return Estimate(float(np.median(values, axis=1).mean()), float(low), float(high))


def _t(freedom: int) -> float:
    return _T[freedom - 1] if freedom <= len(_T) else 1.96 + 2.56 / freedom


def floor(again: Estimate, level: Estimate) -> float:
    """Below this nothing is a difference: what code that is the same seemed to differ by, and never
    less than the unevenness of the processor's own clock."""
    return max(reach(again), UNEVEN * level.value)


def reach(again: Estimate) -> float:
    """By how much code that is the same seemed to differ, at the most."""
    return max(abs(again.low), abs(again.high))


def is_noisy(baseline: Array, noise_floor: float, control: Estimate | None, unit: Unit = NS) -> str:
    """Why nothing can be said of a comparison; "" where something can. A call is the control: where
    that does not stand out of the noise, nothing does."""
    low, middle, high = (np.median(one) for one in np.percentile(baseline, [5, 50, 95], axis=1))
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
    """Why nothing can be said where the floor is more than half of what the baseline takes."""
    if noise_floor <= level / 2:
        return ""
    return (
        f"no verdict, the machine is too noisy: the same, which took {unit.amount(level)}, "
        f"differed from itself by up to {unit.amount(noise_floor)}"
    )


def verdict(one: Estimate, noise_floor: float, baseline: str, unit: Unit = NS) -> str:
    """What may be said of a difference, in words."""
    span = unit.span(one.low, one.high)
    if one.low <= 0 <= one.high or abs(one.value) <= noise_floor:
        return f"not distinguishable from {baseline}: {span}"
    more = "more" if one.value > 0 else "less"
    return f"{unit.amount(abs(one.value))} {more} than {baseline}: {span}"
