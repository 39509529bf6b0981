"""`markerjit latency TARGET FROM TO`: the time from one marker to the next with the same key, and
`markerjit latency TARGET func:NAME`: how long the calls of functions take.

On a terminal the picture is drawn anew, in place. In a pipe, and with --slower, it is printed once,
at the end, or after each interval; slow pairs are printed as they come. The markers are off before
the last picture is printed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import adding, arguments, launching, output, recording, targets
from markerjit.cli.end import End
from markerjit.facts.aggregates import has_stack, key_header, key_lines, key_words
from markerjit.facts.latencies import (
    ROW_HEADER,
    latencies_facts,
    latencies_lines,
    row_cells,
    row_facts,
    slow_facts,
    slow_line,
    tail_jump_words,
    unmatched_lines,
)
from markerjit.facts.words import unmatched_words
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit import Latencies, Latency

_REDRAW_S = 0.5
_LOOK_S = 0.1
_TOP = 20
_NONE: Mapping[int, int] = {}


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    parser.add_argument(
        "begin",
        metavar="FROM",
        help="the markers at which a time begins; or functions, such as func:malloc",
    )
    parser.add_argument(
        "end",
        metavar="TO",
        nargs="?",
        help="the markers at which it ends. Without TO each call of the functions is timed",
    )
    parser.add_argument(
        "--by",
        metavar="EXPR,…",
        help="the key that begin and end have in common (tid): fields, parts of texts, and "
        "expressions of them, such as 'client, key[:4]'. For calls: what divides their times, such "
        "as 'name, arg0' (name, if there are several functions)",
    )
    parser.add_argument(
        "--end-by", metavar="EXPR,…", help="the key at the end, if its names are different there"
    )
    parser.add_argument(
        "--per",
        metavar="EXPR,…",
        help="divide the times by what is so at the begin, such as stack, caller or 'key[:4]': a "
        "table in place of one histogram. With TO; calls are divided by --by",
    )
    parser.add_argument(
        "--where",
        metavar="EXPR",
        help="only begins, or calls, that meet a condition, such as 'size > 100'",
    )
    parser.add_argument(
        "--slower",
        metavar="S",
        type=arguments.seconds,
        help="print each pair that takes at least this long, such as 50ms, with the fields of both "
        "ends",
    )
    adding.add_every(parser)
    adding.add_each(parser)
    arguments.add_duration(parser)
    parser.add_argument(
        "--top",
        metavar="N",
        type=arguments.positive,
        default=_TOP,
        help=f"of a table: show the N keys that took the most time in all ({_TOP})",
    )
    parser.add_argument(
        "--room",
        metavar="N",
        type=arguments.positive,
        help="room for N begins that wait (2048), or for N keys of calls (64)",
    )
    parser.add_argument(
        "--keys",
        metavar="N",
        type=arguments.positive,
        help="room for N keys of --per (64)",
    )
    parser.add_argument(
        "--forget",
        metavar="S",
        type=arguments.seconds,
        default=10.0,
        help="a begin that has waited this long gives its place to a new one if all places are "
        "taken (10s)",
    )
    adding.add_text(parser, "of a text in a key, or of a field that is shown")
    arguments.add_mode(parser)
    arguments.add_breakpoints(parser)
    arguments.add_quiesce(parser)
    recording.add_strings(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    adding.add_output(parser, "with --per stack, or for calls --by stack,")
    parser.set_defaults(run=run)


class _Job(NamedTuple):
    options: argparse.Namespace
    end: End


def run(options: argparse.Namespace) -> int:
    """Measure until the end, and show it."""
    job = _Job(options, End())
    _check(options)
    if options.program:
        return launching.run_program(options, job.end, partial(_measure, job))
    return _measure(job, targets.chosen(options))


def _check(options: argparse.Namespace) -> None:
    """Before anything is switched on: raise Refused for options that do not go together."""
    if options.end is None and options.per is not None:
        raise markerjit.Refused(
            f"--per divides pairs, and calls of functions are divided by --by: write --by "
            f"'{options.per}'"
        )
    if options.keys is not None and options.per is None:
        raise markerjit.Refused("--keys has room for keys of --per; for calls that is --room")
    if options.output:
        option = "--by stack" if options.end is None else "--per stack"
        adding.check_output(options, options.by if options.end is None else options.per, option)


def _measure(
    job: _Job, processes: targets.Chosen, program: markerjit.Launched | None = None
) -> int:
    options, end = job
    names = options.begin if options.end is None else f"{options.begin},{options.end}"
    view = _View(options, processes)
    return adding.read_until(
        end, processes, partial(_request, options), view, options, names, program
    )


def _request(
    options: argparse.Namespace, session: markerjit.Session
) -> AbstractContextManager[Latency]:
    return session.latency(
        options.begin,
        options.end,
        by=options.by,
        end_by=options.end_by,
        per=options.per,
        where=options.where,
        slower=options.slower,
        room=options.room,
        keys=options.keys,
        forget=options.forget,
        text=options.text,
        mode=options.mode,
        quiesce=options.quiesce,
        strings=options.strings or "fast",
    )


class _View:
    """Shows the times: in place on a terminal, or one behind the other."""

    def __init__(self, options: argparse.Namespace, processes: targets.Chosen) -> None:
        self._options = options
        self._processes = processes
        self._has_slow = options.slower is not None
        # What a program that was started prints comes in between, as slow pairs do.
        is_ours = not options.program and not self._has_slow
        self._in_place = sys.stdout.isatty() and not options.json and is_ours
        self._picture = output.Picture()
        self._tail_jumps: dict[int, tuple[str, ...]] = {}  # known at the end
        self._shown = False
        self._next_at = time.monotonic() + (options.every or 0)
        self.period = _LOOK_S if self._has_slow else options.every or _REDRAW_S

    def show_meanwhile(self, measured: Mapping[int, Latency]) -> None:
        """Slow pairs, and a picture: of an interval, or on a terminal of all so far."""
        self._print_slow(measured)
        every = self._options.every
        if every and self._is_due(every):
            self._print({pid: each.take() for pid, each in measured.items()})
        elif not every and self._in_place:
            self._print({pid: each.read() for pid, each in measured.items()})

    def _is_due(self, every: float) -> bool:
        """Whether an interval is over. Slow pairs are looked for more often, and nothing else."""
        now = time.monotonic()
        if self._has_slow and now < self._next_at:
            return False
        self._next_at = max(self._next_at + every, now)
        return True

    def show_last(self, measured: Mapping[int, Latency]) -> None:
        """The last picture: of what came since the last interval, or of all."""
        self._print_slow(measured)
        take = bool(self._options.every)
        latencies = {pid: each.take() if take else each.read() for pid, each in measured.items()}
        unseen = {pid: each.unmatched for pid, each in measured.items()}
        self._tail_jumps = {pid: each.tail_jumps for pid, each in measured.items()}
        self._print(latencies, unseen, is_last=True)
        names = sorted({name for each in self._tail_jumps.values() for name in each})
        if names and not self._options.json:
            output.say(tail_jump_words(names))
        self._print_bad_pairs(measured)

    def _print_slow(self, measured: Mapping[int, Latency]) -> None:
        for pid, each in measured.items() if self._has_slow else ():
            for pair in each.slow():
                if self._options.json:
                    output.print_json({"pid": pid, "slow": slow_facts(pair)})
                elif self._processes.is_single:
                    output.say(slow_line(pair))
                else:
                    output.say(f"{pid}  {slow_line(pair)}")
                for line in () if self._options.json else key_lines(pair.key):
                    output.say(f"    {line}", hanging=8)
        sys.stdout.flush()

    def _print_bad_pairs(self, measured: Mapping[int, Latency]) -> None:
        for pid, each in measured.items():
            if each.bad_pairs:
                pairs = counted(each.bad_pairs, "slow pair")
                output.say(
                    f"markerjit: {pairs} of process {pid} made no sense: the program has written "
                    "over the runtime's memory",
                    error=True,
                )

    def _print(
        self,
        latencies: Mapping[int, Latencies],
        unseen: Mapping[int, int] = _NONE,
        *,
        is_last: bool = False,
    ) -> None:
        options = self._options
        if is_last and options.output:
            what = options.begin if options.end is None else f"{options.begin} to {options.end}"
            adding.write_stacks(latencies.values(), f"time of {what}", options)
        if self._shown and not options.json and not self._in_place:
            output.say("")
        self._shown = True
        with self._picture.drawn(whole=is_last) if self._in_place else nullcontext():
            if options.json:
                for pid, each in latencies.items():
                    facts = self._facts(each, unseen.get(pid, 0))
                    if names := self._tail_jumps.get(pid):
                        facts["tail_jumps"] = list(names)
                    output.print_json({"pid": pid, **facts})
                latencies = {}
            for pid, each in adding.joined(latencies, self._processes, options).items():
                if not self._processes.is_single:
                    output.say(adding.process_words(pid, len(latencies)))
                self._print_times(each)
                if number := unseen.get(pid) if pid else sum(unseen.values()):
                    output.say(unmatched_words(number))
        sys.stdout.flush()

    def _facts(self, latencies: Latencies, unseen: int) -> dict[str, object]:
        options = self._options
        document = latencies_facts(latencies, unseen)
        if options.end is not None:
            ends = {"from": options.begin, "to": options.end, "by": options.by or "tid"}
            if options.per is None:
                return {**ends, **document}
            rows = row_facts(latencies, "pairs")
            divided = {"per": options.per, "undivided": latencies.undivided}
            return {**ends, **divided, **document, **rows}
        by = options.by or ("name" if _has_keys(latencies) else None)
        return {"calls_of": options.begin, "by": by, **document, **row_facts(latencies, "calls")}

    def _print_times(self, latencies: Latencies) -> None:
        """A histogram, or with keys a table."""
        options = self._options
        if not _has_keys(latencies):
            noun = "pair" if options.end is not None else "call"
            for line in latencies_lines(latencies, noun):
                output.say(line)
            return
        noun = "call" if options.end is None else "pair"
        by = options.by or "name" if options.end is None else options.per
        names, header = key_header(by), [f"{noun}s".upper(), *ROW_HEADER]
        rows = latencies.rows[: options.top]
        words = [key_words(row.key, row.names) for row in rows]
        cells = [row_cells(row) for row in rows]
        if has_stack(row.key for row in rows):
            lines = [[*key, *more] for key, more in zip(words, cells, strict=True)]
            adding.print_blocks([*names, *header], lines, [row.key for row in rows])
        else:
            adding.print_keys(names, words, header, cells)
        left = len(latencies.rows) - len(rows)
        keys = counted(len(latencies.rows), "key")
        rest = f", {left:,} not shown" if left else ""
        output.say(f"{counted(latencies.pairs, noun)} of {keys}{rest}")
        for line in unmatched_lines(latencies):
            output.say(line)


def _has_keys(latencies: Latencies) -> bool:
    """Whether the calls, or pairs, are divided by a key."""
    return any(row.key for row in latencies.rows)
