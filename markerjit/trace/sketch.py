"""Statistics of many values in bounded memory.

Numbers are stored up to a limit, and their percentiles are exact. Beyond the limit they are counted
in buckets whose width grows with the numbers, so that the relative error of a percentile is at most
`ERROR`. Minimum, maximum and mean are always exact.

Texts are counted up to a limit of distinct values. Beyond it the rarest are forgotten, and counts
are lower bounds.

The buckets are those of DDSketch (Masson, Rim, Lee, VLDB 2019) without its limit on their number:
an array has room for all buckets of a double.
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
    """The most numbers that may be stored: in each column, and in all columns together."""

    def __init__(self, each: int = 1 << 21, together: int = 1 << 24) -> None:
        self.each = each
        self.remaining = together


class Numbers:
    """Statistics of the numbers of a field. nan is counted separately."""

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
        """Whether the percentiles are exact."""
        return self._buckets is None

    def add(self, values: Array) -> None:
        """Add numbers."""
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
        """The mean of all numbers."""
        return self._sum() / self.count

    def percentiles(self, *parts: float) -> list[int | float]:
        """The percentiles for these parts of 1, by nearest rank."""
        ranks = [max(0, math.ceil(part * self.count) - 1) for part in parts]
        if self._buckets:
            return [min(max(value, self.least), self.largest) for value in self._buckets.at(ranks)]
        assert self._kept is not None
        values = np.concatenate(self._kept)
        values.partition(ranks)
        return [values[rank].item() for rank in ranks]

    def _sum(self) -> int | float:
        if all(isinstance(part, int) for part in self._sums):
            return sum(self._sums)
        try:
            return math.fsum(self._sums)
        except (OverflowError, ValueError):  # inf - inf, or out of range of a double
            return sum(self._sums)

    def _keep(self, values: Array) -> None:
        """Store the numbers, or count them in buckets once the budget is spent."""
        if self._buckets is None:
            assert self._kept is not None
            self._kept.append(values)
            self._size += len(values)
            self._budget.remaining -= len(values)
            if self._size <= self._budget.each and self._budget.remaining >= 0:
                return
            self._budget.remaining += self._size
            self._buckets = _Buckets()
            for sample in self._kept:
                self._buckets.add(sample)
            self._kept = None
            return
        self._buckets.add(values)


class _Buckets:
    """The number of values in each bucket, from the lowest up."""

    def __init__(self) -> None:
        size = _HIGHEST - _LOWEST + 1
        self._below = np.zeros(size, np.int64)
        self._above = np.zeros(size, np.int64)
        self._zeros = 0

    def add(self, values: Array) -> None:
        numbers = values.astype(np.float64)
        for counts, magnitudes in (
            (self._above, numbers[numbers > 0]),
            (self._below, -numbers[numbers < 0]),
        ):
            if len(magnitudes):
                with np.errstate(over="ignore"):
                    logarithms = np.log(np.minimum(magnitudes, sys.float_info.max))
                    places = np.ceil(logarithms / _GAMMA).astype(np.int64)
                added = np.bincount(np.clip(places - _LOWEST, 0, len(counts) - 1))
                counts[: len(added)] += added
        self._zeros += int((numbers == 0).sum())

    def at(self, ranks: Iterable[int]) -> list[float]:
        """The approximate numbers at these ranks."""
        counts = np.concatenate([self._below[::-1], [self._zeros], self._above])
        ends = np.cumsum(counts)
        zero = len(self._below)
        values = []
        for rank in ranks:
            place = int(np.searchsorted(ends, rank, side="right"))
            if place == zero:
                values.append(0.0)
            elif place > zero:
                values.append(_middle(place - zero - 1))
            else:
                values.append(-_middle(zero - 1 - place))
        return values


def _middle(bucket: int) -> float:
    """The number from which each number of a bucket differs by at most ERROR of itself."""
    try:
        return math.exp((bucket + _LOWEST) * _GAMMA) * (1 - ERROR)
    except OverflowError:
        return math.inf


class Frequent:
    """The most frequent values. A count may be too low by up to `missed`, which is 0 if exact."""

    def __init__(self, limit: int = 1 << 16) -> None:
        self.count = self.nulls = self.missed = 0
        self._limit = limit
        self._counts: Counter[Value] = Counter()

    @property
    def distinct(self) -> int | None:
        """The number of distinct values; None where it is not known."""
        return None if self.missed else len(self._counts)

    def add(self, values: Iterable[Value]) -> None:
        """Add values, which may include None."""
        self.add_counted(Counter(values))

    def add_counted(self, counts: Counter[Value]) -> None:
        """Add values with their counts."""
        nulls = counts.pop(None, 0)
        self.nulls += nulls
        self.count += counts.total()
        self._counts.update(counts)
        if len(self._counts) > self._limit:
            frequent = self._counts.most_common(self._limit // 2)
            forgotten = self._counts.most_common()[self._limit // 2]
            self.missed += forgotten[1]
            self._counts = Counter(dict(frequent))

    def top(self, number: int) -> list[tuple[Value, int]]:
        """The most frequent values, with their counts."""
        return self._counts.most_common(number)


def _sum(values: Array) -> int | float:
    """The sum, which is exact for whole numbers of any size."""
    if values.dtype.kind == "f":
        with np.errstate(over="ignore", invalid="ignore"):
            return float(values.sum())
    wide = values.astype(np.uint64 if values.dtype.kind == "u" else np.int64)
    high, low = wide >> 32, wide & 0xFFFF_FFFF
    return (int(high.sum()) << 32) + int(low.sum())
