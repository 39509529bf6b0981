"""Sites explained, and the plan to switch them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from markerjit.facts import Json
from markerjit.facts.markers import field_facts, left_out_facts, site_facts
from markerjit.model import Hole
from markerjit.patch.plan import Plan, Refusal
from markerjit.patch.steps import Step

if TYPE_CHECKING:
    from markerjit.explain import ActivePath, Explanation, Instruction, PathPart, Way
    from markerjit.memory.pages import Page
    from markerjit.model import Edit, Site
    from markerjit.session.stepping import Stepper


def explanation_facts(target: str, explanations: Sequence[Explanation]) -> Json:
    """Every site explained, and the one plan that they have in common. `target` is a pid or a
    file, as the caller wrote it; there is one explanation at least."""
    first = explanations[0]
    return {
        "target": target,
        "sites": [explained_site_facts(explanation) for explanation in explanations],
        "plan": plan_facts(first.plan, first.remarks),
    }


def explained_site_facts(explanation: Explanation) -> Json:
    """A site with its assembly, a line for each instruction."""
    site = explanation.site
    return {
        "name": site.marker,
        "format": site.signature.format,
        "fields": field_facts(explanation.fields),
        "function": explanation.function,
        **site_facts(site, explanation.problem),
        "body": site.body.entry,
        "end": site.body.end,
        "slot": site.slot,
        "hole": hole_facts(site.body.hole),
        "mode": str(explanation.mode) if explanation.mode else None,
        "dormant": instruction_lines(explanation.dormant),
        "active": {str(mode): instruction_lines(code) for mode, code in explanation.active.items()},
        "body_code": instruction_lines(explanation.body),
        "path": path_facts(explanation.path) if explanation.path else None,
        "page": page_facts(explanation.path.page) if explanation.path else None,
    }


def hole_facts(hole: Hole | None) -> Json | None:
    """The target of a short jump at the head, while it is closed and while it is open."""
    return hole and {
        "address": hole.address,
        "off": hole.before.hex(" "),
        "on": hole.after.hex(" "),
    }


def page_facts(page: Page | None) -> Json | None:
    """The page of a site. `copied` is null where the kernel does not say it."""
    return page and {
        "address": page.address,
        "access": page.access,
        "path": page.path,
        "copied": page.copied,
    }


def path_facts(path: ActivePath) -> Json:
    """The active path of a site: its parts on the usual way, in the order in which they are
    executed, and the rest of the same code."""
    return {
        "mode": str(path.mode) if path.mode else None,
        "parts": [path_part_facts(part) for part in path.parts],
        "rest": [path_part_facts(part) for part in path.rest],
        "remarks": list(path.remarks),
    }


def path_part_facts(part: PathPart) -> Json:
    """A part of a path. Bytes are in hexadecimal; `in_memory` is false for those that a switch
    would put there. Data has no code."""
    piece = part.piece
    return {
        "name": piece.name,
        "role": str(piece.role),
        "where": piece.where,
        "address": piece.address,
        "bytes": piece.code.hex(),
        "in_memory": piece.in_memory,
        "code": instruction_lines(part.instructions),
    }


def plan_facts(plan: Plan | Refusal, remarks: Sequence[str] = ()) -> Json:
    """A plan: its edits in the order in which they are written, and its steps. Edits that only
    compare are left out. A refusal has its reason, and whether to try again."""
    if isinstance(plan, Refusal):
        return {"refused": plan.sentence, "try_again": plan.try_again}
    return {
        "title": plan.title,
        "strategy": plan.strategy.name,
        "steps": [step_facts(step) for step in plan.steps()],
        "edits": [edit_facts(edit) for edit in plan.edits if edit.new != edit.old],
        "left_out": left_out_facts(plan.left_out),
        "remarks": list(remarks),
    }


def way_facts(way: Way, ns_a_hit: float | None = None) -> Json:
    """One way to switch markers on. `code_bytes` is how many bytes of code differ afterwards, and
    `ns_a_hit` what a hit that is counted costs then; None where that is not known."""
    return {
        "mode": str(way.mode),
        "quiesce": str(way.quiescence),
        "code_bytes": way.code_bytes,
        "ns_a_hit": ns_a_hit,
        "plan": plan_facts(way.plan),
    }


def step_facts(step: Step) -> Json:
    """A step. `place` is null where it writes neither code nor a slot."""
    return {
        "number": step.number,
        "verb": str(step.verb),
        "place": step.place,
        "old": step.old.hex(),
        "new": step.new.hex(),
        "what": step.what,
        "proves": step.proves,
        "sentence": step.sentence,
    }


def stages_facts(stepper: Stepper) -> Json:
    """A switch in the making: its steps before the first stage, those of each stage, and how many
    stages are made."""
    opening, stages = stepper.stages
    return {
        "done": stepper.done,
        "finished": stepper.is_finished,
        "opening": [step_facts(step) for step in opening],
        "stages": [[step_facts(step) for step in stage.steps] for stage in stages],
    }


def memory_facts(site: Site, code: Sequence[Instruction], slot: bytes) -> Json:
    """A site as it is in memory: its hot path, and the words of its slot. Bytes are in
    hexadecimal."""
    return {
        **site_facts(site),
        "slot": site.slot,
        "slot_bytes": slot.hex(),
        "code": [{"address": at.address, "bytes": at.code.hex(), "text": at.text} for at in code],
    }


def edit_facts(edit: Edit) -> Json:
    """An edit. Edits with the same `step` are written together. `code` says whether threads execute
    the bytes."""
    return {
        "address": edit.address,
        "old": edit.old.hex(),
        "new": edit.new.hex(),
        "what": edit.what,
        "code": edit.code,
        "step": edit.step,
    }


def instruction_lines(code: Sequence[Instruction], width: int = 0) -> list[str]:
    """Address, bytes and assembly of each instruction. `width` is how many characters the bytes
    take at least."""
    return [
        f"{instruction.address:x}  {instruction.code.hex(' '):<{width}}  {instruction.text}"
        for instruction in code
    ]
