"""`markerjit explain PID|FILE MARKER`: the note, the bytes, the assembly, the plan."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import zip_longest

import markerjit
from markerjit.cli import common
from markerjit.explain import Explanation, Instruction, explain_file, explain_process


def configure(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    common.add_target(parser)
    common.add_pattern(parser)
    common.add_mode(parser)
    common.add_quiesce(parser)
    common.add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Explain every site that matches. Nothing is changed."""
    mode = markerjit.Mode(options.mode) if options.mode else None
    pid = common.pid_or_file(options.target)
    if pid is None:
        explanations = explain_file(options.target, options.pattern, mode=mode)
    else:
        with markerjit.attach(pid) as session:
            try:
                plan: markerjit.Plan | markerjit.Refusal = session.plan(
                    options.pattern, mode=mode, quiesce=options.quiesce
                )
            except markerjit.Refused as refused:
                plan = markerjit.Refusal(refused.reason, refused.try_again)
            except markerjit.UnexpectedBytes as error:
                plan = markerjit.Refusal(str(error))
            explanations = explain_process(session, options.pattern, plan)
            common.offer_repair(session)
    if options.json:
        sites = [_as_json(explanation) for explanation in explanations]
        document = {
            "target": options.target,
            "sites": sites,
            "plan": _plan_json(explanations[0]),
        }
        common.print_json(document)
        return 0
    for explanation in explanations:
        for line in _site_lines(explanation):
            common.say(line)
        common.say("")
    for line in _plan_lines(explanations[0]):
        common.say(line)
    return 0


def _site_lines(told: Explanation) -> Iterator[str]:
    site, note = told.site, told.site.note
    yield f"{note.name}  ({note.kind}, {site.source})"
    types = dict(enumerate(map(str, note.args)))
    fields = ", ".join(f"{one.name}: {one.type} (C: {types[one.arg]})" for one in told.fields)
    yield f'  note      format "{note.format}"'
    yield f"            fields {fields or 'none'}"
    yield f"            inline probe: {'yes' if note.has_inline else 'no'}"
    yield f"  object    {site.object.path}, build id {site.object.build_id or 'none'}"
    where = f" in {told.function}" if told.function else ""
    yield f"  site      {site.address:#x} ({site.offset:#x} in the file){where}"
    body = f"body {site.body:#x}, " if site.body else ""
    slot = f", slot {site.slot:#x}" if site.slot else ""
    yield f"            {body}goes on at {site.end:#x}{slot}"
    state = f"on ({told.mode})" if told.mode else "off"
    yield f"  now       {f'altered: {told.problem.fact}' if told.problem else state}"
    yield ""
    yield from _side_by_side(told)
    if told.body:
        yield ""
        yield "  body, up to the call of the probe:"
        width = max(len(one.code.hex(" ")) for one in told.body)
        for instruction in told.body:
            yield f"    {_line(instruction, width)}"


def _side_by_side(told: Explanation) -> Iterator[str]:
    forms = {"dormant": told.dormant}
    forms |= {f"active ({mode})": code for mode, code in told.active.items()}
    # A direct site that the compiler left at the end of its function has no code of its own.
    lengths = (len(one.code.hex(" ")) for code in forms.values() for one in code)
    bytes_width = max(lengths, default=0)
    columns = [(title, [_line(one, bytes_width) for one in code]) for title, code in forms.items()]
    width = max((len(line) for _, lines in columns for line in lines), default=0) + 3
    yield "  " + "".join(title.ljust(width) for title, _ in columns).rstrip()
    for row in zip_longest(*(lines for _, lines in columns), fillvalue=""):
        yield "  " + "".join(cell.ljust(width) for cell in row).rstrip()


def _line(one: Instruction, width: int = 0) -> str:
    return f"{one.address:x}  {one.code.hex(' '):<{width}}  {one.text}"


def _plan_lines(told: Explanation) -> Iterator[str]:
    if not isinstance(told.plan, markerjit.Plan):
        yield f"cannot be switched on: {told.plan.reason}"
        return
    yield f"plan: {told.plan.title}"
    for number, step in enumerate(told.plan.steps(), 1):
        yield f"  {number}. {step}"
    for marker in told.plan.left_out:
        yield f"  left out: {marker.reason}"
    for remark in told.remarks:
        yield f"  note: {remark}"


def _as_json(told: Explanation) -> common.Json:
    return {
        "name": told.site.marker,
        "format": told.site.note.format,
        "fields": [{"name": one.name, "type": str(one.type)} for one in told.fields],
        "function": told.function,
        **common.site_json(told.site, told.problem),
        "body": told.site.body,
        "end": told.site.end,
        "slot": told.site.slot,
        "mode": str(told.mode) if told.mode else None,
        "dormant": [_line(one) for one in told.dormant],
        "active": {str(mode): [_line(one) for one in code] for mode, code in told.active.items()},
        "body_code": [_line(one) for one in told.body],
    }


def _plan_json(told: Explanation) -> common.Json:
    if not isinstance(told.plan, markerjit.Plan):
        return {"refused": told.plan.reason, "try_again": told.plan.try_again}
    return {
        "title": told.plan.title,
        "steps": list(told.plan.steps()),
        "edits": [
            {
                "address": edit.address,
                "old": edit.old.hex(),
                "new": edit.new.hex(),
                "what": edit.what,
                "code": edit.code,
            }
            for edit in told.plan.edits
            if edit.new != edit.old  # others are only compared
        ],
        "left_out": common.left_out_json(told.plan.left_out),
        "remarks": list(told.remarks),
    }
