"""`markerjit calls PID [PATTERN…]`: every call of a program's functions, as a table, tree or file.

Entry and every exit of each function are on until the end: a signal, the time, or so many calls.
Then all is off, and the whole is printed. On a terminal a table is drawn anew meanwhile, in place;
not so beside the output of a program that was started (`calls 'kv_*' -- COMMAND`), with which the
trace ends.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import arguments, launching, output, recording, targets
from markerjit.cli.end import End
from markerjit.cli.followed import ROWS, Table, check_end, failure_of, follow
from markerjit.facts.calls import (
    HEADER,
    SORTS,
    TREE_HEADER,
    calls_facts,
    function_rows,
    needing_lines,
    neighbour_tables,
    remarks,
    summary_words,
    symbol_named,
    tree_rows,
)
from markerjit.facts.words import wrapped
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit import CalledFunction, CallGraph, CallTrace


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_pid(parser)
    arguments.add_pattern(
        parser,
        default="*",
        line="functions, by shell globs over their names, such as 'kv_*' 'Json::*' '!kv_hash' "
        "(default: all of the program itself; with --in: of that file)",
    )
    arguments.add_duration(parser)
    parser.add_argument(
        "-n",
        "--calls",
        metavar="N",
        type=arguments.positive,
        help="end after N calls",
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=arguments.file_name,
        help="also write a file: .speedscope.json, .folded, .html or .svg (a flame graph), or "
        ".pftrace (all calls one by one, for Perfetto)",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument(
        "--sort",
        choices=sorted(SORTS),
        help="the order of the table (own)",
    )
    parser.add_argument(
        "--top",
        metavar="N",
        type=arguments.positive,
        help=f"show N functions ({ROWS})",
    )
    parser.add_argument(
        "--min", metavar="S", type=arguments.seconds, dest="least",
        help="show only what took at least this long in all, such as 5ms",
    )  # fmt: skip
    parser.add_argument("--tree", action="store_true", help="also print the tree of calls")
    parser.add_argument(
        "--graph",
        metavar="FUNC",
        help="also print the callers and callees of a function",
    )
    parser.add_argument(
        "--depth",
        metavar="N",
        type=arguments.positive,
        help="look no deeper than N calls",
    )
    parser.add_argument("--tid", metavar="N,…", type=_numbers, help="only calls of these threads")
    parser.add_argument(
        "--from",
        metavar="FUNC",
        dest="below",
        help="only what happens below this function",
    )
    parser.add_argument(
        "--lossless", action="store_true",
        help="lose no event. MAKES THE PROCESS WAIT where it is faster than this command",
    )  # fmt: skip
    recording.add_ring_size(parser)
    recording.add_growth(parser)
    arguments.add_breakpoints(parser)
    arguments.add_quiesce(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Follow the calls until the end, and print them."""
    _check_json(options)
    has_slices = bool(options.output) and markerjit.check_calls_file(
        options.output, force=options.force
    )
    follow_calls = partial(_follow, options, end := End(), has_slices=has_slices)
    if options.program:
        return launching.run_program(options, end, follow_calls)
    return follow_calls(targets.Chosen([options.pid], by_pid=True))


def _follow(
    options: argparse.Namespace,
    end: End,
    processes: targets.Chosen,
    program: markerjit.Launched | None = None,
    *,
    has_slices: bool,
) -> int:
    (pid,) = processes.pids
    view = _View(options)
    trace: CallTrace | None = None
    failure: markerjit.MarkerError | None = None
    with markerjit.attach(pid, ring_size=options.ring_size, seccomp=options.seccomp) as session:
        try:
            with _traced(session, options, end, has_slices=has_slices) as following:
                around = _around(following, options.graph)
                trace = following
                end.arm((trace,), options.duration)
                view.clear_progress()
                for line in needing_lines(trace.not_opened):
                    output.say(f"markerjit: left out: {line}", error=True)
                launching.let_go(program)
                follow(trace, end, view.meanwhile(trace))
        except markerjit.MarkerError as error:
            if trace is None:
                raise
            failure = error  # behind what was seen before
        finally:
            end.disarm()
            view.clear_progress()
    graph = trace.graph()
    if options.output and not has_slices:
        failure = failure_of(lambda: _write(graph, options)) or failure
    view.show_whole(graph, around)
    check_end(trace, end, pid, program, failure)
    return 0


def _check_json(options: argparse.Namespace) -> None:
    """Refuse what chooses a part of the text where the document has all."""
    parts = {
        "--sort": options.sort, "--top": options.top, "--min": options.least is not None,
        "--tree": options.tree, "--graph": options.graph,
    }  # fmt: skip
    given = [name for name, is_given in parts.items() if is_given]
    if options.json and given:
        raise markerjit.Refused(
            f"--json has all functions, their callers and callees, and the tree; leave out "
            f"{', '.join(given)}"
        )


