"""`markerjit dump PID -o FILE`: save the events of a flight recorder, which goes on."""

from __future__ import annotations

import argparse

import markerjit
from markerjit.cli import arguments, recording, signals


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    arguments.add_pid(parser)
    recording.add_output(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Take a picture of the rings, and save it."""
    if not options.output:
        raise markerjit.Refused(
            "no file is named; name it with -o FILE, whose suffix says the format"
        )
    markerjit.check_output(options.output, force=options.force)
    with signals.Raised(), markerjit.attach(options.pid) as session:
        picture = recording.write_picture(session, session.flight(), options)
    recording.print_picture(picture, options)
    return 0
