"""The cost of a dormant site, in a small loop and among thousands."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import chain
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
from markerjit.apps.bench.sampling.plan import Plan, Progress


def measure(plan: Plan, place: Place, progress: Progress) -> results.Measured:
    """Measure all settings. Raises Refused, DoesNotCompile."""
    forms, missing = _buildable(asked_for(plan.only), place)
    parts = [control(plan.seconds / 20, plan.layouts, place, progress)]
    result = results.Measured(parts, missing, [form.compiler for form in forms if form.compiler])
    settings = [(args, computed) for computed in (False, True) for args in plan.args]
    limits = Limits(plan.seconds / (len(settings) + len(plan.parts)))
    for args, computed in settings:
        result = result.with_more(_hot(args, computed, plan, forms, place, limits, progress))
    for more in _large(plan, forms, place, limits, progress):
        result = result.with_more(more)
    return result


def control(seconds: float, layouts: int, place: Place, progress: Progress) -> dict[str, Any]:
    """Measure costs that are known. Raises DoesNotCompile."""
    title = "the bench itself: a chain of additions, and more of them"
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        objects = hot_objects(controls.FORMS, 1, False, layouts, place, Path(name))
        comparison = compare_objects(objects, place, Limits(seconds), title, progress)
    part = results.part("control", title, {}, comparison, controls.FORMS, {}, again=controls.AGAIN)
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
) -> list[Object]:
    """Small loops with these forms, in several layouts. Raises DoesNotCompile."""
    flags = [f"-DBENCH_ARGS={args}", f"-DBENCH_COMPUTED={computed:d}"]
    return build_all(
        place.sources / "dormant" / "hot.c", forms, layouts, flags, directory=directory,
        chosen=place.compiler, include=[place.include, place.sources / "dormant"],
        elsewhere=elsewhere,
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
    limits: Limits,
    progress: Progress,
) -> results.Measured:
    kind = "computed for it alone" if computed else "which the loop needs anyway"
    title = f"a small loop, {counted(args, 'argument')}, {kind}"
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        objects = hot_objects(forms, args, computed, plan.layouts, place, Path(name))
        comparison = compare_objects(objects, place, limits, title, progress)
        codes = code_of(objects, place, comparison)
    setting = {"args": args, "computed": computed}
    part = results.part("hot", title, setting, comparison, forms, codes)
    return results.Measured([part], code.missing(codes), [])


def _large(
    plan: Plan, forms: Sequence[Form], place: Place, limits: Limits, progress: Progress
) -> Iterator[results.Measured]:
    if not plan.parts:
        return
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        directory = Path(name)
        progress(f"compiling {large.FUNCTIONS} sites", 0)
        compiled = at_once(lambda form: large.compile_part(form, place, directory), forms)
        for parts in plan.parts:
            sites = parts * large.FUNCTIONS
            title = f"{sites} sites, visited in a scattered order"
            progress(f"linking {sites} sites", 0)
            linked = at_once(
                partial(large.link, copies=parts, place=place, layouts=plan.layouts), compiled
            )
            objects = list(chain.from_iterable(linked))
            comparison = compare_objects(objects, place, limits, title, progress, sites=sites)
            # A site is the same code however many there are: to count the fewest is enough.
            codes = code_of(objects, place, comparison, sites) if parts == min(plan.parts) else {}
            part = results.part("large", title, {"sites": sites}, comparison, forms, codes)
            yield results.Measured([part], code.missing(codes), [])
            for built in objects:
                built.path.unlink()
