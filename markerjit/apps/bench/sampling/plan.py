"""The request to a run of the bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from markerjit.tuples import NamedTuple

Progress = Callable[[str, float], None]
"""A function that is called with the title of the current work, and the part of it that is done,
from 0 to 1. It may raise OutOfTime, which ends the piece."""
Grant = Callable[[str, float], float]
"""A function from a step that measures and its planned seconds to those that it gets."""


class OutOfTime(Exception):
    """A piece of a run cannot end in time any more. Progress raises it."""


class Step(NamedTuple):
    """A part of a run, with the title that Progress is called with, and its seconds: those of
    measuring, or, if it `is_fixed`, an estimate for other work."""

    title: str
    seconds: float
    is_fixed: bool = False

    @property
    def work(self) -> str:
        """What is done, without on what: steps of the same work are slow or quick together."""
        return self.title.partition(":")[0]


class Piece(NamedTuple):
    """The steps that lead to a result. A lower `rank` is more important, and a run without the
    pieces of rank 0 is useless."""

    title: str
    steps: Sequence[Step]
    rank: int


def as_planned(title: str, planned: float) -> float:
    """The grant for steps that are not parts of a run: the planned seconds."""
    return planned


QUICK_S = 60.0
"""A run for less time is a first look. It has fewer placements, settings and ways, unless they are
asked for, because preparing all of them would take longer than measuring."""
_LAYOUTS, _QUICK_LAYOUTS = 8, 3
_PARTS, _QUICK_PARTS = (1, 2, 5, 10, 20), (1,)
_THREADS, _QUICK_THREADS = (1, 8, 64), (1, 8)


class Plan(NamedTuple):
    """The costs to measure. The defaults are those of the command.

    seconds     of the run in all
    kinds       of cost, the usual ones if none: see measure.py
    args        numbers of arguments, in the small loop
    parts       of so many sites each as large.py says, in the large setting
    sites       to be switched at once, and `threads` of the program meanwhile
    source      a file of the user's instead, and its `function`
    only        forms whose names match one of these patterns, usual ones or not; all usual if none
    is_quick    whether it is a first look: with fewer ways to switch, and those measured once
    grant       the seconds that a step gets
    """

    seconds: float = 90.0
    kinds: Sequence[str] = ()
    args: Sequence[int] = (2,)
    parts: Sequence[int] = _PARTS
    layouts: int = _LAYOUTS
    compiler: str = "gcc"
    source: Path | None = None
    function: str = ""
    sites: Sequence[int] = (1, 1000)
    threads: Sequence[int] = _THREADS
    only: Sequence[str] = ()
    is_quick: bool = False
    grant: Grant = as_planned

    @property
    def is_chosen(self) -> bool:
        """Whether the user asked for something by name, which is measured however long it takes."""
        return bool(self.kinds or self.only or self.source)


def usual(seconds: float) -> Plan:
    """The plan for this many seconds if nothing else is asked for."""
    if seconds >= QUICK_S:
        return Plan(seconds)
    return Plan(
        seconds, parts=_QUICK_PARTS, layouts=_QUICK_LAYOUTS, threads=_QUICK_THREADS, is_quick=True
    )  # fmt: skip
