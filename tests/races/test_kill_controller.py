"""A controller that is killed harms nobody, and leaves nothing that repair does not mend.

A choice of scenarios and points, of which `make test` takes each name of a point, and a third of
the rest; `make kill-matrix` takes all of them. What each point is checked for is in matrix.py.
"""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from tests.support.choice import spacing

pytestmark = [pytest.mark.races, pytest.mark.live, pytest.mark.slow]

SCENARIOS = (
    "first use, membarrier",
    "on, stop",
    "count, record, count",
    "jump to int3, membarrier",
    "int3 to jump, in steps",
    "repair of a change",
    "repair of a mapped arena",
)


@pytest.fixture(scope="module")
def outcomes(met) -> list[SimpleNamespace]:
    chosen = [word for name in SCENARIOS for word in ("--scenario", name)]
    return met("--short", "--spacing", str(spacing(3)), *chosen)


def test_a_killed_controller_harms_no_target(outcomes):
    wrong = [
        (outcome.scenario, outcome.point, outcome.first, harm)
        for outcome in outcomes
        for harm in outcome.harm
    ]

    assert not wrong


def test_controllers_die_at_the_points_that_were_chosen(outcomes):
    died = [outcome for outcome in outcomes if outcome.died]

    # A run may have a point less than the one that was counted, as when a lease is not yet renewed.
    assert len(died) > 0.95 * len(outcomes)
    assert {outcome.scenario for outcome in died} == set(SCENARIOS)


@pytest.mark.parametrize(
    ("what", "at_least"),
    [("journal", 30), ("half", 8), ("borrowed", 20), ("stopped", 40)],
)
def test_kills_land_where_they_could_do_harm(outcomes, what, at_least):
    hits = [outcome for outcome in outcomes if getattr(outcome, what)]

    assert len(hits) >= at_least // spacing(2)


def test_kills_land_in_every_step_of_a_borrowing(outcomes):
    steps = {outcome.point for outcome in outcomes if outcome.borrowed}

    assert steps >= {
        "borrow: on the way back",
        "borrow: signals blocked",
        "borrow: call",
        "borrow: entry",
        "borrow: exit",
        "borrow: mask",
    }


def test_borrowed_threads_were_of_every_kind(outcomes):
    kinds = Counter(outcome.first for outcome in outcomes if outcome.borrowed)

    assert len(kinds) == 7


def test_repair_finishes_takes_back_switches_off_and_removes(outcomes):
    done = {word for outcome in outcomes for word in outcome.repaired.split(", ")}

    assert done >= {"nothing", "finished", "rolled back", "switched off", "removed"}


def test_a_sleep_that_was_stopped_just_before_goes_on(met):
    """The kernel has it call restart_syscall, which the way back of a borrowed thread disarms."""
    (killed,) = met(
        "--scenario", "on, membarrier", "--point", "borrow: exit", "--short", "--one",
        "--first", "nanosleep", "--sent-back",
    )  # fmt: skip

    assert killed.borrowed
    assert not killed.harm


def test_a_call_ends_with_eintr_only_before_the_stop_was_looked_at(outcomes):
    points = {outcome.point for outcome in outcomes if outcome.eintr}

    assert points <= {"seized", "interrupted"}  # docs/decisions/0006-explicit-restart.md
