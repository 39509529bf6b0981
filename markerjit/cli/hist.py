"""`markerjit hist TARGET PATTERN EXPR`: a histogram of a value by powers of two, for each key."""

from __future__ import annotations

import argparse

from markerjit.cli import adding


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    adding.add_arguments(
        parser, value="the value, such as size or 'us / 1000'", top=adding.TOP_OF_PICTURES
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Add up until the end."""
    return adding.run(options, f"hist({options.value})", adding.print_pictures)
