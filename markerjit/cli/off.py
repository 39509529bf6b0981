"""`markerjit off TARGET PATTERN`: switch markers off, whoever switched them on."""

from __future__ import annotations

import argparse

from markerjit.cli import arguments, targets
from markerjit.cli.on import switch_each
from markerjit.uncollected import uncollected


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    arguments.add_pattern(parser, may_be_left_out=True)
    arguments.add_quiesce(parser)
    arguments.add_force(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


@uncollected()
def run(options: argparse.Namespace) -> int:
    """Switch off, and say what that took."""
    return switch_each(
        options,
        lambda session: session.disable(
            options.pattern or None, quiesce=options.quiesce, force=options.force
        ),
    )
