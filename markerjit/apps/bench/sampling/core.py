"""Whether a loop had its core to itself.

Two CPUs of a machine are often two threads of one core, and a guest is not always told. While the
other one works, a loop takes up to twice its time. The bench cannot choose that, so its programs
look at the core before and after each run (native/bench/core.h). Runs that had the core to
themselves and runs that had not are two states of the machine, and a median over both would be the
time of neither.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.apps.bench.sampling.statistics import FEWEST, Estimate
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.apps.bench.sampling.statistics import Array

MOST_ALONE = 115
"""The largest share (percent, see core.h) of a core that works for one thread alone."""
_NEARLY_ALL = 0.995
METHOD = (
    "Two CPUs are often two threads of one core, and while both have work a loop takes up to twice "
    "its time. So before and after each run each thread times two short loops: additions that wait "
    "for each other, and four at a time that wait for nobody. Where the second loop "
    f"takes more than {MOST_ALONE} % of the first, something else had a part of the core. Figures "
    "are of runs that had the core to themselves, and those of the other runs are named apart. If "
    f"a form has fewer than {FEWEST} such runs in a layout, figures are of all runs, which "
    "is said."
)
"""The method, in a paragraph."""


class Taken(NamedTuple):
    """The time of one run of a loop, in ns, and the share of its core, in percent: about 100 if it
    had the core to itself, and up to 200 if not."""

    ns: int
    share: int

    @property
    def is_alone(self) -> bool:
        """Whether nothing speaks against it that the run had its core to itself."""
        return self.share <= MOST_ALONE


def read(answer: str) -> list[Taken]:
    """What a program of the bench says of some runs, as `NS/SHARE` each."""
    return [Taken(*map(int, word.split("/"))) for word in answer.split()]


def least(runs: Sequence[Taken]) -> Taken:
    """The shortest of some runs, because interruptions only add to them; of those that had the core
    to themselves where there are any."""
    return min([run for run in runs if run.is_alone] or runs)


class Shared(NamedTuple):
    """The time of a form, and what it adds to its baseline, while something else has a part of the
    core."""

    level: Estimate
    cost: Estimate


class Parted(NamedTuple):
    """Samples by form (layouts by rounds), parted by the state of the core: those that the figures
    are of, and the others. Each has a NaN where the other has a time. `others` is empty where
    nothing was left out. `alone` is the part of the runs that had the core to themselves, from 0
    to 1."""

    samples: dict[str, Array]
    others: dict[str, Array]
    alone: float


def parted(
    samples: Mapping[str, Array], shares: Mapping[str, Array], baselines: Mapping[str, str]
) -> Parted:
    """Part samples by their shares of the core. Where a form has fewer than FEWEST in a layout
    that had the core to themselves, as had those of its baseline in the same rounds, all of them
    stay together."""
    alone = {form: share <= MOST_ALONE for form, share in shares.items()}
    pairs = [alone[form] & alone[baselines[form]] for form in samples]
    part = float(np.mean([each.mean() for each in alone.values()]))
    if part == 1 or any(both.sum(axis=1).min() < FEWEST for both in pairs):
        return Parted(dict(samples), {}, part)
    return Parted(
        {form: np.where(alone[form], times, np.nan) for form, times in samples.items()},
        {form: np.where(alone[form], np.nan, times) for form, times in samples.items()},
        part,
    )


def sentence(alone: float, is_parted: bool) -> str:
    """What is to be said of a comparison in which this part of the runs had the core to themselves;
    "" where nearly all had."""
    if alone > _NEARLY_ALL:
        return ""
    part = f"{alone:.0%}".replace("%", " %")
    if not is_parted:
        return f"Only {part} of the runs had the core to themselves, so figures are of all runs."
    return f"Figures are of the {part} of the runs that had the core to themselves."
