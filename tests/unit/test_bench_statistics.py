"""Differences with intervals: they have what is known, and what is the same does not differ."""

from __future__ import annotations

import numpy as np
import pytest

from markerjit.apps.bench.sampling.statistics import (
    RESAMPLES,
    UNEVEN,
    Estimate,
    difference,
    estimate,
    floor,
    is_noisy,
    over_rounds,
    verdict,
)

TRIES = 200


def noisy(chance: np.random.Generator, level: float, layouts: int = 4, rounds: int = 60):
    """As a shared machine gives it: a speed that all variants of a round share, layouts that
    differ by more than rounds do, and now and then something that interrupts."""
    speed = 1 + 0.2 * chance.random((1, rounds))
    own = level + 0.1 * chance.standard_normal((layouts, 1))
    own = own + 0.02 * chance.standard_normal((layouts, rounds))
    return own * speed + (chance.random((layouts, rounds)) < 0.05)


def test_the_same_values_have_the_same_interval() -> None:
    values = np.random.default_rng(1).random((3, 20))

    assert estimate(values) == estimate(values)


def test_an_estimate_of_a_constant_is_that_constant() -> None:
    assert estimate(np.full((2, 9), 1.5)) == (1.5, 1.5, 1.5)


@pytest.mark.parametrize("rounds", [1, 2, 7, 60])
def test_the_interval_is_of_the_medians_of_the_rounds_that_were_drawn(rounds: int) -> None:
    values = np.random.default_rng(5).integers(4, size=(3, rounds)) + 0.1  # some are the same
    drawn = np.random.default_rng(9).integers(rounds, size=(RESAMPLES, rounds))
    medians = [np.median(series[drawn], axis=1) for series in values]

    interval = over_rounds(values, seed=9)

    low, high = np.percentile(np.mean(medians, axis=0), [2.5, 97.5])
    assert interval == pytest.approx((np.median(values, axis=1).mean(), low, high))


@pytest.mark.parametrize("layouts", [2, 3, 4, 8, 20])
def test_what_is_the_same_elsewhere_is_distinguished_once_in_twenty(layouts: int) -> None:
    chance = np.random.default_rng(2)
    distinguished = 0
    for _ in range(TRIES):
        interval = difference(noisy(chance, 1.0, layouts, 15), noisy(chance, 1.0, layouts, 15))
        distinguished += not interval.low <= 0 <= interval.high

    assert distinguished == pytest.approx(TRIES / 20, abs=2.5 * (TRIES / 20) ** 0.5)


@pytest.mark.parametrize("added", [0.05, 0.33, -0.2])
def test_what_is_known_is_in_the_interval_nineteen_times_in_twenty(added: float) -> None:
    chance = np.random.default_rng(3)
    missed = 0
    for _ in range(TRIES):
        base = noisy(chance, 1.0)
        interval = difference(base + added + 0.01 * chance.standard_normal(base.shape), base)
        missed += not interval.low <= added <= interval.high

    assert missed <= TRIES / 20


def test_layouts_that_differ_make_the_interval_wide() -> None:
    values = np.zeros((4, 50))
    values[0] = 1.0

    interval = estimate(values)

    assert interval.value == 0.25
    assert interval.half_width == pytest.approx(3.18 * 0.5 / 2)  # t with 3 degrees of freedom
    assert over_rounds(values) == (0.25, 0.25, 0.25)


def test_a_verdict_is_a_sentence_of_what_may_be_said() -> None:
    same = Estimate(0.004, -0.02, 0.03)
    more, less = Estimate(0.31, 0.28, 0.35), Estimate(-0.31, -0.35, -0.28)

    assert verdict(same, 0.01, "x") == "not distinguishable from x: -0.02 … +0.03 ns"
    assert verdict(more, 0.01, "x") == "0.31 ns more than x: +0.28 … +0.35 ns"
    assert verdict(less, 0.01, "x") == "0.31 ns less than x: -0.35 … -0.28 ns"
    assert verdict(more, 0.4, "x").startswith("not distinguishable")


def test_the_noise_floor_is_what_the_same_code_differed_by_or_an_uneven_clock() -> None:
    level = Estimate(10.0, 9.0, 11.0)

    assert floor(Estimate(0, -0.2, 0.1), level) == 0.2
    assert floor(Estimate(0, -0.001, 0.001), level) == 10.0 * UNEVEN


def test_no_verdict_where_a_call_does_not_show_or_nothing_is_steady() -> None:
    steady, wild = np.full((2, 40), 1.0), np.random.default_rng(4).exponential(1, (2, 40))
    shows, hides = Estimate(0.9, 0.8, 1.0), Estimate(0.1, -0.2, 0.4)

    assert is_noisy(steady, 0.01, shows) == is_noisy(steady, 0.01, None) == ""
    assert "a call does not show" in is_noisy(steady, 0.01, hides)
    assert "too noisy" in is_noisy(wild, 0.01, shows)
    assert "differed from itself by up to 0.60 ns" in is_noisy(steady, 0.6, None)
    assert is_noisy(steady, 0.4, None) == ""


def test_layouts_of_different_speed_are_no_noise() -> None:
    slow_and_fast = np.repeat([[0.67], [1.34]], 40, axis=1)

    assert is_noisy(slow_and_fast, 0.01, None) == ""
