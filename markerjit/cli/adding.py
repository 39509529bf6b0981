"""What `count`, `stat`, `hist` and `quantiles` share: their arguments, and the loop that reads an
aggregate until its end and shows it.

On a terminal the table is drawn anew, in place. In a pipe, and beside the output of a program that
was started (`PATTERN -- COMMAND`), it is printed once, at the end, or after each interval. The
markers are off before the last table is printed.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from functools import partial, reduce
from typing import TYPE_CHECKING, Protocol, TypeVar

import markerjit
from markerjit.cli import arguments, gather, launching, output, progress, recording, targets
from markerjit.cli.end import End
from markerjit.facts.aggregates import (
    answers_facts,
    has_stack,
    histogram_lines,
    key_header,
    key_lines,
    key_words,
    missed_words,
    summary_words,
)
from markerjit.facts.words import unmatched_words
from markerjit.printable import counted
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit import AddingUp, AggregateRow, Answers, Latencies
    from markerjit.cli.together import Together

_ABOUT_STACKS = re.compile(r"\bstack\b")
_REDRAW_S = 0.5
_LOOK_S = 0.05
_NONE: Mapping[int, int] = {}
_TOP = 20
_WIDEST = 80
"""Characters of a key that stands before what is said of it."""
TOP_OF_PICTURES = 5
ALL = 0
"""In place of a pid: several processes together."""

S = TypeVar("S", "Answers", "Latencies")
Show = Callable[["Answers", argparse.Namespace], None]
"""Prints the rows of an aggregate."""


def add_arguments(parser: argparse.ArgumentParser, *, value: str = "", top: int = _TOP) -> None:
    """The arguments; `value` is the help of EXPR, where there is one, and `top` the number of keys
    that are shown without --top."""
    targets.add_targets(parser)
    if value:
        parser.add_argument(
            "pattern",
            metavar="PATTERN",
            help="markers, USDT probes or functions; several with commas: 'kv_hit,kv_store'",
        )
        parser.add_argument("value", metavar="EXPR", help=value)
    else:
        arguments.add_pattern(parser)
    parser.add_argument(
        "--by",
        metavar="EXPR,…",
        help="the key: fields, tid, name, parts of texts, and expressions of them, such as "
        "'name, key[:4]'",
    )
    recording.add_where(parser)
    parser.add_argument(
        "--top", metavar="N", type=arguments.positive,
        help=f"with --by, show the N most frequent keys ({top})",
    )  # fmt: skip
    parser.set_defaults(most=top)
    add_every(parser)
    add_each(parser)
    arguments.add_duration(parser)
    parser.add_argument("--keys", metavar="N", type=arguments.positive, help="have room for N keys")
    add_text(parser, "of a text in a key that is not cut")
    arguments.add_mode(parser)
    arguments.add_breakpoints(parser)
    arguments.add_quiesce(parser)
    recording.add_strings(parser)
    gather.add_coming(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)


def add_output(parser: argparse.ArgumentParser, when: str = "with --by stack,") -> None:
    """-o, of stacks; `when` there are some."""
    parser.add_argument(
        "-o", "--output", metavar="FILE", type=arguments.file_name,
        help=f"{when} also write the stacks: .html or .svg (a flame graph), "
        ".speedscope.json or .folded",
    )  # fmt: skip
    parser.add_argument("--force", action="store_true", help="overwrite FILE")


def check_output(options: argparse.Namespace, key: str | None, option: str = "--by stack") -> None:
    """Before anything is switched on: raise Refused where the file cannot be written, or the key
    has no stack, which this option gives it."""
    markerjit.check_calls_file(options.output, force=options.force, slices=False)
    if not _ABOUT_STACKS.search(key or ""):
        raise markerjit.Refused(f"-o writes stacks; add {option}")


def write_stacks(answers: Iterable[S], title: str, options: argparse.Namespace) -> None:
    """Write the stacks of all processes as one picture."""
    joined = reduce(lambda left, right: left.plus(right), answers)
    if has_stack(row.key for row in joined.rows):
        markerjit.write_calls(joined.stacks(title), options.output, force=options.force)
    else:
        output.say(f"no event had a stack: {options.output} is not written", error=True)


def add_every(parser: argparse.ArgumentParser) -> None:
    """--every."""
    parser.add_argument(
        "--every",
        metavar="S",
        type=arguments.seconds,
        help="show what came since the last time, again and again, such as every 5s",
    )


def add_each(parser: argparse.ArgumentParser) -> None:
    """--each."""
    parser.add_argument(
        "--each", action="store_true",
        help="of several processes: an answer for each, in place of one for all of them",
    )  # fmt: skip


def add_text(parser: argparse.ArgumentParser, which: str) -> None:
    """--text, the most bytes of such a text."""
    parser.add_argument(
        "--text", metavar="BYTES", type=arguments.positive, default=64,
        help=f"the most bytes {which} (64)",
    )  # fmt: skip


def run(options: argparse.Namespace, what: str, show: Show) -> int:
    """Add up until the end, and show it."""
    if options.top and not options.by:
        raise markerjit.Refused(f"--top {options.top} is of keys; add some, such as --by name")
    options.most = options.top or options.most
    job = _Job(options, what, show, End())
    if getattr(options, "output", None):
        check_output(options, options.by)
    if gather.are_coming(options):
        gather.check_coming(options)
        if options.each:
            raise markerjit.Refused(
                "--each is for processes that are there; those that come by --follow or --new are "
                "added up together"
            )
    if options.program:
        return launching.run_program(options, job.end, partial(_add_up, job))
    if options.new:
        return _add_up(job, targets.Chosen([], by_pid=False))
    return _add_up(job, targets.chosen(options))


class _Job(NamedTuple):
    options: argparse.Namespace
    what: str
    show: Show
    end: End


def _add_up(job: _Job, processes: targets.Chosen, program: markerjit.Launched | None = None) -> int:
    options, what, show, end = job
    view = _View(options, processes, show, what)
    request = partial(_request, options, what)
    if not gather.are_coming(options):
        return read_until(end, processes, request, view, options, options.pattern, program)
    from markerjit.cli import together

    added, failed = together.add_up(options, end, request, processes.pids, view, program)
    view.show_all(added)
    return failed


def _request(
    options: argparse.Namespace, what: str, session: markerjit.Session
) -> AbstractContextManager[AddingUp]:
    return session.aggregate(
        options.pattern,
        what,
        by=options.by,
        where=options.where,
        keys=options.keys,
        text=options.text,
        mode=options.mode,
        quiesce=options.quiesce,
        strings=options.strings or "fast",
    )


class Reading(Protocol):
    """What is read until its process ends."""

    @property
    def unswitched(self) -> tuple[markerjit.LeftOut, ...]:
        """Markers that matched and are left as they were."""

    @property
    def target_ended(self) -> bool:
        """Whether the process has ended."""

    @property
    def taken(self) -> tuple[str, ...]:
        """Markers that another controller has taken."""

    @property
    def gone(self) -> tuple[str, ...]:
        """Markers that were unloaded, or switched off by others."""


J = TypeVar("J", bound="Joinable")
R = TypeVar("R", bound=Reading)
In = TypeVar("In", bound=Reading, contravariant=True)


class Shown(Protocol[In]):
    """What shows readings again and again."""

    period: float

    def show_meanwhile(self, adding: Mapping[int, In]) -> None:
        """Show them while they go on."""

    def show_last(self, adding: Mapping[int, In]) -> None:
        """Show them when their markers are off."""


def read_until(
    end: End,
    processes: targets.Chosen,
    request: Callable[[markerjit.Session], AbstractContextManager[R]],
    view: Shown[R],
    options: argparse.Namespace,
    pattern: str,
    program: markerjit.Launched | None,
) -> int:
    """Begin a request in each process, show what it brings until the end, and what it brought when
    the markers are off. Returns the exit code. `pattern` says what is switched on."""
    readings: dict[int, R] = {}
    with ExitStack() as stack:
        stack.callback(end.disarm)
        fleet = stack.enter_context(markerjit.Fleet(processes.pids, **arguments.vouched(options)))

        def begin(session: markerjit.Session) -> None:
            readings[session.pid] = stack.enter_context(request(session))

        with progress.timed(f"switching on {pattern}"):
            fleet.each(begin)
        output.print_remarks_of(fleet.sessions.values(), pattern)
        end.arm((), options.duration)
        launching.let_go(program)
        targets.print_failed(fleet.failed)
        targets.print_workers(processes, fleet.sessions.values())
        output.print_left_out(left for each in readings.values() for left in each.unswitched)
        _wait(view, readings, end)
    view.show_last(readings)
    _print_ended(readings)
    ended = [pid for pid, each in readings.items() if each.target_ended]
    if processes.by_pid and ended and not end.has_come and not program:
        raise markerjit.TargetGone(ended[0])
    return bool(fleet.failed)


def _wait(view: Shown[R], adding: Mapping[int, R], end: End) -> None:
    """Until the end, and show what there is meanwhile."""
    next_at = time.monotonic() + view.period
    while not end.has_come and not all(each.target_ended for each in adding.values()):
        left = next_at - time.monotonic()
        if left > 0:
            time.sleep(min(left, _LOOK_S))
            continue
        next_at = max(next_at + view.period, time.monotonic())
        view.show_meanwhile(adding)


class Joinable(Protocol):
    """What can be added up over processes."""

    def plus(self: J, other: J) -> J:
        """These and those of another process. Raises BadArgument where they do not go together."""


def joined(
    answers: Mapping[int, J], processes: targets.Chosen, options: argparse.Namespace
) -> Mapping[int, J]:
    """The answers as they are shown: those of several processes as one, by `ALL`, unless each is
    asked for. Those of two builds, whose fields have other types, are shown by process."""
    if processes.is_single or options.each or len(answers) < 2:
        return answers
    try:
        return {ALL: reduce(lambda left, right: left.plus(right), answers.values())}
    except markerjit.BadArgument:
        return answers


class _View:
    """Shows the answers: in place on a terminal, or one behind the other."""

    def __init__(
        self, options: argparse.Namespace, processes: targets.Chosen, show: Show, what: str
    ) -> None:
        self._options = options
        self._processes = processes
        self._show = show
        self._what = what
        # What a program that was started prints comes in between.
        is_ours = not options.program
        self._in_place = sys.stdout.isatty() and not options.json and is_ours
        self.picture = output.Picture()
        self._first = True
        self.period = options.every or _REDRAW_S

    def show_meanwhile(self, adding: Mapping[int, AddingUp]) -> None:
        """A table while it goes on: of an interval, or on a terminal of all so far."""
        if self._options.every:
            self._print({pid: each.take() for pid, each in adding.items()})
        elif self._in_place:
            self._print({pid: each.read() for pid, each in adding.items()})

    def show_all_meanwhile(self, together: Together) -> None:
        """The same, of programs that come and go, as one table."""
        if self._options.every:
            self._print({ALL: together.take()})
        elif self._in_place:
            self._print({ALL: together.read()})

    def show_all(self, together: Together) -> None:
        """The last one, of programs that came and went."""
        last = together.take() if self._options.every else together.read()
        self._print({ALL: last}, is_last=True)

    def show_last(self, adding: Mapping[int, AddingUp]) -> None:
        """The last one: what came since the last interval, or all."""
        take = bool(self._options.every)
        answers = {pid: each.take() if take else each.read() for pid, each in adding.items()}
        counts = {pid: each.unmatched for pid, each in adding.items()}
        self._print(answers, counts, is_last=True)

    def _print(
        self,
        answers: Mapping[int, Answers],
        unmatched: Mapping[int, int] = _NONE,
        *,
        is_last: bool = False,
    ) -> None:
        options = self._options
        if is_last and getattr(options, "output", None):
            write_stacks(answers.values(), f"{self._what} of {options.pattern}", options)
        if options.json:
            documents = [
                {"pid": pid or None, "what": self._what, "by": options.by, **answers_facts(each)}
                for pid, each in answers.items()
            ]
            for document in documents:
                if number := unmatched.get(document["pid"]):
                    document["unmatched"] = number
                output.print_json(document)
            sys.stdout.flush()
            return
        if not self._first and not self._in_place:
            output.say("")
        self._first = False
        with self.picture.drawn(whole=is_last) if self._in_place else nullcontext():
            for pid, each in joined(answers, self._processes, options).items():
                if not self._processes.is_single and ALL not in answers:
                    output.say(process_words(pid, len(answers)))
                self._show(each, options)
                for line in missed_words(each, options.text):
                    output.say(line)
                if number := unmatched.get(pid) if pid else sum(unmatched.values()):
                    output.say(unmatched_words(number))
        sys.stdout.flush()


def process_words(pid: int, count: int) -> str:
    """What stands above the answer of a process, or of so many together."""
    return f"process {pid}:" if pid else f"{counted(count, 'process')} together:"


def _print_ended(adding: Mapping[int, Reading]) -> None:
    """Say which markers were taken meanwhile, or went."""
    for pid, each in adding.items():
        for name in each.gone:
            output.say(
                f"markerjit: {name} of process {pid} was unloaded, or switched off by others, and "
                "what came later is not here",
                error=True,
            )
        for name in each.taken:
            output.say(
                f"markerjit: another controller took {name} of process {pid}: its events end here",
                error=True,
            )


# ---- tables --------------------------------------------------------------------------------------


def print_table(
    answers: Answers,
    options: argparse.Namespace,
    header: Sequence[str],
    cells: Callable[[AggregateRow], Sequence[str]],
) -> None:
    """Print the most frequent keys with these columns behind them, and how much there is in all."""
    rows = answers.rows[: options.most]
    keys, names = [row.key for row in rows], key_header(options.by)
    words = [key_words(row.key, row.names) for row in rows]
    if has_stack(keys):
        lines = [[*cells(row), *more] for row, more in zip(rows, words, strict=True)]
        print_blocks([*header, *names], lines, keys)
    elif rows:
        print_keys(names, words, header, [cells(row) for row in rows])
    output.say(summary_words(answers, len(rows)) if options.by else events_words(answers))


def print_keys(
    names: Sequence[str],
    keys: Sequence[Sequence[str]],
    header: Sequence[str],
    cells: Sequence[Sequence[str]],
) -> None:
    """Print keys, with these columns behind them; before them, where a key is wider than a line, as
    the names of templates of C++ are: the columns would be far away from the other keys."""
    rows = zip(keys, cells, strict=True)
    if max((len(word) for key in keys for word in key), default=0) > _WIDEST:
        output.print_table([*header, *names], [[*more, *key] for key, more in rows])
    else:
        output.print_table([*names, *header], [[*key, *more] for key, more in rows])


def print_blocks(
    header: Sequence[str], rows: Sequence[Sequence[str]], keys: Iterable[Sequence[object]]
) -> None:
    """Print rows whose keys have stacks: each as a line of names and cells, and the frames below
    it."""
    for row, key in zip(rows, keys, strict=True):
        output.say("  ".join(f"{name} {cell}" for name, cell in zip(header, row, strict=True)))
        for line in key_lines(key):
            output.say(f"    {line}", hanging=8)


def print_pictures(answers: Answers, options: argparse.Namespace) -> None:
    """Print the histograms of the most frequent keys."""
    rows = answers.rows[: options.most]
    for row in rows:
        if options.by:
            output.say(f"{', '.join(key_words(row.key, row.names))}: {row.events:,}")
            for line in key_lines(row.key):
                output.say(f"    {line}", hanging=8)
        for line in histogram_lines(row.answer):  # type: ignore[arg-type]
            output.say(line)
    output.say(summary_words(answers, len(rows)) if options.by else events_words(answers))


def events_words(answers: Answers) -> str:
    """`1,200 events`."""
    return counted(answers.events, "event")
