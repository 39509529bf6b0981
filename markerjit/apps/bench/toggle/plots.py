"""Plots of the time of a switch: both axes logarithmic, a line for each form."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence

from markerjit.apps.bench.report import svg
from markerjit.apps.bench.report.plots import WIDTH, Style
from markerjit.apps.bench.report.svg import Scale
from markerjit.apps.bench.sampling.figures import time_text
from markerjit.apps.bench.sampling.shapes import Measured, Part
from markerjit.apps.bench.toggle.parts import MEASURES
from markerjit.apps.bench.toggle.rounds import SLOWEST
from markerjit.apps.bench.toggle.series import SITES, Series
from markerjit.apps.bench.toggle.ways import ON

_LINE_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#AA4499", "#B8860B", "#222222", "#7A4A2B",
                 "#3A9BDC", "#CC6677", "#44AA99")  # fmt: skip
_CONTROL = Style("#666666", "triangle", "2 4")
_DASHES = ("none", "7 4")
_SHAPES = ("circle", "square")
_TOP, _BOTTOM, _LEFT, _RIGHT = 16, 430, 70, WIDTH - 310
_APART = 2.5
"""Between the forms, across: intervals that lie on each other cannot be read."""

Line = tuple[float, Part, Measured]


def styles(names: Sequence[str], controls: Sequence[str]) -> dict[str, Style]:
    """The style of each form by name, the same in every plot."""
    styles = dict.fromkeys(controls, _CONTROL)
    for number, name in enumerate(form for form in names if form not in styles):
        dash = _DASHES[number // len(_LINE_COLOURS) % 2]
        shape = _SHAPES[number // len(_LINE_COLOURS) % 2]
        styles[name] = Style(_LINE_COLOURS[number % len(_LINE_COLOURS)], shape, dash)
    return styles


def lines(series: Series, names: Sequence[str], styled: Mapping[str, Style]) -> str:
    """The levels of these forms, with their intervals."""
    through = {name: line for name in names if (line := series.line(name))}
    x = Scale(*_span([at for at, _ in series.points]), _LEFT + 24, _RIGHT - 24, log=True)
    y = Scale(*value_range(through.values()), _BOTTOM, _TOP, log=True)
    title = f"{MEASURES[series.measure]}, {series.title}"
    return svg.drawing(WIDTH, _BOTTOM + 52, title, _parts(series, through, x, y, styled))


def value_range(through: Iterable[Sequence[Line]]) -> tuple[float, float]:
    """The range of all levels and their intervals, in ns, never below one."""
    levels = [form.level for line in through for _, _, form in line]
    low = min((max(1.0, level.low) for level in levels), default=1.0)
    high = max((max(1.0, level.high) for level in levels), default=10.0)
    return low / 1.25, high * 1.25


def _span(values: Sequence[float]) -> tuple[float, float]:
    return min(values), max(values)


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten in a range; also twice and five times those, where there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    few = math.log10(high / low) < 2.5
    ticks = [10.0**power * step for power in powers for step in ((1, 2, 5) if few else (1,))]
    return [tick for tick in ticks if low <= tick <= high]


def _parts(
    series: Series,
    through: Mapping[str, Sequence[Line]],
    x: Scale,
    y: Scale,
    styled: Mapping[str, Style],
) -> Iterator[str]:
    yield from _axes(series, x, y)
    for number, (name, points) in enumerate(through.items()):
        style = styled[name]
        shift = (number - (len(through) - 1) / 2) * _APART
        for at, _, form in points:
            yield _interval(x(at) + shift, form, y, style)
        route = [(x(at) + shift, y(max(1.0, form.level.value))) for at, _, form in points]
        yield svg.path(route, "line", f"stroke:{style.colour};stroke-dasharray:{style.dash}")
        for (across, up), (_, part, form) in zip(route, points, strict=True):
            hollow = series.measure == SLOWEST and not (form.is_baseline or part.differs(form))
            yield svg.mark(across, up, style.shape, style.colour, hollow=hollow)
    yield from _labels(through, x, y, styled)


def _axes(series: Series, x: Scale, y: Scale) -> Iterator[str]:
    left, right = x.start - 24, x.end + 24
    for value in log_ticks(y.low, y.high):
        yield svg.line(left, y(value), right, y(value), "grid")
        yield svg.text(left - 8, y(value) + 5, _tick(value), "tick", "end")
    yield svg.line(left, y.start, right, y.start, "zero")
    for at, _ in series.points:
        yield svg.line(x(at), y.start, x(at), y.start + 5, "zero")
        yield svg.text(x(at), y.start + 21, f"{at:,.0f}".replace(",", " "), "tick", "middle")
    unit = "sites" if series.axis == SITES else "threads"
    yield svg.text((left + right) / 2, y.start + 44, f"{unit} (logarithmic)", "small", "middle")
    yield svg.text(0, y.end - 3, "time (logarithmic)", "small")


def _tick(ns: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if ns >= size:
            return f"{ns / size:.0f} {unit}"
    return f"{ns:.0f} ns"


def _interval(across: float, form: Measured, y: Scale, style: Style) -> str:
    low, high = (y(max(1.0, value)) for value in (form.level.low, form.level.high))
    return svg.line(across, low, across, high, "line", f"stroke:{style.colour};opacity:.45")


def _labels(
    through: Mapping[str, Sequence[Line]], x: Scale, y: Scale, styled: Mapping[str, Style]
) -> Iterator[str]:
    """Labels at the right end, with the last value."""
    ends = {name: points[-1] for name, points in through.items()}
    ideal = [y(max(1.0, form.level.value)) for _, _, form in ends.values()]
    places = svg.spread(ideal, 19, y.end + 4, y.start)
    for (name, (across, _, form)), at, place in zip(ends.items(), ideal, places, strict=True):
        style = styled[name]
        yield svg.path(
            [(x(across) + 20, at), (x.end + 30, at), (x.end + 44, place), (x.end + 52, place)],
            "leader", f"stroke:{style.colour}",
        )  # fmt: skip
        yield svg.mark(x.end + 60, place, style.shape, style.colour)
        yield svg.text(x.end + 71, place + 5, name.removesuffix(f": {ON}"), "name")
        yield svg.text(WIDTH, place + 5, time_text(form.level.value), "figure", "end")
