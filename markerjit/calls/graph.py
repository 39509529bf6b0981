"""A call graph: the calls of functions that were seen, and their times, as a value.

All times are in nanoseconds. They include the cost of the events.

What this does not do: print it (facts/calls.py), or write files (files.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.arguments import check_is
from markerjit.calls.stacks import Stacks
from markerjit.calls.tree import REST, ROOT, Running, Tree
from markerjit.printable import counted
from markerjit.tuples import NamedTuple, brief

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

OTHERS = "(other callers)"
"""The caller of the calls that found no node in the tree."""


class CalledFunction(NamedTuple):
    """The calls of a function.

    name           its symbol
    calls          how often it was entered
    total_ns       how long it was on a stack, its callees with it. Where it calls itself, the time
                   of the inner calls counts once
    own_ns         the same without its callees that were seen
    least_ns, mean_ns, largest_ns
                   of calls whose entry and exit were seen; None without one
    running        how many calls had not ended; their times so far are in the sums
    cut            how many were left without an exit: by longjmp or an exception
    stopped        how many ended unseen: with their thread, or where events were lost
    tails          how many ended with a call of another function in the place of a return
    without_entry  how many exits belong to calls that were entered before
    """

    name: str
    calls: int
    total_ns: int
    own_ns: int
    least_ns: int | None
    mean_ns: float | None
    largest_ns: int | None
    running: int = 0
    cut: int = 0
    stopped: int = 0
    tails: int = 0
    without_entry: int = 0

    def __repr__(self) -> str:
        return brief(self)


class Calling(NamedTuple):
    """The calls from one function to another, by their names. The caller is "" where none is known,
    and "(other callers)" where the tree had no room for it."""

    caller: str
    callee: str
    calls: int
    total_ns: int

    def __repr__(self) -> str:
        return brief(self)


class CallNode(NamedTuple):
    """A function below a chain of callers.

    name      its symbol; "" for the first node, the root
    parent    the index of its caller in `CallGraph.nodes`, which is smaller; -1 for the first
    calls     how often it was entered from there
    total_ns  what these calls took, and `own_ns` the same without their callees
    """

    name: str
    parent: int
    calls: int
    total_ns: int
    own_ns: int

    def __repr__(self) -> str:
        return brief(self)


NEEDS_BREAKPOINT = "needs a breakpoint"
"""The kind of reason of functions that can be followed where that is asked for."""


class NotOpened(NamedTuple):
    """A function that was asked for and is not in the graph: the kind of reason, and a sentence."""

    name: str
    kind: str
    reason: str

    def __repr__(self) -> str:
        return brief(self)


class CallGraph(NamedTuple):
    """The calls of a process, for a while.

    seconds        how long
    functions      those with calls, the one with the most own time first
    callings       by caller and callee
    nodes          the tree of calls, each node behind its parent
    opened         the names of the functions that were looked at
    not_opened     those that were asked for and are not
    events         entries and exits
    lost           events that were lost because their ring was full
    untimed        calls that were read together with a loss: they are counted, without times
    folded         calls for which the tree had no room: their callers are not known
    threads        how many threads had calls
    event_ns       an upper bound for the cost of an event in the program; None if unknown
    cpu_s          the CPU time of the program in that time; None if unknown
    pid            the process, and `command` its command line
    """

    seconds: float
    functions: tuple[CalledFunction, ...]
    callings: tuple[Calling, ...]
    nodes: tuple[CallNode, ...]
    opened: tuple[str, ...]
    not_opened: tuple[NotOpened, ...] = ()
    events: int = 0
    lost: int = 0
    untimed: int = 0
    folded: int = 0
    threads: int = 0
    event_ns: int | None = None
    cpu_s: float | None = None
    pid: int = 0
    command: str = ""

    def __repr__(self) -> str:
        calls, functions = counted(self.calls, "call"), counted(len(self.functions), "function")
        of = f"{calls} of {functions} in {self.seconds:.3f} s"
        return f"<CallGraph of process {self.pid}: {of}, {self.lost:,} lost>"

    @property
    def calls(self) -> int:
        """All calls."""
        return sum(function.calls for function in self.functions)

    def callers(self, name: str) -> tuple[Calling, ...]:
        """The functions that call this one, the most time first."""
        check_is("name", name, str)
        return tuple(each for each in self.callings if each.callee == name)

    def callees(self, name: str) -> tuple[Calling, ...]:
        """The functions that this one calls, the most time first."""
        check_is("name", name, str)
        return tuple(each for each in self.callings if each.caller == name)


class Sums(NamedTuple):
    """The parts of a graph."""

    functions: tuple[CalledFunction, ...]
    callings: tuple[Calling, ...]
    nodes: tuple[CallNode, ...]


def sums_of(tree: Tree, stacks: Stacks, names: Sequence[str], now: int) -> Sums:
    """The sums, with the calls that are open now."""
    running = tree.running(stacks.frames, now)
    size = len(tree)
    parent, function = np.array(tree.parent), np.array(tree.function)
    real = np.flatnonzero(function >= 0)
    below = np.bincount(parent[real], weights=running.total_ns[real], minlength=size)
    own = running.total_ns - below.astype(np.int64) - running.folded_ns
    nodes = [
        CallNode(_name(node, tree, names), tree.parent[node], *sums)
        for node, sums in enumerate(
            zip(
                tree.calls.tolist(),
                running.total_ns.tolist(),
                own.tolist(),
                strict=True,
            )
        )
    ]
    return Sums(
        _functions(tree, stacks, names, running, own),
        _callings(nodes),
        _without_empty_rest(nodes),
    )


def _name(node: int, tree: Tree, names: Sequence[str]) -> str:
    if node == ROOT:
        return ""
    return OTHERS if node == REST else names[tree.function[node]]


def _without_empty_rest(nodes: Sequence[CallNode]) -> tuple[CallNode, ...]:
    """The nodes of the tree, without REST if every call has found a node."""
    if any(node.parent == REST for node in nodes):
        rest = nodes[REST]._replace(parent=ROOT)
        return (nodes[ROOT], rest, *nodes[REST + 1 :])
    behind = (node._replace(parent=max(node.parent - 1, ROOT)) for node in nodes[REST + 1 :])
    return (nodes[ROOT], *behind)


def _functions(
    tree: Tree, stacks: Stacks, names: Sequence[str], running: Running, own: Array
) -> tuple[CalledFunction, ...]:
    size, first = len(names), REST + 1
    function = np.array(tree.function)[first:]

    def summed(values: Array) -> list[int]:
        sums = np.bincount(function, weights=values[first:], minlength=size)
        numbers: list[int] = sums.astype(np.int64).tolist()
        return numbers

    outermost = np.where(np.array(tree.is_inner), 0, running.total_ns)
    alone, parked = tree.of_function, stacks.parked()
    columns = zip(
        names, summed(tree.calls), summed(outermost), summed(own),
        alone.timed.tolist(), alone.timed_ns.tolist(), alone.least_ns.tolist(),
        alone.largest_ns.tolist(), summed(running.open), alone.cut.tolist(),
        alone.stopped.tolist(), alone.tails.tolist(), strict=True,
    )  # fmt: skip
    functions = [
        CalledFunction(
            name, calls, total, own_ns,
            least if timed else None, timed_ns / timed if timed else None,
            largest if timed else None,
            open_calls + parked[number], cut + stacks.cut[number],
            stopped + stacks.stopped[number], tails, stacks.without_entry[number],
        )
        for number, (
            name, calls, total, own_ns, timed, timed_ns, least, largest, open_calls, cut, stopped,
            tails,
        ) in enumerate(columns)
    ]  # fmt: skip
    seen = [each for each in functions if each.calls or each.total_ns or each.without_entry]
    return tuple(sorted(seen, key=lambda each: (-each.own_ns, -each.calls, each.name)))


def _callings(nodes: Sequence[CallNode]) -> tuple[Calling, ...]:
    calls: Counter[tuple[str, str]] = Counter()
    total_ns: Counter[tuple[str, str]] = Counter()
    for node in nodes[REST + 1 :]:
        key = nodes[node.parent].name, node.name
        calls[key] += node.calls
        total_ns[key] += node.total_ns
    callings = (Calling(*key, calls[key], total_ns[key]) for key in calls)
    return tuple(sorted(callings, key=lambda each: (-each.total_ns, each)))
