"""The command line; see the package."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

import real
from markerjit.apps.bench.api import results
from markerjit.cli import arguments, files, output, signals
from markerjit.errors import MarkerError, Refused
from real import measuring, page, table
from real.programs import PROGRAMS

_WIDTH = 110


def main(words: list[str] | None = None) -> int:
    """Measure, print a table, keep what was asked for."""
    options = _parser().parse_args(words)
    try:
        with signals.Raised():  # so that the programs end, and what was measured is kept
            return _run(options)
    except KeyboardInterrupt as error:
        return _code(error)
    except MarkerError as error:
        print(f"bench/real: {error}", file=sys.stderr)
        return 1


def _code(interrupted: KeyboardInterrupt) -> int:
    return int(getattr(interrupted, "code", 130))


def _run(options: argparse.Namespace) -> int:
    from rich.console import Console

    files.check_new([options.json, options.html])
    for name in options.programs:
        if name not in PROGRAMS:
            raise Refused(f"{name} is no program of this bench; take {' or '.join(PROGRAMS)}")
    plan = measuring.Plan(
        tuple(PROGRAMS[name] for name in options.programs or PROGRAMS), options.seconds,
        options.layouts, options.cc,
    )  # fmt: skip
    progress = _Progress()
    try:
        run, interrupted = measuring.measure(plan, progress.show)
    finally:
        progress.end()
    table.show(run, Console(width=None if sys.stdout.isatty() else _WIDTH))
    if options.json:
        results.write(run, options.json)
        print(f"every sample is in {options.json}", file=sys.stderr)
    if options.html:
        options.html.write_text(page.page(run), encoding="utf-8")
        print(f"the report is {options.html}", file=sys.stderr)
    return _code(interrupted) if interrupted else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m real", description=(real.__doc__ or "").splitlines()[0]
    )
    parser.add_argument(
        "programs", nargs="*", metavar="PROGRAM", help=f"{' or '.join(PROGRAMS)} (default: both)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=arguments.seconds, default=600.0, help="of measuring in all (default 600)"
    )
    parser.add_argument(
        "--layouts", type=arguments.positive, default=6, help="of the same code (default 6)"
    )
    parser.add_argument("--cc", default="gcc", help="the compiler (default gcc)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="keep every sample")
    parser.add_argument("--html", metavar="FILE", type=Path, help="a page with plots")
    return parser


class _Progress:
    """Of a run, on standard error: a line that is replaced on a terminal, elsewhere a line for each
    comparison."""

    def __init__(self) -> None:
        self._shown = sys.stderr.isatty()
        self._began = time.monotonic()
        self._last = ""

    def show(self, title: str, done: float) -> None:
        """Say what is measured, and how much of it is done."""
        seconds = f"{time.monotonic() - self._began:.0f} s"
        if self._shown:
            output.print_progress(f"{seconds}: {title}, {done:.0%}")
        elif title != self._last:
            print(f"{seconds}: {title}", file=sys.stderr, flush=True)
        self._last = title

    def end(self) -> None:
        """Remove the line."""
        if self._shown:
            output.print_progress("")


if __name__ == "__main__":
    sys.exit(main())
