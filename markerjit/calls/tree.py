"""Calls added up by their callers: a tree whose nodes are functions, each below its caller.

A node has the calls of one function by one chain of callers. Own time needs no sum of its own: it
is the time of the calls of a node less that of its children.

    depth   the deepest level. Deeper calls are left out, and their time is that of their callers
    roots   the tree begins at these functions, and has only the calls below them
    most    the most nodes. Calls on further paths are added up by function alone, and counted

What this does not do: name functions (graph.py).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import numpy as np

from markerjit.calls.stacks import Calls, Frames, calls_of_frames
from markerjit.calls.steps import CUT, ENTER, STOP, TAIL
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

MOST_NODES = 1 << 17
ROOT, REST = 0, 1
"""Nodes that are no calls: the root, and the caller of calls that found no node."""
_OUTSIDE, _DEEPER = -1, -2
"""Instead of a node: for calls below no root, and for calls that are too deep."""
_NEVER = np.iinfo(np.int64).max


class Running(NamedTuple):
    """Sums of each node, with calls that are open.

    total_ns   the time of its calls
    folded_ns  the time of its callees that found no node
    open       how many of its calls are open
    """

    total_ns: Array
    folded_ns: Array
    open: Array


class Tree:
    """The tree of calls of functions with the numbers from 0 on.

    parent, function, level    of each node
    is_inner                   of each node: whether its function is among its callers
    calls, total_ns            of each node
    """

    def __init__(
        self,
        functions: int,
        *,
        depth: int | None = None,
        roots: Collection[int] | None = None,
        most: int = MOST_NODES,
    ) -> None:
        self.parent = [-1, -1]
        self.function = [-1, -1]
        self.level = [0, 0]
        self.is_inner = [False, False]
        self.calls: Array = np.zeros(2, np.int64)
        self.total_ns: Array = np.zeros(2, np.int64)
        self.of_function = OfFunctions(functions)
        self.folded = 0
        self._folded_ns: Array = np.zeros(2, np.int64)  # by the caller of what found no node
        self._functions = functions
        self._depth = depth
        self._is_root = None
        if roots is not None:
            self._is_root = np.zeros(functions, np.bool_)
            self._is_root[list(roots)] = True
        self._most = most
        self._rest: dict[int, int] = {}  # the nodes of calls that found none, by function
        self._keys: Array = np.zeros(0, np.int64)
        self._nodes: Array = np.zeros(0, np.int64)
        self._levels: Array = np.zeros(2, np.int32)

    def __len__(self) -> int:
        return len(self.parent)

    def add(self, calls: Calls) -> Array:
        """Add these calls. Returns the node of each step that opens a call, negative where it is
        left out."""
        nodes, parents = self._nodes_of(calls)
        steps, closes = calls.steps, calls.closes
        entered = np.flatnonzero((steps.kind == ENTER) & (nodes >= 0))
        self.calls += np.bincount(nodes[entered], minlength=len(self)).astype(np.int64)
        ended = np.flatnonzero((closes >= 0) & (nodes >= 0))
        took = steps.time[closes[ended]] - steps.time[ended]
        self.total_ns += _summed(nodes[ended], took, len(self))
        self._note_folded(nodes[ended], parents[ended], took)
        self.folded += int(self._are_folded(nodes[entered]).sum())
        how = steps.kind[closes[ended]]
        self.of_function.add(steps.function[ended], took, how, calls.is_exact[ended])
        return nodes

    def running(self, frames: Frames, now: int) -> Running:
        """The sums up to now, with the open calls."""
        nodes, parents = self._nodes_of(calls_of_frames(frames))
        counts = np.flatnonzero(nodes >= 0)
        nodes, parents = nodes[counts], parents[counts]
        took = np.maximum(now - frames.time[counts], 0)
        total_ns = self.total_ns + _summed(nodes, took, len(self))
        is_folded = self._are_folded(nodes) & (parents >= 0)
        folded_ns = self._folded_ns + _summed(parents[is_folded], took[is_folded], len(self))
        return Running(total_ns, folded_ns, np.bincount(nodes, minlength=len(self)))

    # ---- nodes -----------------------------------------------------------------------------------

    def _nodes_of(self, calls: Calls) -> tuple[Array, Array]:
        """The node of each step that opens a call, and that of its caller."""
        steps = calls.steps
        nodes = np.full(steps.rows, _OUTSIDE, np.int64)
        parents = np.full(steps.rows, _OUTSIDE, np.int64)
        for rows, callers in zip(calls.levels, calls.callers, strict=True):
            if not len(callers):
                of_caller = np.full(len(rows), ROOT if self._is_root is None else _OUTSIDE)
            else:
                of_caller = nodes[callers]
            functions = steps.function[rows]
            if self._is_root is not None:
                begins = (of_caller == _OUTSIDE) & self._is_root[functions]
                of_caller = np.where(begins, ROOT, of_caller)
            parents[rows] = of_caller
            nodes[rows] = self._children(of_caller, functions)
        self._grow()
        return nodes, parents

    def _children(self, parents: Array, functions: Array) -> Array:
        nodes = parents.copy()
        within = np.flatnonzero(parents >= 0)
        if self._depth is not None:
            is_deepest = self._levels[parents[within]] >= self._depth
            nodes[within[is_deepest]] = _DEEPER
            within = within[~is_deepest]
        keys = parents[within] * self._functions + functions[within]
        places = np.searchsorted(self._keys, keys)
        known = np.zeros(len(keys), np.bool_)
        if len(self._keys):
            known = self._keys.take(places, mode="clip") == keys
        if not known.all():
            self._make(np.unique(keys[~known]))
            places = np.searchsorted(self._keys, keys)
        nodes[within] = self._nodes[places]
        return nodes

    def _make(self, keys: Array) -> None:
        made = [self._node(*divmod(key, self._functions)) for key in keys.tolist()]
        places = np.searchsorted(self._keys, keys)
        self._keys = np.insert(self._keys, places, keys)
        self._nodes = np.insert(self._nodes, places, made)
        more = self.level[len(self._levels) :]
        self._levels = np.concatenate([self._levels, np.array(more, np.int32)])

    def _node(self, parent: int, function: int) -> int:
        if len(self) - len(self._rest) < self._most:
            return self._append(parent, function)
        if function not in self._rest:
            self._rest[function] = self._append(REST, function)
        return self._rest[function]

    def _append(self, parent: int, function: int) -> int:
        above, is_inner = parent, False
        while above > REST and not is_inner:
            is_inner, above = self.function[above] == function, self.parent[above]
        self.parent.append(parent)
        self.function.append(function)
        self.level.append(self.level[parent] + 1)
        self.is_inner.append(is_inner)
        return len(self) - 1

    def _grow(self) -> None:
        """Have room for the sums of all nodes."""
        if len(self.calls) < len(self):
            more = np.zeros(len(self) - len(self.calls), np.int64)
            self.calls = np.concatenate([self.calls, more])
            self.total_ns = np.concatenate([self.total_ns, more])
            self._folded_ns = np.concatenate([self._folded_ns, more])

    # ---- calls that found no node ----------------------------------------------------------------

    def _are_folded(self, nodes: Array) -> Array:
        if not self._rest:
            return np.zeros(len(nodes), np.bool_)
        return np.isin(nodes, list(self._rest.values()))

    def _note_folded(self, nodes: Array, parents: Array, took: Array) -> None:
        folded = self._are_folded(nodes) & (parents >= 0)
        if folded.any():
            self._folded_ns += _summed(parents[folded], took[folded], len(self))


class OfFunctions:
    """The sums of each function alone.

    timed, timed_ns, least_ns, largest_ns    calls whose entry and exit were seen: their number and
                                             their times
    cut, stopped, tails                      how many were left without an exit, were given up, and
                                             ended with a tail call
    """

    def __init__(self, functions: int) -> None:
        def column(value: int = 0) -> Array:
            return np.full(functions, value, np.int64)

        self.timed, self.timed_ns = column(), column()
        self.least_ns, self.largest_ns = column(_NEVER), column(-1)
        self.cut, self.stopped, self.tails = column(), column(), column()

    def add(self, functions: Array, took: Array, how: Array, exact: Array) -> None:
        """Add calls of these functions that took so long and ended so."""
        size = len(self.timed)
        for column, kind in ((self.cut, CUT), (self.stopped, STOP), (self.tails, TAIL)):
            column += np.bincount(functions[how == kind], minlength=size)
        timed = np.flatnonzero(exact & (how <= TAIL))
        functions, took = functions[timed], took[timed]
        self.timed += np.bincount(functions, minlength=size)
        self.timed_ns += _summed(functions, took, size)
        np.minimum.at(self.least_ns, functions, took)
        np.maximum.at(self.largest_ns, functions, took)


def _summed(places: Array, values: Array, size: int) -> Array:
    """The sum of the values at each place. The sums of floats are exact up to 2**53: a hundred days
    of nanoseconds, in a batch."""
    return np.bincount(places, weights=values, minlength=size).astype(np.int64)
