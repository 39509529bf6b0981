"""(i) Dormant cost: predict, then measure.

The bench measures, and has the statistics: the same loop in several forms, in rounds of random
order, as differences with intervals. This module turns its result into an answer.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from markerjit.errors import MarkerError
from markerjit.lab.experiment import Bar, Chart, Experiment, Run, Tell
from markerjit.lab.processes import ALIVE, end, start

SECONDS = 3
NAME = "the same loop in several forms"
MARKER, CALL = "jump", "call"
SHOWN = {
    "no marker, again": "no marker, again",
    MARKER: "a marker, off",
    "5-byte no-op": "5-byte no-op",
    CALL: "call",
}
"""The names of the forms in the chart, by their names in the bench."""
BENCH = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from markerjit.apps.bench import brief; brief.main()"
)


def measured(tell: Tell) -> dict[str, Any]:
    """The result of a brief run of the bench. Raises MarkerError with the reason where the bench
    ends without a result."""
    root = str(Path(__file__).parents[2])
    process = start(
        [sys.executable, "-P", "-c", BENCH, root, str(os.getpid()), str(SECONDS)],
        stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT,
    )  # fmt: skip
    assert process.stdout
    remark = ""
    try:
        for line in process.stdout:
            kind, _, rest = line.decode(errors="replace").strip().partition(" ")
            if kind == "result":
                return dict(json.loads(rest))
            if kind == "progress":
                tell(NAME, int(rest), 100)
            else:
                remark = f"{kind} {rest}"
        raise MarkerError(f"the bench ended without a result: {remark}")
    finally:
        end(process)


def run_of(result: dict[str, Any]) -> Run:
    """The result of the bench as a run, with bars and a story."""
    forms = {form["name"]: form for form in result["forms"]}
    bars = tuple(Bar(shown, **_without_name(forms[name])) for name, shown in SHOWN.items())
    chart = Chart(
        "ns that an iteration of the loop takes longer, with its 95 % interval",
        bars, result["floor"], result["noisy"],
    )  # fmt: skip
    counts = {name: result[name] for name in ("rounds", "layouts", "executions")}
    return Run(
        NAME,
        "",
        counts["rounds"],
        {
            "rounds, in which each form runs": counts["rounds"],
            "placements of the code": counts["layouts"],
            "iterations each time": counts["executions"],
        },
        0,
        ALIVE,
        (),
        story_of(chart, result["level"]["value"]),
        chart,
    )


def _without_name(form: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in form.items() if key != "name"}


def answer_of(chart: Chart) -> int | None:
    """The index of the choice that the intervals show; None where they cannot tell."""
    marker, call = chart.bar(SHOWN[MARKER]), chart.bar(SHOWN[CALL])
    if chart.noisy:
        return None
    if not marker.differs or marker.value < 0:
        return 0
    if call.low - marker.high > chart.floor:
        return 1
    return 2 if marker.low - call.high > chart.floor else None


def story_of(chart: Chart, level: float) -> str:
    """The chart in sentences. `level` is the time of an iteration without a marker, in ns."""
    marker, call = chart.bar(SHOWN[MARKER]), chart.bar(SHOWN[CALL])
    if chart.noisy:
        return f"The bench gives {chart.noisy}. Try again when less runs here."
    answer = answer_of(chart)
    story = f"An iteration without a marker took {level:.2f} ns. "
    if answer == 0 and marker.differs:
        return f"{story}With the marker it took {-marker.value:.2f} ns less."
    if answer == 0:
        holds_zero = marker.low <= 0 <= marker.high
        noise = f"it is not above the noise, {chart.floor:.2f} ns"
        return (
            f"{story}What the marker adds cannot be told from nothing here: "
            f"{'its interval holds zero' if holds_zero else noise}. That is not the same as free."
        )
    story += f"The marker added {marker.value:.2f} ns and the call {call.value:.2f} ns. "
    if answer is None:
        return story + "Their intervals are too close to tell which of them costs more."
    return story + (
        "The whole interval of the marker is "
        f"{'below' if answer == 1 else 'above'} that of the call."
    )


def runs(tell: Tell) -> Iterator[Run]:
    """One run of the bench."""
    tell(NAME, 0, 100)
    yield run_of(measured(tell))


def happened(runs: tuple[Run, ...]) -> int | None:
    """The index of the choice that came true; None where the measurement cannot tell."""
    (run,) = runs
    assert run.chart
    return answer_of(run.chart)


EXPERIMENT = Experiment(
    letter="i",
    title="dormant cost: predict, then measure",
    question="A small loop loads two numbers and adds them up. A marker of both is put into it, "
    "and is off. A call of an empty function, in its place, is the measure. What will the marker "
    "add to an iteration of the loop?",
    choices=(
        "nothing that shows",
        "something, and less than the call",
        "more than the call",
    ),
    conduct=runs,
    happened=happened,
    forgiven="",
    explanation=(
        "A marker that is off is a jump over the way to its probe. A processor predicts such a "
        "jump and has next to nothing to do for it. The arguments are in registers anyway: they "
        "are only described, and not moved. A call moves them, saves what it may change, and "
        "comes back.",
        "So small a time cannot be seen in one run. All forms run in each round, in random order, "
        "so that each meets the same machine. What counts is the difference within a round. The "
        "same code, built twice, shows the noise. The code is measured at several places, because "
        "the place alone changes the time, and the interval says how much that matters.",
        "A difference that is not above the noise is not called one. This is one small loop on "
        "one processor, with everything in its caches: `markerjit bench dormant` also measures "
        "thousands of sites.",
    ),
    references=(
        "native/bench/dormant/hot.c, the loop",
        "docs/explanation/measuring.md",
        "markerjit/apps/bench/sampling/statistics.py",
        "Mytkowicz and others, Producing Wrong Data Without Doing Anything Obviously Wrong!, "
        "ASPLOS 2009",
    ),
)
