"""`markerjit explain PID|FILE MARKER`: the note, the bytes, the assembly, the plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

import markerjit
from markerjit.cli import arguments, costs, output
from markerjit.cli.active_path import show_path, show_summary
from markerjit.explain import (
    Explanation,
    Page,
    Way,
    explain_file,
    explain_process,
    paths_of_process,
    plan_or_refusal,
    ways_of_file,
    ways_of_process,
)
from markerjit.facts.plans import explanation_facts, instruction_lines, way_facts
from markerjit.printable import counted

if TYPE_CHECKING:
    from markerjit.explain.question import AskedMarker


_REGISTERS = [f"arg{number}" for number in range(6)]
"""The fields of a function whose prototype is not known."""


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    arguments.add_target(parser)
    arguments.add_pattern(parser)
    arguments.add_mode(parser)
    arguments.add_breakpoints(parser)
    arguments.add_quiesce(parser)
    parser.add_argument(
        "--all",
        action="store_true",
        help="instead: a table of every mode under every kind of quiescence",
    )
    parser.add_argument(
        "--path",
        action="store_true",
        help="instead: the active path through the recorder and back, instruction by instruction",
    )
    parser.add_argument(
        "--probe",
        choices=["count", "record"],
        default="count",
        help="the probe of sites that are off: count each execution (default), or record it",
    )
    parser.add_argument(
        "--where",
        metavar="EXPR",
        help="instead: a question, with its types and the code that answers it",
    )
    parser.add_argument(
        "--aggregate",
        metavar="EXPR",
        help="instead: an aggregate, such as 'count()' or 'hist(size)': what is computed before it "
        "is added up; --where is its condition",
    )
    parser.add_argument("--by", metavar="EXPR,…", help="with --aggregate: its key")
    costs.add_bench(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Explain every site that matches. Nothing is changed."""
    if options.bench and not options.all:
        raise markerjit.Refused("--bench is for the table of every way: add --all")
    if options.by is not None and options.aggregate is None:
        raise markerjit.Refused("--by is the key of an aggregate: add --aggregate 'count()'")
    if options.where is not None or options.aggregate is not None:
        return _run_where(options)
    if options.all:
        return _run_all(options)
    explanations = _explanations(options)
    if options.json:
        output.print_json(explanation_facts(options.target, explanations))
        return 0
    if options.path:
        return _show_paths(explanations)
    for explanation in explanations:
        for line in _site_lines(explanation):
            output.say(line)
        if explanation.path:
            show_summary(explanation.path)
        output.say("")
    for line in _plan_lines(explanations[0]):
        output.say(line)
    return 0


def _show_paths(explanations: Sequence[Explanation]) -> int:
    paths = [explanation.path for explanation in explanations if explanation.path]
    if not paths:
        raise markerjit.Refused("--path is for a process: a file has no recorder")
    for path in paths:
        show_path(path)
    return 0


def _run_all(options: argparse.Namespace) -> int:
    if options.mode or options.quiesce:
        raise markerjit.Refused("--all shows every way; leave out --mode and --quiesce")
    known = costs.costs_of(options.bench) if options.bench else {}
    ways = _ways(options)
    ns = [known.get(f"{way.mode}, count") for way in ways]
    if options.json:
        facts = [way_facts(way, each) for way, each in zip(ways, ns, strict=True)]
        output.print_json({"target": options.target, "pattern": options.pattern, "ways": facts})
        return 0
    header = ["mode", "quiesce", "code bytes", "writes", "steps", "what it proves"]
    rows = [[*_way_cells(way)] for way in ways]
    if options.bench:
        header.insert(-1, "ns a hit")
        for row, each in zip(rows, ns, strict=True):
            row.insert(-1, "-" if each is None else f"{each:.1f}")
    output.print_table(header, rows, fold_last=True)
    return 0


