"""Runs of the lab whose child does at a certain moment what a real one does seldom."""

from __future__ import annotations

from typing import Self, cast

import pytest

from markerjit.lab import mixture, taken_away
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

    def set_word(self, name: str, value: int) -> None:
        self.done.append(f"{name}={value}")

    def counts(self, *names: str) -> dict[str, int]:
        return {name: self.word(name) for name in names}

    def change(self, *_: object, **__: object) -> None:
        self.done.append("change")

    def is_alive(self) -> bool:
        return True  # it is not waited for yet

    def ending(self, wait_s: float = 0) -> str:
        return "SIGSEGV" if wait_s else ALIVE


def test_a_thread_that_is_about_to_leave_the_probe_does_not_count_as_inside() -> None:
    """It entered before it could be held: one more has entered than left."""
    child = FakeChild(inside=[5], left=[4], held=[0, 0, 1])

    taken_away.hold_inside(cast("Child", child))

    assert child.done == ["hold=1", "held", "held", "held", "change"]


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
