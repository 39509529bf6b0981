"""`markerjit explain PID|FILE MARKER`: the note, the bytes, the assembly, the plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import zip_longest

import markerjit
from markerjit.cli import arguments, output
from markerjit.explain import Explanation, explain_file, explain_process
from markerjit.facts.plans import explanation_facts, instruction_lines


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    arguments.add_target(parser)
    arguments.add_pattern(parser)
    arguments.add_mode(parser)
    arguments.add_quiesce(parser)
    arguments.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Explain every site that matches. Nothing is changed."""
    explanations = _explanations(options)
    if options.json:
        output.print_json(explanation_facts(options.target, explanations))
        return 0
    for explanation in explanations:
        for line in _site_lines(explanation):
            output.say(line)
        output.say("")
    for line in _plan_lines(explanations[0]):
        output.say(line)
    return 0


def _explanations(options: argparse.Namespace) -> list[Explanation]:
    pid = arguments.pid_or_file(options.target)
    mode = markerjit.Mode(options.mode) if options.mode else None
    if pid is None:
        return explain_file(options.target, options.pattern, mode=mode)
    with markerjit.attach(pid) as session:
        try:
            plan: markerjit.Plan | markerjit.Refusal = session.plan(
                options.pattern, mode=mode, quiesce=options.quiesce
            )
        except markerjit.Refused as refused:
            plan = markerjit.Refusal(refused.reason, refused.sentence, refused.try_again)
        except markerjit.UnexpectedBytes as error:
            plan = markerjit.Refusal(error.reason, str(error))
        explanations = explain_process(session, options.pattern, plan)
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
    yield f"            inline probe: {'yes' if site.body.inline else 'no'}"
    yield f"  object    {site.object.path}, build id {site.object.build_id or 'none'}"
    function = f" in {explanation.function}" if explanation.function else ""
    yield f"  site      {site.address:#x} ({site.offset:#x} in the file){function}"
    body = f"body {site.body.entry:#x}, " if site.body.entry else ""
    slot = f", slot {site.slot:#x}" if site.slot else ""
    yield f"            {body}goes on at {site.body.end:#x}{slot}"
    if explanation.problem:
        state = f"altered: {explanation.problem.fact}"
    else:
        state = f"on ({explanation.mode})" if explanation.mode else "off"
    yield f"  now       {state}"
    yield ""
    yield from _side_by_side(explanation)
    if explanation.body:
        yield ""
        yield "  body, up to the call of the probe:"
        width = max(len(instruction.code.hex(" ")) for instruction in explanation.body)
        for line in instruction_lines(explanation.body, width):
            yield f"    {line}"


def _side_by_side(explanation: Explanation) -> Iterator[str]:
    forms = {"dormant": explanation.dormant}
    forms |= {f"active ({mode})": code for mode, code in explanation.active.items()}
    # A direct site that the compiler left at the end of its function has no code of its own.
    lengths = (len(instruction.code.hex(" ")) for code in forms.values() for instruction in code)
    bytes_width = max(lengths, default=0)
    columns = [(title, instruction_lines(code, bytes_width)) for title, code in forms.items()]
    width = max((len(line) for _, lines in columns for line in lines), default=0) + 3
    yield "  " + "".join(title.ljust(width) for title, _ in columns).rstrip()
    for row in zip_longest(*(lines for _, lines in columns), fillvalue=""):
        yield "  " + "".join(cell.ljust(width) for cell in row).rstrip()


def _plan_lines(explanation: Explanation) -> Iterator[str]:
    plan = explanation.plan
    if not isinstance(plan, markerjit.Plan):
        yield f"cannot be switched on: {plan.sentence}"
        return
    yield f"plan: {plan.title}"
    for number, step in enumerate(plan.steps(), 1):
        yield f"  {number}. {step}"
    for marker in plan.left_out:
        yield f"  left out: {marker.sentence}"
    for remark in explanation.remarks:
        yield f"  note: {remark}"
