"""The plots of the cost of listening: by mechanism, and against threads, on logarithmic scales.

A cost that cannot be distinguished from zero has no place on such a scale. Its mark is hollow and
at the edge.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from markerjit.apps.bench.report import svg
from markerjit.apps.bench.report.plots import NO_BREAK, WIDTH, Style, interval, signed
from markerjit.apps.bench.report.svg import Scale
from markerjit.apps.bench.sampling.shapes import CONTROLS, OURS, PEERS, Measured, Part

_COLOURS = {
    "jump": "#0072B2", "nop": "#D55E00", "pointer": "#009E73", "int3": "#AA4499",
    "uprobe": "#B8860B", "ptrace": "#222222", "gdb": "#7A4A2B", "LTTng-UST": "#CC79A7",
}  # fmt: skip
_OTHER = "#666666"
_DASHES = {"circle": "none", "square": "7 4", "triangle": "2 4"}
_HEADINGS = ((OURS, "markerjit"), (PEERS, "peers"), (CONTROLS, "controls"))
_LEAST, _FACTOR = 0.1, 1.6
_LABEL, _FIGURE = 190, 285
_ROW, _HEADING = 24, 24
_DOTS_AT_MOST = 250
_UNITS = ((1e6, "ms"), (1e3, "µs"), (1.0, "ns"))


def style(form: Measured) -> Style:
    """A colour for the mechanism, and a shape for the work: a circle records, a square counts."""
    mechanism, _, does = form.name.partition(", ")
    if does.startswith("record") or "flight" in does:
        shape = "circle"
    elif does == "count" or form.group == PEERS:
        shape = "square"
    else:
        shape = "triangle"
    return Style(_COLOURS.get(mechanism, _OTHER), shape, _DASHES[shape])


def decades(low: float, high: float) -> list[float]:
    """The powers of ten in a range."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


def duration(ns: float) -> str:
    """A round number of nanoseconds, in the unit in which it is short."""
    for size, unit in _UNITS:
        if ns >= size * 0.999:
            return f"{ns / size:g}{NO_BREAK}{unit}"
    return f"{ns:g}{NO_BREAK}ns"


def value_range(parts: Sequence[Part]) -> tuple[float, float]:
    """The range of all costs that differ from zero, with a margin."""
    costs = [form.cost for part in parts for form in part.forms if _has_place(part, form)]
    low = min([10.0, *(max(cost.low, _LEAST) for cost in costs)])
    high = max([10.0, *(cost.high for cost in costs)])
    return low / _FACTOR, high * _FACTOR


def _has_place(part: Part, form: Measured) -> bool:
    return part.differs(form) and form.cost.value > _LEAST


# ---- by mechanism --------------------------------------------------------------------------------


def strips(part: Part, values: tuple[float, float]) -> str:
    """A row for each form: its cost and interval, drawn over the differences in all rounds."""
    rows = [
        (heading, sorted((form for form in part.forms
                          if form.group == group and not form.is_baseline),
                         key=lambda form: form.cost.value))
        for group, heading in _HEADINGS
    ]  # fmt: skip
    rows = [(heading, forms) for heading, forms in rows if forms]
    bottom = 12 + sum(_HEADING + _ROW * len(forms) for _, forms in rows)
    x = Scale(*values, _LABEL, WIDTH - _FIGURE, log=True)
    return svg.drawing(WIDTH, bottom + 48, part.title, _rows(part, rows, x, bottom))


def _rows(
    part: Part, rows: Sequence[tuple[str, Sequence[Measured]]], x: Scale, bottom: float
) -> Iterator[str]:
    for value in decades(x.low, x.high):
        yield svg.line(x(value), 8, x(value), bottom, "grid")
        yield svg.text(x(value), bottom + 18, duration(value), "tick", "middle")
    label = "more than its baseline, for each execution (logarithmic)"
    yield svg.text(WIDTH, 14, f"{part.unit} more, and 95 % interval", "small", "end")
    yield svg.text((x.start + x.end) / 2, bottom + 40, label, "small", "middle")
    y = 12.0
    for heading, forms in rows:
        yield svg.text(0, y + 15, heading, "heading")
        y += _HEADING
        for form in forms:
            yield from _row(part, form, x, y + _ROW / 2)
            y += _ROW


