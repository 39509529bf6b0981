"""The results of a bench in the form of a file, with every sample and the verdicts."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from markerjit.apps.bench.sampling import figures
from markerjit.apps.bench.sampling.build import Missing
from markerjit.apps.bench.sampling.code import Code
from markerjit.apps.bench.sampling.compare import Comparison
from markerjit.apps.bench.sampling.figures import Unit
from markerjit.apps.bench.sampling.form import AGAIN, CALL, Form
from markerjit.apps.bench.sampling.shapes import VERSION, report
from markerjit.apps.bench.sampling.statistics import is_noisy, reach, verdict
from markerjit.errors import Refused
from markerjit.tuples import NamedTuple

ENDED_EARLY = "ended early"
"""The fact about a run that was interrupted, beside those about the machine."""


class Measured(NamedTuple):
    """The results of one kind of cost. `compilers` are the compilers that were used besides the
    user's."""

    parts: list[dict[str, Any]]
    missing: list[Missing]
    compilers: list[str]

    def with_more(self, more: Measured) -> Measured:
        """These results and more."""
        return Measured(
            self.parts + more.parts, self.missing + more.missing, self.compilers + more.compilers
        )


def part(
    kind: str,
    title: str,
    setting: Mapping[str, Any],
    comparison: Comparison,
    forms: Sequence[Form],
    code: Mapping[str, Code],
    *,
    again: str = AGAIN,
    unit: str = "ns",
    control: str | None = CALL,
) -> dict[str, Any]:
    """One comparison. Figures are in `unit` for each execution of a site. `again` is the form that
    repeats the baseline, and `control` a form that must stand out of the noise."""
    floor = comparison.floor(again)
    of_control = comparison.cost(control) if control in comparison.samples else None
    shown = figures.unit(unit)
    noisy = is_noisy(comparison.samples[again], floor, of_control, shown)
    return {
        "kind": kind,
        "title": title,
        "setting": dict(setting),
        "unit": unit,
        "executions": comparison.executions,
        "floor": floor,
        "again": reach(comparison.cost(again)),
        "noisy": noisy,
        "alone": round(comparison.alone, 4),
        "forms": [
            _form(form, comparison, code.get(form.name), floor, noisy, shown)
            for form in forms
            if form.name in comparison.samples
        ],
    }


def _form(
    form: Form, comparison: Comparison, code: Code | None, floor: float, noisy: str, unit: Unit
) -> dict[str, Any]:
    cost, shared = comparison.cost(form.name), comparison.shared(form.name)
    samples = comparison.samples[form.name]
    facts: dict[str, Any] = {
        "name": form.name,
        "what": form.what,
        "baseline": form.baseline,
        "level": comparison.level(form.name)._asdict(),
        "cost": cost._asdict(),
        "verdict": noisy or verdict(cost, floor, form.baseline, unit),
        "samples": np.round(
            np.where(np.isnan(samples), comparison.others.get(form.name, samples), samples), 4
        ).tolist(),
    }
    if shared:
        facts["shared"] = {name: value._asdict() for name, value in shared._asdict().items()}
    if comparison.others:
        facts["left_out"] = np.isnan(samples).astype(int).tolist()
    if code:
        hot = {line.address for line in code.hot or ()}
        facts |= {
            "bytes": code.whole,
            "hot_bytes": code.hot_bytes,
            "data_bytes": code.data_bytes,
            "instructions": code.instructions,
            "assembly": [
                {"address": line.address, "code": line.code.hex(), "text": line.text,
                 "hot": line.address in hot}
                for line in code.lines
            ],
        }  # fmt: skip
    return facts


def whole(machine: Mapping[str, Any], result: Measured) -> dict[str, Any]:
    """The document of a run."""
    missing = {absent.form.name: absent.why for absent in result.missing}
    return {
        "version": VERSION,
        "machine": dict(machine),
        "missing": [{"form": name, "why": why} for name, why in missing.items()],
        "parts": result.parts,
    }


def write(run: Mapping[str, Any], path: Path) -> None:
    """Write a run into a file, compressed where its name ends in .gz. Raises OSError."""
    data = (json.dumps(run, ensure_ascii=False) + "\n").encode()
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def read(path: Path) -> dict[str, Any]:
    """A run from a file. Raises Refused for anything else."""
    try:
        data = path.read_bytes()
        run = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
        report(run)
    except OSError as error:
        why = error.strerror or "it is not compressed by gzip"
        raise Refused(f"cannot read {path}: {why}") from None
    except (ValueError, EOFError, zlib.error, RecursionError) as error:
        raise Refused(f"{path} is not a result of markerjit bench: {error}") from None
    except Refused as error:
        raise Refused(f"{path} is {error}") from None
    return dict(run)
