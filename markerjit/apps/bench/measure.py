"""A whole run of the bench: what is compared, one setting after the other."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import markerjit
from markerjit.apps.bench import controls, large, machine, own, results
from markerjit.apps.bench.build import CFLAGS, Missing, Object, build, skips, why_missing
from markerjit.apps.bench.code import Code, look_at
from markerjit.apps.bench.compare import Comparison, Limits, compare
from markerjit.apps.bench.forms import AGAIN, BASELINE, CALL, FORMS, Form
from markerjit.apps.bench.place import Place
from markerjit.apps.bench.runner import Runner
from markerjit.errors import Refused

NATIVE = Path(markerjit.__file__).parent / "_native"
Progress = Callable[[str, float], None]
"""Is told what is being done, and how much of it, from 0 to 1."""


class Plan(NamedTuple):
    """What is to be measured.

    seconds     of measuring in all
    args        numbers of arguments, in the small loop
    parts       of 997 sites each, in the large setting
    source      somebody's own file instead, and its `function`
    """

    seconds: float
    args: Sequence[int] = (2,)
    parts: Sequence[int] = (1, 5, 10, 20)
    layouts: int = 4
    compiler: str = "gcc"
    source: Path | None = None
    function: str = ""


def run(plan: Plan, progress: Progress) -> dict[str, Any]:
    """Measure; the result is as results.py keeps it. Raises Refused, DoesNotCompile."""
    if shutil.which(plan.compiler) is None:
        raise Refused(f"{plan.compiler} is not here; apt-get install gcc, or name one with --cc")
    with place_for(plan.compiler) as place:
        if plan.source:
            forms = [one for one in FORMS if one.name != CALL and one.is_ours]
            missing: list[Missing] = []
            parts = [_own(plan, forms, place, progress)]
        else:
            forms, missing = _buildable(place)
            parts = [_controls(plan, place, progress)]
            settings = [(args, computed) for computed in (False, True) for args in plan.args]
            limits = Limits(plan.seconds / (len(settings) + len(plan.parts)))
            parts += [
                _hot(args, computed, plan, forms, place, limits, progress)
                for args, computed in settings
            ]
            parts += _large(plan, forms, place, limits, progress)
    compilers = dict.fromkeys([plan.compiler, *(one.compiler for one in forms if one.compiler)])
    about = machine.about({name: list(CFLAGS) for name in compilers})
    return results.whole(about, parts, missing)


@contextmanager
def place_for(compiler: str) -> Iterator[Place]:
    """Where things are; what is built there goes away with it."""
    with tempfile.TemporaryDirectory(prefix="markerjit-bench-") as name:
        yield Place(
            NATIVE / "bench", NATIVE / "include", NATIVE / "bench" / "runner", Path(name), compiler,
            machine.quiet_cpu(),
        )  # fmt: skip


def _controls(plan: Plan, place: Place, progress: Progress) -> dict[str, Any]:
    title = "the bench itself: a chain of additions, and more of them"
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        objects = _hot_objects(controls.FORMS, 1, False, plan.layouts, place, Path(name))
        found = _compare(objects, place, Limits(plan.seconds / 20), title, progress)
    part = results.part("control", title, {}, found, controls.FORMS, {}, again=controls.AGAIN)
    return part | {"known": controls.check(found)}


def _hot_objects(
    forms: Sequence[Form], args: int, computed: bool, layouts: int, place: Place, directory: Path
) -> list[Object]:
    flags = [f"-DBENCH_ARGS={args}", f"-DBENCH_COMPUTED={computed:d}"]
    return [
        build(
            place.sources / "hot.c", form, layout, skip, flags,
            directory=directory, chosen=place.compiler, include=[place.include, place.sources],
        )
        for form in forms
        for layout, skip in enumerate(skips(layouts))
    ]  # fmt: skip


def _buildable(place: Place) -> tuple[list[Form], list[Missing]]:
    there, missing = [], []
    for form in FORMS:
        why = why_missing(form, place.compiler, [place.include])
        if why:
            missing.append(Missing(form, why))
        else:
            there.append(form)
    return there, missing


def _hot(
    args: int,
    computed: bool,
    plan: Plan,
    forms: Sequence[Form],
    place: Place,
    limits: Limits,
    progress: Progress,
) -> dict[str, Any]:
    kind = "computed for it alone" if computed else "which the loop needs anyway"
    title = f"a small loop, {args} argument{'' if args == 1 else 's'}, {kind}"
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        objects = _hot_objects(forms, args, computed, plan.layouts, place, Path(name))
        found = _compare(objects, place, limits, title, progress)
        code = _code(objects, place)
    setting = {"args": args, "computed": computed}
    return results.part("hot", title, setting, found, forms, code)


def _large(
    plan: Plan, forms: Sequence[Form], place: Place, limits: Limits, progress: Progress
) -> Iterator[dict[str, Any]]:
    if not plan.parts:
        return
    forms = [one for one in forms if one.may_be_many]
    with tempfile.TemporaryDirectory(dir=place.directory) as name:
        directory = Path(name)
        compiled = {}
        for number, form in enumerate(forms):
            progress(f"compiling {large.FUNCTIONS} sites", number / len(forms))
            compiled[form] = large.compile_part(form, place, directory)
        for parts in plan.parts:
            sites = parts * large.FUNCTIONS
            title = f"{sites} sites, visited in a scattered order"
            progress(f"linking {sites} sites", 0)
            objects = [
                one
                for form in forms
                for one in large.link(
                    compiled[form], parts, form, place, directory, layouts=plan.layouts
                )
            ]
            found = _compare(objects, place, limits, title, progress, sites=sites)
            yield results.part("large", title, {"sites": sites}, found, forms, {})
            for one in objects:
                one.path.unlink()


def _own(plan: Plan, forms: Sequence[Form], place: Place, progress: Progress) -> dict[str, Any]:
    assert plan.source
    title = f"{plan.function} of {plan.source.name}"
    objects = list(
        own.objects(plan.source, plan.function, forms, place, place.directory, plan.layouts)
    )
    found = _compare(objects, place, Limits(plan.seconds), title, progress)
    setting = {"source": str(plan.source), "function": plan.function}
    return results.part("own", title, setting, found, forms, _code(objects, place))


def _compare(
    objects: Sequence[Object],
    place: Place,
    limits: Limits,
    title: str,
    progress: Progress,
    *,
    sites: int = 1,
) -> Comparison:
    with Runner(place.runner, [one.path for one in objects], cpu=place.cpu) as runner:
        return compare(
            objects, runner, limits, sites=sites, progress=lambda done: progress(title, done)
        )


def _code(objects: Sequence[Object], place: Place) -> dict[str, Code]:
    """Of the first layout."""
    return {one.form.name: look_at(one.path, place.runner) for one in objects if one.layout == 0}


__all__ = ["AGAIN", "BASELINE", "Plan", "place_for", "run"]
