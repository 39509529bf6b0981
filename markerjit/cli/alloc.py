"""`markerjit alloc PID`: what a program allocates and does not free, by call site or path.

The allocator's functions are on until the end: a signal, the time, or so many allocations. Then all
is off, and the whole is printed. On a terminal a table is drawn anew meanwhile, in place; not so
beside the output of a program that was started (`alloc -- COMMAND`), with which the trace ends.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import arguments, launching, output, targets
from markerjit.cli.end import End
from markerjit.cli.followed import ROWS, Table, check_end, failure_of, follow
from markerjit.facts.allocations import (
    HEADER,
    LEAKS_HEADER,
    SORTS,
    allocations_facts,
    frame_lines,
    leak_rows,
    remarks,
    site_rows,
    summary_words,
)
from markerjit.facts.words import wrapped
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit import Allocations, AllocationSite, AllocationTrace


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_pid(parser)
    arguments.add_duration(parser)
    parser.add_argument(
        "-n", "--allocations", metavar="N", type=arguments.positive,
        help="end after N allocations",
    )  # fmt: skip
    parser.add_argument(
        "--leaks", action="store_true",
        help="print only what was not freed at the end, with the age of the oldest block",
    )  # fmt: skip
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=arguments.file_name,
        help="also write a file: .parquet (a row for each site), or a flame graph, "
        "of whole paths with --by stack: .html, .svg, .speedscope.json, .folded",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite FILE")
    parser.add_argument(
        "--by", metavar="WHAT", default="site",
        help="what a site is: site, the immediate caller (default); stack, the whole call path; "
        "stack(N), its innermost N frames",
    )  # fmt: skip
    parser.add_argument("--sort", choices=sorted(SORTS), help="the order of the table (live)")
    parser.add_argument(
        "--top", metavar="N", type=arguments.positive, help=f"show N sites ({ROWS})"
    )
    parser.add_argument(
        "--alloc", metavar="PATTERN", action="append", default=[], dest="allocs",
        help="what allocates, in place of the program's allocator: a marker with fields ptr and "
        "size, or a function that returns the block. May be given again",
    )  # fmt: skip
    parser.add_argument(
        "--free", metavar="PATTERN", action="append", default=[], dest="frees",
        help="what frees: a marker with a field ptr, or a function. May be given again",
    )  # fmt: skip
    parser.add_argument(
        "--read", action="store_true",
        help="read in the process how many bytes were really given (glibc). Costs microseconds an "
        "allocation where the processor has no memory transactions",
    )  # fmt: skip
    arguments.add_breakpoints(parser)
    arguments.add_quiesce(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Follow allocations until the end, and print them."""
    if bool(options.allocs) != bool(options.frees):
        given, lacking = ("--alloc", "--free") if options.allocs else ("--free", "--alloc")
        raise markerjit.Refused(f"{given} needs {lacking}: name what allocates and what frees")
    if options.output:
        markerjit.check_allocations_file(options.output, force=options.force)
    end = End()
    if options.program:
        return launching.run_program(options, end, partial(_follow, options, end))
    return _follow(options, end, targets.Chosen([options.pid], by_pid=True))


def _follow(
    options: argparse.Namespace,
    end: End,
    processes: targets.Chosen,
    program: markerjit.Launched | None = None,
) -> int:
    (pid,) = processes.pids
    view = _View(options)
    trace: AllocationTrace | None = None
    failure: markerjit.MarkerError | None = None
    with markerjit.attach(pid, **arguments.vouched(options)) as session:
        try:
            with session.trace_allocations(
                allocs=options.allocs, frees=options.frees, by=options.by, read=options.read,
                limit=options.allocations, quiesce=options.quiesce,
            ) as following:  # fmt: skip
                trace = following
                end.arm((trace,), options.duration)
                launching.let_go(program)
                follow(trace, end, view.meanwhile(trace))
        except markerjit.MarkerError as error:
            if trace is None:
                raise
            failure = error  # behind what was seen before
        finally:
            end.disarm()
    allocations = trace.allocations()
    if options.output:
        failure = failure_of(lambda: _write(allocations, options)) or failure
    view.show_whole(allocations)
    check_end(trace, end, pid, program, failure)
    return 0


def _write(allocations: Allocations, options: argparse.Namespace) -> None:
    markerjit.write_allocations(allocations, options.output, force=options.force)


class _View:
    """The table: in place on a terminal while allocations come, and whole at the end."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._table = Table(options)

    def meanwhile(self, trace: AllocationTrace) -> Callable[[], None] | None:
        """What draws the table of a trace anew; None where that is not wanted."""
        return (lambda: self._show(trace.allocations())) if self._table.is_live else None

    def _show(self, allocations: Allocations) -> None:
        shown = self._sorted(allocations)[: self._table.room(self._options.top)]
        with self._table.drawn():
            self._print_sites(shown)
            made = counted(allocations.allocations, "allocation")
            output.say(f"{made} in {allocations.seconds:.0f} s; Ctrl-C ends it")

    def show_whole(self, allocations: Allocations) -> None:
        """Print all that was asked for, and what has to be known of it."""
        if self._options.json:
            output.print_json(allocations_facts(allocations, leaks=self._options.leaks))
            return
        with self._table.whole():
            self._print_whole(allocations)

    def _print_whole(self, allocations: Allocations) -> None:
        sites, top = self._sorted(allocations), self._options.top or ROWS
        what = "stack" if allocations.depth else "site"
        (self._print_stacks if allocations.depth else self._print_sites)(sites[:top])
        if len(sites) > top:
            output.say(f"and {counted(len(sites) - top, f'more {what}')}; --top N shows more")
        output.say(summary_words(allocations))
        for remark in remarks(allocations):
            for line in wrapped(remark, indent=0):
                output.say(line)

    def _sorted(self, allocations: Allocations) -> list[AllocationSite]:
        sites = allocations.leaks if self._options.leaks else allocations.sites
        return sorted(sites, key=SORTS[self._options.sort or "live"])

    def _rows(self, sites: Sequence[AllocationSite]) -> tuple[Sequence[str], list[list[str]]]:
        return (
            (LEAKS_HEADER, leak_rows(sites)) if self._options.leaks else (HEADER, site_rows(sites))
        )

    def _print_stacks(self, sites: Sequence[AllocationSite]) -> None:
        """Print the numbers of each site, and the frames of its stack below them."""
        header, rows = self._rows(sites)
        for each, row in zip(sites, rows, strict=True):
            words = zip(header[:-1], map(str.strip, row), strict=False)
            output.say("  ".join(f"{name} {cell}" for name, cell in words), hanging=4)
            for line in frame_lines(each):
                output.say(f"    {line}", hanging=8)

    def _print_sites(self, sites: Sequence[AllocationSite]) -> None:
        header, rows = self._rows(sites)
        if sites:
            output.print_table(header, rows, may_be_cut=[len(header) - 1])
