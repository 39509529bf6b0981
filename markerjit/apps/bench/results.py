"""What a bench has found, as it is kept in a file: every sample, and what is said of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from markerjit.apps.bench.build import Missing
from markerjit.apps.bench.code import Code
from markerjit.apps.bench.compare import Comparison
from markerjit.apps.bench.forms import AGAIN, CALL, Form
from markerjit.apps.bench.statistics import Estimate, is_noisy, verdict
from markerjit.errors import Refused

VERSION = 1


def part(
    kind: str,
    title: str,
    setting: Mapping[str, Any],
    found: Comparison,
    forms: Sequence[Form],
    code: Mapping[str, Code],
    *,
    again: str = AGAIN,
) -> dict[str, Any]:
    """One comparison. Figures are ns for each execution of a site. `again` is the form that is its
    baseline once more."""
    floor = found.floor(again)
    control = found.cost(CALL) if CALL in found.samples else None
    noisy = is_noisy(found.samples[again], floor, control)
    return {
        "kind": kind,
        "title": title,
        "setting": dict(setting),
        "executions": found.executions,
        "floor": floor,
        "noisy": noisy,
        "forms": [
            _form(form, found, code.get(form.name), floor, noisy)
            for form in forms
            if form.name in found.samples
        ],
    }


def _form(
    form: Form, found: Comparison, code: Code | None, floor: float, noisy: str
) -> dict[str, Any]:
    cost = found.cost(form.name)
    told: dict[str, Any] = {
        "name": form.name,
        "what": form.what,
        "baseline": form.baseline,
        "level": found.level(form.name)._asdict(),
        "cost": cost._asdict(),
        "verdict": noisy or verdict(cost, floor, form.baseline),
        "samples": np.round(found.samples[form.name], 4).tolist(),
    }
    if code:
        hot = {one.address for one in code.hot or ()}
        told |= {
            "bytes": code.whole,
            "hot_bytes": code.hot_bytes,
            "data_bytes": code.data_bytes,
            "instructions": code.instructions,
            "assembly": [
                {"address": one.address, "code": one.code.hex(), "text": one.text,
                 "hot": one.address in hot}
                for one in code.lines
            ],
        }  # fmt: skip
    return told


def whole(
    machine: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], missing: Sequence[Missing]
) -> dict[str, Any]:
    """A run."""
    return {
        "version": VERSION,
        "machine": dict(machine),
        "missing": [{"form": one.form.name, "why": one.why} for one in missing],
        "parts": list(parts),
    }


def write(run: Mapping[str, Any], path: Path) -> None:
    """Keep it. Raises OSError."""
    path.write_text(json.dumps(run, ensure_ascii=False) + "\n", encoding="utf-8")


def read(path: Path) -> dict[str, Any]:
    """A run from a file. Raises Refused for anything else."""
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
        if run["version"] != VERSION:
            raise Refused(f"{path} is of another version of the bench: {run['version']}")
        for one in run["parts"]:
            for form in one["forms"]:
                Estimate(**form["cost"])
    except OSError as error:
        raise Refused(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refused(f"{path} is no result of markerjit bench: {error!r}") from None
    return dict(run)
