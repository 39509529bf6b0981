"""Samples of stacks, added up by their callers: a tree of functions, as a value.

A stack begins with the name of its thread, and then has the outermost function. Where the walk did
not reach that function, the reason stands in its place: `[no table]`, `[damaged]` or `[deeper]`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from markerjit.printable import counted
from markerjit.tuples import NamedTuple, brief


class SampledNode(NamedTuple):
    """A function below a chain of callers.

    name     its symbol, or its place where it has none; "" of the first node, above all others
    parent   the index of its caller in `StackSamples.nodes`, which is smaller; -1 for the first
    samples  how many stacks had it there, and `own` in how many of them it was the innermost
    """

    name: str
    parent: int
    samples: int
    own: int

    def __repr__(self) -> str:
        return brief(self)


class SampledFunction(NamedTuple):
    """In how many stacks a function was, and in how many of them it was the innermost."""

    name: str
    samples: int
    own: int

    def __repr__(self) -> str:
        return brief(self)


class StackSamples(NamedTuple):
    """The stacks of a process, looked at again and again.

    seconds              how long
    looks                how many times, and `missed` how many times that was not possible
    stacks               of all threads and looks
    stood_ns, longest_ns how long the process was stopped: in all, and at most for one look
    nodes                the tree of functions, each node behind its parent
    ended                whether the process ended meanwhile
    pid                  the process, and `command` its command line
    """

    seconds: float
    looks: int
    missed: int
    stacks: int
    stood_ns: int
    longest_ns: int
    nodes: tuple[SampledNode, ...]
    ended: bool
    pid: int
    command: str

    def __repr__(self) -> str:
        looks, stacks = counted(self.looks, "look"), counted(self.stacks, "stack")
        return f"<StackSamples of process {self.pid}: {stacks} in {looks}, {self.missed:,} missed>"

    @property
    def functions(self) -> tuple[SampledFunction, ...]:
        """The functions, the one that was innermost in the most stacks first. A function that is
        in a stack several times counts once."""
        samples: Counter[str] = Counter()
        own: Counter[str] = Counter()
        callers: list[frozenset[str]] = [frozenset()]
        for node in self.nodes[1:]:
            above = callers[node.parent]
            callers.append(above | {node.name})
            own[node.name] += node.own
            samples[node.name] += 0 if node.name in above else node.samples
        functions = (SampledFunction(name, samples[name], own[name]) for name in samples)
        return tuple(sorted(functions, key=lambda each: (-each.own, -each.samples, each.name)))


class WeighedStacks(NamedTuple):
    """Stacks of events, each with a weight.

    nodes  the tree of functions, each node behind its parent; `samples` are their weights
    unit   the unit of the weights: "event", or the field that was added up
    title  the events, for the caption
    """

    nodes: tuple[SampledNode, ...]
    unit: str
    title: str

    def __repr__(self) -> str:
        return brief(self)


class SampledTree:
    """Stacks, added up as they come."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, str], int] = {(-1, ""): 0}
        self._samples, self._own = [0], [0]

    def add(self, names: Iterable[str], weight: int = 1) -> None:
        """Add a stack, the first caller first."""
        place = 0
        self._samples[place] += weight
        for name in names:
            place = self._places.setdefault((place, name), len(self._places))
            if place == len(self._samples):
                self._samples.append(0)
                self._own.append(0)
            self._samples[place] += weight
        self._own[place] += weight

    @property
    def stacks(self) -> int:
        """The number of stacks so far."""
        return self._samples[0]

    @property
    def nodes(self) -> tuple[SampledNode, ...]:
        """The tree as it is now."""
        return tuple(
            SampledNode(name, parent, samples, own)
            for (parent, name), samples, own in zip(
                self._places, self._samples, self._own, strict=True
            )
        )
