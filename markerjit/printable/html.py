"""Tables as HTML, for values in a notebook.

A value offers its cells as plain text, by column (`_repr_cells_`), and the HTML is made here. So no
other module escapes anything. Names and texts come from other programs: they are made printable,
and then escaped.

No colour, no size and no script is set, so a table follows the notebook's own style, dark or light.
Only the first MOST_ROWS rows are shown.

What this does not do: choose columns, or know any kind of value.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import islice
from typing import Protocol

from markerjit.printable import counted, printable

__all__ = ["Code", "Shown", "html_of", "html_table"]

MOST_ROWS = 100

_LEFT = 'style="text-align: left"'  # notebooks set cells to the right


class Code(str):
    """Text of a cell that is shown as code: bytes, addresses."""


class Shown(Protocol):
    """A value that has a row in a table."""

    def _repr_cells_(self) -> Mapping[str, str]:
        """The texts of its cells, by column."""


def html_of(values: Iterable[Shown]) -> str:
    """A table with a row for each value."""
    return html_table(value._repr_cells_() for value in values)


def html_table(
    rows: Iterable[Mapping[str, str]], *, caption: str = "", remarks: Sequence[str] = ()
) -> str:
    """A table of rows, with the remarks below it. The columns are those of all rows, in the order
    in which they first appear. A row may lack some of them."""
    remaining = iter(rows)
    shown = list(islice(remaining, MOST_ROWS))
    left_out = sum(1 for _ in remaining)
    columns = list(dict.fromkeys(column for row in shown for column in row))
    lines = ["<table>"]
    if caption:
        lines.append(f"<caption {_LEFT}>{_text(caption)}</caption>")
    if columns:
        heads = "".join(f'<th scope="col" {_LEFT}>{_text(column)}</th>' for column in columns)
        lines.append(f"<thead><tr>{heads}</tr></thead>")
    lines.append("<tbody>")
    for row in shown:
        cells = "".join(f"<td {_LEFT}>{_cell(row.get(column, ''))}</td>" for column in columns)
        lines.append(f"<tr>{cells}</tr>")
    lines += ["</tbody>", "</table>"]
    if left_out:
        remarks = (*remarks, f"{counted(left_out, 'row')} more")
    lines += [f"<p>{_text(remark)}</p>" for remark in remarks]
    return "\n".join(lines)


def _cell(text: str) -> str:
    return f"<code>{_text(text)}</code>" if isinstance(text, Code) and text else _text(text)


def _text(text: str) -> str:
    return escape(printable(text))
