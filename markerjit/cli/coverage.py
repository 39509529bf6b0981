"""`markerjit coverage PID|FILE`: how much of the code can be opened, how, and why not more."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

import markerjit
from markerjit.cli import arguments, output
from markerjit.facts.coverage import coverage_facts

_CLOSED = "cannot be opened"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    arguments.add_target(parser)
    parser.add_argument(
        "--in",
        dest="mapped",
        metavar="OBJECT",
        default="",
        help="for a process: the objects that this glob matches, by name or path, in place of the "
        "program",
    )
    parser.add_argument(
        "--instructions",
        metavar="N",
        type=_count,
        default=0,
        help="also N instructions, chosen at random but the same each time, or `all` of them",
    )
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the coverage of a file, or of objects of a process."""
    pid = arguments.pid_or_file(options.target)
    objects = _objects(options, pid)
    if options.json:
        output.print_json(coverage_facts(objects))
        return 0
    for index, coverage in enumerate(objects):
        if index:
            output.say("")
        output.say(f"{coverage.path}, build id {coverage.build_id or 'none'}")
        if coverage.problem:
            output.say(f"  not known: {coverage.problem}")
        else:
            _print(coverage.shares)
    return 0


def _objects(options: argparse.Namespace, pid: int | None) -> Sequence[markerjit.Coverage]:
    progress = _progress()
    try:
        if pid is None:
            return [
                markerjit.coverage_of_file(
                    options.target, instructions=options.instructions, progress=progress
                )
            ]
        return markerjit.coverage_of_process(
            pid, options.mapped, instructions=options.instructions, progress=progress
        )
    finally:
        if sys.stderr.isatty():
            output.print_progress("")


def _progress() -> Callable[[str, float], None]:
    """A line on standard error. Only a terminal gets it."""
    shown = sys.stderr.isatty()

    def show(what: str, done: float) -> None:
        if shown:
            output.print_progress(f"{what}: {done:4.0%}")

    return show


def _print(shares: Sequence[markerjit.Share]) -> None:
    ways = dict.fromkeys(way for share in shares for way in share.ways)
    rows = [[way, *(_cell(share.ways.get(way, 0), share) for share in shares)] for way in ways]
    if any(share.closed for share in shares):
        rows.append([_CLOSED, *(_cell(share.closed, share) for share in shares)])
    rows.append(["by a jump", *(_cell(share.by_jump, share) for share in shares)])
    rows.append(["all", *(output.grouped(share.places) for share in shares)])
    output.print_table(["OPENED BY", *(share.what.upper() for share in shares)], rows)
    for share in shares:
        _print_reasons(f"{share.what}, no jump because", share.reasons)
        _print_reasons("functions whose exits are not known, because", share.unknown)


def _print_reasons(title: str, reasons: dict[str, int]) -> None:
    if reasons:
        output.say(f"{title}:")
    for reason, count in sorted(reasons.items(), key=lambda pair: -pair[1]):
        output.say(f"{output.grouped(count):>10}  {reason}", hanging=12)


def _cell(count: int, share: markerjit.Share) -> str:
    return f"{output.grouped(count)} ({count / max(share.places, 1):.1%})" if count else "-"


def _count(text: str) -> int | None:
    if text == "all":
        return None
    try:
        count = int(text)
    except ValueError:
        count = -1
    if count < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor `all`")
    return count
