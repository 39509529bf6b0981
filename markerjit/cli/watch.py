"""`markerjit watch PID [PATTERN]`: a live view of markers in the terminal, or in a browser."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec

from markerjit.cli import arguments, browser, costs, output, signals
from markerjit.errors import Refused
from markerjit.printable.packages import how_to_get


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    arguments.add_pid(parser)
    arguments.add_pattern(parser, default="*")
    costs.add_bench(parser)
    arguments.add_seccomp(parser)
    arguments.add_breakpoints(parser)
    arguments.add_web(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the view until it ends, then switch off what it has switched on."""
    return _run_in_browser(options) if options.web else _run_in_terminal(options)


def _run_in_browser(options: argparse.Namespace) -> int:
    browser.check()
    known = costs.costs_of(options.bench) if options.bench else {}
    samples = costs.samples_of(options.bench) if options.bench else {}
    from markerjit.watch.operator import Operator
    from markerjit.web.watching import Watching

    with signals.Held() as held, ThreadPoolExecutor(1) as thread:
        operator = thread.submit(
            Operator, options.pid, options.pattern, **arguments.vouched(options)
        ).result()
        view = Watching(operator, thread, known, samples)
        try:
            browser.serve(view, options.port, lambda: held.code)
        finally:
            left = thread.submit(operator.end).result()
    _report(left, view.ended)
    return held.code


def _run_in_terminal(options: argparse.Namespace) -> int:
    _check_terminal(options.pid)
    known = costs.costs_of(options.bench) if options.bench else None
    from markerjit.watch.operator import Operator

    # A session is for one thread, so the one that looks also attaches and ends.
    with ThreadPoolExecutor(1) as thread:
        operator = thread.submit(
            Operator, options.pid, options.pattern, **arguments.vouched(options)
        ).result()
        try:
            from markerjit.watch.terminal import Watch

            view = Watch(operator, thread, known, take_signals=True)
            view.run(mouse=False)
        finally:
            with signals.Held():
                left = thread.submit(operator.end).result()
    _report(left, view.ended)
    return 128 + view.signal if view.signal else view.return_code or 0


def _report(left: Sequence[str], ended: str) -> None:
    for sentence in (*left, *filter(None, [ended])):
        output.say(f"markerjit: {sentence}", error=True)


def _check_terminal(pid: int) -> None:
    """Raise Refused where no view can be shown, with what can be used instead."""
    instead = f"markerjit status {pid} prints the markers once"
    if find_spec("textual") is None:
        raise Refused(
            f"watch needs the package textual: {how_to_get('textual', 'watch')}; {instead}"
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise Refused(f"watch needs a terminal, but standard input or output is not one; {instead}")
    if os.environ.get("TERM", "dumb") in ("dumb", ""):
        raise Refused(
            f"this terminal cannot place text (TERM={os.environ.get('TERM', '')}); {instead}"
        )
