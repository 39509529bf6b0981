"""`markerjit watch PID [PATTERN]`: a live view of markers in the terminal."""

from __future__ import annotations

import argparse
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path

from markerjit.cli import arguments, output, signals
from markerjit.errors import Refused


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_pid(parser)
    arguments.add_pattern(parser, default="*")
    parser.add_argument(
        "--bench",
        metavar="FILE",
        type=Path,
        help="also show what a hit costs: a result of `markerjit bench active --json FILE`",
    )
    arguments.add_seccomp(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the view until it ends, then switch off what it has switched on."""
    _check_terminal(options.pid)
    costs = costs_of(options.bench) if options.bench else None
    from markerjit.watch.operator import Operator

    # A session is for one thread, so the one that looks also attaches and ends.
    with ThreadPoolExecutor(1) as thread:
        operator = thread.submit(
            Operator, options.pid, options.pattern, seccomp=options.seccomp
        ).result()
        try:
            from markerjit.watch.terminal import Watch

            view = Watch(operator, thread, costs, take_signals=True)
            view.run(mouse=False)
        finally:
            with signals.Held():
                left = thread.submit(operator.end).result()
    for sentence in left:
        output.say(f"markerjit: {sentence}", error=True)
    if view.ended:
        output.say(f"markerjit: {view.ended}", error=True)
    return 128 + view.signal if view.signal else view.return_code or 0


def costs_of(path: Path) -> dict[str, float]:
    """What a hit of an active marker costs, in nanoseconds, with one thread. Raises Refused."""
    from markerjit.apps.bench.sampling import results

    active = [part for part in results.read(path)["parts"] if part["kind"] == "active"]
    if not active:
        raise Refused(f"{path} has no active markers; markerjit bench active --json FILE has")
    return {form["name"]: form["cost"]["value"] for form in active[0]["forms"]}


def _check_terminal(pid: int) -> None:
    """Raise Refused where no view can be shown, with what can be used instead."""
    instead = f"markerjit status {pid} prints the markers once"
    if find_spec("textual") is None:
        raise Refused(f"watch needs the package textual: pip install 'markerjit[watch]'; {instead}")
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused(f"watch needs a terminal, and standard input or output is none; {instead}")
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        raise Refused(
            f"this terminal cannot place text (TERM={os.environ.get('TERM', '')}); {instead}"
        )
