"""A write that fails in the middle of a change: all is taken back, or repair can do it later."""

from __future__ import annotations

import pytest

pytestmark = [pytest.mark.races, pytest.mark.live, pytest.mark.slow]

STOPPED = ("--scenario", "off, stop", "--scenario", "repair of a change")
RUNNING = ("--scenario", "int3 to jump, membarrier")


@pytest.fixture(scope="module")
def one_failed(met):
    return met("--fault", "write", *STOPPED, *RUNNING)


@pytest.fixture(scope="module")
def all_failed(met):
    """All writes from the one on, so that nothing can be taken back."""
    return met("--fault", "writes", *STOPPED)


def test_a_failed_write_leaves_everything_as_it_was(one_failed):
    wrong = [(one.scenario, one.number, harm) for one in one_failed for harm in one.harm]

    assert not wrong
    assert not any(one.journal for one in one_failed if not one.scenario.startswith("repair"))


def test_a_failed_write_is_reported_with_its_reason_and_what_became_of_the_others(one_failed):
    for one in one_failed:
        assert one.error.startswith("ChangeFailed: cannot change process"), one.error
        assert "Input/output error" in one.error
        assert "rolled back" in one.error or one.number == 1, (one.number, one.error)


def test_a_failed_repair_leaves_the_journal_for_the_next_one(one_failed):
    repairs = [one for one in one_failed if one.scenario.startswith("repair")]

    assert repairs
    assert all(one.journal and one.repaired == "rolled back" for one in repairs)


def test_what_could_not_be_taken_back_is_in_the_journal_and_repaired(all_failed):
    later = [one for one in all_failed if one.number > 1 and not one.scenario.startswith("repair")]

    assert later
    for one in later:
        assert "COULD NOT be rolled back" in one.error
        assert "markerjit repair" in one.error
        assert one.journal
        assert one.repaired in ("rolled back", "finished")


def test_no_target_is_harmed_when_nothing_can_be_taken_back(all_failed):
    wrong = [(one.scenario, one.number, harm) for one in all_failed for harm in one.harm]

    assert not wrong
