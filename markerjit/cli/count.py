"""`markerjit count TARGET PATTERN --by KEY`: how often markers are executed, by key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from markerjit.cli import adding, output

if TYPE_CHECKING:
    from markerjit import Answers


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    adding.add_arguments(parser)
    adding.add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Count until the end."""
    return adding.run(options, "count()", _show)


def _show(answers: Answers, options: argparse.Namespace) -> None:
    if not options.by:
        output.say(adding.events_words(answers))
        return
    every = answers.events or 1
    adding.print_table(
        answers,
        options,
        ["COUNT", "%"],
        lambda row: [f"{row.events:,}", f"{100 * row.events / every:.1f}"],
    )
