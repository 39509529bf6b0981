"""The part of the report about reading: what html.py puts in for parts of the kind `reading`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from markerjit.apps.bench.reading.measure import BASELINE, KIND
from markerjit.apps.bench.report.svg import clean
from markerjit.apps.bench.sampling.figures import figure as digits
from markerjit.apps.bench.sampling.shapes import Part

__all__ = ["KIND", "METHOD", "TITLE", "answer", "better", "measured", "sections"]

TITLE = "Reading"
Figure = Callable[[str, str, str, Sequence[Part]], str]
METHOD = (
    "A program passes events on one CPU or two while no reader reads, fewer than its rings have "
    "room for, and stands still. Then the rings are emptied, and the processor time of that is "
    "divided by the number of events. All forms come once in each round, in random order. Every "
    "event has to come. A run in which one is missing has no figure. Files are written to memory. "
    "The rate that a reader keeps up with while the program records is another question.",
)


def measured(parts: Sequence[Part]) -> str:
    """The question that was asked, in a paragraph."""
    return (
        "How much processor time does it take to read an event? Rings were filled and emptied "
        "again, and the events were left as bytes, made into columns or Python objects, or written "
        "to a file. A figure is nanoseconds for each event, with its 95 % interval."
    )


def answer(parts: Sequence[Part]) -> Iterator[str]:
    """The whole time of each form, a sentence for each setting."""
    for part in parts:
        levels = ", ".join(f"{form.name} {digits(form.level.value)} ns" for form in part.forms)
        yield f"{part.title.capitalize()}: {levels}."


def better(parts: Sequence[Part]) -> Iterator[str]:
    """No peer is measured."""
    return iter(())


def sections(parts: Sequence[Part], figure: Figure) -> Iterator[str]:
    """A table: events a second by form and setting."""
    names = dict.fromkeys(form.name for part in parts for form in part.forms)
    head = "".join(f"<th>{clean(part.title.partition('of ')[2])}</th>" for part in parts)
    rows = []
    for name in names:
        cells = "".join(_cell(part, name) for part in parts)
        rows.append(f"<tr><th>{clean(name)}</th>{cells}</tr>")
    yield (
        '<section><table class="figures"><caption>Million events a second, and 95 % interval; '
        f"{clean(BASELINE)} is the least that any reader does.</caption>"
        f"<thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table></section>"
    )


def _cell(part: Part, name: str) -> str:
    form = part.form(name)
    if form is None:
        return "<td>–</td>"
    value, low, high = (1e3 / amount if amount > 0 else 0.0 for amount in form.level)
    return f"<td>{digits(value)}<small>{digits(high)} … {digits(low)}</small></td>"
