"""`markerjit stat TARGET PATTERN EXPR`: sum, least, mean and largest of a value, by key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from markerjit.cli import adding
from markerjit.facts.aggregates import number_words

if TYPE_CHECKING:
    from markerjit import AggregateRow, Answers


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    adding.add_arguments(parser, value="the value, such as size or 'us / 1000'")
    adding.add_output(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Add up until the end."""
    return adding.run(options, f"stat({options.value})", _show)


def _show(answers: Answers, options: argparse.Namespace) -> None:
    """An interval has no least and no largest value: those are kept of all."""
    names = ("sum", "avg") if options.every else ("sum", "min", "avg", "max")

    def cells(row: AggregateRow) -> list[str]:
        return [f"{row.events:,}", *(number_words(getattr(row.answer, name)) for name in names)]

    adding.print_table(answers, options, ["COUNT", *(name.upper() for name in names)], cells)
