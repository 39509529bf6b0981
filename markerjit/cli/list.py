"""`markerjit list PID|FILE [PATTERN]`: markers and other sites, and how they are on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import markerjit
from markerjit.cli import arguments, output
from markerjit.facts import words
from markerjit.facts.functions import exit_words, function_facts, is_tail_call
from markerjit.facts.markers import list_facts
from markerjit.facts.usdt import usdt_facts
from markerjit.printable import counted

_HEADERS = {
    "func:": ("FUNCTION", "ENTRY"),
    "insn:": ("INSTRUCTION", "PLACE"),
    "call:": ("CALL", "PLACE"),
}
"""The first columns of what is listed, and of its place, by what a name begins with."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    arguments.add_target(parser)
    arguments.add_pattern(parser, default="*")
    parser.add_argument(
        "--usdt",
        action="store_true",
        help="list USDT probes instead of markers, and whether their semaphores are raised",
    )
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the markers of a process or a file."""
    pid = arguments.pid_or_file(options.target)
    if options.pattern.startswith(tuple(_HEADERS)):
        return _list_functions(options, pid)
    if options.usdt:
        return _list_usdt(options, pid)
    others = 0
    looking = _timed(f"looking for {options.pattern}")
    if pid is not None:
        with markerjit.View(pid) as view:
            with looking:
                markers = view.statistics(options.pattern)
                problems: Sequence[Exception] = view.problems
                if not markers and not options.json:
                    others = len(view.usdt().probes)
            output.offer_repair(view)
    else:
        with looking:
            markers, problems = markerjit.list_file(options.target, options.pattern)
    if options.json:
        output.print_json(list_facts(options.target, pid, markers, problems))
    elif markers:
        _print_text(markers, running=pid is not None)
    else:
        advice = (
            f"it has {counted(others, 'USDT probe')}; --usdt lists them"
            if others
            else "build it with marker.h, and MARK(…) makes one"
        )
        output.say(f"process {pid} has no markers; {advice}")
    for problem in problems:
        output.say(f"markerjit: left out: {problem}", error=True)
    return 0


def _timed(what: str) -> AbstractContextManager[None]:
    """Within, a terminal is told after a second what is looked for. A list that is read elsewhere
    does not import what that takes."""
    if not sys.stderr.isatty():
        return nullcontext()
    from markerjit.cli import progress

    return progress.timed(what)


def _list_usdt(options: argparse.Namespace, pid: int | None) -> int:
    with _timed("looking for USDT probes"):
        if pid is not None:
            with markerjit.View(pid) as view:
                probes, problems = view.usdt(options.pattern)
        else:
            probes, problems = markerjit.list_file_usdt(options.target, options.pattern)
    if options.json:
        output.print_json(usdt_facts(options.target, pid, probes, problems))
    elif probes:
        for probe in probes:
            _print_usdt(probe, running=pid is not None)
    else:
        what = options.target if pid is None else f"process {pid}"
        output.say(f"{what} has no USDT probes")
    for problem in problems:
        output.say(f"markerjit: left out: {problem}", error=True)
    return 0


def _list_functions(options: argparse.Namespace, pid: int | None) -> int:
    with _timed(f"looking for {options.pattern}"):
        if pid is not None:
            with markerjit.View(pid) as process:
                view = process.functions(options.pattern)
        else:
            view = markerjit.list_file_functions(options.target, options.pattern)
    if options.json:
        output.print_json(function_facts(options.target, pid, view))
    else:
        is_left = any(function.name.endswith(":return") for function in view.functions)
        what, where = _HEADERS[options.pattern[:5]]
        last = [where, "EXITS" if is_left else "FIELDS"]
        header = [what, *(["STATE"] if pid is not None else []), *last]
        output.print_table(header, [_row(function, pid) for function in view.functions])
        if advice := view.advice:
            output.say(advice, error=True)
    for problem in view.problems:
        output.say(f"markerjit: left out: {problem}", error=True)
    return 0


def _row(function: markerjit.Function, pid: int | None) -> list[str]:
    symbol = function.name.partition(":")[2].removesuffix(":return")
    name = function.name if function.text == symbol else f"{function.name} ({function.text})"
    state = [f"on ({function.mode})" if function.mode else "off"] if pid is not None else []
    place = function.site.place.source
    row = [name, *state, f"{place} (tail call)" if is_tail_call(function) else place]
    if function.name.endswith(":return"):
        return [*row, exit_words(function)]
    if function.name.startswith("insn:"):
        return [*row, "rax … r15, rip"]
    if not function.has_prototype:
        return [*row, "arg0 … arg5"]
    return [*row, words.field_words(function.fields, function.types)]


def _print_usdt(probe: markerjit.UsdtProbe, *, running: bool) -> None:
    """The probe in a line, its arguments in as many as they need, and each site with where these
    are, as the compiler wrote it."""
    facts = [counted(len(probe.states), "site")]
    if running:
        facts.append(words.semaphore_words(probe))
        modes = {str(state.mode) for state in probe.states if state.mode}
        facts += [f"on ({', '.join(sorted(modes))})"] if modes else []
    output.say(f"{probe.name}  {', '.join(facts)}, in {words.objects_words(probe)}")
    if probe.fields:
        for line in words.wrapped(words.field_words(probe.fields), indent=4):
            output.say(line)
    for state in probe.states:
        operands = state.site.recipe.text
        place = f"{state.site.place.source}{':' if operands else ''} {operands}".rstrip()
        for line in words.wrapped(place, indent=4):
            output.say(line)
        if state.problem:
            output.say(f"    altered: {state.problem.fact}")


def _print_text(markers: Sequence[markerjit.MarkerStatus], *, running: bool) -> None:
    header = ["MARKER", "KIND", *(["STATE"] if running else []), "SITES", "FIELDS", "SOURCE"]
    rows = [
        [
            marker.name,
            str(marker.kind),
            *([words.state_words(marker)] if running else []),
            str(len(marker.sites)),
            words.field_words(marker.fields),
            words.place_words(marker),
        ]
        for marker in markers
    ]
    output.print_table(header, rows)
    output.print_deadlines(markers)
    output.print_questions(markers)
    output.print_altered(markers)
