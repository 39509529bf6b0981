"""The cost of switching in a terminal: a table for each measure, against sites and threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from markerjit.apps.bench.report.grid import grid_for
from markerjit.apps.bench.sampling.figures import counted, time_text
from markerjit.apps.bench.sampling.statistics import FEWEST
from markerjit.apps.bench.toggle.parts import KIND, MEASURES
from markerjit.apps.bench.toggle.rounds import HELD, SLOWEST
from markerjit.apps.bench.toggle.series import SITES, Series, all_series

if TYPE_CHECKING:
    from rich.table import Table

    from markerjit.apps.bench.sampling.shapes import Measured, Part, Report

__all__ = ["KIND", "tables"]

_NAME, _CELL = 24, 21
"""Characters of a name that are not folded, and of a cell with its frame."""


def tables(report: Report, width: int) -> Iterator[Table]:
    """All tables but that of the time while all threads stood, which is in files. A series that has
    no room in one is in several."""
    for series in all_series(report.parts):
        if series.measure == HELD:
            continue
        abreast = max(1, (width - _NAME) // _CELL)
        for first in range(0, len(series.points), abreast):
            yield _table(series, series.points[first : first + abreast], width)


def _table(series: Series, points: Sequence[tuple[float, Part]], width: int) -> Table:
    grid = grid_for(
        width,
        title=f"{MEASURES[series.measure]}, {series.title}",
        caption="medians, and half of the 95 % interval (of fewer than "
        f"{FEWEST} values: of their range)"
        + ("; in grey what cannot be told from no switch" if series.measure == SLOWEST else ""),
    )
    grid.add_column("")
    unit = "site" if series.axis == SITES else "thread"
    for at, _ in points:
        grid.add_column(counted(at, unit), justify="right", no_wrap=True)
    grid.add_row("values", *(f"{part.forms[0].samples.size:,}" for _, part in points))
    for name in series.names():
        cells = (_cell(series, part, part.form(name)) for _, part in points)
        grid.add_row(name, *cells)
    return grid


def _cell(series: Series, part: Part, form: Measured | None) -> str:
    if form is None:
        return "–"
    text = f"{time_text(form.level.value)} ± {time_text(form.level.half_width)}"
    grey = series.measure == SLOWEST and not form.is_baseline and not part.differs(form)
    return f"[dim]{text}[/dim]" if grey else text
