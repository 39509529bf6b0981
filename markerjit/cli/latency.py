"""`markerjit latency TARGET FROM TO`: the time from one marker to the next with the same key.

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
from markerjit.facts.latencies import latencies_facts, latencies_lines, slow_facts, slow_line
from markerjit.facts.words import unmatched_words
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit import Latencies, Latency

_REDRAW_S = 0.5
_LOOK_S = 0.1
_NONE: Mapping[int, int] = {}


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    parser.add_argument("begin", metavar="FROM", help="the markers where a time begins")
    parser.add_argument("end", metavar="TO", help="the markers where it ends")
    parser.add_argument(
        "--by",
        metavar="EXPR,…",
        default="tid",
        help="the key that begin and end have in common (tid): fields, parts of texts, and "
        "expressions of them, such as 'client, key[:4]'",
    )
    parser.add_argument(
        "--end-by", metavar="EXPR,…", help="the same at the end, where its names are others"
    )
    parser.add_argument(
        "--where", metavar="EXPR", help="only begins that meet a condition, such as 'size > 100'"
    )
    parser.add_argument(
        "--slower",
        metavar="S",
        type=arguments.seconds,
        help="print the pairs that take as long, with the fields of both ends: 50ms",
    )
    adding.add_every(parser)
    arguments.add_duration(parser)
    parser.add_argument(
        "--room", metavar="N", type=arguments.positive, help="so many begins may wait (2048)"
    )
    parser.add_argument(
        "--forget",
        metavar="S",
        type=arguments.seconds,
        default=10.0,
        help="a begin that has waited for so long gives its place to a new one, where all places "
        "are taken (10s)",
    )
    adding.add_text(parser, "of a text in a key, or of a field that is shown")
    arguments.add_mode(parser)
    arguments.add_quiesce(parser)
    recording.add_strings(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


class _Job(NamedTuple):
    options: argparse.Namespace
    end: End


def run(options: argparse.Namespace) -> int:
    """Measure until the end, and show it."""
    job = _Job(options, End())
    if options.program:
        return launching.run_program(options, job.end, partial(_measure, job))
    return _measure(job, targets.chosen(options))


def _measure(
    job: _Job, processes: targets.Chosen, program: markerjit.Launched | None = None
) -> int:
    options, end = job
    names, view = f"{options.begin} and {options.end}", _View(options, processes)
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
        where=options.where,
        slower=options.slower,
        room=options.room,
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
        self._print(latencies, unseen, is_last=True)
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
        if self._shown and not options.json and not self._in_place:
            output.say("")
        self._shown = True
        with self._picture.drawn(whole=is_last) if self._in_place else nullcontext():
            for pid, each in latencies.items():
                if options.json:
                    request = {"from": options.begin, "to": options.end, "by": options.by}
                    document = latencies_facts(each, unseen.get(pid, 0))
                    output.print_json({"pid": pid, **request, **document})
                    continue
                if not self._processes.is_single:
                    output.say(f"process {pid}:")
                for line in latencies_lines(each):
                    output.say(line)
                if number := unseen.get(pid):
                    output.say(unmatched_words(number))
        sys.stdout.flush()
