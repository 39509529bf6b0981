"""The tables of docs/results/real.md, from a run: bench/pages.py puts them there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from markerjit.apps.bench.api import NOTHING
from real.table import more_instructions, passed, sampled

Part = Mapping[str, Any]


def tables(run: Mapping[str, Any]) -> str:
    """Dormant: forms by workloads, in time and in instructions. With a marker on: a table each."""
    dormant = [part for part in run["parts"] if "active" not in part["setting"]]
    active = [part for part in run["parts"] if "active" in part["setting"]]
    lines = [
        "## Off: % more CPU time", "", *_grid(dormant, _time),
        "", "## Off: % more instructions", "", *_grid(dormant, _instructions),
        "", "## One marker on: % more CPU time", "", *_grid(active, _time),
        "", "## How often markers are passed in a run", "", *_passed(dormant),
    ]  # fmt: skip
    return "\n".join(lines)


def both(part: Part, name: str) -> str:
    """A form's time and instructions; "–" where it was not measured."""
    forms = {form["name"]: form for form in part["forms"]}
    if name not in forms:
        return "–"
    return f"{_time(part, forms, name)}; {_instructions(part, forms, name)}"


def _grid(parts: Sequence[Part], cell: Any) -> Iterator[str]:
    yield f"| form | {' | '.join(part['title'] for part in parts)} |"
    yield f"| --- |{' ---: |' * len(parts)}"
    names = dict.fromkeys(form["name"] for part in parts for form in part["forms"])
    for name in names:
        cells = [cell(part, {form["name"]: form for form in part["forms"]}, name) for part in parts]
        yield f"| {name} | {' | '.join(cells)} |"


def _time(part: Part, forms: Mapping[str, Any], name: str) -> str:
    form = forms.get(name)
    if form is None:
        return "–"
    if form["name"] == form["baseline"]:
        return f"({part['seconds']:.3f} s)"
    cost = form["cost"]
    places = 0 if abs(cost["value"]) >= 100 else 1
    value, low, high = (f"{cost[key]:+.{places}f}" for key in ("value", "low", "high"))
    mark = " ?" if part["noisy"] else " ≈" if form["verdict"].startswith(NOTHING) else ""
    return f"{value} ({low} … {high}){mark}"


def _instructions(part: Part, forms: Mapping[str, Any], name: str) -> str:
    form = forms.get(name)
    if form is None:
        return "–"
    base = forms[form["baseline"]]
    if form is base:
        return f"({form['instructions']:,})" if form.get("instructions") else "–"
    return more_instructions(form, base)


def _passed(parts: Sequence[Part]) -> Iterator[str]:
    for part in parts:
        yield (
            f"- {part['title']}: {passed(part).partition(': ')[2]}. {sampled(part).capitalize()}; "
            f"noise floor {part['floor']:.2f} %."
        )
