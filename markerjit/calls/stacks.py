"""The calls that steps are of: for all threads at once, with numpy.

The depth of a thread is the number of its entries without its exits so far. Of the steps at one
depth every other one opens a call and the next one closes it; and the caller of a call is the last
one that was opened one step higher. So a sort by depth finds all calls, without a look at single
steps. It holds where every exit is that of the call that was opened last, and every call is below
its caller on the same stack, which is checked: the threads of which that is not true are repaired
first (repair.py). Most of their steps are calls between two others, which need no look either.

Calls that are open between two batches come first in the next one, as FRAMEs.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from markerjit.calls.areas import Areas
from markerjit.calls.repair import Apart, Open, Repaired, repaired
from markerjit.calls.steps import (
    AGAIN,
    ENTER,
    FRAME,
    LEAVE,
    NONE,
    STOP,
    TAIL,
    Steps,
    by_thread,
    joined,
    steps_of,
)
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

_ROUNDS = 16


class Calls(NamedTuple):
    """Steps that fit, and the calls that they are of.

    steps    in the order of threads and time
    is_exact of a step that opens a call: whether its time is that of its entry
    levels   for each depth the rows of the steps that open a call there, in order
    callers  for each depth, and each of its rows, the row of the step that opened the caller; none
             for the first depth
    closes   for each step that opens a call the row of the one that closes it, -1 where none does
    """

    steps: Steps
    is_exact: Array
    levels: list[Array]
    callers: list[Array]
    closes: Array


class Frames(NamedTuple):
    """Calls that are open, in the order of threads, the outermost first."""

    thread: Array
    function: Array
    time: Array
    stack: Array
    is_exact: Array

    @property
    def rows(self) -> int:
        """The number of calls."""
        return len(self.thread)

    def picked(self, rows: Array) -> Frames:
        """The calls of this mask."""
        return Frames(*(column[rows] for column in tuple(self)))


_NO_FRAMES = Frames(NONE.thread, NONE.function, NONE.time, NONE.stack, np.zeros(0, np.bool_))


class Stacks:
    """The calls that are open in all threads of a process whose stacks are in these areas.

    frames         these calls, without those that are parked
    without_entry  exits without an entry so far, by function
    cut, stopped   calls that were left without an exit, and that ended with their thread, beside
                   those that a step has closed so
    """

    def __init__(self, areas: Areas | None = None) -> None:
        self.frames = _NO_FRAMES
        self.without_entry: Counter[int] = Counter()
        self.cut: Counter[int] = Counter()
        self.stopped: Counter[int] = Counter()
        self._areas = areas or Areas()
        self._apart: defaultdict[int, Apart] = defaultdict(Apart)

    def parked(self) -> Counter[int]:
        """How many calls are on stacks that their thread has left, by function."""
        return Counter(call.function for apart in self._apart.values() for call in apart.parked)

    def advance(self, steps: Steps, *, exact: bool = True) -> Calls:
        """The calls of the next steps, which are in the order of threads and time, with those that
        were open before. `exact`: the times of these steps are those of the events."""
        frames = self.frames
        threads = np.unique(steps.thread)
        is_active = np.isin(frames.thread, threads)
        before = frames.picked(is_active)
        opened = Steps(
            before.thread, before.function, _full(before.rows, FRAME), before.time, before.stack
        )  # fmt: skip
        whole = joined([opened, steps])
        is_exact = np.concatenate([before.is_exact, np.full(steps.rows, exact)])
        order = by_thread(whole)
        whole, is_exact = whole.picked(order), is_exact[order]
        self._areas.need(steps.stack)
        parked = {thread for thread, apart in self._apart.items() if apart.parked}
        unfit = _unfit(whole) | parked.intersection(threads.tolist())
        fit = ~np.isin(whole.thread, [*unfit]) if unfit else slice(None)
        calls = _matched(whole.picked(fit), is_exact[fit])
        unfit |= _not_below(calls, self._areas)
        if unfit:
            calls = _matched(*self._repaired(whole, is_exact, unfit))
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
            for thread in (np.unique(frames.thread) if threads is None else threads).tolist():
                parked = self._apart.pop(thread, Apart()).parked
                self.stopped.update(call.function for call in parked)
        # The innermost call of a thread is closed first.
        order = np.lexsort((-np.arange(frames.rows), frames.thread))
        steps = Steps(
            frames.thread[order], frames.function[order], _full(frames.rows, STOP),
            np.maximum(frames.time, times[frames.thread])[order], frames.stack[order],
        )  # fmt: skip
        apart, self._apart = self._apart, defaultdict(Apart)
        calls = self.advance(steps)
        self._apart = apart
        if not ended:
            for thread in np.unique(frames.thread).tolist():
                of_thread = frames.picked(frames.thread == thread)
                pairs = zip(of_thread.function.tolist(), of_thread.stack.tolist(), strict=True)
                apart[thread].give_up([Open(*pair) for pair in pairs], self._areas)
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
            apart = self._apart[thread]
            mending = _mended(part, apart, self._areas)
            self.without_entry.update(mending.made.without_entry)
            self.cut.update(mending.made.cut)
            if apart.is_empty:
                del self._apart[thread]
            parts.append(mending.steps)
            exacts.append(exact[start:end][mending.rows] & (mending.steps.kind != AGAIN))
        return joined(parts), np.concatenate(exacts)


class _Mended(NamedTuple):
    """Steps of a thread, with some of them repaired; for each the row that it is of."""

    steps: Steps
    rows: Array
    made: Repaired


def _mended(part: Steps, apart: Apart, areas: Areas) -> _Mended:
    """The steps of a thread, repaired."""
    rows = _to_look_at(part, areas)
    is_other = np.ones(part.rows, np.bool_)
    is_other[rows] = False
    others = np.flatnonzero(is_other)
    made = repaired(
        part.function[rows].tolist(), part.kind[rows].tolist(), part.stack[rows].tolist(),
        apart, areas,
    )  # fmt: skip
    made_rows = rows[np.array(made.rows, np.intp)]
    whole = np.concatenate([others, made_rows])
    order = np.argsort(whole, kind="stable")
    steps = steps_of(
        part.thread[whole],
        np.concatenate([part.function[others], np.array(made.functions, np.int32)]),
        np.concatenate([part.kind[others], np.array(made.kinds, np.uint8)]),
        part.time[whole],
        np.concatenate([part.stack[others], np.array(made.stacks, np.uint64)]),
    )
    return _Mended(steps.picked(order), whole[order], made)


def _to_look_at(part: Steps, areas: Areas) -> Array:
    """The rows of the steps that the repair has to see. It need not see an entry and its exit right
    behind, below the call that the step before has opened or closed, on the same stack. Without
    such a pair its neighbours may be one."""
    rows = np.arange(part.rows)
    area = areas.of_all(part.stack)
    for _ in range(_ROUNDS):
        kind, function, stack = part.kind[rows], part.function[rows], part.stack[rows]
        before, first, behind = slice(None, -2), slice(1, -1), slice(2, None)
        is_call = (kind[first] == ENTER) & ((kind[behind] == LEAVE) | (kind[behind] == TAIL))
        is_call &= (function[first] == function[behind]) & (stack[first] == stack[behind])
        is_call &= area[rows][before] == area[rows][first]
        # What was just left may have been at the very address.
        is_call &= (kind[before] < STOP) & (stack[first] < stack[before] + (kind[before] >= LEAVE))
        is_call &= kind[before] != AGAIN
        at = np.flatnonzero(is_call) + 1
        if not len(at):
            break
        rows = np.delete(rows, np.concatenate([at, at + 1]))
    return rows


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
    stacks = steps.stack[order]
    # A close comes right behind its open.
    is_other = (functions[1:] != functions[:-1]) | (stacks[1:] != stacks[:-1])
    wrong = np.flatnonzero(~opens[1:] & is_other) + 1
    return unfit | set(steps.thread[order[wrong]].tolist())


def _matched(steps: Steps, exact: Array) -> Calls:
    """The calls of steps that fit."""
    closes = np.full(steps.rows, -1, np.intp)
    if not steps.rows:
        return Calls(steps, exact, [], [], closes)
    levels = _levels(steps)
    order = _by_level(levels)
    opens, level = (steps.kind < LEAVE)[order], levels[order]
    pairs = np.flatnonzero(opens[:-1] & ~opens[1:] & (level[:-1] == level[1:]))
    closes[order[pairs]] = order[pairs + 1]
    opened, depths = order[opens], level[opens]
    borders = np.flatnonzero(np.diff(depths)) + 1
    by_depth = list(np.split(opened, borders)) if len(opened) else []
    callers = [NONE.thread[:0].astype(np.intp)][: len(by_depth)]
    # The last call that was opened one step higher.
    callers += [above[np.searchsorted(above, rows) - 1] for above, rows in pairwise(by_depth)]
    return Calls(steps, exact, by_depth, callers, closes)


def _not_below(calls: Calls, areas: Areas) -> set[int]:
    """The threads in which a call is not below its caller on the same stack."""
    steps = calls.steps
    area = areas.of_all(steps.stack)
    threads: set[int] = set()
    for rows, callers in zip(calls.levels[1:], calls.callers[1:], strict=True):
        is_wrong = (steps.stack[rows] >= steps.stack[callers]) | (area[rows] != area[callers])
        is_wrong &= steps.kind[rows] == ENTER
        threads.update(steps.thread[rows[is_wrong]].tolist())
    return threads


def calls_of_frames(frames: Frames) -> Calls:
    """Open calls as calls that nothing closes."""
    steps = Steps(
        frames.thread, frames.function, _full(frames.rows, FRAME), frames.time, frames.stack
    )
    return _matched(steps, frames.is_exact)


def _still_open(calls: Calls) -> Frames:
    rows = np.flatnonzero((calls.steps.kind < LEAVE) & (calls.closes < 0))
    steps = calls.steps
    return Frames(
        steps.thread[rows], steps.function[rows], steps.time[rows], steps.stack[rows],
        calls.is_exact[rows],
    )  # fmt: skip
