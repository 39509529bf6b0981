"""A whole run: each workload of each program, dormant and with a marker on."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from markerjit.apps.bench.api import (
    BASELINE,
    Form,
    Missing,
    NotCounted,
    counted,
    file_name,
    machine,
    results,
    why_missing,
)
from real import active, building, comparing, counting
from real.programs import Program, Workload
from real.running import run

Progress = Callable[[str, float], None]
"""Told of what is done, and how much of it is done."""
Interrupted = KeyboardInterrupt | None
UNIT = "%"
KIND = "program"
_ACTIVE_SHARE = 0.4


class Plan(NamedTuple):
    """What is to be measured, and for how many seconds in all. Compiling comes on top."""

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


class Piece(NamedTuple):
    """A comparison: its title, its share of the time, and what measures it in so many seconds."""

    title: str
    share: float
    measure: Callable[[float, Callable[[float], None]], results.Measured]


def measure(plan: Plan, progress: Progress) -> tuple[dict[str, Any], Interrupted]:
    """A document as results.py keeps it, and the interruption that ended the run early: then the
    comparisons that were complete are in it. Raises KeyboardInterrupt where none was, Refused and
    MarkerError."""
    tools = building.Toolchain(plan.compiler, directory=plan.directory)
    load = machine.load()
    plan.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="run-", dir=plan.directory) as name:
        built = []
        for program in plan.programs:
            progress(f"compiling {program.name}", 0)
            built.append(build(program, plan.layouts, tools, Path(name)))
        measured, interrupted = run_pieces(_pieces(built, plan.layouts), plan.seconds, progress)
    missing = [lost for build in built for lost in build.missing]
    versions = {
        program.name: building.version_of(program, plan.directory) for program in plan.programs
    }
    facts = machine.about({plan.compiler: list(tools.flags)})
    facts |= {"programs": versions, "load": load, "load at the end": machine.load()}
    if interrupted:
        done = counted(len(measured.parts), "comparison")
        facts[results.ENDED_EARLY] = f"interrupted after {done}; what comes after is not here"
    whole = results.Measured([], missing, []).with_more(measured)
    return results.whole(facts, whole), interrupted


def run_pieces(
    pieces: Sequence[Piece], seconds: float, progress: Progress
) -> tuple[results.Measured, Interrupted]:
    """Measure the pieces, each in its share of the time that is left, so that one that took longer
    takes from those behind it. Raises KeyboardInterrupt where it comes before the first is done."""
    deadline = time.monotonic() + seconds
    measured = results.Measured([], [], [])
    for number, piece in enumerate(pieces):
        title = f"{number + 1} of {len(pieces)}, {piece.title}"
        progress(title, 0)
        left = max(deadline - time.monotonic(), 0)
        own = left * piece.share / sum(later.share for later in pieces[number:])
        try:
            measured = measured.with_more(piece.measure(own, partial(progress, title)))
        except KeyboardInterrupt as error:
            if not measured.parts:
                raise
            return measured, error
    return measured, None


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


def _pieces(built: Sequence[Built], layouts: int) -> list[Piece]:
    """Each workload, and each marker that is on in one. Each has an equal share of its kind."""
    cpu = machine.quiet_cpu()
    works = [(build, workload) for build in built for workload in build.program.workloads]
    on = [(build, workload, marker) for build, workload in works for marker in workload.active]
    share = (1 - _ACTIVE_SHARE) / len(works)
    dormant = [
        Piece(workload.name, share, partial(_dormant, build, workload, layouts, cpu))
        for build, workload in works
    ]
    share = _ACTIVE_SHARE / max(len(on), 1)
    return dormant + [
        Piece(_title(workload, marker), share, partial(_active, build, workload, marker, cpu))
        for build, workload, marker in on
    ]


def _title(workload: Workload, marker: str) -> str:
    return f"{workload.name}, {marker} on"


def _dormant(
    built: Built, workload: Workload, layouts: int, cpu: int, seconds: float,
    progress: Callable[[float], None],
) -> results.Measured:  # fmt: skip
    runs = {
        (form, layout): partial(_cpu_seconds, path, workload, cpu)
        for form, paths in built.paths.items()
        for layout, path in enumerate(paths)
    }
    timed = comparing.compare(built.forms, layouts, runs, comparing.Limits(seconds), progress)
    passed = run(built.truth, workload.arguments).passed
    made = part(workload.name, built.forms, timed, {"passed": passed})
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
    built: Built, workload: Workload, marker: str, cpu: int, seconds: float,
    progress: Callable[[float], None],
) -> results.Measured:  # fmt: skip
    """In one layout: what is on costs more than a layout does."""
    passed = run(built.truth, workload.arguments).passed[marker]
    switches = active.switches(passed)
    runs = {
        (switch.form.name, 0): partial(
            active.timed_run, built.paths[switch.build][0], workload, marker, switch, cpu, passed
        )
        for switch in switches
    }
    forms = [switch.form for switch in switches]
    timed = comparing.compare(forms, 1, runs, comparing.Limits(seconds), progress, repeat=3)
    setting = {"active": marker, "passed": {marker: passed}}
    return results.Measured([part(_title(workload, marker), forms, timed, setting)], [], [])


def _cpu_seconds(path: Path, workload: Workload, cpu: int) -> float:
    return run(path, workload.arguments, cpu=cpu).cpu


def part(
    title: str, forms: Iterable[Form], timed: comparing.Timed, setting: Mapping[str, Any]
) -> dict[str, Any]:
    """One comparison. `seconds` of a form are what it took, `samples` are that in percent of the
    baseline in the same round. `repeat` is how often it ran in a round."""
    made = results.part(KIND, title, setting, timed.comparison, list(forms), {}, unit=UNIT)
    for form in made["forms"]:
        form["seconds"] = timed.seconds[form["name"]].round(6).tolist()
    made["repeat"] = timed.repeat
    made["seconds"] = float(timed.seconds[BASELINE].mean())
    return made
