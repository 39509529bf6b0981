"""Bars in text: measured differences on one scale, each with its interval."""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.lab import Chart

_FEWEST = 10
"""Columns for the bars, however narrow the terminal is."""
LEGEND = "| zero   = up to the estimate   - its interval   o the estimate"


def chart_lines(chart: Chart, width: int) -> Iterator[str]:
    """The lines of a chart, in so many columns where they suffice."""
    figures = [f"{bar.value:+.2f} [{bar.low:+.2f}, {bar.high:+.2f}]" for bar in chart.bars]
    names = max(len(bar.name) for bar in chart.bars)
    columns = max(width - names - max(map(len, figures)) - 4, _FEWEST)
    least = min(0.0, *(bar.low for bar in chart.bars))
    most = max(0.0, *(bar.high for bar in chart.bars))
    scale = (columns - 1) / (most - least or 1.0)

    def column(value: float) -> int:
        return round((value - least) * scale)

    yield chart.caption
    for bar, figure in zip(chart.bars, figures, strict=True):
        zero, low, high = column(0), column(bar.low), column(bar.high)
        at = column(bar.value)
        cells = [" "] * columns
        cells[min(zero, at) : max(zero, at)] = "=" * abs(zero - at)
        cells[low : high + 1] = "-" * (high + 1 - low)
        cells[zero] = "|"
        cells[at] = "o"
        yield f"{bar.name:<{names}}  {''.join(cells)}  {figure}"
    yield LEGEND
