"""Numbers and texts summed up in bounded memory: exact while they are few, close when many."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.trace.sketch import ERROR, Budget, Frequent, Numbers

PARTS = (0.0, 0.01, 0.5, 0.9, 0.99, 1.0)
WHOLE = st.integers(-(1 << 63), (1 << 63) - 1)


def rank(values: list[float], part: float) -> float:
    return sorted(values)[max(0, math.ceil(part * len(values)) - 1)]


def fed(values: list[float], dtype: str, budget: Budget) -> Numbers:
    numbers = Numbers(budget)
    for at in range(0, len(values), 3):
        numbers.add(np.array(values[at : at + 3], dtype))
    return numbers


@given(st.lists(WHOLE, min_size=1))
def test_few_numbers_are_exact(values: list[float]) -> None:
    numbers = fed(values, "i8", Budget())

    assert numbers.exact
    assert numbers.percentiles(*PARTS) == [rank(values, part) for part in PARTS]
    assert (numbers.least, numbers.largest) == (min(values), max(values))
    assert numbers.mean() == sum(values) / len(values)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1))
def test_many_numbers_are_close(values: list[float]) -> None:
    numbers = fed(values, "f8", Budget(each=0))

    assert not numbers.exact
    for part, percentile in zip(PARTS, numbers.percentiles(*PARTS), strict=True):
        right = rank(values, part)
        assert percentile == pytest.approx(right, rel=ERROR * 1.0001, abs=1e-300)
    assert (numbers.least, numbers.largest) == (min(values), max(values))


def test_numbers_become_close_at_their_limit_and_give_their_room_back() -> None:
    budget = Budget(each=10, together=14)
    first, other = Numbers(budget), Numbers(budget)

    first.add(np.arange(8))
    other.add(np.arange(8))

    assert (first.exact, other.exact) == (True, False)
    assert budget.remaining == 14 - 8
    first.add(np.arange(8))
    assert not first.exact
    assert budget.remaining == 14
    assert first.count == 16
    assert first.percentiles(0.5)[0] == pytest.approx(3, rel=ERROR)


def test_unsigned_numbers_keep_all_their_bits() -> None:
    numbers = Numbers(Budget())
    numbers.add(np.array([(1 << 64) - 1, (1 << 64) - 3], np.uint64))

    assert numbers.percentiles(0.5, 1) == [(1 << 64) - 3, (1 << 64) - 1]
    assert numbers.mean() == float((1 << 64) - 2)


@pytest.mark.parametrize("each", [0, 100])
def test_nan_is_counted_and_no_number(each: int) -> None:
    numbers = Numbers(Budget(each=each))
    numbers.add(np.array([math.nan, 2.0, math.nan]))
    numbers.add(np.array([math.nan]))

    assert (numbers.count, numbers.nans) == (1, 3)
    assert numbers.percentiles(0.5)[0] == pytest.approx(2.0, rel=ERROR)


@pytest.mark.parametrize("each", [0, 100])
def test_infinities_are_the_ends(each: int) -> None:
    numbers = Numbers(Budget(each=each))
    numbers.add(np.array([math.inf, -math.inf, 0.0]))

    assert (numbers.least, numbers.largest) == (-math.inf, math.inf)
    assert numbers.percentiles(0.5) == [0.0]
    assert math.isnan(numbers.mean())


def test_sums_of_many_batches_stay_exact() -> None:
    numbers = Numbers(Budget(each=0))
    for _ in range(2500):
        numbers.add(np.array([1 << 62, -1]))

    assert numbers.mean() == ((1 << 62) - 1) / 2


@given(st.lists(st.none() | st.text(max_size=2)))
def test_few_values_are_counted_exactly(values: list[str | None]) -> None:
    seen = Frequent()
    seen.add(values[:3])
    seen.add(values[3:])

    expected = Counter(value for value in values if value is not None)
    assert Counter(dict(seen.top(1000))) == expected
    assert (seen.nulls, seen.count) == (values.count(None), expected.total())
    assert (seen.distinct, seen.missed) == (len(expected), 0)


@given(st.lists(st.integers(0, 30)))
def test_counts_of_many_values_are_too_low_by_no_more_than_is_said(values: list[int]) -> None:
    seen = Frequent(limit=8)
    for value in values:
        seen.add([value])

    right = Counter(values)
    for value, count in seen.top(5):
        assert right[value] - seen.missed <= count <= right[value]
    for value, count in right.items():
        if count > 2 * seen.missed:
            assert value in dict(seen.top(100))
    assert (seen.distinct is None) == (seen.missed > 0)
