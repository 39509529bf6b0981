"""`markerjit off PID PATTERN`: switch markers off, whoever switched them on."""

from __future__ import annotations

import argparse

import markerjit
from markerjit.cli import arguments, signals
from markerjit.cli.on import report, still_kept, uncollected


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_pid(parser)
    arguments.add_pattern(parser)
    arguments.add_quiesce(parser)
    arguments.add_force(parser)
    arguments.add_seccomp(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Switch off, and say what that took."""
    with (
        signals.Held() as held,
        uncollected(),
        markerjit.attach(options.pid, seccomp=options.seccomp) as session,
    ):
        applied = session.disable(options.pattern, quiesce=options.quiesce, force=options.force)
        markers = session.statistics(options.pattern, look=False)
        kept = still_kept(session, applied)
    report(options, markers, applied, kept)
    return held.code
