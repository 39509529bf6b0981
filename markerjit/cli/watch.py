"""`markerjit watch PID [PATTERN]`: a live view of markers in the terminal, or in a browser."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from markerjit.cli import arguments, browser, output, signals
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
    arguments.add_web(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the view until it ends, then switch off what it has switched on."""
    return _run_in_browser(options) if options.web else _run_in_terminal(options)


def _run_in_browser(options: argparse.Namespace) -> int:
    browser.check()
    costs = costs_of(options.bench) if options.bench else {}
    samples = samples_of(options.bench) if options.bench else {}
    from markerjit.watch.operator import Operator
    from markerjit.web.watching import Watching

    with signals.Held() as held, ThreadPoolExecutor(1) as thread:
        operator = thread.submit(
            Operator, options.pid, options.pattern, seccomp=options.seccomp
        ).result()
        view = Watching(operator, thread, costs, samples)
        try:
            browser.serve(view, options.port, lambda: held.code)
        finally:
            left = thread.submit(operator.end).result()
    _report(left, view.ended)
    return held.code


def _run_in_terminal(options: argparse.Namespace) -> int:
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
    _report(left, view.ended)
    return 128 + view.signal if view.signal else view.return_code or 0


def _report(left: Sequence[str], ended: str) -> None:
    for sentence in (*left, *filter(None, [ended])):
        output.say(f"markerjit: {sentence}", error=True)


def costs_of(path: Path) -> dict[str, float]:
    """What a hit of an active marker costs, in nanoseconds, with one thread. Raises Refused."""
    return {form["name"]: form["cost"]["value"] for form in _active_forms(path)}


def samples_of(path: Path) -> dict[str, list[float]]:
    """The samples that these costs were made of: each less its baseline's. Raises Refused."""
    forms = {form["name"]: form for form in _active_forms(path)}
    return {
        name: [
            own - base
            for row, base_row in zip(form["samples"], forms[baseline]["samples"], strict=True)
            for own, base in zip(row, base_row, strict=True)
        ]
        for name, form in forms.items()
        if (baseline := form["baseline"]) in forms and baseline != name
    }


def _active_forms(path: Path) -> list[dict[str, Any]]:
    from markerjit.apps.bench.sampling import results

    active = [part for part in results.read(path)["parts"] if part["kind"] == "active"]
    if not active:
        raise Refused(f"{path} has no active markers; markerjit bench active --json FILE has")
    forms: list[dict[str, Any]] = active[0]["forms"]
    return forms


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
