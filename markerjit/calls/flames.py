"""The data of a flame graph: functions below their callers, each with a weight.

Calls weigh what they took, in nanoseconds, and samples weigh one each.
"""

from __future__ import annotations

from markerjit.calls.graph import CallGraph, CallNode
from markerjit.calls.samples import SampledNode, StackSamples, WeighedStacks
from markerjit.elf.demangle import demangled
from markerjit.printable import counted
from markerjit.tuples import NamedTuple


class Flame(NamedTuple):
    """A function below a chain of callers: its weight, and `own` without its callees. A reader sees
    `words` when the pointer is on it."""

    name: str
    parent: int
    total: int
    own: int
    words: str


class Flames(NamedTuple):
    """The nodes, each behind its parent; the first one is the root.

    unit      of a weight, as speedscope calls it
    sentence  the caption of the picture
    """

    title: str
    unit: str
    sentence: str
    nodes: tuple[Flame, ...]


def flames_of(graph: CallGraph | StackSamples | WeighedStacks) -> Flames:
    """The flames of calls, of samples, or of the stacks of events."""
    if isinstance(graph, WeighedStacks):
        whole = graph.nodes[0].samples
        return Flames(
            graph.title,
            "none",
            f"{counted(whole, graph.unit)}, by the stacks of the events. The width of a box is the "
            "share of them that had it there.",
            tuple(_of_weighed(node, graph) for node in graph.nodes),
        )
    title = graph.command or f"process {graph.pid}"
    if isinstance(graph, CallGraph):
        return Flames(
            title,
            "nanoseconds",
            f"{counted(graph.calls, 'call')} of {counted(len(graph.functions), 'function')} in "
            f"{graph.seconds:.3f} s. The width of a box is the time of its calls, and what an "
            "event costs is in it.",
            tuple(map(_of_calls, graph.nodes)),
        )
    return Flames(
        title,
        "none",
        f"{counted(graph.stacks, 'stack')} in {counted(graph.looks, 'look')} in "
        f"{graph.seconds:.3f} s. The width of a box is the number of stacks that had it there.",
        tuple(_of_samples(node, graph.stacks) for node in graph.nodes),
    )


def _of_calls(node: CallNode) -> Flame:
    calls = counted(node.calls, "call")
    words = f"{calls}, {node.total_ns / 1e6:,.3f} ms, own {node.own_ns / 1e6:,.3f} ms"
    return Flame(demangled(node.name), node.parent, node.total_ns, node.own_ns, words)


def _of_weighed(node: SampledNode, stacks: WeighedStacks) -> Flame:
    share = node.samples / max(stacks.nodes[0].samples, 1)
    words = f"{counted(node.samples, stacks.unit)} ({share:.1%}), own {node.own:,}"
    return Flame(demangled(node.name), node.parent, node.samples, node.own, words)


def _of_samples(node: SampledNode, stacks: int) -> Flame:
    words = (
        f"{counted(node.samples, 'stack')} ({node.samples / max(stacks, 1):.1%}), own {node.own:,}"
    )
    return Flame(demangled(node.name), node.parent, node.samples, node.own, words)
