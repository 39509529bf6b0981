"""Buckets of values, as native/src/runtime/aggregate.c counts them, and their meaning.

A histogram has a bucket for each power of two, a sketch 32 of equal width. The middle of a fine
bucket differs from every value in it by less than 1.6 %. Integers up to 63 have buckets of their
own. Doubles are divided from 2 ** -32 up to 2 ** 64: what is smaller counts as 0, and what is
larger is in the last bucket, which has no end.

What this does not do: count. It knows the numbers of buckets, and their bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from markerjit.arguments import check_is, check_share
from markerjit.printable import counted
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple

PARTS_BITS = 5
EXPONENTS_BELOW, EXPONENTS_ABOVE = 32, 64
MIDDLE, MIDDLE_FINE = 64, 1920
MIDDLE_FLOAT, MIDDLE_FINE_FLOAT = 97, 3073
_MIDDLES = {False: MIDDLE, True: MIDDLE_FINE}
_MIDDLES_OF_FLOATS = {False: MIDDLE_FLOAT, True: MIDDLE_FINE_FLOAT}
Number = int | float


class Bucket(NamedTuple):
    """The number of values from `low` up to `high`, which is included for integers and excluded for
    floats."""

    low: Number
    high: Number
    number: int


class Scale(NamedTuple):
    """The buckets of values of a type, which is I64, U64 or F64."""

    type: Type
    fine: bool

    @property
    def middle(self) -> int:
        """The number of the bucket of 0."""
        if self.type is Type.U64:
            return 0
        return (_MIDDLES_OF_FLOATS if self.type is Type.F64 else _MIDDLES)[self.fine]

    @property
    def size(self) -> int:
        """How many buckets there are."""
        if self.type is Type.F64:
            return 2 * self.middle + 1
        if self.type is Type.U64:
            return _MIDDLES[self.fine] + (not self.fine)
        return 2 * self.middle

    def bounds(self, number: int) -> tuple[Number, Number]:
        """The least value of a bucket, and its largest; for floats what is behind that."""
        distance = abs(number - self.middle)
        if self.type is Type.F64:
            low, high = self._bounds_of_float(distance)
            return (-high, -low) if number < self.middle else (low, high)
        least, most = self._bounds_of_integer(distance)
        return (-most, -least) if number < self.middle else (least, most)

    def _bounds_of_integer(self, distance: int) -> tuple[int, int]:
        if not self.fine:
            return (1 << distance) >> 1, (1 << distance) - 1
        if distance < 2 << PARTS_BITS:
            return distance, distance
        shift = (distance >> PARTS_BITS) - 1
        low = ((distance & (1 << PARTS_BITS) - 1) + (1 << PARTS_BITS)) << shift
        return low, low + (1 << shift) - 1

    def _bounds_of_float(self, distance: int) -> tuple[float, float]:
        if not distance:
            return 0.0, 2.0**-EXPONENTS_BELOW
        if distance == self.middle:
            return 2.0**EXPONENTS_ABOVE, math.inf
        parts = 1 << PARTS_BITS if self.fine else 1
        exponent, part = divmod(distance - 1, parts)
        unit = 2.0 ** (exponent - EXPONENTS_BELOW) / parts
        return (parts + part) * unit, (parts + part + 1) * unit


def _added(left: Mapping[int, int], right: Mapping[int, int]) -> dict[int, int]:
    return {number: left.get(number, 0) + right.get(number, 0) for number in {**left, **right}}


class Histogram(NamedTuple):
    """How many values were in each power of two. `counts` are those of the buckets that have any,
    by their numbers."""

    scale: Scale
    counts: Mapping[int, int]

    @property
    def total(self) -> int:
        """All values."""
        return sum(self.counts.values())

    def __repr__(self) -> str:
        return f"<Histogram of {counted(self.total, 'value')}>"

    def plus(self, other: Histogram) -> Histogram:
        """These values and those of another one with this scale."""
        check_is("other", other, Histogram)
        return self._replace(counts=_added(self.counts, other.counts))

    def buckets(self) -> Iterator[Bucket]:
        """From the first bucket that has values to the last, also those without between them."""
        if self.counts:
            for number in range(min(self.counts), max(self.counts) + 1):
                yield Bucket(*self.scale.bounds(number), self.counts.get(number, 0))


class Sketch(NamedTuple):
    """Fine buckets, of which quantiles are read with a relative error of at most 2 %."""

    scale: Scale
    counts: Mapping[int, int]

    @property
    def total(self) -> int:
        """All values."""
        return sum(self.counts.values())

    def __repr__(self) -> str:
        return f"<Sketch of {counted(self.total, 'value')}>"

    def plus(self, other: Sketch) -> Sketch:
        """These values and those of another one with this scale."""
        check_is("other", other, Sketch)
        return self._replace(counts=_added(self.counts, other.counts))

    def quantile(self, fraction: float) -> Number | None:
        """The value that this fraction of all values does not exceed, such as 0.99; None where
        there are no values. It differs by at most 2 % from a value that was there, or is infinite
        where that is beyond all buckets. Raises BadArgument where `fraction` is not a number from 0
        to 1."""
        check_share("fraction", fraction)
        rank = int(fraction * (self.total - 1))
        for number in sorted(self.counts):
            rank -= self.counts[number]
            if rank < 0:
                return self._middle(number)
        return None

    def _middle(self, number: int) -> Number:
        low, high = self.scale.bounds(number)
        if number == self.scale.middle:
            return low if self.scale.type is not Type.F64 else 0.0
        if isinstance(low, int) and isinstance(high, int):
            return low if low == high else (low + high) // 2
        return (low + high) / 2
