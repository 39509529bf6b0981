"""Records that are handed out together, also as a table of pyarrow, pandas or polars.

The packages are imported when a table is made, and a sentence says which is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from markerjit.arguments import check_int
from markerjit.errors import Refused
from markerjit.model import Event
from markerjit.printable import counted
from markerjit.ring.batch import Columns, Packet
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType
from markerjit.tuples import NamedTuple

_SHOWN = 20
"""Rows that a notebook shows of a batch."""
_NO_STACKS: Mapping[int, str] = {}


class Batch(NamedTuple):
    """The records of a poll. No record is older than one of an earlier batch, except for records of
    a thread that was interrupted while it recorded. The packets and the columns of a batch need not
    hold the same records: columns are kept back until they are in order.

    lost    events lost since the stream began, by (cpu, name of the marker)
    clock   converts the times of the columns
    types   those of all records that may come, so that the tables of all batches have one schema
    pid     the process; 0: not known
    stacks  the stacks of records, which have their numbers in the packets: those that came with the
            packets, and may have come before
    """

    packets: Sequence[Packet]
    columns: Sequence[Columns]
    lost: Mapping[tuple[int, str], int]
    clock: Calibration | None = None
    types: tuple[RecordType, ...] = ()
    pid: int = 0
    stacks: Mapping[int, str] = _NO_STACKS

    @property
    def records(self) -> int:
        """Number of records in the columns."""
        return sum(len(columns.time) for columns in self.columns)

    def events(self) -> list[Event]:
        """The records of the columns as events, in order of time."""
        from markerjit.trace.records import to_events

        if self.clock is None:
            raise _no_clock()
        pieces = to_events(self.columns, self.clock, self.pid)
        return [event for piece in pieces for event in piece]

    def first(self, count: int) -> Batch:
        """The batch with the first `count` records of its columns, in order of time, and without
        packets. Raises Refused where `count` is below 0."""
        from markerjit.ring.columns import Slices

        check_int("count", count, 0)
        if count >= self.records:
            return self._replace(packets=())
        return self._replace(packets=(), columns=Slices(self.columns).take(count) if count else ())

    def to_arrow(self) -> Any:
        """The records of the columns as a pyarrow.Table, in order of time. Its columns are those of
        a Parquet file."""
        return table_of([self])

    def to_pandas(self) -> Any:
        """The records as a pandas.DataFrame. Numbers and texts that a marker does not have are
        NA."""
        from markerjit.trace.frames import to_pandas

        return to_pandas(self.to_arrow())

    def to_polars(self) -> Any:
        """The records as a polars.DataFrame."""
        from markerjit.trace.frames import to_polars

        return to_polars(self.to_arrow())

    def __repr__(self) -> str:
        by_marker = {columns.type.marker: len(columns.time) for columns in self.columns}
        each = ", ".join(f"{name} {count}" for name, count in sorted(by_marker.items()))
        packets = f", {counted(len(self.packets), 'packet')}" if self.packets else ""
        of_each = f" ({each})" if each else ""
        return f"<Batch of {counted(self.records, 'record')}{of_each}{packets}>"

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_table
        from markerjit.trace.records import to_events

        if self.clock is None:
            return html_table([], remarks=[repr(self)])
        rows: list[Mapping[str, str]] = []
        for events in to_events(self.columns, self.clock):
            rows += [event._repr_cells_() for event in events[: _SHOWN - len(rows)]]
            if len(rows) == _SHOWN:
                break
        remarks = [f"the first {_SHOWN} of {self.records}"] if self.records > _SHOWN else []
        return html_table(rows, remarks=remarks)


def _no_clock() -> Refused:
    return Refused("this batch was made by hand, without a clock: its times have no meaning")


def table_of(batches: Iterable[Batch], types: tuple[RecordType, ...] = ()) -> Any:
    """The records of batches as one pyarrow.Table. `types` are for the schema where there is no
    batch."""
    from markerjit.trace.arrow_table import Tables, joined

    tables: list[Any] = []
    of_types = Tables(types, None)
    for batch in batches:
        if batch.clock is None:
            raise _no_clock()
        of_types = Tables(batch.types, batch.clock)
        if batch.records:
            tables.append(of_types.table(batch.columns))
    return joined(tables) if tables else of_types.schema.empty_table()
