"""A call graph as a document, and in words: rows of tables, the tree, and what has to be said."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from markerjit.elf.demangle import demangled, spellings
from markerjit.facts import Json
from markerjit.facts.markers import needing_words
from markerjit.facts.words import duration_words
from markerjit.printable import counted
from markerjit.sites.names import PREFIX

if TYPE_CHECKING:
    from markerjit.calls.graph import CalledFunction, CallGraph, Calling, CallNode, NotOpened

HEADER = ("CALLS", "TOTAL", "OWN", "MIN", "MEAN", "MAX", "FUNCTION")
TREE_HEADER = ("CALLS", "TOTAL", "OWN", "FUNCTION")
NO_CALLER = "(not known)"
SORTS: dict[str, Callable[[CalledFunction], tuple[int | str, ...]]] = {
    "own": lambda each: (-each.own_ns, each.name),
    "total": lambda each: (-each.total_ns, each.name),
    "calls": lambda each: (-each.calls, each.name),
    "name": lambda each: (each.name,),
}
_KINDS = 4


def calls_facts(graph: CallGraph) -> Json:
    """All of a graph."""
    return {
        "pid": graph.pid,
        "seconds": round(graph.seconds, 6),
        "functions": [{**each._asdict(), "text": demangled(each.name)} for each in graph.functions],
        "callings": [each._asdict() for each in graph.callings],
        "nodes": [each._asdict() for each in graph.nodes],
        "opened": list(graph.opened),
        "not_opened": [each._asdict() for each in graph.not_opened],
        "calls": graph.calls,
        "events": graph.events,
        "lost": graph.lost,
        "untimed": graph.untimed,
        "folded": graph.folded,
        "threads": graph.threads,
        "price": price_facts(graph),
    }


def price_facts(graph: CallGraph) -> Json:
    """The most that the events cost the program, in nanoseconds; and the program's processor
    time."""
    event_ns = graph.event_ns
    return {
        "event_ns": event_ns,
        "call_ns": None if event_ns is None else 2 * event_ns,
        "all_ns": None if event_ns is None else event_ns * graph.events,
        "cpu_s": graph.cpu_s,
        "corrected": False,
    }


def function_rows(functions: Sequence[CalledFunction]) -> list[list[str]]:
    """A row for each function, with times aligned to the right."""
    rows = [
        [f"{each.calls:,}", *map(duration_words, _times(each)), demangled(each.name)]
        for each in functions
    ]
    return aligned(HEADER, rows)


def _times(function: CalledFunction) -> tuple[float | None, ...]:
    return (
        function.total_ns,
        function.own_ns,
        function.least_ns,
        function.mean_ns,
        function.largest_ns,
    )


def symbol_named(symbols: Sequence[str], text: str) -> str | None:
    """The function with this name: its symbol, or the name as it was written (demangle.py). None if
    there is no such function."""
    return next((symbol for symbol in symbols if text in spellings(symbol)), None)


def aligned(header: Sequence[str], rows: list[list[str]]) -> list[list[str]]:
    """The rows with all columns but the last one to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    return [
        [
            *(cell.rjust(width) for cell, width in zip(row[:-1], widths[:-1], strict=True)),
            row[-1],
        ]
        for row in rows
    ]


def neighbour_tables(graph: CallGraph, symbol: str) -> Iterator[tuple[list[str], list[list[str]]]]:
    """The callers of a function and its callees: a header, and rows."""
    for title, rows in (
        ("CALLERS OF", _calling_rows(graph.callers(symbol), callers=True)),
        ("CALLEES OF", _calling_rows(graph.callees(symbol), callers=False)),
    ):
        header = ["CALLS", "TOTAL", f"{title} {demangled(symbol)}"]
        yield header, aligned(header, rows)


def _calling_rows(callings: Sequence[Calling], *, callers: bool) -> list[list[str]]:
    """A row for each caller, or for each callee."""
    return [
        [
            f"{each.calls:,}",
            duration_words(each.total_ns),
            demangled((each.caller or NO_CALLER) if callers else each.callee),
        ]
        for each in callings
    ]


def tree_rows(graph: CallGraph, least_ns: int = 0) -> list[list[str]]:
    """A row for each node of the tree, below its caller, the most time first."""
    below: dict[int, list[int]] = {}
    for place, node in enumerate(graph.nodes[1:], 1):
        below.setdefault(node.parent, []).append(place)

    def order(places: Sequence[int]) -> list[int]:
        return sorted(places, key=lambda at: (graph.nodes[at].total_ns, graph.nodes[at].name))

    rows: list[list[str]] = []
    waiting = [(place, 0) for place in order(below.get(0, ()))]
    while waiting:
        place, depth = waiting.pop()
        node = graph.nodes[place]
        if node.total_ns >= least_ns:
            rows.append(_tree_row(node, depth))
            waiting += [(child, depth + 1) for child in order(below.get(place, ()))]
    return aligned(TREE_HEADER, rows)


