"""`markerjit list PID|FILE [PATTERN]`: the markers, and how they are switched."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

import markerjit
from markerjit.cli import arguments, output
from markerjit.facts import words
from markerjit.facts.markers import list_facts


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    arguments.add_target(parser)
    arguments.add_pattern(parser, default="*")
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the markers of a process or a file."""
    pid = arguments.pid_or_file(options.target)
    if pid is not None:
        with markerjit.View(pid) as view:
            markers = view.statistics(options.pattern)
            problems: Sequence[Exception] = view.problems
            output.offer_repair(view)
    else:
        markers, problems = markerjit.list_file(options.target, options.pattern)
    if options.json:
        output.print_json(list_facts(options.target, pid, markers, problems))
    elif markers:
        _print_text(markers, running=pid is not None)
    else:
        output.say(f"process {pid} has no markers; build it with marker.h, and MARK(…) makes one")
    for problem in problems:
        output.say(f"markerjit: left out: {problem}", error=True)
    return 0


def _print_text(markers: Sequence[markerjit.MarkerStatus], *, running: bool) -> None:
    header = ["MARKER", "KIND", *(["STATE"] if running else []), "SITES", "FIELDS", "SOURCE"]
    rows = [
        [
            marker.name,
            str(marker.kind),
            *([words.state_words(marker)] if running else []),
            str(len(marker.sites)),
            words.field_words(marker.fields),
            words.place_words(marker),
        ]
        for marker in markers
    ]
    output.print_table(header, rows)
    output.print_altered(markers)
