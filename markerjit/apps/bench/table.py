"""A run of the bench in a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from markerjit.apps.bench.dormant import knee
from markerjit.apps.bench.dormant.check import sameness
from markerjit.apps.bench.report.grid import WIDE, grid_for
from markerjit.apps.bench.sampling import core, figures
from markerjit.apps.bench.sampling.figures import figure, noise, signed
from markerjit.apps.bench.sampling.results import ENDED_EARLY
from markerjit.apps.bench.sampling.shapes import NOTHING, Part, report
from markerjit.apps.bench.sampling.statistics import Estimate
from markerjit.apps.bench.toggle import table as toggle

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Run = Mapping[str, Any]
_CODE = {"instr.": "instructions", "hot B": "hot_bytes", "all B": "bytes", "data B": "data_bytes"}
"""The titles of the columns about a form's code, and their names in results."""
_ONLY_WIDE = ("bytes", "data_bytes")
_SHARED = "core shared"
_NAME = 24
"""Characters of a form's name that are not folded, however little room there is."""
_MACHINE = ("processor", "family", "cpus", "virtual machine", "governor", "kernel")


def show(run: Run, console: Console) -> None:
    """Print a run: the machine, a table for each comparison, and the forms that were not
    measured."""
    for line in about(run["machine"]):
        console.print(line, highlight=False)
    if early := run["machine"].get(ENDED_EARLY):
        console.print(f"THE RUN ENDED EARLY: {early}", highlight=False)
    for part in run["parts"]:
        if part["kind"] == toggle.KIND:
            continue
        console.print()
        console.print(table(part, console.width))
        for control in part.get("known", ()):
            console.print(known_cost(control), highlight=False)
        if same := sameness(part):
            console.print(same, highlight=False)
        if part["noisy"]:
            console.print(part["noisy"], style="yellow", highlight=False)
    for grid in toggle.tables(report(run), console.width):
        console.print()
        console.print(grid)
    if knees := knee.sentence(knee.points(report(run))):
        console.print(f"\n{knees}", highlight=False)
    for absent in run["missing"]:
        console.print(f"not measured: {absent['form']}: {absent['why']}", highlight=False)


def known_cost(control: Mapping[str, Any]) -> str:
    """A known cost beside the measured one."""
    cost = Estimate(**control["cost"])
    does = "found" if control["found"] else "MISSED, so do not believe small differences"
    expected = f"{control['known']:.3f} ns is known"
    return f"{control['more']} more: {expected}, {cost.text()} measured: {does}"


def show_comparison(before: Run, after: Run, console: Console) -> None:
    """Print a comparison of two runs: for each form and setting of both, its costs, and whether
    they differ."""
    for name, run in (("before", before), ("after", after)):
        for line in about(run["machine"]):
            console.print(f"{name}: {line}", highlight=False)
    earlier = {part.title: part for part in report(before).parts}
    later = report(after).parts
    for part in later:
        other = earlier.get(part.title)
        if other is None:
            console.print(f"only after: {part.title}", highlight=False)
            continue
        grid = grid_for(console.width, title=part.title)
        grid.add_column("form")
        for name in ("before", "after"):
            grid.add_column(name, justify="right")
        grid.add_column("")
        for row in _compared(other, part):
            grid.add_row(*row)
        console.print()
        console.print(grid)
    for title in earlier.keys() - {part.title for part in later}:
        console.print(f"only before: {title}", highlight=False)


def _compared(before: Part, after: Part) -> Iterator[tuple[str, ...]]:
    """The costs of each form before and after. For a switch this is its whole time, because its
    baseline is not zero."""
    is_whole = after.kind == toggle.KIND
    unit = figures.TIME if is_whole else figures.unit(after.unit)
    slack = max(before.floor, after.floor)
    for form in after.forms:
        other = before.form(form.name)
        if other is None or (form.is_baseline and not is_whole):
            continue
        pair = (other.level, form.level) if is_whole else (other.cost, form.cost)
        verdict = "no verdict" if before.noisy or after.noisy else changed(*pair, slack)
        yield form.name, *(cost.text(unit) for cost in pair), verdict


