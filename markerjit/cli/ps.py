"""`markerjit ps`: the processes that have markers or USDT probes, and what is on in them."""

from __future__ import annotations

import argparse
import os
import pwd

import markerjit
from markerjit.cli import arguments, output, progress
from markerjit.facts import words
from markerjit.facts.fleet import overview_facts
from markerjit.printable import printable

_NAMED = 3
"""Markers that a line names."""
_CUT = 3
"""Columns that may be cut: the markers, the processes that hold them, and the command line."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "--all", action="store_true", help="of all users, as far as permitted (root: the default)"
    )
    parser.add_argument("--usdt", action="store_true", help="also processes with USDT probes")
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print a line for each process."""
    with progress.timed("looking at the processes"):
        view = markerjit.overview(everyone=options.all or not os.geteuid(), usdt=options.usdt)
    if options.json:
        output.print_json(overview_facts(view))
        return 0
    if view.processes:
        usdt = ["USDT"] if options.usdt else []
        head = ["PID", "USER", "MARKERS", *usdt, "ON", "BY", "COMMAND"]
        rows = [_row(process) for process in view.processes]
        last = range(len(head) - _CUT, len(head))
        output.print_table(head, rows, may_be_cut=last)
    else:
        what = "markers or USDT probes" if options.usdt else "markers"
        output.say(f"no process here has {what}")
    if view.failed:
        processes = "process" if len(view.failed) == 1 else "processes"
        output.say(
            f"{len(view.failed)} {processes} could not be looked at, such as "
            f"{view.failed[0].sentence}",
            error=True,
        )
    return 0


def _row(process: markerjit.ProcessOverview) -> list[str]:
    on = [marker for marker in process.markers if marker.mode]
    named = ", ".join(marker.name for marker in on[:_NAMED])
    more = f" and {len(on) - _NAMED} more" if len(on) > _NAMED else ""
    holders = dict.fromkeys(words.holder_words(marker) for marker in on)
    usdt = [] if process.usdt is None else [str(process.usdt)]
    return [
        str(process.pid),
        _user(process.uid),
        str(len(process.markers)),
        *usdt,
        f"{named}{more}" or "-",
        ", ".join(holders) or "-",
        printable(process.command) or "-",
    ]


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
