"""A target that dies in the middle ends the controller with a clear error, and in time."""

from __future__ import annotations

import pytest

from tests.support.choice import spacing

pytestmark = [pytest.mark.races, pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def outcomes(met):
    return met(
        "--fault", "target", "--short", "--spacing", str(spacing(6)),
        "--scenario", "first use, membarrier", "--scenario", "on, stop",
    )  # fmt: skip


def test_a_controller_never_hangs_or_breaks_when_its_target_dies(outcomes):
    wrong = [
        (outcome.scenario, outcome.point, harm) for outcome in outcomes for harm in outcome.harm
    ]

    assert not wrong


def test_it_says_that_the_target_has_ended(outcomes):
    errors = [outcome.error for outcome in outcomes if outcome.error]

    assert len(errors) > len(outcomes) / 2
    assert all(error.startswith(("TargetGone: ", "NoSuchProcess: ")) for error in errors)


def test_targets_die_while_a_thread_is_borrowed_and_while_all_stand(outcomes):
    assert sum(outcome.borrowed for outcome in outcomes) >= 5
    assert sum(outcome.stopped > 1 for outcome in outcomes) >= 4


def test_an_ordinary_user_is_told_the_same(met, as_an_ordinary_user):
    """The kernel gives the files of a process without memory to root, so that everything of it is
    "permission denied" to others."""
    scenarios = ("--scenario", "first use, stop", "--scenario", "repair of a mapped arena")
    points = ("--short", "--spacing", str(spacing(6)), *scenarios)
    outcomes = met("--fault", "target", *points, by=as_an_ordinary_user)

    assert not [
        (outcome.scenario, outcome.point, harm) for outcome in outcomes for harm in outcome.harm
    ]
    errors = [outcome.error for outcome in outcomes if outcome.error]
    assert len(errors) > len(outcomes) / 2
    assert all(error.startswith(("TargetGone: ", "NoSuchProcess: ")) for error in errors)
