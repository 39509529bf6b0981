"""What many values have in common, in memory that does not grow with them.

Numbers are kept as they are up to a limit, and their percentiles are exact; behind it they are
counted in buckets that are wider the larger the numbers, so that a percentile is off by at most
`ERROR` of itself. Least, largest and mean are exact in any case.

Texts are counted up to a limit of different ones; behind it the rarest are forgotten, and counts
are at least what is said.

The buckets are those of DDSketch (Masson, Rim, Lee, VLDB 2019), without its limit of buckets: all
that a double needs fit into an array.
"""

from __future__ import annotations

import math
import sys
from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from markerjit.model import Value

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

ERROR = 0.01
_GAMMA = math.log((1 + ERROR) / (1 - ERROR))
_LOWEST = math.floor(math.log(5e-324) / _GAMMA)
_HIGHEST = math.ceil(math.log(sys.float_info.max) / _GAMMA)


class Budget:
    """How many numbers may be kept as they are: in each column, and in all together."""

    def __init__(self, each: int = 1 << 21, together: int = 1 << 24) -> None:
        self.each = each
        self.left = together


class Numbers:
    """The numbers of a field. nan is no number here, and only counted."""

    def __init__(self, budget: Budget) -> None:
        self.count = self.nans = 0
        self.least: int | float = math.inf
        self.largest: int | float = -math.inf
        self._sums: list[int | float] = []
        self._budget = budget
        self._kept: list[Array] | None = []
        self._size = 0
        self._buckets: _Buckets | None = None

    @property
    def exact(self) -> bool:
        """Whether the percentiles are."""
        return self._buckets is None

    def add(self, values: Array) -> None:
        """More numbers."""
        if values.dtype.kind == "f":
            whole = len(values)
            values = values[~np.isnan(values)]
            self.nans += whole - len(values)
        if not len(values):
            return
        self.count += len(values)
        self.least = min(self.least, values.min().item())
        self.largest = max(self.largest, values.max().item())
        self._sums.append(_sum(values))
        if len(self._sums) > 1000:
            self._sums = [self._sum()]
        self._keep(values)

    def mean(self) -> float:
        """The mean of all."""
        return self._sum() / self.count

    def percentiles(self, *wanted: float) -> list[int | float]:
        """The numbers that this part of all is not above (nearest rank)."""
        ranks = [max(0, math.ceil(part * self.count) - 1) for part in wanted]
        if self._buckets:
            return [min(max(found, self.least), self.largest) for found in self._buckets.at(ranks)]
        assert self._kept is not None
        values = np.concatenate(self._kept)
        values.partition(ranks)
        return [values[rank].item() for rank in ranks]

    def _sum(self) -> int | float:
        if all(isinstance(one, int) for one in self._sums):
            return sum(self._sums)
        try:
            return math.fsum(self._sums)
        except (OverflowError, ValueError):  # inf - inf, or beyond what a double has
            return sum(self._sums)

    def _keep(self, values: Array) -> None:
        """As they are, or from some number on in buckets."""
        if self._buckets is None:
            assert self._kept is not None
            self._kept.append(values)
            self._size += len(values)
            self._budget.left -= len(values)
            if self._size <= self._budget.each and self._budget.left >= 0:
                return
            self._budget.left += self._size
            self._buckets = _Buckets()
            for kept in self._kept:
                self._buckets.add(kept)
            self._kept = None
            return
        self._buckets.add(values)


class _Buckets:
    """How many numbers there are in each bucket, from the lowest up."""

    def __init__(self) -> None:
        size = _HIGHEST - _LOWEST + 1
        self._below = np.zeros(size, np.int64)
        self._above = np.zeros(size, np.int64)
        self._zeros = 0

    def add(self, values: Array) -> None:
        numbers = values.astype(np.float64)
        for counts, some in (
            (self._above, numbers[numbers > 0]),
            (self._below, -numbers[numbers < 0]),
        ):
            if len(some):
                with np.errstate(over="ignore"):
                    places = np.ceil(np.log(np.minimum(some, sys.float_info.max)) / _GAMMA).astype(
                        np.int64
                    )
                found = np.bincount(np.clip(places - _LOWEST, 0, len(counts) - 1))
                counts[: len(found)] += found
        self._zeros += int((numbers == 0).sum())

    def at(self, ranks: Iterable[int]) -> list[float]:
        """The numbers at these ranks, about."""
        counts = np.concatenate([self._below[::-1], [self._zeros], self._above])
        ends = np.cumsum(counts)
        zero = len(self._below)
        found = []
        for rank in ranks:
            place = int(np.searchsorted(ends, rank, side="right"))
            if place == zero:
                found.append(0.0)
            elif place > zero:
                found.append(_middle(place - zero - 1))
            else:
                found.append(-_middle(zero - 1 - place))
        return found


def _middle(bucket: int) -> float:
    """The number that no number of a bucket is more than ERROR of itself away from."""
    try:
        return math.exp((bucket + _LOWEST) * _GAMMA) * (1 - ERROR)
    except OverflowError:
        return math.inf


class Frequent:
    """The values that come most often. `missed`: a count may be this much too low; 0 while it is
    exact."""

    def __init__(self, limit: int = 1 << 16) -> None:
        self.count = self.nulls = self.missed = 0
        self._limit = limit
        self._counts: Counter[Value] = Counter()

    @property
    def distinct(self) -> int | None:
        """How many different ones there were; None where it is not known."""
        return None if self.missed else len(self._counts)

    def add(self, values: Iterable[Value]) -> None:
        """More values, None among them."""
        self.add_counted(Counter(values))

    def add_counted(self, counts: Counter[Value]) -> None:
        """The same, counted already."""
        nulls = counts.pop(None, 0)
        self.nulls += nulls
        self.count += counts.total()
        self._counts.update(counts)
        if len(self._counts) > self._limit:
            kept = self._counts.most_common(self._limit // 2)
            forgotten = self._counts.most_common()[self._limit // 2]
            self.missed += forgotten[1]
            self._counts = Counter(dict(kept))

    def top(self, number: int) -> list[tuple[Value, int]]:
        """The most frequent ones, with how often they were seen."""
        return self._counts.most_common(number)


def _sum(values: Array) -> int | float:
    """The sum: of whole numbers exact, however large."""
    if values.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            return float(values.sum())
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    high, low = wide >> 32, wide & 0xFFFF_FFFF
    return (int(high.sum()) << 32) + int(low.sum())
