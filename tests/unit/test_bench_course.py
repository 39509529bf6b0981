"""How far a run of the bench is, and what it measures at a first look."""

from __future__ import annotations

import pytest

from markerjit.apps.bench import measure
from markerjit.apps.bench.course import Course
from markerjit.apps.bench.sampling.plan import QUICK_S, Plan, Step, usual


def test_bar_counts_seconds_of_steps_and_is_full_at_the_end() -> None:
    shown: list[tuple[str, float]] = []
    course = Course([Step("a", 1), Step("b", 3)], lambda *each: shown.append(each))

    for title, done in (("a", 0.5), ("a", 1), ("b", 0.0), ("b", 0.5), ("b", 1)):
        course.tell(title, done)

    assert [part for _, part in shown] == [0.125, 0.25, 0.25, 0.625, 1]
    assert shown[-1] == ("b", 1)


def test_bar_never_goes_back_and_steps_that_are_none_leave_it_alone() -> None:
    shown: list[float] = []
    course = Course([Step("a", 1), Step("b", 1)], lambda _, part: shown.append(part))

    for title, done in (("b", 0.5), ("a", 0.1), ("elsewhere", 1), ("b", 0.25), ("b", 7)):
        course.tell(title, done)

    assert shown == [0.75, 0.75, 0.75, 0.75, 1]


@pytest.mark.parametrize("name", measure.KINDS)
def test_steps_of_a_kind_have_names_of_their_own_and_all_of_its_time(name: str) -> None:
    steps = list(measure.KINDS[name].steps(Plan(60)))

    assert len({step.title for step in steps}) == len(steps)
    assert sum(step.seconds for step in steps) >= 60
    assert min(step.seconds for step in steps) > 0


def test_a_first_look_has_fewer_placements_and_settings() -> None:
    quick, whole = usual(QUICK_S - 1), usual(QUICK_S)

    assert whole == Plan(QUICK_S)
    assert quick.layouts < whole.layouts and set(quick.parts) < set(whole.parts)
    assert set(quick.threads) < set(whole.threads)
