"""`markerjit bench check`: whether the bench can be trusted on this machine.

The same code is measured against itself many times under different names, half of the time at the
same places, and half of the time elsewhere in a page. At least nineteen of twenty results must be
that the two are not distinguishable. The bench must also find costs that are known (controls.py).
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.dormant.measure import CONTROL, control, hot_objects
from markerjit.apps.bench.sampling import results
from markerjit.apps.bench.sampling.compare import Limits, compare_objects
from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.form import AGAIN, BASELINE, SAME
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Piece, Plan, Progress, Step
from markerjit.apps.bench.sampling.shapes import NOTHING

TIMES = 20
_ONE_IN = 20
_NONE = next(form for form in FORMS if form.name == BASELINE)
_AGAIN = next(form for form in FORMS if form.name == AGAIN)
_HERE = tuple(
    _NONE._replace(name=f"{SAME} {n}", what="the same code") for n in range(1, TIMES // 2 + 1)
)
_ELSEWHERE = tuple(
    form._replace(name=f"{form.name}, elsewhere", what="the same code at other places")
    for form in _HERE
)
_FORMS = (_NONE, _AGAIN, *_HERE, *_ELSEWHERE)


def measure(plan: Plan, place: Place, progress: Progress) -> Generator[results.Measured]:
    """Known costs, and the same code with each number of arguments. Raises DoesNotCompile."""
    each = plan.seconds / (len(plan.args) + 1)
    known = control(partial(plan.grant, CONTROL, each), plan.layouts, place, progress)
    yield results.Measured([known], [], [])
    for args in plan.args:
        yield results.Measured([_same(args, each, plan, place, progress)], [], [])


def pieces(plan: Plan) -> Iterator[Piece]:
    """The pieces of a run, in order."""
    each = plan.seconds / (len(plan.args) + 1)
    yield Piece(CONTROL, [Step(CONTROL, each)], 0)
    for args in plan.args:
        yield Piece(_title(args), [Step(_title(args), each)], 0)


def _title(args: int) -> str:
    return f"the same code {TIMES} times: a small loop, {counted(args, 'argument')}"


def sameness(part: Mapping[str, Any]) -> str:
    """A sentence that says how often the same code was not distinguishable from itself; "" for a
    part of another kind."""
    verdicts = [form["verdict"] for form in part["forms"] if form["name"].startswith(SAME)]
    if not verdicts or part["noisy"]:
        return ""
    same = sum(verdict.startswith("not distinguishable") for verdict in verdicts)
    return f"{same} of {len(verdicts)} times the same code was not distinguishable from itself"


def failures(run: Mapping[str, Any]) -> Iterator[str]:
    """The reasons why the bench should not be trusted here, a sentence each."""
    controls = [part for part in run["parts"] if part["kind"] == "control"]
    for part in controls:
        if part["noisy"]:
            yield f"{part['title']}: {part['noisy']}"
        for cost in part.get("known", ()):
            if not cost["found"]:
                yield f"the cost of {cost['more']} more additions was not found"
    same = [form for part in controls for form in part["forms"] if form["name"].startswith(SAME)]
    wrong = [form for form in same if not form["verdict"].startswith(NOTHING)]
    if len(wrong) * _ONE_IN > len(same):
        yield f"{len(wrong)} of {len(same)} times the same code seemed to differ from itself"


def _same(
    args: int, seconds: float, plan: Plan, place: Place, progress: Progress
) -> dict[str, Any]:
    title = _title(args)
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        directory = Path(name)
        objects = hot_objects((_NONE, _AGAIN, *_HERE), args, False, plan.layouts, place, directory)
        for number, form in enumerate(_ELSEWHERE, 1):
            objects += hot_objects(
                [form], args, False, plan.layouts, place, directory, elsewhere=number
            )
        progress(title, 0)
        comparison = compare_objects(
            objects, place, Limits(plan.grant(title, seconds)), title, progress
        )
    return results.part("control", title, {"args": args}, comparison, _FORMS, {})
