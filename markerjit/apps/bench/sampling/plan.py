"""The request to a run of the bench."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

Progress = Callable[[str, float], None]
"""A function that is called with the work at hand, and the part of it that is done, from 0 to 1."""


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
    parts: Sequence[int] = (1, 2, 5, 10, 20)
    layouts: int = 8
    compiler: str = "gcc"
    source: Path | None = None
    function: str = ""
    sites: Sequence[int] = (1, 1000)
    threads: Sequence[int] = (1, 8, 64)
    only: Sequence[str] = ()
