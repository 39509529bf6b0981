"""The counts of a probe in C: reading its counters and histograms, of all CPUs.

The probe goes on counting meanwhile, so what is read together need not be from one moment. The
values are written by the target and are only numbers: nothing in them is believed to be a size.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Protocol

from markerjit.probes.c.unit import Variable
from markerjit.tuples import NamedTuple

Read = Callable[[int, int], bytes]
"""From an address of the target and a size to exactly so many bytes."""

BUCKETS = 252  # MJ_BUCKETS of probe.h
_MASK = (1 << 64) - 1


class Counting(Protocol):
    """A probe in a target; a variable's `place` is an address, the next CPU's `stride` further."""

    @property
    def variables(self) -> tuple[Variable, ...]:
        """Its counters and histograms."""

    @property
    def cpus(self) -> int:
        """How many there are of each."""

    @property
    def stride(self) -> int:
        """In bytes."""


class Bucket(NamedTuple):
    """Values from `low` to `high`, both included, and how many there were."""

    low: int
    high: int
    number: int


class Histogram(NamedTuple):
    """How many values fell into each bucket of probe.h."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        """All values."""
        return sum(self.counts)

    def buckets(self) -> Iterator[Bucket]:
        """Those with values in them."""
        for index, count in enumerate(self.counts):
            if count:
                yield Bucket(bucket_low(index), bucket_low(index + 1) - 1, count)

    def percentile(self, percent: float) -> int | None:
        """A value such that at least `percent` % of the values are no larger: the upper end of a
        bucket, so up to a quarter too large. None without values."""
        left = self.total * percent / 100
        last = None
        for bucket in self.buckets():
            last = bucket.high
            left -= bucket.number
            if left <= 0:
                break
        return last


def read_counters(probe: Counting, read: Read) -> dict[str, int]:
    """All counters, each added up over the CPUs."""
    return {
        variable.name: _sums(probe, variable, read)[0]
        for variable in probe.variables
        if not variable.is_histogram
    }


def read_histograms(probe: Counting, read: Read) -> dict[str, Histogram]:
    """All histograms, each added up over the CPUs."""
    return {
        variable.name: Histogram(_sums(probe, variable, read))
        for variable in probe.variables
        if variable.is_histogram
    }


def bucket_low(index: int) -> int:
    """The smallest value of a bucket; mj_bucket of probe.h the other way round."""
    if index < 4:
        return index
    power, quarter = divmod(index, 4)
    return (4 + quarter) << (power - 1)


def _sums(probe: Counting, variable: Variable, read: Read) -> tuple[int, ...]:
    sums = [0] * variable.words
    for cpu in range(probe.cpus):
        data = read(variable.place + cpu * probe.stride, variable.words * 8)
        for index, value in enumerate(struct.unpack(f"<{variable.words}Q", data)):
            sums[index] += value
    return tuple(value & _MASK for value in sums)
