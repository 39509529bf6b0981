"""Runs of the lab whose child does at a certain moment what a real one does seldom."""

from __future__ import annotations

import os
import time
from typing import Self, cast

import pytest

from markerjit.errors import MarkerError
from markerjit.lab import killed, mixture, taken_away
from markerjit.lab.child import Child
from markerjit.lab.five_bytes import SPAN
from markerjit.lab.processes import ALIVE


class FakeChild:
    """A child whose words are as the test says: each read takes the next of a word's values."""

    def __init__(self, **words: list[int]) -> None:
        self.words = words
        self.done: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def word(self, name: str) -> int:
        self.done.append(name)
        values = self.words.get(name, [0])
        return values.pop(0) if len(values) > 1 else values[0]

    wait_for = Child.wait_for

    def set_word(self, name: str, value: int) -> None:
        self.done.append(f"{name}={value}")

    def counts(self, *names: str) -> dict[str, int]:
        return {name: self.word(name) for name in names}

    def change(self, *_: object, **__: object) -> None:
        self.done.append("change")

    def poke(self, *_: object) -> bool:
        self.done.append("take away")
        return True

    def is_alive(self) -> bool:
        return True  # it is not waited for yet

    def ending(self, wait_s: float = 0) -> str:
        return "SIGSEGV" if wait_s else ALIVE


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses of a child's parent, which take no time."""
    asleep: list[float] = []
    monkeypatch.setattr(time, "sleep", asleep.append)
    return asleep


def test_a_thread_that_is_about_to_leave_the_probe_does_not_count_as_inside(
    pauses: list[float],
) -> None:
    """It entered before it could be held: one more has entered than left."""
    child = FakeChild(inside=[5], left=[4], held=[0, 0, 0, 0, 1])

    taken_away.hold_inside(cast("Child", child))

    assert child.done == ["hold=1", *["held"] * 6, "change"]
    assert len(pauses) == 2  # after each look that found nobody inside


def test_a_thread_that_has_to_leave_the_probe_is_not_waited_for_with_a_whole_cpu(
    monkeypatch: pytest.MonkeyPatch, pauses: list[float]
) -> None:
    """It may need the CPU to come out."""
    child = FakeChild(inside=[5], left=[4, 4, 4, 4, 4, 5], held=[1], old=[7, 2007])
    monkeypatch.setattr(taken_away, "Child", lambda _: child)

    run = taken_away.after_a_wait(lambda *_: None)

    assert run.went_well
    assert child.done.index("take away") > child.done.index("hold=0")
    assert len(pauses) == 2  # after each look that found it inside


def test_a_child_that_dies_without_a_mixture_is_not_said_to_live(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its memory is gone before its parent is told that it has died."""
    monkeypatch.setattr(mixture, "Child", lambda _: FakeChild(old=[1], new=[1]))
    writes = iter([True, True, False])

    run = mixture.until_torn(SPAN, lambda *_: None, "raw", "a safety", 10, lambda *_: next(writes))

    assert (run.tries, run.ending) == (2, "SIGSEGV")
    assert not run.went_well
    assert "died by SIGSEGV" in run.story


def test_a_controller_that_is_not_killed_in_time_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(killed, "LIMIT_S", 0)

    with pytest.raises(MarkerError, match="did not come so far in 0 seconds"):
        killed.killed_after(os.getpid(), "jump", 0)
