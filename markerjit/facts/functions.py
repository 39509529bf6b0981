"""Functions as documents: where they are entered, and how they are on."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from markerjit.facts import Json
from markerjit.facts.markers import field_facts
from markerjit.printable import counted
from markerjit.x86.forms import TAIL_CALL

if TYPE_CHECKING:
    from markerjit.session.functions import Function, FunctionView


def function_facts(target: str, pid: int | None, view: FunctionView) -> Json:
    """The functions of a process, or of the file `target`."""
    return {
        **({"file": target} if pid is None else {"pid": pid}),
        "functions": [_facts(function) for function in view.functions],
        "resolvers": list(view.resolvers),
        "problems": [str(problem) for problem in view.problems],
        "nameless": dict(view.nameless),
    }


def _facts(function: Function) -> Json:
    site = function.site
    return {
        "name": function.name,
        "text": function.text,
        "address": site.address,
        "object": site.place.object.path,
        "offset": site.place.offset,
        "deleted": site.place.object.deleted,
        "source": site.place.source,
        "code": site.form.head.hex(),
        "mode": str(function.mode) if function.mode else None,
        "fields": field_facts(function.fields),
        "prototype": function.has_prototype,
        "types": function.types,
        **({"tail": is_tail_call(function)} if function.name.startswith("call:") else {}),
        **(_exit_facts(function) if function.exits is not None or function.problem else {}),
    }


def _exit_facts(function: Function) -> Json:
    exits = function.exits
    return {
        "exits": None if exits is None else [each._asdict() for each in exits],
        "problem": function.problem,
    }


def is_tail_call(function: Function) -> bool:
    """Whether it is a call by a jump, as the last thing that its caller does."""
    return function.site.form.name == TAIL_CALL


def exit_words(function: Function) -> str:
    """The exits of a function and how they are opened, the best way first."""
    if function.exits is None:
        return f"not known: {function.problem}"
    if not function.exits:
        return "none: it never returns"
    ways = Counter(
        f"by {each.way}" if each.way else f"not opened ({each.reason})" for each in function.exits
    )
    tails = sum(each.tail for each in function.exits)
    words = ", ".join(f"{count} {way}" for way, count in ways.items())
    if any(each.alone for each in function.exits):
        words += " (not together with its entry)"
    return f"{words}; {counted(tails, 'tail call')}" if tails else words