def _run_where(options: argparse.Namespace) -> int:
    if options.all or options.path or options.mode or options.quiesce:
        raise markerjit.Refused(
            "--where and --aggregate explain a question; leave out --all, --path, --mode, --quiesce"
        )
    from markerjit.facts.questions import question_facts

    markers = _asked(options)
    if options.json:
        text = options.aggregate or options.where
        output.print_json(question_facts(options.target, text, markers))
        return 0
    does = "before the probe" if options.aggregate is None else "that has the runtime add"
    for number, marker in enumerate(markers):
        if number:
            output.say("")
        for line in _question_lines(marker, does):
            output.say(line)
    return 0


def _asked(options: argparse.Namespace) -> list[AskedMarker]:
    """The question of each marker, or function."""
    from markerjit.explain.question import Texts, explain_of_functions

    texts = Texts(options.where, options.aggregate, options.by)
    if options.pattern.startswith("func:"):
        pid = arguments.pid_or_file(options.target)
        if pid is None:
            return explain_of_functions(options.target, options.pattern, texts)
        with markerjit.View(pid) as view:
            return explain_of_functions(view, options.pattern, texts)
    sites = [explanation.site for explanation in _explanations(options)]
    return texts.explained(list(dict.fromkeys(site.signature for site in sites)))


def _question_lines(marker: AskedMarker, does: str) -> Iterator[str]:
    types = ", ".join(f"{name}: {type_}" for name, type_ in marker.types.items())
    yield f"{marker.marker}  ({types or 'no fields'})"
    for line in marker.expression:
        yield f"  {line}"
    if marker.remark:
        yield f"  no code: {marker.remark}"
        return
    yield f"  code {does}, {counted(marker.size, 'byte')}:"
    width = max(len(line.text) for line in marker.code) + 3
    for instruction, part in marker.code:
        indent = "  " if instruction.endswith(":") else "    "
        yield f"{indent}{instruction.ljust(width)}{part}".rstrip()


def _ways(options: argparse.Namespace) -> list[Way]:
    pid = arguments.pid_or_file(options.target)
    if pid is None:
        return ways_of_file(options.target, options.pattern)
    with markerjit.attach(pid, breakpoints=options.breakpoints) as session:
        ways = ways_of_process(session, options.pattern)
        output.offer_repair(session)
    return ways


def _way_cells(way: Way) -> tuple[str, ...]:
    plan = way.plan
    mode, quiescence = str(way.mode), str(way.quiescence)
    if not isinstance(plan, markerjit.Plan):
        return mode, quiescence, "", "", "", f"refused: {plan.sentence}"
    steps = len(list(plan.steps()))
    counts = (str(way.code_bytes), str(plan.changes), str(steps))
    return mode, quiescence, *counts, plan.strategy.proves


def _explanations(options: argparse.Namespace) -> list[Explanation]:
    pid = arguments.pid_or_file(options.target)
    mode = markerjit.Mode(options.mode) if options.mode else None
    if pid is None:
        return explain_file(options.target, options.pattern, mode=mode, quiescence=options.quiesce)
    with markerjit.attach(pid, breakpoints=options.breakpoints) as session:
        probe = options.probe
        plan = plan_or_refusal(session, options.pattern, options.mode, options.quiesce, probe=probe)
        paths = paths_of_process(pid, options.pattern, mode=mode, probe=probe)
        explanations = explain_process(session, options.pattern, plan, paths)
        output.offer_repair(session)
    return explanations


