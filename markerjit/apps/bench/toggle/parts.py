"""The results of a setting as a file keeps them: a part for each measure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.apps.bench.sampling.figures import TIME
from markerjit.apps.bench.sampling.statistics import (
    FEWEST,
    UNEVEN,
    Estimate,
    difference,
    differs_from_itself,
    level,
    verdict,
)
from markerjit.apps.bench.toggle import once
from markerjit.apps.bench.toggle.command import PASS, PASS_AGAIN, command_name
from markerjit.apps.bench.toggle.crowd import percentile
from markerjit.apps.bench.toggle.rounds import (
    CALL,
    COMMAND,
    HELD,
    ONCE,
    SLOWEST,
    STOPPED,
    Raw,
    Setting,
)
from markerjit.apps.bench.toggle.ways import (
    AGAIN,
    DEFAULT,
    DIRECTIONS,
    FENCE,
    ON,
    QUIET,
    QUIET_AGAIN,
    WAYS,
    form_name,
)

if TYPE_CHECKING:
    from markerjit.apps.bench.sampling.statistics import Array

KIND = "toggle"
MEASURES = {
    CALL: "a switch in an open session",
    COMMAND: "a switch as the command line sees it",
    STOPPED: "the time that the program was stopped",
    HELD: "of that, the time while all threads stood",
    SLOWEST: "the slowest step that the program noticed",
    ONCE: "what is done once, and a switch made before",
}
PERCENTILES = (0.5, 0.99, 0.999, 0.9999)
_SECOND_TIME = "the same once more: its difference is the noise"
_FIRST = form_name(DEFAULT.name, ON)
_FIRST_AGAIN = form_name(AGAIN, ON)


def whats() -> dict[str, str]:
    """The description of each form, in the order of tables. "" is a baseline once more."""
    by_name = {
        form_name(name, direction): what
        for name, what in [
            (DEFAULT.name, DEFAULT.what), (AGAIN, _SECOND_TIME),
            *((way.name, way.what) for way in WAYS[1:]),
            (FENCE, "of the program itself, just before each switch by its library"),
        ]
        for direction in DIRECTIONS
    }  # fmt: skip
    by_name[QUIET] = "the controller computes for as long as a switch takes"
    by_name[QUIET_AGAIN] = _SECOND_TIME
    by_name[PASS] = "a bare interpreter, from its start to its end"
    by_name[PASS_AGAIN] = _SECOND_TIME
    by_name |= once.WHATS
    return by_name | {
        command_name(direction): "the whole command, from its start to its end"
        for direction in DIRECTIONS
    }


_BASELINES = {
    CALL: (_FIRST, _FIRST_AGAIN),
    COMMAND: (PASS, PASS_AGAIN),
    STOPPED: (_FIRST, _FIRST_AGAIN),
    HELD: (_FIRST, _FIRST_AGAIN),
    SLOWEST: (QUIET, QUIET_AGAIN),
    ONCE: (once.BEFORE, once.BEFORE_AGAIN),
}


def parts(setting: Setting, raw: Raw) -> Iterator[dict[str, Any]]:
    """A part for each measure that there is."""
    for measure, what in MEASURES.items():
        if measure in raw.samples:
            yield _part(setting, measure, what, raw)


def _part(setting: Setting, measure: str, what: str, raw: Raw) -> dict[str, Any]:
    # Every process is the same program: what differs between them is noise as any other.
    samples = {name: values.reshape(1, -1) for name, values in raw.samples[measure].items()}
    baseline, again = _BASELINES[measure]
    base = samples[baseline]
    once_more = difference(samples[again], base)
    # Not the ends of its interval: few windows are enough for one that the scheduler made long.
    usual = level(base).value
    least = max(abs(once_more.value), UNEVEN * usual)
    return {
        "kind": KIND,
        "title": f"{what}: {setting.title}",
        "setting": {**setting._asdict(), "measure": measure, "window_ns": raw.window},
        "unit": "ns",
        "executions": 1,
        "floor": least,
        "again": abs(once_more.value),
        "noisy": "" if measure == SLOWEST else differs_from_itself(usual, least, TIME),
        "forms": [
            _form(name, what, baseline, samples, least, measure, raw)
            for name, what in whats().items()
            if name in samples
        ],
    }


def _form(
    name: str,
    what: str,
    baseline: str,
    samples: dict[str, Array],
    least: float,
    measure: str,
    raw: Raw,
) -> dict[str, Any]:
    own, base = samples[name], samples[baseline]
    cost = difference(own, base)
    facts: dict[str, Any] = {
        "name": name,
        "what": what,
        "baseline": baseline,
        "level": level(own)._asdict(),
        "cost": cost._asdict(),
        "verdict": _verdict(cost, least, baseline, own.size),
        "samples": np.round(raw.samples[measure][name]).tolist(),
    }
    if measure == CALL and name in raw.first:
        facts["first"] = raw.first[name]
        facts["refused"] = raw.refused[name]
    if measure == SLOWEST and (counts := raw.steps.get(name)):
        facts["steps"] = counts.total()
        facts["percentiles"] = {str(part): percentile(counts, part) for part in PERCENTILES}
    return facts


def _verdict(cost: Estimate, least: float, baseline: str, number: int) -> str:
    if number < FEWEST:
        span = TIME.span(cost.low, cost.high)
        return f"no verdict, {number} are too few: from {baseline} they differ by {span}"
    return verdict(cost, least, baseline, TIME)
