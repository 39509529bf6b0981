"""The time of a run of the bench: what each step gets of it, how far the run is, and what a first
look leaves out."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial

import pytest

from markerjit.apps.bench import measure
from markerjit.apps.bench.active import measure as active
from markerjit.apps.bench.course import Course
from markerjit.apps.bench.measure import Kind
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import (
    QUICK_S,
    OutOfTime,
    Piece,
    Plan,
    Progress,
    Step,
    usual,
)
from markerjit.apps.bench.sampling.results import Measured
from markerjit.apps.bench.toggle import measure as toggle
from markerjit.apps.bench.toggle.ways import CONTROLLER, FIRST, LIBRARY, WAYS


class Clock:
    """A clock that a test puts forward."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def piece(name: str, preparing: float, measuring: float, rank: int = 0) -> Piece:
    return Piece(name, [Step(f"prepare {name}", preparing, True), Step(name, measuring)], rank)


def test_bar_is_the_part_of_the_time_that_has_passed_and_is_full_at_the_end() -> None:
    shown: list[float] = []
    clock = Clock()
    pieces = [piece("a", 2, 3), piece("b", 2, 3)]
    course = Course(pieces, 10, lambda _, part: shown.append(part), clock)

    for title, now, done in (
        ("prepare a", 0, 0), ("prepare a", 2, 1), ("a", 2, 0), ("a", 5, 1), ("prepare b", 5, 0),
        ("prepare b", 7, 1), ("b", 7, 0), ("b", 9, 0.5), ("b", 10, 1),
    ):  # fmt: skip
        clock.now = 100 + now
        course.tell(title, done)

    assert shown == pytest.approx([0, 0.2, 0.2, 0.5, 0.5, 0.7, 0.7, 0.9, 1])
    assert shown[-1] == 1


def test_what_was_before_the_first_piece_counts_and_what_is_behind_the_last_one_is_said() -> None:
    shown: list[tuple[str, float]] = []
    clock = Clock()
    course = Course([piece("a", 2, 3)], 10, lambda *each: shown.append(each), clock, began=95)

    assert course.grant("a", 3) == pytest.approx(10 - 5 - 2)
    course.tell("prepare a", 0)
    course.end("what is behind it")

    assert shown == [("prepare a", pytest.approx(0.5)), ("what is behind it", shown[0][1])]


def test_bar_never_goes_back_and_steps_that_are_none_leave_it_alone() -> None:
    shown: list[float] = []
    clock = Clock()
    pieces = [piece("a", 1, 4), piece("b", 1, 4)]
    course = Course(pieces, 10, lambda _, part: shown.append(part), clock)

    for title, now in (("a", 5), ("prepare b", 6), ("elsewhere", 6), ("b", 20), ("a", 20)):
        clock.now = 100 + now
        course.tell(title, 0.5)

    assert shown == sorted(shown)
    assert shown[1] == shown[2]


def test_preparing_is_taken_out_of_the_time_that_was_asked_for() -> None:
    clock = Clock()
    course = Course([piece("a", 2, 5), piece("b", 2, 5)], 10, lambda *_: None, clock)

    clock.now += 2
    course.tell("a", 0)

    assert course.grant("a", 5) == pytest.approx(3)
    clock.now += 3
    assert course.grant("b", 5) < 4, "before it is prepared"
    course.tell("prepare b", 0)
    clock.now += 1
    course.tell("b", 0)
    assert course.grant("b", 5) == pytest.approx(4), "all that is left"
    clock.now += 60
    assert course.grant("b", 5) == 0
    assert course.grant("of another run", 7) == 7


def test_slow_preparing_makes_the_rest_be_expected_to_be_slow() -> None:
    clock = Clock()
    first, second = piece("a", 1, 3), piece("b", 2, 3)
    course = Course([first, second], 10, lambda *_: None, clock)
    course.tell("prepare a", 0)
    assert course.has_room(second.steps)

    clock.now += 4
    course.tell("a", 0)

    assert not course.has_room(second.steps), "8 s of 6"
    assert course.grant("a", 3) == 0
    course.leave(second.steps)
    assert course.grant("a", 3) == pytest.approx(6), "which is free now"


