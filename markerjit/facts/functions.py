"""Functions as documents: where they are entered, and how they are on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markerjit.facts import Json

if TYPE_CHECKING:
    from markerjit.session.functions import Function, FunctionView


def function_facts(target: str, pid: int | None, view: FunctionView) -> Json:
    """The functions of a process, or of the file `target`."""
    return {
        **({"file": target} if pid is None else {"pid": pid}),
        "functions": [_facts(function) for function in view.functions],
        "resolvers": list(view.resolvers),
        "problems": [str(problem) for problem in view.problems],
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
        "code": site.form.head.hex(),
        "mode": str(function.mode) if function.mode else None,
    }
