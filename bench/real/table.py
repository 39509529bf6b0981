"""A run of whole programs in a terminal."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from markerjit.apps.bench.api import NOTHING, about, counted, noise, results

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

Part = Mapping[str, Any]


def show(run: Mapping[str, Any], console: Console) -> None:
    """Print it: the machine, a table for each workload, and what was left out."""
    for line in about(run["machine"]):
        console.print(line, highlight=False)
    versions = run["machine"].get("programs", {})
    console.print(
        *(f"{name} {version}" for name, version in versions.items()), sep=", ", highlight=False
    )
    if early := run["machine"].get(results.ENDED_EARLY):
        console.print(f"THE RUN ENDED EARLY: {early}", highlight=False)
    for part in run["parts"]:
        console.print()
        console.print(table(part))
        if part["noisy"]:
            console.print(part["noisy"], style="yellow", highlight=False)
    for entry in run["missing"]:
        console.print(f"not measured: {entry['form']}: {entry['why']}", highlight=False)


def table(part: Part) -> Table:
    """One workload."""
    from rich.table import Table

    made = Table(
        title=part["title"],
        caption=f"% more CPU time than no marker, which takes {part['seconds']:.3f} s; "
        f"{sampled(part)}\n"
        f"{noise(part['floor'], part['again'], part['unit'])}\n{passed(part)}",
        title_justify="left",
        caption_justify="left",
    )
    made.add_column("form")
    for name in ("% more", "95 %", "differs", "% more instr."):
        made.add_column(name, justify="right", no_wrap=True)
    by_name = {form["name"]: form for form in part["forms"]}
    for form in part["forms"]:
        base = by_name[form["baseline"]]
        if form is base:
            continue
        cost = form["cost"]
        differs = "?" if part["noisy"] else "no" if form["verdict"].startswith(NOTHING) else "yes"
        made.add_row(
            form["name"], f"{cost['value']:+.2f}", f"{cost['low']:+.2f} … {cost['high']:+.2f}",
            differs, more_instructions(form, base), style="dim" if differs == "no" else "",
        )  # fmt: skip
    return made


def more_instructions(form: Mapping[str, Any], base: Mapping[str, Any]) -> str:
    """In percent."""
    if not form.get("instructions") or not base.get("instructions"):
        return "–"
    return f"{100 * (form['instructions'] / base['instructions'] - 1):+.2f}"


def passed(part: Part) -> str:
    """How often each marker was passed in a run, as the program has counted it."""
    counts = {name: times for name, times in part["setting"]["passed"].items() if times}
    return "passed in a run: " + ", ".join(f"{name} {times:,}" for name, times in counts.items())


def sampled(part: Part) -> str:
    """The number of layouts, of rounds, and of runs in a round."""
    layouts = part["forms"][0]["samples"]
    times = f", each the least of {counted(part['repeat'], 'run')}" if "repeat" in part else ""
    return f"{counted(len(layouts[0]), 'round')} in {counted(len(layouts), 'layout')}{times}"
