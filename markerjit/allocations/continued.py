"""Allocations that another function finishes: steps that begin in one function and end in another.

An allocating function may end with a jump to another one, which does what is rare, and returns to
the caller. The step at the jump knows what was asked for, and the next result in its thread is the
block. A result that follows no such step is of a call that is no allocation by itself.

What this does not do: know which functions are jumped to (session/allocators.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from markerjit.allocations.steps import CONTINUED, NO_STEPS, OWN, UNSEEN, Kind, Steps

if TYPE_CHECKING:
    from markerjit.ring.batch import Array


class Continued:
    """The allocations that another function has not finished yet."""

    def __init__(self, given: Callable[[Steps, Array], Array]) -> None:
        """`given` has the bytes that were given for finished steps, of these and of what the
        results say of them."""
        self._open = NO_STEPS
        self._given = given

    def completed(self, steps: Steps, *, last: bool = False) -> Steps:
        """The steps, in their order, with each allocation where it was finished. `last`: no more
        will come."""
        # A function that has left the result to a third one says nothing.
        steps = steps.picked((steps.kind != Kind.RESULT) | (steps.block != CONTINUED))
        is_result = steps.kind == Kind.RESULT
        is_begun = ~is_result & (steps.kind >= Kind.ALLOC) & (steps.block == CONTINUED)
        if not (self._open.rows or is_result.any() or is_begun.any()):
            return _settled(steps)
        places = np.arange(steps.rows)
        rows = np.flatnonzero(is_result | is_begun)
        halves = Steps.joined([self._open, steps.picked(rows)])
        at = np.concatenate([np.full(self._open.rows, -1), places[rows]])
        order = np.argsort(halves.tid, kind="stable")
        halves, at = halves.picked(order), at[order]

        begins = halves.kind != Kind.RESULT
        same = np.zeros(halves.rows, bool)  # as the next one
        same[:-1] = halves.tid[1:] == halves.tid[:-1]
        is_finished = begins & same & ~np.roll(begins, -1)
        is_open = begins & ~same & (not last)
        is_given_up = begins & ~is_finished & ~is_open
        self._open = halves.picked(is_open)
        behind = np.roll(is_finished, 1)
        finished = self._finished(halves.picked(is_finished), halves.picked(behind))
        given_up = halves.picked(is_given_up)
        given_up = given_up._replace(block=np.full(given_up.rows, UNSEEN, np.uint64))

        rest = ~is_result & ~is_begun
        whole = Steps.joined([steps.picked(rest), finished, given_up])
        order = np.concatenate([places[rest], at[behind], at[is_given_up]])
        return _settled(whole.picked(np.argsort(order, kind="stable")))

    def _finished(self, begun: Steps, results: Steps) -> Steps:
        steps = begun._replace(time=results.time, cpu=results.cpu, block=results.block)
        return steps._replace(given=self._given(steps, results.given))


def _settled(steps: Steps) -> Steps:
    """The steps without what only stands for a block."""
    is_alloc, is_moved = steps.kind >= Kind.ALLOC, steps.kind == Kind.MOVED
    is_unseen = is_alloc & (steps.block == UNSEEN)
    is_own = is_alloc & (steps.block == OWN)
    if not (is_unseen.any() or is_own.any()):
        return steps
    # A reallocation has ended all the same, and so does its begin.
    ended = is_moved & (is_unseen | is_own)
    kind = np.where(is_unseen & ~is_moved, Kind.UNSEEN, steps.kind).astype(np.uint8)
    block, asked = np.where(ended, 0, steps.block), np.where(ended, 0, steps.asked)
    unseen = steps.picked(is_unseen & is_moved)
    unseen = unseen._replace(kind=np.full(unseen.rows, Kind.UNSEEN, np.uint8))
    whole = steps._replace(kind=kind, block=block, asked=asked).picked(~is_own | is_moved)
    places = np.flatnonzero(~is_own | is_moved), np.flatnonzero(is_unseen & is_moved)
    order = np.argsort(np.concatenate(places), kind="stable")
    return Steps.joined([whole, unseen]).picked(order)