def _site_lines(explanation: Explanation) -> Iterator[str]:
    site, signature = explanation.site, explanation.site.signature
    yield f"{site.marker}  ({site.kind}, {site.source})"
    types = dict(enumerate(map(str, signature.args)))
    fields = ", ".join(
        f"{field.name}: {field.type} (C: {types[field.arg]})" for field in explanation.fields
    )
    yield f'  note      format "{signature.format}"'
    yield f"            fields {fields or 'none'}"
    yield from _naming_lines(explanation)
    yield f"            inline probe: {'yes' if site.body.inline else 'no'}"
    yield f"  object    {site.object.path}, build id {site.object.build_id or 'none'}"
    function = f" in {explanation.function}" if explanation.function else ""
    yield f"  site      {site.address:#x} ({site.offset:#x} in the file){function}"
    body = f"body {site.body.entry:#x}, " if site.body.entry else ""
    slot = f", slot {site.slot:#x}" if site.slot else ""
    yield f"            {body}goes on at {site.body.end:#x}{slot}"
    if site.body.hole:
        hole = site.body.hole
        where = f"{hole.before.hex(' ')} or {hole.after.hex(' ')}"
        yield f"            hole {hole.address:#x}: {where}"
    if explanation.problem:
        state = f"altered: {explanation.problem.fact}"
    else:
        state = f"on ({explanation.mode})" if explanation.mode else "off"
    yield f"  now       {state}"
    if explanation.path and explanation.path.page:
        yield f"  page      {_page_text(explanation.path.page)}"
    yield ""
    yield from _side_by_side(explanation)
    if explanation.body:
        yield ""
        calls = any(instruction.text.startswith("call") for instruction in explanation.body)
        yield f"  body, {'up to the call of the probe' if calls else 'its beginning'}:"
        width = max(len(instruction.code.hex(" ")) for instruction in explanation.body)
        for line in instruction_lines(explanation.body, width):
            yield f"    {line}"


def _naming_lines(explanation: Explanation) -> Iterator[str]:
    """Where the names of a function's arguments come from: it depends on the installation."""
    marker = explanation.site.marker
    if not marker.startswith(("func:", "call:")) or marker.endswith(":return"):
        return
    if [field.name for field in explanation.fields] == _REGISTERS:
        yield (
            "            the registers of arguments; debugging information and the extra `debug` "
            "would give them names and types"
        )
    else:
        yield (
            "            named by debugging information; without it, or without the extra `debug`, "
            "they are arg0 to arg5"
        )


def _page_text(page: Page) -> str:
    if page.access.endswith("s"):
        whose = "a shared mapping: a write would change the file"
    elif page.copied is None:
        whose = "private; the kernel does not say whether it is a copy by now"
    elif page.copied:
        whose = "the process has its own copy of it"
    else:
        whose = "as the file has it; a write makes a private copy"
    return f"{page.address:#x} {page.access}: {whose}"


def _side_by_side(explanation: Explanation) -> Iterator[str]:
    forms = {"dormant": explanation.dormant}
    forms |= {f"active ({mode})": code for mode, code in explanation.active.items()}
    # A direct site that the compiler left at the end of its function has no code of its own.
    lengths = (len(instruction.code.hex(" ")) for code in forms.values() for instruction in code)
    bytes_width = max(lengths, default=0)
    columns = [(title, instruction_lines(code, bytes_width)) for title, code in forms.items()]
    width = max((len(line) for _, lines in columns for line in lines), default=0) + 3
    room = output.width()
    abreast = len(columns) if room is None else max(1, (room + 1) // width)
    for first in range(0, len(columns), abreast):
        if first:
            yield ""
        shown = columns[first : first + abreast]
        yield "  " + "".join(title.ljust(width) for title, _ in shown).rstrip()
        for row in zip_longest(*(lines for _, lines in shown), fillvalue=""):
            yield "  " + "".join(cell.ljust(width) for cell in row).rstrip()


def _plan_lines(explanation: Explanation) -> Iterator[str]:
    plan = explanation.plan
    if not isinstance(plan, markerjit.Plan):
        is_later = plan.reason is markerjit.Reason.NO_STUB
        yield f"{'no plan yet' if is_later else 'cannot be switched on'}: {plan.sentence}"
        return
    yield f"plan: {plan.title}"
    for step in plan.steps():
        yield f"  {step.number}. {step.sentence}"
    for marker in plan.left_out:
        yield f"  left out: {marker.sentence}"
    for remark in explanation.remarks:
        yield f"  note: {remark}"
