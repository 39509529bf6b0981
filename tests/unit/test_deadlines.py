"""Deadlines of markers: written down, restored, forgotten; with clocks of the test's own."""

from __future__ import annotations

import pytest

from markerjit.abi import MarkerEntry
from markerjit.arena import deadlines
from markerjit.arena.arena import Arena
from markerjit.arena.deadlines import (
    any_is_over,
    at_time,
    clear_past,
    is_over,
    overdue,
    restore_deadlines,
    set_deadline,
)
from tests.support.made_arena import geometry_of, make_arena

S = 1_000_000_000


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.now_ns = 50 * S

    def monotonic_ns(self) -> int:
        return self.now_ns

    def time(self) -> float:
        return 1000 + self.now_ns / S


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(deadlines, "time", made)
    return made


@pytest.fixture
def arena(clock: Clock) -> Arena:
    """With three markers, of which the first two are on."""
    made = make_arena(geometry_of())
    for number, name in enumerate(("a", "b", "c")):
        made.markers.find(name, name, MarkerEntry(argc=number))
        made.markers.note_switched(number, None, since=7)
    for number in (0, 1):
        made.store.write(
            made.geometry.markers.at(number) + MarkerEntry.since.offset, b"\7" + 7 * b"\0"
        )
    return made


def untils(arena: Arena) -> list[int]:
    return [int(entry.until_ns) for entry in arena.markers.entries()]


def test_the_earliest_deadline_is_that_of_the_arena(arena: Arena, clock: Clock) -> None:
    set_deadline(arena, [0], 70 * S)
    set_deadline(arena, [1], 60 * S)
    set_deadline(arena, [2], 80 * S)

    assert untils(arena) == [70 * S, 60 * S, 80 * S]
    assert arena.control.number("until_ns") == 60 * S
    assert not any_is_over(arena)
    clock.now_ns = 60 * S
    assert any_is_over(arena)
    assert [is_over(entry) for entry in arena.markers.entries()] == [False, True, False]


def test_no_deadline_is_written_where_there_is_none(
    arena: Arena, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A switch of 100,000 markers would pay for it."""
    monkeypatch.setattr(arena.markers, "note_until", pytest.fail)

    assert set_deadline(arena, [0, 1], 0) == {}


def test_a_marker_that_is_to_stay_has_no_deadline_any_more(arena: Arena) -> None:
    set_deadline(arena, [0, 1], 60 * S)

    before = set_deadline(arena, [0], 0)

    assert untils(arena) == [0, 60 * S, 0]
    restore_deadlines(arena, before)
    assert untils(arena) == [60 * S, 60 * S, 0]


def test_deadlines_that_have_passed_are_forgotten_and_the_next_is_found(
    arena: Arena, clock: Clock
) -> None:
    """Also that of a marker which is off: it might be switched on again, to stay."""
    set_deadline(arena, [0, 2], 60 * S)
    set_deadline(arena, [1], 70 * S)
    clock.now_ns = 65 * S

    clear_past(arena)

    assert untils(arena) == [0, 70 * S, 0]
    assert arena.control.number("until_ns") == 70 * S
    clock.now_ns = 70 * S
    clear_past(arena)
    assert arena.control.number("until_ns") == 0


def test_only_markers_that_are_on_are_overdue_and_not_at_once(arena: Arena, clock: Clock) -> None:
    set_deadline(arena, [0, 1, 2], 60 * S)

    clock.now_ns = 60 * S
    assert overdue(arena) == ()
    clock.now_ns = 62 * S
    assert overdue(arena) == ("a", "b")


def test_a_deadline_is_a_time_of_day(arena: Arena, clock: Clock) -> None:
    assert at_time(60 * S) == 1060
