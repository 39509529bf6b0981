"""The command line; see the package."""

from __future__ import annotations

import argparse
import signal
import sys
from pathlib import Path

import real
from markerjit.apps.bench.api import results
from markerjit.cli import arguments, files
from markerjit.errors import MarkerError, Refused
from real import measuring, page, table
from real.programs import PROGRAMS

_WIDTH = 110


def main(words: list[str] | None = None) -> int:
    """Measure, print a table, keep what was asked for."""
    options = _parser().parse_args(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what we made goes away
    try:
        return _run(options)
    except KeyboardInterrupt:
        return 130
    except MarkerError as error:
        print(f"\r\x1b[Kbench/real: {error}" if sys.stderr.isatty() else f"bench/real: {error}",
              file=sys.stderr)  # fmt: skip
        return 1


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
    run = measuring.measure(plan, _progress)
    table.show(run, Console(width=None if sys.stdout.isatty() else _WIDTH))
    if options.json:
        results.write(run, options.json)
        print(f"every sample is in {options.json}", file=sys.stderr)
    if options.html:
        options.html.write_text(page.page(run), encoding="utf-8")
        print(f"the report is {options.html}", file=sys.stderr)
    return 0


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


def _progress(what: str, done: float) -> None:
    if sys.stderr.isatty():
        print(f"\r{what}: {done:4.0%}\x1b[K", end="", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
