"""The cost of switching, as sections of the report."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from markerjit.apps.bench.report.svg import clean
from markerjit.apps.bench.sampling.figures import counted, time_text
from markerjit.apps.bench.sampling.shapes import Part
from markerjit.apps.bench.sampling.statistics import FEWEST
from markerjit.apps.bench.toggle import plots, words
from markerjit.apps.bench.toggle.command import PASS, PASS_AGAIN
from markerjit.apps.bench.toggle.parts import KIND, MEASURES
from markerjit.apps.bench.toggle.rounds import SLOWEST
from markerjit.apps.bench.toggle.series import SITES, Series, all_series
from markerjit.apps.bench.toggle.ways import OFF, QUIET, QUIET_AGAIN
from markerjit.apps.bench.toggle.words import METHOD, answer

__all__ = ["KIND", "METHOD", "TITLE", "answer", "better", "measured", "sections"]

TITLE = "Switching"
Figure = Callable[[str, str, str, Sequence[Part]], str]
"""Makes a section from a title, a drawing, a caption and the parts that are drawn."""
_CONTROLS = (PASS, PASS_AGAIN, QUIET, QUIET_AGAIN)
_CAPTION = (
    "Both scales are logarithmic. A line goes through medians; a bar is the 95 % interval of one. "
    "Forms stand a little beside each other. All are of switching on; off is in the table."
)
_SLOWEST = (
    " A mark is hollow where it cannot be told from no switch, which is dotted: there it is the "
    "scheduler that the program notices."
)


def measured(parts: Sequence[Part]) -> str:
    """The question that was asked, in a paragraph."""
    return words.MEASURED


def better(parts: Sequence[Part]) -> Iterator[str]:
    """No peer is measured."""
    return iter(())


def sections(parts: Sequence[Part], figure: Figure) -> Iterator[str]:
    """Plots, each with its figures; `figure` makes a section of one."""
    series = list(all_series(parts))
    names = dict.fromkeys(name for chart in series for name in chart.names())
    drawn = [name for name in names if not name.endswith(f": {OFF}") and "again" not in name]
    styled = plots.styles(drawn, _CONTROLS)
    for chart in series:
        caption = _CAPTION + _SLOWEST * (chart.measure == SLOWEST)
        shown = [name for name in chart.names() if name in drawn]
        title = f"{MEASURES[chart.measure]}: {chart.title}"
        yield figure(title, plots.lines(chart, shown, styled), caption, [])
        yield f"<section>{_table(chart)}</section>"


def _table(series: Series) -> str:
    """On and off, as figures."""
    unit = "site" if series.axis == SITES else "thread"
    head = "".join(f"<th>{counted(at, unit)}</th>" for at, _ in series.points)
    sizes = "".join(f"<td>{part.forms[0].samples.size}</td>" for _, part in series.points)
    rows = [f"<tr><th>values</th>{sizes}</tr>"]
    for name in series.names():
        cells = "".join(_cell(series, part, name) for _, part in series.points)
        rows.append(f"<tr><th>{clean(name)}</th>{cells}</tr>")
    return (
        "<details><summary>&#8195;As figures: median, and 95 % interval (of fewer than "
        f"{FEWEST} values: their range)</summary>"
        f'<table class="figures"><thead><tr><th></th>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></details>"
    )


def _cell(series: Series, part: Part, name: str) -> str:
    form = part.form(name)
    if form is None:
        return "<td>–</td>"
    grey = series.measure == SLOWEST and not form.is_baseline and not part.differs(form)
    low, high = time_text(form.level.low), time_text(form.level.high)
    return (
        f"<td{' class=dim' if grey else ''}>{time_text(form.level.value)}"
        f"<small>{low} … {high}</small></td>"
    )