def _traced(
    session: markerjit.Session, options: argparse.Namespace, end: End, *, has_slices: bool
) -> AbstractContextManager[CallTrace]:
    growth = {} if options.ring_growth is None else {"ring_growth": options.ring_growth}
    if options.lossless:
        output.say("lossless: where a ring is full, the process waits for us", error=True)
    return session.trace_calls(
        options.pattern,
        limit=options.calls,
        depth=options.depth,
        tids=options.tid,
        below=options.below,
        breakpoints=options.breakpoints,
        lossless=options.lossless,
        quiesce=options.quiesce,
        slices=options.output if has_slices else None,
        force=options.force,
        progress=_progress(end),
        **growth,
    )


def _progress(end: End) -> Callable[[str, float], None]:
    """A line on standard error, which only a terminal gets. Where the end has come before anything
    is on, it ends the command."""
    is_shown = sys.stderr.isatty()

    def show(what: str, done: float) -> None:
        if end.has_come:
            raise KeyboardInterrupt
        if is_shown:
            output.print_progress(f"{what}: {done:4.0%}" if done else what)

    return show


def _write(graph: CallGraph, options: argparse.Namespace) -> None:
    markerjit.write_calls(graph, options.output, force=options.force)


class _View:
    """The table: in place on a terminal while calls come, and whole at the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._table = Table(options)

    @staticmethod
    def clear_progress() -> None:
        """Remove the line of progress."""
        if sys.stderr.isatty():
            output.print_progress("")

    def meanwhile(self, trace: CallTrace) -> Callable[[], None] | None:
        """What draws the table of a trace anew; None where that is not wanted."""
        return (lambda: self._show(trace.graph())) if self._table.is_live else None

    def _show(self, graph: CallGraph) -> None:
        shown = _rows(graph, self._options)[: self._table.room(self._options.top)]
        with self._table.drawn():
            _print_functions(shown)
            lost = f", {counted(graph.lost, 'event')} lost" if graph.lost else ""
            calls = counted(graph.calls, "call")
            output.say(f"{calls} in {graph.seconds:.0f} s{lost}; Ctrl-C ends it")

    def show_whole(self, graph: CallGraph, around: str | None) -> None:
        """Print all that was asked for, and what has to be known of it; `around`: the function
        whose callers and callees are meant."""
        if self._options.json:
            output.print_json(calls_facts(graph))
            return
        with self._table.whole():
            self._print_whole(graph, around)

    def _print_whole(self, graph: CallGraph, around: str | None) -> None:
        options = self._options
        rows = _rows(graph, options)
        top = options.top or ROWS
        _print_functions(rows[:top])
        if len(rows) > top:
            more = counted(len(rows) - top, "more function")
            output.say(f"and {more}; --top N shows more")
        if options.tree:
            output.say("")
            _print_tree(graph, options)
        if around:
            output.say("")
            _print_around(graph, around)
        output.say(summary_words(graph))
        for remark in remarks(graph, lossless=options.lossless):
            for line in wrapped(remark, indent=0):
                output.say(line)


def _rows(graph: CallGraph, options: argparse.Namespace) -> list[CalledFunction]:
    least_ns = (options.least or 0) * 1e9
    functions = [each for each in graph.functions if each.calls or each.total_ns]
    return sorted(
        (each for each in functions if each.total_ns >= least_ns),
        key=SORTS[options.sort or "own"],
    )


def _print_functions(functions: list[CalledFunction]) -> None:
    if functions:
        output.print_table(HEADER, function_rows(functions), may_be_cut=[len(HEADER) - 1])


def _print_tree(graph: CallGraph, options: argparse.Namespace) -> None:
    rows = tree_rows(graph, int((options.least or 0) * 1e9))
    output.print_table(TREE_HEADER, rows, may_be_cut=[len(TREE_HEADER) - 1])


def _around(trace: CallTrace, text: str | None) -> str | None:
    """The function that --graph means. Raises Refused where it is not followed."""
    if text is None:
        return None
    symbol = symbol_named(trace.opened, text)
    if symbol is None:
        raise markerjit.Refused(f"--graph {text}: no function of this name is followed")
    return symbol


def _print_around(graph: CallGraph, symbol: str) -> None:
    """The callers and the callees of a function."""
    for header, rows in neighbour_tables(graph, symbol):
        output.print_table(header, rows, may_be_cut=[2])


def _numbers(text: str) -> list[int]:
    numbers = text.split(",")
    if not all(number.isascii() and number.isdigit() for number in numbers):
        raise argparse.ArgumentTypeError(f"'{text}' is not a list of threads, such as 815,816")
    return [int(number) for number in numbers]
