"""Steps of one thread, made a sequence in which each exit leaves the call that was entered last.

    an exit of another function than the last one    what lies above it was left without an exit of
                                                     its own: a CUT for each comes before
    an exit of a function that is not open           its entry was before all, or lost: it is left
                                                     out and counted
    the same of a function that was given up         the calls below it are open still: AGAIN for
                                                     each

Only what does not fit comes here: this takes a step at a time. What it does
not do: tell the calls of two coroutines apart, which share a thread.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from markerjit.calls.steps import AGAIN, CUT, ENTER, FRAME
from markerjit.tuples import NamedTuple


class Repaired(NamedTuple):
    """Steps that fit.

    rows           for each the row of the step that it is, or whose time it has
    functions      the function of each
    kinds          the kind of each
    without_entry  exits that were left out, by function
    given_up       the functions of calls that are given up still, the outermost first
    """

    rows: list[int]
    functions: list[int]
    kinds: list[int]
    without_entry: Counter[int]
    given_up: list[int]


def repaired(functions: Sequence[int], kinds: Sequence[int], given_up: Sequence[int]) -> Repaired:
    """The steps of a thread with these functions and kinds, in order."""
    rows: list[int] = []
    named: list[int] = []
    made: list[int] = []
    stack: list[int] = []
    depth: Counter[int] = Counter()  # of each function, how often it is on the stack
    without: Counter[int] = Counter()
    behind = list(given_up)

    def put(row: int, function: int, kind: int) -> None:
        rows.append(row)
        named.append(function)
        made.append(kind)

    for row, (function, kind) in enumerate(zip(functions, kinds, strict=True)):
        if kind in (ENTER, FRAME):
            stack.append(function)
            depth[function] += 1
        elif depth[function]:
            while (top := stack.pop()) != function:
                depth[top] -= 1
                put(row, top, CUT)
            depth[function] -= 1
        elif function in behind:
            for top in reversed(stack):
                put(row, top, CUT)
            at = len(behind) - 1 - behind[::-1].index(function)
            stack, behind = behind[:at], []
            depth = Counter(stack)
            for below in stack:
                put(row, below, AGAIN)
            continue
        else:
            without[function] += 1
            continue
        put(row, function, kind)
    return Repaired(rows, named, made, without, behind)
