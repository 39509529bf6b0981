"""The cost of a dormant site, in a small loop and among thousands."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from markerjit.apps.bench.dormant import controls, large
from markerjit.apps.bench.dormant.forms import FORMS
from markerjit.apps.bench.sampling import code, results
from markerjit.apps.bench.sampling.build import Missing, Object, at_once, build_all, why_missing
from markerjit.apps.bench.sampling.compare import Limits, code_of, compare_objects
from markerjit.apps.bench.sampling.figures import counted
from markerjit.apps.bench.sampling.form import Form, is_asked_for
from markerjit.apps.bench.sampling.place import Place
from markerjit.apps.bench.sampling.plan import Piece, Plan, Progress, Step

CONTROL = "the bench itself: a chain of additions, and more of them"


_COMPILE_S, _PLACE_S, _COUNT_S = 0.05, 0.015, 0.1
_PART_S, _COPY_S, _LINK_S = 3.0, 0.01, 0.0125
"""Estimates of a step's share of the run, in seconds: to compile a loop, to put it at a place, to
count its instructions; to compile a part of the large setting, to copy a part, to link a copy."""


def measure(plan: Plan, place: Place, progress: Progress) -> Generator[results.Measured]:
    """Measure all settings, one after the other: a result for each of `pieces`. Raises Refused,
    DoesNotCompile."""
    forms, missing = _buildable(asked_for(plan.only), place)
    compilers = [form.compiler for form in forms if form.compiler]
    seconds = partial(plan.grant, CONTROL, plan.seconds / 20)
    known = control(seconds, plan.layouts, place, progress)
    yield results.Measured([known], missing, compilers)
    for args, computed in _settings(plan):
        yield _hot(args, computed, plan, forms, place, progress)
    yield from _large(plan, forms, place, progress)


def pieces(plan: Plan) -> Iterator[Piece]:
    """The pieces of a run, in order."""
    forms = len(asked_for(plan.only))
    yield Piece(CONTROL, [
        Step(_compiling(CONTROL), _building(len(controls.FORMS), plan), is_fixed=True),
        Step(CONTROL, plan.seconds / 20),
    ], 0)  # fmt: skip
    for args, computed in _settings(plan):
        title = _title(args, computed)
        yield Piece(title, [
            Step(_compiling(title), _building(forms, plan), is_fixed=True),
            Step(title, _share(plan)),
            Step(_counting(title), forms * _COUNT_S, is_fixed=True),
        ], _rank(args, computed, plan))  # fmt: skip
    before = 0
    for parts in plan.parts:
        sites = parts * large.FUNCTIONS
        title = _large_title(sites)
        steps = [
            Step(_copying(sites), forms * max(parts - before, 1) * _COPY_S, is_fixed=True),
            Step(_linking(sites), forms * plan.layouts * parts * _LINK_S, is_fixed=True),
            Step(title, _share(plan)),
        ]
        if parts == plan.parts[0]:
            steps.insert(0, Step(_compiling(large.TITLE), forms * _PART_S, is_fixed=True))
        if parts == min(plan.parts):
            steps.append(Step(_counting(title), forms * _COUNT_S, is_fixed=True))
        before = max(before, parts)
        yield Piece(title, steps, 5)


def _rank(args: int, computed: bool, plan: Plan) -> int:
    """The rank of a small loop. A run has at least one of rank 0."""
    if computed:
        return 3
    return 0 if args == plan.args[0] else 1


def _building(forms: int, plan: Plan) -> float:
    return forms * (_COMPILE_S + plan.layouts * _PLACE_S)


def _settings(plan: Plan) -> list[tuple[int, bool]]:
    return [(args, computed) for computed in (False, True) for args in plan.args]


def _share(plan: Plan) -> float:
    """The seconds for each setting."""
    return plan.seconds / (len(_settings(plan)) + len(plan.parts))


def _compiling(title: str) -> str:
    return f"compiling: {title}"


def _counting(title: str) -> str:
    return f"counting instructions: {title}"


def _copying(sites: int) -> str:
    return f"copying: {counted(sites, 'site')}"


def _linking(sites: int) -> str:
    return f"linking: {counted(sites, 'site')}"


def _large_title(sites: int) -> str:
    return f"{sites} sites, visited in a scattered order"


def _title(args: int, computed: bool) -> str:
    kind = "computed for it alone" if computed else "which the loop needs anyway"
    return f"a small loop, {counted(args, 'argument')}, {kind}"


def control(
    seconds: Callable[[], float], layouts: int, place: Place, progress: Progress
) -> dict[str, Any]:
    """Measure known costs, for the seconds that are left after compiling. Raises
    DoesNotCompile."""
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        objects = hot_objects(
            controls.FORMS, 1, False, layouts, place, Path(name),
            progress=partial(progress, _compiling(CONTROL)),
        )  # fmt: skip
        progress(CONTROL, 0)
        comparison = compare_objects(objects, place, Limits(seconds()), CONTROL, progress)
    part = results.part(
        "control", CONTROL, {}, comparison, controls.FORMS, {}, again=controls.AGAIN
    )
    return part | {"known": controls.check(comparison)}


def hot_objects(
    forms: Sequence[Form],
    args: int,
    computed: bool,
    layouts: int,
    place: Place,
    directory: Path,
    *,
    elsewhere: int = 0,
    progress: Callable[[float], None] = lambda done: None,
) -> list[Object]:
    """Small loops with these forms, in several layouts. Raises DoesNotCompile."""
    flags = [f"-DBENCH_ARGS={args}", f"-DBENCH_COMPUTED={computed:d}"]
    return build_all(
        place.sources / "dormant" / "hot.c", forms, layouts, flags, directory=directory,
        chosen=place.compiler, include=[place.include, place.sources / "dormant"],
        elsewhere=elsewhere, progress=progress,
    )  # fmt: skip


def asked_for(only: Sequence[str]) -> list[Form]:
    """The forms of a run, with their baselines."""
    selected = [form for form in FORMS if is_asked_for(form.name, only, is_usual=form.is_usual)]
    baselines = {form.baseline for form in selected}
    return [form for form in FORMS if form in selected or form.name in baselines]


def _buildable(forms: Sequence[Form], place: Place) -> tuple[list[Form], list[Missing]]:
    buildable: list[Form] = []
    missing: list[Missing] = []
    for form in forms:
        why = why_missing(form, place.compiler, [place.include])
        if why:
            missing.append(Missing(form, why))
        else:
            buildable.append(form)
    return buildable, missing


def _hot(
    args: int,
    computed: bool,
    plan: Plan,
    forms: Sequence[Form],
    place: Place,
    progress: Progress,
) -> results.Measured:
    title = _title(args, computed)
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        objects = hot_objects(
            forms, args, computed, plan.layouts, place, Path(name),
            progress=partial(progress, _compiling(title)),
        )  # fmt: skip
        progress(title, 0)
        limits = Limits(plan.grant(title, _share(plan)))
        comparison = compare_objects(objects, place, limits, title, progress)
        codes = code_of(objects, place, comparison, progress=partial(progress, _counting(title)))
    setting = {"args": args, "computed": computed}
    part = results.part("hot", title, setting, comparison, forms, codes)
    return results.Measured([part], code.missing(codes), [])


def _large(
    plan: Plan, forms: Sequence[Form], place: Place, progress: Progress
) -> Iterator[results.Measured]:
    if not plan.parts:
        return
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        directory = Path(name)
        compiled = at_once(
            lambda form: large.compile_part(form, place, directory), forms,
            partial(progress, _compiling(large.TITLE)),
        )  # fmt: skip
        for parts in plan.parts:
            sites = parts * large.FUNCTIONS
            title = _large_title(sites)
            copies = at_once(
                partial(large.copy, copies=parts), compiled, partial(progress, _copying(sites))
            )
            objects = at_once(
                lambda each: large.link(*each, place), product(copies, range(plan.layouts)),
                partial(progress, _linking(sites)),
            )  # fmt: skip
            progress(title, 0)
            limits = Limits(plan.grant(title, _share(plan)))
            comparison = compare_objects(objects, place, limits, title, progress, sites=sites)
            # A site is the same code however many there are: counting the fewest sites is enough.
            is_counted = parts == min(plan.parts)
            counting = partial(progress, _counting(title))
            codes = code_of(objects, place, comparison, sites, counting) if is_counted else {}
            part = results.part("large", title, {"sites": sites}, comparison, forms, codes)
            yield results.Measured([part], code.missing(codes), [])
            for built in objects:
                built.path.unlink()
