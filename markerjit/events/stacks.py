"""The stacks of events: what their numbers are, while events come.

A stack is named when its number first comes out of a ring. So the names are those of what is mapped
soon after, also where the events are handed out much later.

What this does not do: read a process (session/walked.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import monotonic_ns
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from markerjit.ring.batch import Columns

if TYPE_CHECKING:
    from markerjit.unwind.frames import WalkedStack

_LOOK_EVERY_NS = 100_000_000


@runtime_checkable
class Stacks(Protocol):
    """The stacks of a process."""

    def look(self) -> None:
        """Look at what is mapped now, so that stacks are walked by its tables and named by its
        symbols."""

    def of(self, number: int) -> WalkedStack | None:
        """The stack with this number; None where it is not known."""


class NamedStacks:
    """The texts of the stacks of records."""

    def __init__(self, stacks: Stacks) -> None:
        self._stacks = stacks
        self._texts: dict[int, str] = {}
        self._fresh: dict[int, str] = {}
        self._looked = 0
        stacks.look()

    def note(self, columns: Iterable[Columns]) -> None:
        """Look the stacks of these records up, which came out of the rings just now."""
        from markerjit.trace.stacks import numbers_of

        unknown = numbers_of(columns) - self._texts.keys()
        now = monotonic_ns()
        if unknown or now - self._looked > _LOOK_EVERY_NS:
            self._looked = now
            self._stacks.look()
        for number in unknown:
            stack = self._stacks.of(number)
            if stack is not None:
                self._texts[number] = self._fresh[number] = stack.text

    def with_texts(self, columns: Sequence[Columns]) -> list[Columns]:
        """The same records with the texts of their stacks in the place of their numbers."""
        from markerjit.trace.stacks import with_texts

        return with_texts(columns, self._texts.get)

    @property
    def known(self) -> dict[int, str]:
        """The texts of all stacks that were looked up, by their numbers."""
        return dict(self._texts)

    def fresh(self) -> dict[int, str]:
        """The texts of stacks that were looked up since the last call, by their numbers."""
        fresh, self._fresh = self._fresh, {}
        return fresh
