"""`markerjit quantiles TARGET PATTERN EXPR`: the median and its kin of a value, by key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from markerjit.cli import adding
from markerjit.facts.aggregates import QUANTILES, number_words

if TYPE_CHECKING:
    from markerjit import AggregateRow, Answers


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    adding.add_arguments(parser, value="the value, such as size or 'us / 1000'")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Add up until the end."""
    return adding.run(options, f"quantiles({options.value})", _show)


def _show(answers: Answers, options: argparse.Namespace) -> None:
    def cells(row: AggregateRow) -> list[str]:
        sketch = row.answer
        values = [sketch.quantile(fraction) for fraction in QUANTILES]  # type: ignore[union-attr]
        return [f"{row.events:,}", *map(number_words, values)]

    header = ["COUNT", *(f"{100 * fraction:g} %" for fraction in QUANTILES)]
    adding.print_table(answers, options, header, cells)
