"""A run of whole programs as one page: for each workload what each form costs, with intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from markerjit.apps.bench.api import (
    Estimate,
    Measured,
    Part,
    Scale,
    clean,
    noise,
    report,
    sheet,
    svg,
)
from real.table import sampled

WIDTH = 1000
_LABEL, _FIGURE = 190, 210
_ROW, _TOP = 32, 26
_OURS, _OTHER = "#0072B2", "#D55E00"
_RATIOS = (1, 2, 5, 10, 20, 50, 100, 200, 500)

_HEAD = (
    "<header><h1>Markers in whole programs</h1>"
    '<p class="lede">How much do markers that are off, and one that is on, slow Lua and SQLite '
    "down?</p></header>"
)
METHOD = (
    "Lua and SQLite from the source packages of Debian, with our markers at places that are "
    "natural there, built once in each form by the same compiler with the same options. Each form "
    "is linked in several layouts: objects in another order, behind padding of another size, "
    "functions sorted in another way. Layout alone moves results more than a marker does.",
    "In a round each form runs in each layout, as a process of its own on one CPU, the forms of a "
    "layout in random order, some times over; the least counts. A figure is the "
    "CPU time of the run, user and system together, more than that of the build without markers "
    "in the same round and layout, in percent: the median over rounds, the mean over layouts, and "
    "a 95 % interval, by bootstrap over rounds and by Student's t over layouts.",
    "The build without markers runs twice, under two names. Its difference from itself is the "
    "noise floor, which is at least 0.3 %. A form whose interval contains zero, or whose "
    "difference is within the floor, is not distinguishable from no markers. That is not the same "
    "as free.",
    "With a marker on, each run is a process that a session attaches to before main. The number "
    "of hits is compared with the program's own count in every run. Recording is a flight recorder "
    "that no reader reads meanwhile.",
)


def page(run: Mapping[str, Any]) -> str:
    """The page. Raises Refused for a file that is not a run."""
    summary = report(run)
    parts = map(_part, summary.parts, run["parts"])
    sections = [_HEAD, sheet.machine(summary), *parts, sheet.missing(summary), sheet.method(METHOD)]
    return sheet.document("Markers in whole programs", sections)


def _part(part: Part, raw: Mapping[str, Any]) -> str:
    forms = [form for form in part.forms if not form.is_baseline]
    noisy = f'<p class="noise">{clean(part.noisy)}</p>' if part.noisy else ""
    counts = {name: times for name, times in raw["setting"]["passed"].items() if times}
    caption = (
        f"A mark is a form, hollow where it cannot be told from no markers; the bar is its 95 % "
        f"interval, each dot is a round. There are {sampled(raw)}. No markers take "
        f"{raw['seconds']:.3f} s. "
        f"{noise(part.floor, part.again, part.unit)} That is the grey band. Passed in a run: "
        + ", ".join(f"{name} {times:,}" for name, times in counts.items()) + "."
    )  # fmt: skip
    rows = "".join(
        f"<tr{'' if part.differs(form) else ' class=dim'}><th>{clean(form.name)}</th>"
        f"<td>{_interval(form.cost)}</td><td>{_more(part, form)}</td>"
        f"<td>{clean(form.verdict)}</td></tr>"
        for form in forms
    )
    return (
        f"<section><h2>{clean(part.title)}</h2>{noisy}<figure>{plot(part, forms)}"
        f"<figcaption>{clean(caption)}</figcaption></figure>"
        '<table class="verdicts"><thead><tr><th>form</th><th>% more time</th>'
        f"<th>% more instructions</th><th>verdict</th></tr></thead><tbody>{rows}</tbody></table>"
        "</section>"
    )


def plot(part: Part, forms: Sequence[Measured]) -> str:
    """A row for each form: ratios on a logarithmic scale where something doubles the time, else
    percent."""
    bottom = _TOP + _ROW * len(forms)
    return svg.drawing(WIDTH, bottom + 44, part.title, _drawn(part, forms, bottom))


def _drawn(part: Part, forms: Sequence[Measured], bottom: float) -> Iterator[str]:
    runs = {form.name: form.samples - part.baseline(form).samples for form in forms}
    ends = [0.0, -part.floor, part.floor]
    for form in forms:
        ends += [
            form.cost.low,
            form.cost.high,
            *map(float, np.percentile(runs[form.name], [5, 95])),
        ]
    low, high = min(ends), max(ends)
    margin = (high - low) * 0.04
    is_wide = high > 100
    first, last = _LABEL, WIDTH - _FIGURE

    def at(percent: float) -> float:
        return scale(1 + percent / 100) if is_wide else scale(percent)

    if is_wide:
        scale = Scale(1 + low / 100, (1 + high / 100) * 1.05, first, last, log=True)
        marked = [
            (100 * (ratio - 1), f"{ratio:g} ×")
            for ratio in _RATIOS
            if scale.low <= ratio <= scale.high
        ]
    else:
        scale = Scale(low - margin, high + margin, first, last)
        marked = [(tick, f"{tick:+g}".replace("-", "−") if tick else "0")
                  for tick in svg.ticks(scale.low, scale.high)]  # fmt: skip
    yield svg.box(at(-part.floor), _TOP, at(part.floor) - at(-part.floor), bottom - _TOP, "floor")
    for value, label in marked:
        yield svg.line(at(value), _TOP, at(value), bottom, "grid")
        yield svg.text(at(value), bottom + 18, label, "tick", "middle")
    yield svg.line(at(0), _TOP - 4, at(0), bottom, "zero")
    yield svg.text(at(0), _TOP - 10, "no markers", "small", "middle")
    yield svg.text(WIDTH, _TOP - 10, "% more time, and 95 % interval", "small", "end")
    for number, form in enumerate(forms):
        y = _TOP + _ROW * (number + 0.5)
        colour = _OURS if form.name != "USDT" else _OTHER
        is_told = part.differs(form)
        yield svg.text(_LABEL - 14, y + 5, form.name, "name", "end")
        yield svg.dots(_cloud(runs[form.name], at, y, low, high), colour)
        yield svg.line(at(form.cost.low), y, at(form.cost.high), y, "halo")
        yield svg.line(at(form.cost.low), y, at(form.cost.high), y, "interval")
        yield svg.mark(at(form.cost.value), y, "circle", colour, hollow=not is_told)
        yield svg.text(
            WIDTH, y + 5, _interval(form.cost), "figure" if is_told else "figure dim", "end"
        )


def _cloud(runs: Any, at: Any, y: float, low: float, high: float) -> Iterator[svg.Point]:
    """A lane for each layout; in it rounds go down."""
    layouts, rounds = runs.shape
    lane = (_ROW - 8) / layouts
    for layout in range(layouts):
        top = y - (_ROW - 8) / 2 + layout * lane
        for number in range(rounds):
            value = float(runs[layout, number])
            if low <= value <= high:
                yield at(value), top + lane * (0.15 + 0.7 * number / rounds)


def _interval(estimate: Estimate) -> str:
    return f"{estimate.value:+.2f} ({estimate.low:+.2f} … {estimate.high:+.2f})".replace("-", "−")


def _more(part: Part, form: Measured) -> str:
    base = part.baseline(form).instructions
    if not form.instructions or not base:
        return "–"
    return f"{100 * (form.instructions / base - 1):+.2f}".replace("-", "−")