def leaving(clock: Clock, seconds: float, *pieces: Piece) -> Course:
    return Course(pieces, seconds, lambda *_: None, clock, may_leave=True)


def test_piece_whose_compiling_is_too_slow_is_given_up_as_soon_as_that_shows() -> None:
    clock = Clock()
    slow = piece("slow", 1, 2, 5)
    course = leaving(clock, 100, piece("a", 1, 20), slow, piece("b", 1, 2, 5))
    course.tell("a", 1)

    course.tell("prepare slow", 0)
    clock.now += 4
    course.tell("prepare slow", 0.01)  # it may just have begun
    clock.now += 2
    with pytest.raises(OutOfTime):
        course.tell("prepare slow", 0.05)  # 120 s in all

    course.leave(slow.steps)
    assert not course.has_room(slow.steps), "what was done of it tells how slow all of it is"


def test_piece_that_still_measures_after_the_time_is_given_up() -> None:
    clock = Clock()
    course = leaving(clock, 10, piece("a", 1, 5, 5), piece("b", 1, 5, 5))
    course.tell("a", 0)
    clock.now += 10.5
    course.tell("a", 1)
    clock.now += 1

    with pytest.raises(OutOfTime):
        course.tell("a", 1)


def test_piece_that_a_run_is_no_use_without_is_not_given_up() -> None:
    clock = Clock()
    course = leaving(clock, 10, piece("a", 1, 5))
    course.tell("prepare a", 0)

    for title, done in (("prepare a", 0.1), ("a", 0.1), ("a", 1)):
        clock.now += 100
        course.tell(title, done)


def test_time_of_what_does_not_fit_anyway_is_given_to_what_does() -> None:
    course = leaving(Clock(), 10, piece("a", 2, 5), piece("vast", 100, 5, 5), piece("b", 2, 5, 5))

    assert course.grant("a", 5) == pytest.approx(3)
    assert course.grant("vast", 5) == 0


def test_kinds_of_work_are_slow_each_by_itself() -> None:
    clock = Clock()
    link = Piece("b", [Step("link: b", 1, True), Step("b", 1)], 1)
    course = leaving(clock, 30, Piece("a", [
        Step("compile: a", 1, True), Step("link: a", 1, True), Step("a", 1)
    ], 0), link, piece("c", 1, 1, 1))  # fmt: skip
    course.tell("compile: a", 0)
    clock.now += 20
    course.tell("link: a", 0)
    clock.now += 1
    course.tell("a", 0)

    assert course.has_room(link.steps)
    assert not course.has_room([Step("compile: b", 1, True)])


