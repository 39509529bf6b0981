"""`markerjit bench`: what a marker costs on this machine, dormant and active, with intervals.

markerjit bench
markerjit bench active --seconds 60
markerjit bench toggle --sites 1,1000,100000 --threads 1,64,512
markerjit bench --seconds 600 --args 1,2,4,8 --json a.json
markerjit bench --source my.c --function work
markerjit bench compare a.json b.json
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from markerjit.cli import arguments, files, output, signals
from markerjit.errors import Refused

_SECONDS = 90.0
_WIDTH = 110
_BAR = 20
"""Characters of the bar."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    from markerjit.apps.bench.dormant.large import FUNCTIONS
    from markerjit.apps.bench.sampling.plan import QUICK_S, usual

    plan, quick = usual(QUICK_S), usual(0)
    parser.add_argument(
        "what",
        nargs="*",
        metavar="WHAT",
        help="what to measure: dormant, active, toggle (default: these three), reading, check "
        "(whether the bench may be believed here); or compare A.json B.json: two results, side "
        "by side",
    )
    parser.add_argument(
        "--seconds",
        type=arguments.seconds,
        default=_SECONDS,
        help=f"how long the run takes in all (default {_SECONDS:g}); less than {QUICK_S:g} is a "
        "first look, with fewer placements, settings and forms. What does not fit is left out and "
        "named; what you ask for by name is measured, however long it takes",
    )
    parser.add_argument(
        "--args",
        type=_numbers((1, 2, 4, 8)),
        default=plan.args,
        metavar="N,…",
        help=f"how many arguments a site has: 1, 2, 4, 8 (default {_listed(plan.args)})",
    )
    parser.add_argument(
        "--parts",
        type=_numbers(range(51)),
        metavar="N,…",
        help=f"the large setting, in parts of {FUNCTIONS} sites, at most 50 (default "
        f"{_listed(plan.parts)}, at a first look {_listed(quick.parts)}; 0: leave it out)",
    )
    parser.add_argument(
        "--layouts",
        type=arguments.positive,
        help=f"how many placements of the same code (default {plan.layouts}, at a first look "
        f"{quick.layouts})",
    )
    parser.add_argument(
        "--sites",
        type=_numbers(range(1, 200_001)),
        default=plan.sites,
        metavar="N,…",
        help=f"toggle: how many sites are switched at once (default {_listed(plan.sites)})",
    )
    parser.add_argument(
        "--threads",
        type=_numbers(range(1, 4097)),
        metavar="N,…",
        help="toggle: how many threads the program has meanwhile (default "
        f"{_listed(plan.threads)}, at a first look {_listed(quick.threads)})",
    )
    parser.add_argument(
        "--only",
        action="append",
        metavar="FORM",
        default=[],
        help="only these forms, by name or pattern, and what they are compared with. May be given "
        "again. Some forms are measured only when they are named here",
    )
    parser.add_argument(
        "--cc",
        type=arguments.file_name,
        default=plan.compiler,
        help=f"the compiler (default {plan.compiler})",
    )
    parser.add_argument("--source", metavar="FILE.c", type=_path, help="measure code of your own")
    parser.add_argument("--function", metavar="NAME", default="", help="void NAME(void) of it")
    parser.add_argument("--json", metavar="FILE", type=_path, help="keep every sample in FILE")
    parser.add_argument(
        "--html", metavar="FILE", type=_path, help="a report with plots and the code of each form"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, or compare two results."""
    began = time.monotonic()  # what is imported takes a second, too
    from rich.console import Console

    from markerjit.apps.bench import html, measure, table
    from markerjit.apps.bench.dormant import check
    from markerjit.apps.bench.sampling import results
    from markerjit.apps.bench.sampling.build import DoesNotCompile
    from markerjit.apps.bench.sampling.plan import Plan, usual

    console = Console(
        width=output.width() or _WIDTH,
        color_system="standard" if output.is_coloured() else None,
    )
    if "compare" in options.what:
        if len(options.what) != 3 or options.what[0] != "compare":
            raise Refused("compare takes two results: markerjit bench compare A.json B.json")
        for name in options.what[1:]:
            files.check_file(name)
        before, after = (results.read(Path(name)) for name in options.what[1:])
        table.show_comparison(before, after, console)
        return 0
    for kind in options.what:
        if kind not in measure.KINDS:
            raise Refused(f"{kind} is not a measurement; there are {', '.join(measure.KINDS)}")
    if bool(options.source) != bool(options.function):
        raise Refused("--source and --function go together: --source FILE.c --function NAME")
    if options.source and options.what:
        raise Refused(f"your own code is measured alone; leave out {' '.join(options.what)}")
    files.check_new([options.json, options.html])
    default = usual(options.seconds)
    parts = default.parts if options.parts is None else options.parts
    plan = Plan(
        options.seconds,
        tuple(kind for kind in measure.KINDS if kind in options.what),
        options.args,
        tuple(part for part in parts if part),
        options.layouts or default.layouts,
        options.cc,
        options.source,
        options.function,
        options.sites,
        options.threads or default.threads,
        options.only,
        default.is_quick,
    )
    progress = _Progress(began)
    try:
        with signals.Raised():  # ends the programs that were started
            done = measure.run(plan, progress.show, began)
    except DoesNotCompile as error:
        progress.end()
        for line in error.output.splitlines():
            output.say(line, error=True)
        raise Refused(f"{options.source or error.source} does not compile") from None
    progress.end()
    measured = done.document
    table.show(measured, console)
    if options.json:
        results.write(measured, options.json)
        output.say(f"every sample is in {options.json}", error=True)
    if options.html:
        html.write(measured, options.html)
        output.say(f"the report is {options.html}", error=True)
    if done.interrupted:
        return int(getattr(done.interrupted, "code", 130))
    if "check" not in plan.kinds:
        return 0
    failures = list(check.failures(measured))
    for line in failures or ["the bench may be believed here"]:
        console.print(line, highlight=False)
    return 1 if failures else 0


class _Progress:
    """A line on standard error. Only a terminal gets it."""

    def __init__(self, began: float) -> None:
        self._shown = sys.stderr.isatty()
        self._last = ""
        self._began = began

    def show(self, step: str, done: float) -> None:
        """Say how much of the run is done, and which step it is at."""
        seconds = time.monotonic() - self._began
        filled = int(done * _BAR)
        bar = "#" * filled + "." * (_BAR - filled)
        text = f"[{bar}] {int(done * 100):3}%, {seconds:.0f} s: {step}"
        if self._shown and text != self._last:
            output.print_progress(text)
            self._last = text

    def end(self) -> None:
        """Remove the line."""
        if self._shown:
            output.print_progress("")


def _path(text: str) -> Path:
    return Path(arguments.file_name(text))


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _numbers(allowed: Sequence[int]) -> Callable[[str], tuple[int, ...]]:
    """The type of a list of numbers, each one of `allowed`."""
    is_range = isinstance(allowed, range)
    choices = f"{allowed[0]} … {allowed[-1]}" if is_range else ", ".join(map(str, allowed))

    def checked(text: str) -> tuple[int, ...]:
        try:
            numbers = tuple(map(int, text.split(",")))
        except ValueError:
            numbers = ()
        if not numbers or not all(number in allowed for number in numbers):
            raise argparse.ArgumentTypeError(f"'{text}' is not a list of numbers out of {choices}")
        return numbers

    return checked
