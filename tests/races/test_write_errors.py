"""A write that fails in the middle of a change: all is taken back, or repair can do it later."""

from __future__ import annotations

import pytest

from tests.support.choice import spacing

pytestmark = [pytest.mark.races, pytest.mark.live, pytest.mark.slow]

STOPPED = ("--scenario", "off, stop", "--scenario", "repair of a change")
RUNNING = ("--scenario", "int3 to jump, membarrier")


@pytest.fixture(scope="module")
def one_failed(met):
    return met("--fault", "write", "--spacing", str(spacing(3)), *STOPPED, *RUNNING)


@pytest.fixture(scope="module")
def all_failed(met):
    """All writes from the one on, so that nothing can be taken back."""
    return met("--fault", "writes", "--spacing", str(spacing(3)), *STOPPED)


def test_a_failed_write_leaves_everything_as_it_was(one_failed):
    wrong = [
        (outcome.scenario, outcome.number, harm) for outcome in one_failed for harm in outcome.harm
    ]

    assert not wrong
    assert not any(
        outcome.journal for outcome in one_failed if not outcome.scenario.startswith("repair")
    )


def test_a_failed_write_is_reported_with_its_reason_and_what_became_of_the_others(one_failed):
    for outcome in one_failed:
        assert outcome.error.startswith("ChangeFailed: cannot change process"), outcome.error
        assert "Input/output error" in outcome.error
        assert "rolled back" in outcome.error or outcome.number == 1, (
            outcome.number,
            outcome.error,
        )


def test_a_failed_repair_leaves_the_journal_for_the_next_one(one_failed):
    repairs = [outcome for outcome in one_failed if outcome.scenario.startswith("repair")]

    assert repairs
    assert all(outcome.journal and outcome.repaired == "rolled back" for outcome in repairs)


def test_what_could_not_be_taken_back_is_in_the_journal_and_repaired(all_failed):
    later = [
        outcome
        for outcome in all_failed
        if outcome.number > 1 and not outcome.scenario.startswith("repair")
    ]

    assert later
    for outcome in later:
        assert "COULD NOT be rolled back" in outcome.error
        assert "markerjit repair" in outcome.error
        assert outcome.journal
        assert outcome.repaired in ("rolled back", "finished")


def test_no_target_is_harmed_when_nothing_can_be_taken_back(all_failed):
    wrong = [
        (outcome.scenario, outcome.number, harm) for outcome in all_failed for harm in outcome.harm
    ]

    assert not wrong
