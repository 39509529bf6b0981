"""The request to a run of the bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from markerjit.tuples import NamedTuple

Progress = Callable[[str, float], None]
"""A function that is called with the work at hand, and the part of it that is done, from 0 to 1."""


class Step(NamedTuple):
    """A part of a run, by the name that Progress is called with, and the seconds that it may take:
    those that were asked for, or an estimate of compiling."""

    title: str
    seconds: float


QUICK_S = 60.0
"""A run for less time is a first look: it has fewer placements and settings, unless they are asked
for, since to compile all would take longer than to measure."""
_LAYOUTS, _QUICK_LAYOUTS = 8, 3
_PARTS, _QUICK_PARTS = (1, 2, 5, 10, 20), (1,)
_THREADS, _QUICK_THREADS = (1, 8, 64), (1, 8)


class Plan(NamedTuple):
    """The costs to measure. The defaults are those of the command.

    seconds     of measuring in all
    kinds       of cost, the usual ones if none: see measure.py
    args        numbers of arguments, in the small loop
    parts       of so many sites each as large.py says, in the large setting
    sites       to be switched at once, and `threads` of the program meanwhile
    source      a file of the user's instead, and its `function`
    only        forms whose names match one of these patterns, usual ones or not; all usual if none
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


def usual(seconds: float) -> Plan:
    """The plan for so many seconds where nothing else is asked for."""
    if seconds >= QUICK_S:
        return Plan(seconds)
    return Plan(
        seconds, parts=_QUICK_PARTS, layouts=_QUICK_LAYOUTS, threads=_QUICK_THREADS
    )  # fmt: skip
