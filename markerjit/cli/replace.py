"""`markerjit replace TARGET FUNCTION FILE.c:function`: have a function lead to another one; with
`--revert` it is itself again."""

from __future__ import annotations

import argparse

import markerjit
from markerjit.cli import arguments, targets
from markerjit.cli.on import switch_each
from markerjit.uncollected import uncollected


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    targets.add_targets(parser)
    parser.add_argument(
        "pattern", metavar="FUNCTION", help="the function that is replaced, as func:NAME"
    )
    parser.add_argument(
        "new",
        metavar="FILE:FUNCTION",
        nargs="?",
        help="its replacement, a function in a C file: it takes and returns the same, and may call "
        "the old one as markerjit_original(FUNCTION)(…)",
    )
    parser.add_argument(
        "--revert", action="store_true", help="take the replacement back; its code stays"
    )
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


@uncollected()
def run(options: argparse.Namespace) -> int:
    """Replace or revert, and say what that took."""
    if options.revert is (options.new is not None):
        raise markerjit.Refused("give FILE:FUNCTION, or --revert, and not both")

    def change(session: markerjit.Session) -> markerjit.Applied:
        if options.revert:
            return session.revert(options.pattern)
        return session.replace(options.pattern, options.new)

    return switch_each(options, change)
