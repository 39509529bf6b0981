"""Steps become blocks: each allocation with the free that ends it.

    1  a reallocation that has failed leaves its block as it was: its steps are dropped
    2  the blocks that are live and the new steps are put in the order of their addresses, and of
       time for each address; what is then side by side belongs together
    3  of an allocating function that has called another, the outer step counts: its caller is the
       one who asked. Of frees that were nested the outer one counts, too
    4  an allocation and the free behind it are a block; an allocation without one is live

Steps from the begin of a reallocation on that has not returned yet are kept for the next time: how
it ends decides what they mean. It works on columns, since a program allocates millions of times a
second.

What this does not do: look at anything but steps. What a lost event would have said is not known: a
block whose free was lost is live until its address is given out again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from markerjit.allocations.steps import NO_STEPS, Kind, Steps
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_LONGEST_NS = 1_000_000_000
"""A reallocation that has not returned for so long never will: its thread has ended in it."""


class Blocks(NamedTuple):
    """What became of blocks, since the last time.

    made        allocations, and `failed` those without a block
    unmade      allocations of `made`, now or earlier, that a step of their callers stands for
    ended       allocations whose block was freed, and `frees` the frees of each, row by row
    reused      allocations whose address was given out again: their frees were not seen
    unknown     frees of blocks that were not seen to be allocated
    unseen      allocations whose address is not known
    """

    made: Steps
    failed: Steps
    unmade: Steps
    ended: Steps
    frees: Steps
    reused: Steps
    unknown: Steps
    unseen: Steps


class Heap:
    """The blocks of a process that are live, as far as it was seen."""

    def __init__(self) -> None:
        self.live = NO_STEPS
        self._kept = NO_STEPS

    def advance(self, steps: Steps, *, last: bool = False) -> Blocks:
        """Take more steps, none of which is earlier than one before. `last`: no more will come, and
        nothing is kept back."""
        steps = Steps.joined([self._kept, steps])
        steps, self._kept = (steps, NO_STEPS) if last else _until_open_move(steps)
        unseen = steps.picked(steps.kind == Kind.UNSEEN)
        steps, failed = _without_failed(steps.picked(steps.kind != Kind.UNSEEN))
        return self._paired(steps, failed, unseen)

    def _paired(self, steps: Steps, failed: Steps, unseen: Steps) -> Blocks:
        known = self.live.rows
        whole = Steps.joined([self.live, steps])
        order = np.argsort(whole.block, kind="stable")  # 2
        whole, is_new = whole.picked(order), order >= known
        is_alloc = whole.kind >= Kind.ALLOC

        inner = _ends_before(whole, is_alloc & (whole.kind != Kind.ALLOC), is_alloc)  # 3
        repeated = np.roll(_ends_before(whole, whole.kind == Kind.FREE, whole.kind == Kind.MOVE), 1)
        unmade = whole.picked(inner & ~is_new)
        kept = ~inner & ~repeated
        whole, is_new, is_alloc = whole.picked(kept), is_new[kept], is_alloc[kept]

        same = np.zeros(whole.rows, bool)  # as the next one
        same[:-1] = whole.block[1:] == whole.block[:-1]
        next_is_alloc = np.roll(is_alloc, -1)
        is_ended = is_alloc & same & ~next_is_alloc  # 4
        is_reused = is_alloc & same & next_is_alloc
        follows = np.roll(is_ended, 1)
        self.live = whole.picked(is_alloc & ~same)
        return Blocks(
            whole.picked(is_alloc & is_new), failed, unmade, whole.picked(is_ended),
            whole.picked(follows), whole.picked(is_reused), whole.picked(~is_alloc & ~follows),
            unseen,
        )  # fmt: skip


def _ends_before(steps: Steps, second: Array, first: Array) -> Array:
    """The `first` ones of steps behind which a `second` one of the same address and thread is."""
    result = np.zeros(steps.rows, bool)
    result[:-1] = (
        first[:-1] & second[1:]
        & (steps.block[1:] == steps.block[:-1]) & (steps.tid[1:] == steps.tid[:-1])
    )  # fmt: skip
    return result


def _moves(steps: Steps) -> tuple[Array, Array]:
    """The rows where reallocations begin and return, by thread and time, and for each whether the
    next one is of the same thread."""
    rows = np.flatnonzero((steps.kind == Kind.MOVE) | (steps.kind == Kind.MOVED))
    rows = rows[np.argsort(steps.tid[rows], kind="stable")]
    same = np.zeros(len(rows), bool)
    same[:-1] = steps.tid[rows[1:]] == steps.tid[rows[:-1]]
    return rows, same


def _until_open_move(steps: Steps) -> tuple[Steps, Steps]:
    """The steps before the first reallocation that has not returned, and the others. No
    reallocation is cut in two: where one that has returned is still going on there, its begin and
    what follows belong to the others, too."""
    rows, same = _moves(steps)
    began = rows[steps.kind[rows] == Kind.MOVE]
    ends = np.full(len(rows), steps.rows)
    ends[:-1][same[:-1]] = rows[1:][same[:-1]]
    ended = ends[steps.kind[rows] == Kind.MOVE]
    is_open = ended == steps.rows
    is_given_up = is_open & (steps.time[-1:] - steps.time[began] >= _LONGEST_NS)
    began, ended, is_open = (column[~is_given_up] for column in (began, ended, is_open))
    at = int(began[is_open].min(initial=steps.rows))
    while (is_cut := (began < at) & (ended >= at)).any() and at < steps.rows:
        at = int(began[is_cut].min())
    return steps.picked(slice(None, at)), steps.picked(slice(at, None))


def _without_failed(steps: Steps) -> tuple[Steps, Steps]:
    """The steps that have changed something, and the allocations that failed."""  # 1
    without_block = steps.block == 0
    is_failed = without_block & (steps.kind >= Kind.ALLOC)
    # Of no bytes a reallocation has freed its block, and returns none.
    is_failed &= (steps.kind != Kind.MOVED) | (steps.asked > 0)
    inside = _inside_moves(steps, is_failed)
    steps, is_failed = steps.picked(~inside), is_failed[~inside]
    without_block = without_block[~inside]
    rows, same = _moves(steps)
    taken_back = np.zeros(steps.rows, bool)
    taken_back[rows[:-1]] = same[:-1] & (steps.kind[rows[:-1]] == Kind.MOVE) & is_failed[rows[1:]]
    return steps.picked(~taken_back & ~without_block), steps.picked(is_failed)


def _inside_moves(steps: Steps, is_failed: Array) -> Array:
    """The failed allocations that a reallocation has tried on its way."""
    rows = np.flatnonzero(is_failed | (steps.kind == Kind.MOVE) | (steps.kind == Kind.MOVED))
    rows = rows[np.argsort(steps.tid[rows], kind="stable")]
    is_inner = is_failed[rows] & (steps.kind[rows] != Kind.MOVED)
    follows = np.zeros(len(rows), bool)
    follows[1:] = (steps.tid[rows[1:]] == steps.tid[rows[:-1]]) & (
        steps.kind[rows[:-1]] == Kind.MOVE
    )
    inside = np.zeros(steps.rows, bool)
    inside[rows[is_inner & follows]] = True
    return inside
