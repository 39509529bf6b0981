"""A whole run: each workload of each program, dormant and with a marker on."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from markerjit.apps.bench.api import (
    BASELINE,
    Form,
    Missing,
    NotCounted,
    file_name,
    machine,
    results,
    why_missing,
)
from real import active, building, comparing, counting
from real.programs import Program, Workload
from real.running import run

Progress = Callable[[str, float], None]
UNIT = "%"
KIND = "program"
_ACTIVE_SHARE = 0.4


class Plan(NamedTuple):
    """What is to be measured: `seconds` of it in all, compiling comes on top."""

    programs: tuple[Program, ...]
    seconds: float
    layouts: int = 3
    compiler: str = "gcc"
    directory: Path = building.DIRECTORY


class Built(NamedTuple):
    """A program in every form that can be built here: by form, a path for each layout; and the one
    that counts for itself."""

    program: Program
    forms: list[Form]
    paths: dict[str, list[Path]]
    truth: Path
    missing: list[Missing]


def measure(plan: Plan, progress: Progress) -> dict[str, Any]:
    """As results.py keeps it. Raises Refused, MarkerError."""
    tools = building.Toolchain(plan.compiler, directory=plan.directory)
    load = machine.load()
    plan.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=plan.directory) as name:
        built = []
        for number, program in enumerate(plan.programs):
            progress("compiling", number / len(plan.programs))
            built.append(build(program, plan.layouts, tools, Path(name)))
        measured = _measured(built, plan, progress)
    versions = {
        program.name: building.version_of(program, plan.directory) for program in plan.programs
    }
    about = machine.about({plan.compiler: list(tools.flags)})
    loads = {"load": load, "load at the end": machine.load()}
    return results.whole({**about, "programs": versions, **loads}, measured)


def build(program: Program, layouts: int, tools: building.Toolchain, directory: Path) -> Built:
    """In every form and layout. Raises Refused."""
    missing = {
        form.name: Missing(form, why)
        for form in building.COMPARED
        if (why := why_missing(form, tools.compiler, [building.INCLUDE]))
    }
    forms = [form for form in building.COMPARED if form.name not in missing]
    tree = building.tree_of(program, tools.directory)
    objects = building.compile_all(program, tree, [*forms, building.TRUTH], tools)

    def linked(form: Form, layout: int) -> Path:
        # Names of one length: the kernel puts them onto the stack, and moves what is below.
        target = directory / f"{program.name}-{file_name(form):x<20}-{layout}"
        return building.link(program, objects[form.name], layout, layouts, target, tools)

    paths = {form.name: [linked(form, layout) for layout in range(layouts)] for form in forms}
    truth = linked(building.TRUTH, 0)
    return Built(program, forms, paths, truth, list(missing.values()))


def _measured(built: Sequence[Built], plan: Plan, progress: Progress) -> results.Measured:
    """Of the time, each workload and each active marker has an equal share of its kind."""
    works = [(build, workload) for build in built for workload in build.program.workloads]
    on = [(build, workload, marker) for build, workload in works for marker in workload.active]
    cpu = machine.quiet_cpu()
    each = plan.seconds * (1 - _ACTIVE_SHARE) / len(works)
    measured = results.Measured([], [lost for build in built for lost in build.missing], [])
    for build, workload in works:
        measured = measured.with_more(_dormant(build, workload, plan.layouts, each, cpu, progress))
    each = plan.seconds * _ACTIVE_SHARE / max(len(on), 1)
    parts = [_active(*case, each, cpu, progress) for case in on]
    return measured.with_more(results.Measured(parts, [], []))


def _dormant(
    built: Built, workload: Workload, layouts: int, seconds: float, cpu: int, progress: Progress
) -> results.Measured:
    runs = {
        (form, layout): partial(_cpu_seconds, path, workload, cpu)
        for form, paths in built.paths.items()
        for layout, path in enumerate(paths)
    }
    timed = comparing.compare(
        built.forms, layouts, runs, comparing.Limits(seconds), partial(progress, workload.name)
    )
    passed = run(built.truth, workload.arguments).passed
    made = part(workload.name, built.forms, timed, {"passed": passed})
    progress(f"{workload.name}, instructions", 1.0)
    return results.Measured([made], count(made["forms"], built, workload), [])


def count(forms: Sequence[dict[str, Any]], built: Built, workload: Workload) -> list[Missing]:
    """Put into each form how many instructions it takes; what is missing then."""
    for form in forms:
        try:
            form["instructions"] = counting.instructions(built.paths[form["name"]][0], workload)
        except NotCounted as error:
            return [Missing(Form("instructions", (), ""), str(error))]
    return []


def _active(
    built: Built, workload: Workload, marker: str, seconds: float, cpu: int, progress: Progress
) -> dict[str, Any]:
    """In one layout: what is on costs more than a layout does."""
    passed = run(built.truth, workload.arguments).passed[marker]
    switches = active.switches(passed)
    runs = {
        (switch.form.name, 0): partial(
            active.timed_run, built.paths[switch.build][0], workload, marker, switch, cpu, passed
        )
        for switch in switches
    }
    title = f"{workload.name}, {marker} on"
    forms = [switch.form for switch in switches]
    timed = comparing.compare(
        forms, 1, runs, comparing.Limits(seconds), partial(progress, title), repeat=3
    )
    return part(title, forms, timed, {"active": marker, "passed": {marker: passed}})


def _cpu_seconds(path: Path, workload: Workload, cpu: int) -> float:
    return run(path, workload.arguments, cpu=cpu).cpu


def part(
    title: str, forms: Iterable[Form], timed: comparing.Timed, setting: Mapping[str, Any]
) -> dict[str, Any]:
    """One comparison. `seconds` of a form are what it took, `samples` are that in percent of the
    baseline in the same round."""
    made = results.part(KIND, title, setting, timed.comparison, list(forms), {}, unit=UNIT)
    for form in made["forms"]:
        form["seconds"] = timed.seconds[form["name"]].round(6).tolist()
    made["seconds"] = float(timed.seconds[BASELINE].mean())
    return made