def _row(part: Part, form: Measured, x: Scale, y: float) -> Iterator[str]:
    styled, cost, has_place = style(form), form.cost, _has_place(part, form)
    yield svg.text(_LABEL - 14, y + 5, form.name, "name", "end")
    yield svg.line(x.start, y + _ROW / 2, x.end, y + _ROW / 2, "rule")
    if has_place:
        yield svg.dots(_cloud(part, form, x, y), styled.colour)
        low, high = x(max(cost.low, x.low)), x(min(cost.high, x.high))
        yield svg.line(low, y, high, y, "halo")
        yield svg.line(low, y, high, y, "interval")
    at = x(min(max(cost.value, x.low), x.high)) if has_place else x.start
    yield svg.mark(at, y, styled.shape, styled.colour, hollow=not has_place)
    kind = "figure" if part.differs(form) else "figure dim"
    yield svg.text(WIDTH, y + 5, interval(cost), kind, "end")


def _cloud(part: Part, form: Measured, x: Scale, y: float) -> Iterator[svg.Point]:
    """The dots of all layouts. The first round is at the top, the last at the bottom."""
    differences = form.samples - part.baseline(form).samples
    rounds = differences.shape[1]
    for layout in differences:
        for number in range(0, rounds, -(-rounds // _DOTS_AT_MOST)):
            value = float(layout[number])
            if x.low <= value <= x.high:
                yield x(value), y + (number / rounds - 0.5) * _ROW * 0.7


# ---- against threads -----------------------------------------------------------------------------


def lines(parts: Sequence[Part], values: tuple[float, float]) -> str:
    """A line for each form with a cost at each number of threads, except dormant forms."""
    parts = sorted(parts, key=lambda part: part.threads)
    top, bottom, left, right = 16, 560, 76, WIDTH - 330
    x = Scale(parts[0].threads, parts[-1].threads, left + 14, right - 14, log=True)
    y = Scale(*values, bottom, top, log=True)
    return svg.drawing(WIDTH, bottom + 52, "cost against threads", _line_parts(parts, x, y))


def _line_parts(parts: Sequence[Part], x: Scale, y: Scale) -> Iterator[str]:
    left, right = x.start - 14, x.end + 14
    for value in decades(y.low, y.high):
        yield svg.line(left, y(value), right, y(value), "grid")
        yield svg.text(left - 8, y(value) + 5, duration(value), "tick", "end")
    for part in parts:
        yield svg.line(x(part.threads), y.start, x(part.threads), y.start + 5, "zero")
        yield svg.text(x(part.threads), y.start + 21, f"{part.threads:.0f}", "tick", "middle")
    yield svg.text((left + right) / 2, y.start + 44, "threads, each on a CPU (logarithmic)",
                   "small", "middle")  # fmt: skip
    through = [
        forms
        for last in parts[-1].forms
        if not last.name.endswith("dormant")
        and (forms := [form for part in parts if (form := part.form(last.name))
                      and _has_place(part, form)])
        and len(forms) == len(parts)
    ]  # fmt: skip
    for forms in through:
        yield from _line(parts, forms, x, y)
    yield from _labels([forms[-1] for forms in through], x, y)


def _line(parts: Sequence[Part], forms: Sequence[Measured], x: Scale, y: Scale) -> Iterator[str]:
    styled = style(forms[0])
    route = []
    for part, form in zip(parts, forms, strict=True):
        across = x(part.threads)
        low, high = (min(max(value, y.low), y.high) for value in (form.cost.low, form.cost.high))
        yield svg.line(across, y(low), across, y(high), "line", f"stroke:{styled.colour}")
        route.append((across, y(form.cost.value)))
    paint = f"stroke:{styled.colour};stroke-dasharray:{styled.dash}"
    yield svg.path(route, "line", paint)
    for across, up in route:
        yield svg.mark(across, up, styled.shape, styled.colour)


def _labels(last: Sequence[Measured], x: Scale, y: Scale) -> Iterator[str]:
    """Labels at the right end, beside the line where there is room."""
    ideal = [y(form.cost.value) for form in last]
    places = svg.spread(ideal, 19, y.end + 4, y.start)
    for form, at, place in zip(last, ideal, places, strict=True):
        styled = style(form)
        route = [(x.end + 8, at), (x.end + 22, at), (x.end + 44, place), (x.end + 52, place)]
        yield svg.path(route, "leader", f"stroke:{styled.colour}")
        yield svg.mark(x.end + 60, place, styled.shape, styled.colour)
        yield svg.text(x.end + 71, place + 5, form.name, "name")
        yield svg.text(WIDTH, place + 5, signed(form.cost.value), "figure", "end")
