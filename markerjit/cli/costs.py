"""What a hit costs, from a result of the bench that the user has kept."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from markerjit.errors import Refused


def add_bench(parser: argparse.ArgumentParser) -> None:
    """--bench: the result to take costs from."""
    parser.add_argument(
        "--bench",
        metavar="FILE",
        type=Path,
        help="also show what a hit costs: a result of `markerjit bench active --json FILE`",
    )


def costs_of(path: Path) -> dict[str, float]:
    """What a hit of an active marker costs, in nanoseconds, with one thread. Raises Refused."""
    return {form["name"]: form["cost"]["value"] for form in _active_forms(path)}


def samples_of(path: Path) -> dict[str, list[float]]:
    """The samples that these costs were made of: each less its baseline's. Raises Refused."""
    forms = {form["name"]: form for form in _active_forms(path)}
    return {
        name: [
            own - base
            for row, base_row in zip(form["samples"], forms[baseline]["samples"], strict=True)
            for own, base in zip(row, base_row, strict=True)
        ]
        for name, form in forms.items()
        if (baseline := form["baseline"]) in forms and baseline != name
    }


def _active_forms(path: Path) -> list[dict[str, Any]]:
    from markerjit.apps.bench.sampling import results

    active = [part for part in results.read(path)["parts"] if part["kind"] == "active"]
    if not active:
        raise Refused(f"{path} has no active markers; markerjit bench active --json FILE has")
    forms: list[dict[str, Any]] = active[0]["forms"]
    return forms