def changed(before: Estimate, after: Estimate, slack: float) -> str:
    """Whether two costs differ, in words. They do not if their intervals meet, or nearly do."""
    if after.low - before.high > slack:
        return "more expensive"
    if before.low - after.high > slack:
        return "cheaper"
    return "not distinguishable"


def about(machine: Mapping[str, Any]) -> Iterator[str]:
    """The machine, in lines. A fact that is missing in a file is a question mark."""
    facts = {name: machine.get(name, "?") for name in _MACHINE}
    yield (
        "{processor} (family {family}), {cpus} CPUs, virtual machine: {virtual machine}, "
        "governor: {governor}".format(**facts)
    )
    before, after = (machine.get(name, "?") for name in ("load", "load at the end"))
    yield f"load before {_loaded(before)}, at the end {_loaded(after)}"
    if isinstance(before, float) and before > machine.get("cpus", before):
        yield "THE MACHINE WAS BUSY before the bench began: repeat it when it is not"
    for name, (first, *flags) in machine.get("compilers", {}).items():
        yield f"Linux {facts['kernel']}; {name}: {first}; {' '.join(flags)}"


def _loaded(load: object) -> str:
    return f"{load:.2f}" if isinstance(load, float) else str(load)


def table(part: Mapping[str, Any], width: int) -> Table:
    """The table of one comparison. A narrow table leaves out two of the sizes of code, which wider
    ones and files have."""
    names = [form["name"] for form in part["forms"]]
    code = _CODE if any("bytes" in form for form in part["forms"]) else {}
    if width < WIDE:
        code = {title: key for title, key in code.items() if key not in _ONLY_WIDE}
    shared = any("shared" in form for form in part["forms"])
    is_parted = any("left_out" in form for form in part["forms"])
    of_core = core.sentence(part.get("alone", 1), is_parted)
    lines = [
        f"{part['unit']} for each execution, more than {part['forms'][0]['baseline']}, "
        "whose own time is in brackets.",
        noise(part["floor"], part["again"], part["unit"]),
        f"{of_core} {_SHARED}: of the others." if shared else of_core,
    ]
    grid = grid_for(width, title=part["title"], caption="\n".join(filter(None, lines)))
    grid.add_column("form", min_width=min(max(map(len, names)), _NAME))
    with_shared = shared and (not code or width >= WIDE)
    of_shared = [_SHARED] if with_shared else []
    for name in (f"{part['unit']} more", "95 %", "differs", *of_shared, *code):
        grid.add_column(name, justify="right", no_wrap=True)
    by_name = {form["name"]: form for form in part["forms"]}
    for form in part["forms"]:
        base = by_name[form["baseline"]]
        cost = form["cost"]
        differs = "?" if part["noisy"] else "no" if form["verdict"].startswith(NOTHING) else "yes"
        grid.add_row(
            form["name"],
            *(
                (f"({figure(form['level']['value'])})", "", "")
                if form is base
                else (
                    signed(cost["value"]),
                    f"{signed(cost['low'])} … {signed(cost['high'])}",
                    differs,
                )
            ),
            *(_of_shared(form, base) for _ in of_shared),
            *(_size(form, base, key) for key in code.values()),
            style="dim" if form is base or differs == "no" else "",
        )
    return grid


def _of_shared(form: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """The cost while something else has a part of the core."""
    if "shared" not in form:
        return ""
    level, cost = (form["shared"][name]["value"] for name in ("level", "cost"))
    return f"({figure(level)})" if form is base else signed(cost)


def _size(form: Mapping[str, Any], base: Mapping[str, Any], key: str) -> str:
    """A size of code as the difference to that of the baseline. A size of data is shown as it
    is."""
    if form.get(key) is None or base.get(key) is None:
        return "–"
    is_whole = form is base or key == "data_bytes"
    return f"{form[key]:,.0f}" if is_whole else f"{form[key] - base[key]:+,.0f}"
