"""The part of the report about listening: what html.py puts in for parts of the kind `active`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from markerjit.apps.bench.active import plots
from markerjit.apps.bench.active.words import METHOD, answer, better, measured
from markerjit.apps.bench.report.svg import clean
from markerjit.apps.bench.sampling.figures import noise
from markerjit.apps.bench.sampling.shapes import Part

__all__ = ["KIND", "METHOD", "TITLE", "answer", "better", "measured", "sections"]

KIND = "active"
TITLE = "Active markers"
Figure = Callable[[str, str, str, Sequence[Part]], str]
"""Makes a section from a title, a drawing, a caption and the parts that are drawn."""

_STRIPS = (
    "A mark is the cost of a form, on a logarithmic scale, with its 95 % interval; colours are "
    "mechanisms, a circle records, a square counts, a triangle does neither. Behind it each dot is "
    "the difference in one round; time runs down. Hollow, at the edge: a cost that cannot be told "
    "from zero, or is less than 0.1 ns."
)
_LINES = (
    "One thread, and as many as there are CPUs for us, each on a CPU of its own; the cost of an "
    "execution for each of them. A bar at a mark is its 95 % interval. Only what costs something "
    "at both is drawn, and nothing that is dormant."
)


def sections(parts: Sequence[Part], figure: Figure) -> Iterator[str]:
    """Plots of all parts, and the descriptions of their forms. `figure` makes a section of a
    drawing."""
    if not parts:
        return
    values = plots.value_range(parts)
    for number, part in enumerate(parts):
        caption = _STRIPS if number == 0 else "Drawn as above, to the same scale."
        caption += f" {noise(part.floor, part.again, part.unit)} {part.of_core}"
        yield figure(part.title, plots.strips(part, values), caption, [part])
    if len({part.threads for part in parts}) > 1:
        drawing = plots.lines(parts, values)
        yield figure("Cost against threads, active markers", drawing, _LINES, parts)
    descriptions = {form.name: form.what for part in parts for form in part.forms}
    listed = "".join(
        f"<li><b>{clean(name)}:</b> {clean(text)}</li>" for name, text in descriptions.items()
    )
    yield f"<section><h2>The listeners and their work</h2><ul>{listed}</ul></section>"
