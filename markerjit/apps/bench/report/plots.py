"""The plots of the report: the cost of each form in one setting, and its growth over settings.

The SVG is written without a library, so the text stays text, the page styles it, and the same run
gives the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.apps.bench.report import svg
from markerjit.apps.bench.report.svg import Scale
from markerjit.apps.bench.sampling import figures
from markerjit.apps.bench.sampling.form import AGAIN
from markerjit.apps.bench.sampling.shapes import CONTROLS, OURS, PEERS, Measured, Part, Report
from markerjit.apps.bench.sampling.statistics import Estimate
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.apps.bench.sampling.statistics import Array

WIDTH = 1000
NO_BREAK = "\u00a0"
_PALETTES = {
    OURS: ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#222222", "#7A4A2B"),
    PEERS: ("#3A9BDC", "#CC6677", "#44AA99", "#999933"),
    CONTROLS: ("#666666",),
}
"""Colours after Okabe and Ito, and Tol, with darker yellows. They can be distinguished on white and
by the colour-blind. Shapes and dashes distinguish the forms in grey."""
_SHAPES = {OURS: "circle", PEERS: "square", CONTROLS: "triangle"}
_DASHES = {OURS: "none", PEERS: "7 4", CONTROLS: "2 4"}
_HEADINGS = {OURS: "markerjit", PEERS: "peers", CONTROLS: "controls"}
_DOTS_AT_MOST = 250
"""The most dots of a form and layout. More could not be distinguished."""
_LABEL, _FIGURE = 180, 205
_ROW, _HEADING, _LANES = 34, 24, 25


class Style(NamedTuple):
    """The colour, shape and dash of a form, everywhere in a report."""

    colour: str
    shape: str
    dash: str


def styles(report: Report) -> dict[str, Style]:
    """The style of each form, by name. Colours are in order within each group."""
    by_name: dict[str, Style] = {}
    for group in (OURS, PEERS, CONTROLS):
        names = dict.fromkeys(
            form.name for part in report.parts for form in part.forms if form.group == group
        )
        for number, name in enumerate(names):
            colour = _PALETTES[group][number % len(_PALETTES[group])]
            by_name[name] = Style(colour, _SHAPES[group], _DASHES[group])
    return by_name


def signed(value: float) -> str:
    """A difference, with a minus of the same width as the plus, and none for zero."""
    return figures.signed(value).replace("-", "−") if abs(value) >= 0.005 else "0.00"


def interval(estimate: Estimate) -> str:
    """A difference with its interval."""
    return f"{signed(estimate.value)} ({signed(estimate.low)} … {signed(estimate.high)})".replace(
        " ", NO_BREAK
    )


# ---- what each form costs ------------------------------------------------------------------------


def strips(part: Part, styled: Mapping[str, Style]) -> str:
    """A row for each form: its cost and interval, drawn over the differences in all rounds."""
    rows = [
        (group, sorted((form for form in part.forms if _is_drawn(form, group)), key=_cost))
        for group in (OURS, PEERS, CONTROLS)
    ]
    rows = [(group, forms) for group, forms in rows if forms]
    bottom = 30 + sum(_HEADING + _ROW * len(forms) for _, forms in rows)
    x = Scale(*_range(part), _LABEL, WIDTH - _FIGURE)
    return svg.drawing(
        WIDTH, bottom + 48, part.title, _strip_parts(part, rows, x, bottom, dict(styled))
    )


def _strip_parts(
    part: Part,
    rows: Sequence[tuple[str, Sequence[Measured]]],
    x: Scale,
    bottom: float,
    styled: dict[str, Style],
) -> Iterator[str]:
    yield svg.box(x(-part.floor), 24, x(part.floor) - x(-part.floor), bottom - 24, "floor")
    yield from _axis_below(x, svg.ticks(x.low, x.high), 24, bottom)
    yield svg.line(x(0), 20, x(0), bottom, "zero")
    yield svg.text(x(0), 14, "its baseline", "small", "middle")
    yield svg.text(WIDTH, 14, "ns more, and 95 % interval", "small", "end")
    y = 30.0
    for group, forms in rows:
        yield svg.text(0, y + 17, _HEADINGS[group], "heading")
        y += _HEADING
        for form in forms:
            yield from _strip(part, form, x, y + _ROW / 2, styled[form.name])
            y += _ROW


def _strip(part: Part, form: Measured, x: Scale, y: float, style: Style) -> Iterator[str]:
    against = part.baseline(form)
    has_other = against is not part.forms[0]
    yield svg.text(_LABEL - 14, y + (0 if has_other else 5), form.name, "name", "end")
    if has_other:
        yield svg.text(_LABEL - 14, y + 13, f"against {against.name}", "tiny", "end")
    yield svg.line(x.start, y + _ROW / 2, x.end, y + _ROW / 2, "rule")
    differences = form.samples - against.samples
    yield svg.dots(_cloud(differences, x, y), style.colour)
    for number, place, anchor in (
        (int((differences < x.low).sum()), x.start + 2, "start"),
        (int((differences > x.high).sum()), x.end - 2, "end"),
    ):
        if number:
            arrow = f"‹ {number}" if anchor == "start" else f"{number} ›"
            yield svg.text(place, y - 8, arrow, "tiny", anchor)
    cost, hollow = form.cost, not part.differs(form)
    yield svg.line(x(cost.low), y, x(cost.high), y, "halo")
    yield svg.line(x(cost.low), y, x(cost.high), y, "interval")
    yield svg.mark(x(cost.value), y, style.shape, style.colour, hollow=hollow)
    yield svg.text(WIDTH, y + 5, interval(cost), "figure dim" if hollow else "figure", "end")


def _cloud(differences: Array, x: Scale, y: float) -> Iterator[svg.Point]:
    """The dots, in a lane for each layout. The first round is at the top of a lane."""
    layouts, rounds = differences.shape
    lane = _LANES / layouts
    step = -(-rounds // _DOTS_AT_MOST)
    for layout in range(layouts):
        top = y - _LANES / 2 + layout * lane + lane * 0.15
        for number in range(0, rounds, step):
            value = float(differences[layout, number])
            if x.low <= value <= x.high:
                yield x(value), top + lane * 0.7 * (number / rounds)


def _range(part: Part) -> tuple[float, float]:
    """The range of values, with all intervals and nearly all rounds of each form."""
    ends = [0.0]
    for form in part.forms:
        differences = form.samples - part.baseline(form).samples
        ends += [form.cost.low, form.cost.high, *map(float, np.nanpercentile(differences, [3, 97]))]
    low, high = min(ends), max(ends)
    margin = (high - low) * 0.03 or 1.0
    return low - margin, high + margin


def _axis_below(x: Scale, places: Sequence[float], top: float, bottom: float) -> Iterator[str]:
    for value in places:
        yield svg.line(x(value), top, x(value), bottom, "grid")
        yield svg.text(x(value), bottom + 18, _tick(value), "tick", "middle")
    yield svg.text(
        (x.start + x.end) / 2, bottom + 40, "ns more than its baseline, for each execution",
        "small", "middle",
    )  # fmt: skip


def _is_drawn(form: Measured, group: str) -> bool:
    return form.group == group and not form.is_baseline


def _cost(form: Measured) -> float:
    return form.cost.value


def _tick(value: float) -> str:
    return f"{round(value, 9) + 0:g}".replace("-", "−")


# ---- how that grows ------------------------------------------------------------------------------


def lines(
    parts: Sequence[tuple[float, Part]],
    label: str,
    styled: Mapping[str, Style],
    values: tuple[float, float] | None = None,
) -> str:
    """A line for each form through parts, each at its own x, except for baselines. `values` is the
    range of costs, where two plots must have the same one."""
    parts = sorted(parts, key=lambda point: point[0])
    top, bottom, left, right = 16, 440, 56, WIDTH - 240
    x = Scale(parts[0][0], parts[-1][0], left + 14, right - 14, log=True)
    y = Scale(*(values or value_range([part for _, part in parts])), bottom, top)
    return svg.drawing(
        WIDTH, bottom + 52, f"cost against {label}", _line_parts(parts, label, x, y, dict(styled))
    )


def value_range(parts: Sequence[Part]) -> tuple[float, float]:
    """The range of the costs in these parts, including zero."""
    costs = [form.cost for part in parts for form in part.forms if _is_line(form, parts)]
    low, high = (
        min([0.0, *(cost.low for cost in costs)]),
        max([0.0, *(cost.high for cost in costs)]),
    )
    margin = (high - low) * 0.03 or 1.0
    return low - margin, high + margin


def _is_line(form: Measured, parts: Sequence[Part]) -> bool:
    baselines = {form.baseline for part in parts for form in part.forms}
    return form.name not in baselines and form.name != AGAIN


def _line_parts(
    parts: Sequence[tuple[float, Part]], label: str, x: Scale, y: Scale, styled: dict[str, Style]
) -> Iterator[str]:
    yield from _axes(parts, label, x, y)
    only = [part for _, part in parts]
    names = dict.fromkeys(form.name for part in only for form in part.forms if _is_line(form, only))
    through = {
        name: [(at, part, form) for at, part in parts if (form := part.form(name))]
        for name in names
    }
    for name, points in through.items():
        yield from _band([(x(at), y(form.cost.low), y(form.cost.high)) for at, _, form in points],
                         styled[name])  # fmt: skip
    for name, points in through.items():
        style = styled[name]
        route = [(x(at), y(form.cost.value)) for at, _, form in points]
        yield svg.path(route, "line", f"stroke:{style.colour};stroke-dasharray:{style.dash}")
        for (across, up), (_, part, form) in zip(route, points, strict=True):
            yield svg.mark(across, up, style.shape, style.colour, hollow=not part.differs(form))
    last = [(points[-1][0], points[-1][2]) for points in through.values()]
    yield from _labels(last, x, y, styled)


def _axes(parts: Sequence[tuple[float, Part]], label: str, x: Scale, y: Scale) -> Iterator[str]:
    left, right = x.start - 14, x.end + 14
    yield from _band([(x(at), y(-part.floor), y(part.floor)) for at, part in parts], None)
    for value in svg.ticks(y.low, y.high):
        yield svg.line(left, y(value), right, y(value), "grid")
        yield svg.text(left - 8, y(value) + 5, _tick(value), "tick", "end")
    yield svg.line(left, y(0), right, y(0), "zero")
    for at, _ in parts:
        yield svg.line(x(at), y.start, x(at), y.start + 5, "zero")
        yield svg.text(x(at), y.start + 21, f"{at:,.0f}".replace(",", " "), "tick", "middle")
    yield svg.text((left + right) / 2, y.start + 44, label, "small", "middle")
    yield svg.text(0, y.end - 3, "ns more", "small")


def _band(points: Sequence[tuple[float, float, float]], style: Style | None) -> Iterator[str]:
    """A band from the low to the high of each x, or a bar where there is only one."""
    if len(points) == 1:
        (x, low, high), = points  # fmt: skip
        points = [(x - 3, low, high), (x + 3, low, high)]
    outline = [(x, low) for x, low, _ in points] + [(x, high) for x, _, high in reversed(points)]
    paint = f"fill:{style.colour}" if style else ""
    yield svg.path(outline, "band" if style else "floor", paint, closed=True)


def _labels(
    last: Sequence[tuple[float, Measured]], x: Scale, y: Scale, styled: dict[str, Style]
) -> Iterator[str]:
    """Labels at the right end, beside the line where there is room. `last` is the end of each
    line."""
    ideal = [y(form.cost.value) for _, form in last]
    places = svg.spread(ideal, 19, y.end + 4, y.start)
    for (across, form), at, place in zip(last, ideal, places, strict=True):
        style = styled[form.name]
        yield svg.path(
            [(x(across) + 8, at), (x.end + 22, at), (x.end + 44, place), (x.end + 52, place)],
            "leader", f"stroke:{style.colour}",
        )  # fmt: skip
        yield svg.mark(x.end + 60, place, style.shape, style.colour)
        yield svg.text(x.end + 71, place + 5, form.name, "name")
        yield svg.text(WIDTH, place + 5, signed(form.cost.value), "figure", "end")