class FakeKinds:
    """Kinds whose pieces take as long to prepare as they say, and no time to measure."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **pieces: list[Piece]) -> None:
        self.clock = Clock()
        self.began: list[str] = []
        self.closed: list[str] = []
        monkeypatch.setattr(measure, "Course", partial(Course, clock=self.clock))
        monkeypatch.setattr(measure, "KINDS", {
            name: Kind(self.measuring(name, own), lambda plan, own=own: iter(own), 1, [])
            for name, own in pieces.items()
        })  # fmt: skip
        monkeypatch.setattr(measure, "USUAL", tuple(pieces))

    def measuring(self, name: str, pieces: list[Piece]):
        def measured(plan: Plan, place: Place, progress: Progress) -> Generator[Measured]:
            try:
                for each in pieces:
                    self.began.append(each.title)
                    for step in each.steps:
                        progress(step.title, 0)
                        self.clock.now += step.seconds if step.is_fixed else 0
                        progress(step.title, 1)
                    yield Measured([{"title": each.title}], [], [])
            finally:
                self.closed.append(name)

        return measured


def run(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], dict[str, str]]:
    """The titles of what was measured, and what was not, with the reason."""
    monkeypatch.setattr(
        measure.results, "whole",
        lambda facts, result: {"parts": result.parts, "missing": result.missing},
    )  # fmt: skip
    document = measure.run(plan, lambda *_: None).document
    missing = {each.form.name: each.why for each in document["missing"]}
    return [part["title"] for part in document["parts"]], missing


def test_most_important_pieces_come_first_and_those_without_time_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fakes = FakeKinds(
        monkeypatch,
        dormant=[piece("a", 3, 1), piece("b", 30, 1, 3), piece("c", 1, 1, 5)],
        toggle=[piece("d", 4, 1, 2), piece("e", 1, 1, 4)],
    )

    parts, missing = run(Plan(20), monkeypatch)

    assert fakes.began == ["a", "d", "e"]
    assert parts == ["a", "d", "e"], "in the order of a report"
    assert missing == {
        "b; c": "20 s do not hold it here; more --seconds, or markerjit bench dormant"
    }
    assert fakes.closed == ["toggle", "dormant"]


def test_piece_that_is_given_up_is_named_and_the_others_are_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fakes = FakeKinds(
        monkeypatch,
        dormant=[piece("a", 1, 1), piece("b", 1, 1, 3), piece("c", 1, 1, 5)],
        toggle=[piece("d", 1, 1, 4)],
    )

    def give_up_b(course: Course, title: str, done: float) -> None:
        if title == "b":
            raise OutOfTime(title)

    monkeypatch.setattr(Course, "_check", give_up_b)
    parts, missing = run(Plan(20), monkeypatch)

    assert fakes.began == ["a", "b", "d"]
    assert parts == ["a", "d"]
    assert list(missing) == ["b; c"]


def test_what_was_asked_for_by_name_is_measured_however_long_it_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    FakeKinds(monkeypatch, dormant=[piece("a", 30, 1), piece("b", 30, 1, 3)])

    parts, missing = run(Plan(20, kinds=("dormant",)), monkeypatch)

    assert (parts, missing) == (["a", "b"], {})


def steps_of(name: str, plan: Plan) -> Iterator[Step]:
    return (step for piece in measure.KINDS[name].pieces(plan) for step in piece.steps)


@pytest.mark.parametrize("name", measure.KINDS)
def test_steps_of_a_kind_have_names_of_their_own_and_all_of_its_time(name: str) -> None:
    steps = list(steps_of(name, Plan(60)))

    assert len({step.title for step in steps}) == len(steps)
    assert sum(step.seconds for step in steps if not step.is_fixed) >= 60
    assert min(step.seconds for step in steps) > 0


@pytest.mark.parametrize("name", measure.KINDS)
def test_pieces_of_a_kind_are_measured_from_the_most_important_on(name: str) -> None:
    ranks = [piece.rank for piece in measure.KINDS[name].pieces(Plan(60))]

    assert ranks == sorted(ranks)


def test_a_first_look_has_fewer_placements_and_settings() -> None:
    quick, whole = usual(QUICK_S - 1), usual(QUICK_S)

    assert whole == Plan(QUICK_S)
    assert quick.layouts < whole.layouts and set(quick.parts) < set(whole.parts)
    assert set(quick.threads) < set(whole.threads)


def test_a_first_look_names_the_forms_that_it_leaves_out() -> None:
    quick = usual(QUICK_S - 1)

    (listeners,) = active._of_a_first_look(quick)
    (ways,) = toggle._of_a_first_look(quick)

    left = set(listeners.form.name.split("; "))
    assert left and not left & {form.form.name for form in active._forms(quick)}
    assert {"gdb", "nop, count"} <= left
    assert "markerjit bench active" in listeners.why
    assert all(way.name in ways.form.name for way in WAYS if way not in FIRST)
    for plan in (usual(QUICK_S), quick._replace(kinds=("active", "toggle"))):
        assert active._of_a_first_look(plan) == toggle._of_a_first_look(plan) == []


def test_a_first_look_has_each_door_from_outside_and_each_protocol() -> None:
    assert {way.protocol for way in FIRST} == {way.protocol for way in WAYS}
    assert {way.door for way in FIRST} == {CONTROLLER, LIBRARY}