def _tree_row(node: CallNode, depth: int) -> list[str]:
    name = demangled(node.name)
    return [
        f"{node.calls:,}", duration_words(node.total_ns), duration_words(node.own_ns),
        f"{'  ' * depth}{name}",
    ]  # fmt: skip


# ---- sentences -----------------------------------------------------------------------------------


def summary_words(graph: CallGraph) -> str:
    """How much was seen, in how long."""
    return (
        f"{counted(graph.calls, 'call')} of "
        f"{counted(sum(bool(each.calls) for each in graph.functions), 'function')} in "
        f"{counted(graph.threads, 'thread')} in {graph.seconds:.3f} s; "
        f"{counted(len(graph.opened), 'function')} followed"
    )


def remarks(graph: CallGraph, *, lossless: bool) -> Iterator[str]:
    """Caveats about the numbers, a sentence each."""
    if graph.not_opened:
        yield f"{counted(len(graph.not_opened), 'function')} not followed: {kinds_words(graph)}"
    yield from _ends(graph)
    if graph.lost:
        yield (
            f"{counted(graph.lost, 'event')} lost: they came faster than they were read. Stacks "
            "begin anew behind them, and the calls in between are not in these numbers. "
            f"Of {counted(graph.untimed, 'call')} only the numbers are here, without times, since "
            f"events among them are missing. {_would_help(lossless=lossless)}"
        )
    if graph.folded:
        yield (
            f"{counted(graph.folded, 'call')} on more ways than the tree has room for, added up by "
            "function, without callers; --depth or --from makes fewer"
        )
    if graph.calls:
        yield price_words(graph)


def needing_lines(not_opened: Sequence[NotOpened]) -> Iterator[str]:
    """What is said at the beginning, in a line at most: that functions need a breakpoint."""
    from markerjit.calls.graph import NEEDS_BREAKPOINT  # there by then, and numpy with it

    names = [f"{PREFIX}{each.name}" for each in not_opened if each.kind == NEEDS_BREAKPOINT]
    if names:
        yield needing_words(names)


def kinds_words(graph: CallGraph) -> str:
    """The kinds of reasons why functions are not followed, and how many each has."""
    kinds = Counter(each.kind for each in graph.not_opened).most_common()
    words = [f"{count:,} ({kind})" for kind, count in kinds[:_KINDS]]
    more = sum(count for _, count in kinds[_KINDS:])
    return ", ".join([*words, *([f"{more:,} for other reasons (--json has them)"] if more else [])])


def _ends(graph: CallGraph) -> Iterator[str]:
    functions = graph.functions
    cut = sum(each.cut for each in functions)
    stopped = sum(each.stopped for each in functions)
    running = sum(each.running for each in functions)
    without = sum(each.without_entry for each in functions)
    if cut:
        yield (
            f"{counted(cut, 'call')} left without an exit (longjmp, an exception): they end with "
            "the next event of their thread that tells"
        )
    if stopped:
        yield f"{counted(stopped, 'call')} ended unseen: with the thread, or where events were lost"
    if running:
        yield f"{counted(running, 'call')} still running at the end: each counts up to then"
    if without:
        yield (
            f"{counted(without, 'exit')} of calls that were entered before: these are not counted"
        )


def _would_help(*, lossless: bool) -> str:
    if lossless:
        return "Fewer functions would have helped: exclude the busiest by '!NAME'"
    return (
        "This would have helped: to exclude the busiest functions by '!NAME', --ring-growth, or "
        "--lossless, which makes the process wait"
    )


def price_words(graph: CallGraph) -> str:
    """What it cost, in one sentence."""
    if graph.event_ns is None:
        return (
            "price of a call: not known, too few events were close together; the times are as "
            "measured, with it in them"
        )
    all_ns = graph.event_ns * graph.events
    share = ""
    if graph.cpu_s:
        share = f" of {graph.cpu_s:.2f} s of processor time ({all_ns / graph.cpu_s / 1e7:.0f} %)"
    return (
        f"price of a call: at most {duration_words(2 * graph.event_ns)}, "
        f"{duration_words(all_ns)}{share} in all; the times are as measured, with it in them"
    )
