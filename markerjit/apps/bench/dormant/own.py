"""The user's own source in every mode, compiled with a loop that calls one of its functions."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from markerjit.apps.bench.dormant.forms import FORMS as EVERY
from markerjit.apps.bench.sampling import code, results
from markerjit.apps.bench.sampling.build import Object, build_all
from markerjit.apps.bench.sampling.compare import Limits, code_of, compare_objects
from markerjit.apps.bench.sampling.form import CALL, Form, is_asked_for
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Piece, Plan, Progress, Step
from markerjit.errors import Refused

_CONTROL = Form(
    CALL, ("-DBENCH_CALL", "-DMJ_MODE=none"),
    "the control: no marker, and a call of an empty function, which has to show",
)  # fmt: skip
FORMS = (*(form for form in EVERY if form.is_ours), _CONTROL)


def measure(plan: Plan, place: Place, progress: Progress) -> results.Measured:
    """The function of the plan's source. Raises Refused, DoesNotCompile."""
    assert plan.source
    title = _title(plan)
    forms = [form for form in FORMS if is_asked_for(form.name, plan.only)]
    built = objects(plan.source, plan.function, forms, place, plan.layouts)
    limits = Limits(plan.grant(title, plan.seconds))
    comparison = compare_objects(built, place, limits, title, progress)
    setting = {"source": str(plan.source), "function": plan.function}
    codes = code_of(built, place, comparison)
    part = results.part("own", title, setting, comparison, forms, codes)
    return results.Measured([part], code.missing(codes), [])


def pieces(plan: Plan) -> Iterator[Piece]:
    """The only piece of a run."""
    title = _title(plan)
    yield Piece(title, [Step(title, plan.seconds)], 0)


def _title(plan: Plan) -> str:
    assert plan.source
    return f"{plan.function} of {plan.source.name}"


def objects(
    source: Path, function: str, forms: Sequence[Form], place: Place, layouts: int
) -> list[Object]:
    """Compile the source for each form and each layout. Raises Refused, DoesNotCompile."""
    if not os.path.isfile(source):
        raise Refused(f"there is no file {source}")
    if not function.isidentifier():
        raise Refused(f"{function} is not a name of a function")
    flags = [
        f'-DBENCH_SOURCE="{source.resolve()}"', f"-DBENCH_FUNCTION={function}",
        "-Werror=implicit-function-declaration",
    ]  # fmt: skip
    return build_all(
        place.sources / "dormant" / "own.c", forms, layouts, flags,
        directory=place.directory, chosen=place.compiler,
        include=[place.include, source.resolve().parent],
    )  # fmt: skip
