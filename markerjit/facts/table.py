"""Values of one kind as a table, for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import cast

from markerjit.errors import BadArgument
from markerjit.printable import counted
from markerjit.printable.html import Shown, html_table
from markerjit.tuples import NamedTuple


class Table(NamedTuple):
    """Rows that a notebook shows as a table: the texts of the cells, by column."""

    rows: tuple[Mapping[str, str], ...]

    def __repr__(self) -> str:
        columns = ", ".join(self.rows[0]) if self.rows else ""
        return f"<Table of {counted(len(self.rows), 'row')}: {columns}>"

    def _repr_html_(self) -> str:
        return html_table(self.rows)


def table(values: Iterable[Shown]) -> Table:
    """A table with a row for each value: a Site, a Step, an Event or a MarkerStatus.

    Raises BadArgument for values of other kinds.
    """
    if not isinstance(values, Iterable):
        raise BadArgument("values", values, "sites, steps, events or statuses of markers")
    return Table(tuple(_cells(value) for value in values))


def _cells(value: object) -> Mapping[str, str]:
    if not hasattr(value, "_repr_cells_"):
        raise BadArgument("values", value, "a site, a step, an event or the status of a marker")
    return cast(Shown, value)._repr_cells_()
