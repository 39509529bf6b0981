"""The calls that steps are of: for all threads at once, with numpy.

The depth of a thread is the number of its entries without its exits so far. Of the steps at one
depth every other one opens a call and the next one closes it; and the caller of a call is the last
one that was opened one step higher. So a sort by depth finds all calls, without a look at single
steps. It holds where every exit is that of the call that was opened last, which is checked: the
threads of which that is not true are repaired first (repair.py).

Calls that are open between two batches come first in the next one, as FRAMEs.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from markerjit.calls.repair import Repaired, repaired
from markerjit.calls.steps import (
    AGAIN,
    FRAME,
    LEAVE,
    NONE,
    STOP,
    Steps,
    by_thread,
    joined,
    steps_of,
)
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array


class Calls(NamedTuple):
    """Steps that fit, and the calls that they are of.

    steps    in the order of threads and time
    is_exact of a step that opens a call: whether its time is that of its entry
    levels   for each depth the rows of the steps that open a call there, in order
    closes   for each step that opens a call the row of the one that closes it, -1 where none does
    """

    steps: Steps
    is_exact: Array
    levels: list[Array]
    closes: Array


class Frames(NamedTuple):
    """Calls that are open, in the order of threads, the outermost first."""

    thread: Array
    function: Array
    time: Array
    is_exact: Array

    @property
    def rows(self) -> int:
        """How many there are."""
        return len(self.thread)

    def picked(self, rows: Array) -> Frames:
        """Those of this mask."""
        return Frames(*(column[rows] for column in tuple(self)))


_NO_FRAMES = Frames(NONE.thread, NONE.function, NONE.time, np.zeros(0, np.bool_))


class Stacks:
    """The calls that are open in all threads.

    frames         they
    without_entry  exits without an entry so far, by function
    """

    def __init__(self) -> None:
        self.frames = _NO_FRAMES
        self.without_entry: Counter[int] = Counter()
        self._given_up: dict[int, list[int]] = {}

    def advance(self, steps: Steps, *, exact: bool = True) -> Calls:
        """The calls of the next steps, which are in the order of threads and time, with those that
        were open before. `exact`: the times of these steps are those of the events."""
        frames = self.frames
        threads = np.unique(steps.thread)
        is_active = np.isin(frames.thread, threads)
        before = frames.picked(is_active)
        opened = Steps(before.thread, before.function, _full(before.rows, FRAME), before.time)
        whole = joined([opened, steps])
        is_exact = np.concatenate([before.is_exact, np.full(steps.rows, exact)])
        order = by_thread(whole)
        whole, is_exact = whole.picked(order), is_exact[order]
        unfit = _unfit(whole)
        if unfit:
            whole, is_exact = self._repaired(whole, is_exact, unfit)
        calls = _matched(whole, is_exact)
        left = _still_open(calls)
        rest = frames.picked(~is_active)
        merged = Frames(
            *(np.concatenate(pair) for pair in zip(tuple(rest), tuple(left), strict=True))
        )
        self.frames = merged.picked(np.argsort(merged.thread, kind="stable"))
        return calls

    def stop(self, times: Array, threads: Array | None = None, *, ended: bool) -> Calls:
        """Close the calls that are open in these threads (None: all), each at the time of its
        thread, by the threads' numbers. `ended`: the threads have. Otherwise the calls are given
        up, and may turn out to be open still."""
        frames = self.frames
        if threads is not None:
            frames = frames.picked(np.isin(frames.thread, threads))
        if ended:
            for thread in np.unique(frames.thread).tolist():
                self._given_up.pop(thread, None)
        # The innermost call of a thread is closed first.
        order = np.lexsort((-np.arange(frames.rows), frames.thread))
        steps = Steps(
            frames.thread[order], frames.function[order], _full(frames.rows, STOP),
            np.maximum(frames.time, times[frames.thread])[order],
        )  # fmt: skip
        given_up = self._given_up
        self._given_up = {}
        calls = self.advance(steps)
        self._given_up = given_up
        if not ended:
            for thread in np.unique(frames.thread).tolist():
                functions = frames.function[frames.thread == thread].tolist()
                given_up[thread] = [*given_up.get(thread, ()), *functions]
        return calls

    def _repaired(self, steps: Steps, exact: Array, unfit: set[int]) -> tuple[Steps, Array]:
        """The steps with those of these threads repaired."""
        parts: list[Steps] = []
        exacts: list[Array] = []
        starts = np.flatnonzero(np.diff(steps.thread, prepend=steps.thread[0] + 1))
        for start, end in zip(starts.tolist(), [*starts[1:].tolist(), steps.rows], strict=True):
            part = Steps(*(column[start:end] for column in steps.columns()))
            thread = int(part.thread[0])
            if thread not in unfit:
                parts.append(part)
                exacts.append(exact[start:end])
                continue
            given_up = self._given_up.pop(thread, [])
            mending = _mended_below(part, given_up)
            if _unfit(mending.steps):
                everything = np.arange(part.rows)
                mending = _mended(part, everything, everything[:0], given_up)
            self.without_entry.update(mending.made.without_entry)
            if mending.made.given_up:
                self._given_up[thread] = mending.made.given_up
            parts.append(mending.steps)
            exacts.append(exact[start:end][mending.rows] & (mending.steps.kind != AGAIN))
        return joined(parts), np.concatenate(exacts)


class _Mended(NamedTuple):
    """Steps of a thread, with some of them repaired; for each the row that it is of."""

    steps: Steps
    rows: Array
    made: Repaired


def _mended_below(part: Steps, given_up: list[int]) -> _Mended:
    """The steps with the exits repaired at which nothing is open that the steps have opened: few,
    and often all that do not fit. What lies between two of them is complete in itself."""
    depth = np.cumsum(np.where(part.kind < LEAVE, 1, -1))
    lowest = np.minimum.accumulate(np.concatenate([[0], depth]))[:-1]
    is_below = depth < lowest
    return _mended(part, np.flatnonzero(is_below), np.flatnonzero(~is_below), given_up)


def _mended(part: Steps, rows: Array, others: Array, given_up: list[int]) -> _Mended:
    """The steps of these rows, repaired, among the others."""
    made = repaired(part.function[rows].tolist(), part.kind[rows].tolist(), given_up)
    made_rows = rows[np.array(made.rows, np.intp)]
    whole = np.concatenate([others, made_rows])
    order = np.argsort(whole, kind="stable")
    steps = steps_of(
        part.thread[whole],
        np.concatenate([part.function[others], np.array(made.functions, np.int32)]),
        np.concatenate([part.kind[others], np.array(made.kinds, np.uint8)]),
        part.time[whole],
    )
    return _Mended(steps.picked(order), whole[order], made)


def _full(size: int, kind: int) -> Array:
    return np.full(size, kind, np.uint8)


def _levels(steps: Steps) -> Array:
    """The depth at which each step opens or closes a call, from 1 on: less where nothing is
    open."""
    opens = steps.kind < LEAVE
    depth = np.cumsum(np.where(opens, 1, -1))
    starts = np.flatnonzero(np.diff(steps.thread, prepend=steps.thread[0] + 1))
    base = np.concatenate([[0], depth])[starts]
    sizes = np.diff(np.append(starts, steps.rows))
    levels: Array = depth - np.repeat(base, sizes) + ~opens
    return levels


def _by_level(levels: Array) -> Array:
    low = levels.astype(np.uint16) if int(levels.max()) < 1 << 16 else levels
    return np.argsort(low, kind="stable")


def _unfit(steps: Steps) -> set[int]:
    """The threads in which an exit is not that of the call that was opened last."""
    if not steps.rows:
        return set()
    levels = _levels(steps)
    below = np.unique(steps.thread[levels < 1])
    unfit = set(below.tolist())
    if unfit:
        steps = steps.picked(~np.isin(steps.thread, below))
        if not steps.rows:
            return unfit
        levels = _levels(steps)
    order = _by_level(levels)
    functions, opens = steps.function[order], (steps.kind < LEAVE)[order]
    # A close comes right behind its open.
    wrong = np.flatnonzero(~opens[1:] & (functions[1:] != functions[:-1])) + 1
    return unfit | set(steps.thread[order[wrong]].tolist())


def _matched(steps: Steps, exact: Array) -> Calls:
    """The calls of steps that fit."""
    closes = np.full(steps.rows, -1, np.intp)
    if not steps.rows:
        return Calls(steps, exact, [], closes)
    levels = _levels(steps)
    order = _by_level(levels)
    opens, level = (steps.kind < LEAVE)[order], levels[order]
    pairs = np.flatnonzero(opens[:-1] & ~opens[1:] & (level[:-1] == level[1:]))
    closes[order[pairs]] = order[pairs + 1]
    opened, depths = order[opens], level[opens]
    borders = np.flatnonzero(np.diff(depths)) + 1
    return Calls(steps, exact, list(np.split(opened, borders)), closes)


def calls_of_frames(frames: Frames) -> Calls:
    """Open calls as calls that nothing closes."""
    steps = Steps(frames.thread, frames.function, _full(frames.rows, FRAME), frames.time)
    return _matched(steps, frames.is_exact)


def _still_open(calls: Calls) -> Frames:
    rows = np.flatnonzero((calls.steps.kind < LEAVE) & (calls.closes < 0))
    steps = calls.steps
    return Frames(steps.thread[rows], steps.function[rows], steps.time[rows], calls.is_exact[rows])
