"""Writers of Parquet and Arrow: a trace as a table (arrow_table.py), for DuckDB, Polars and others.

Batches are collected into row groups of a bounded size, which bounds memory.

The header of the trace is in the metadata of the schema, under `markerjit`. The losses, which are
known at the end, are in the metadata of the file (Parquet, under `markerjit.lost`) or of the last
record batch (Arrow). A Parquet file can be read only once it is closed. A truncated Arrow file can
be read up to the cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from markerjit.ring.batch import Columns
from markerjit.trace.arrow_table import Tables, joined, pa
from markerjit.trace.batch import Batch
from markerjit.trace.files import create
from markerjit.trace.header import losses_to_json, to_json
from markerjit.trace.sink import TraceInfo

HEADER, LOST = "markerjit", "markerjit.lost"

Losses = Sequence[Mapping[str, Any]]
"""As JSON has them."""

_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_FEW = 64
"""The most tables that are kept unjoined. Their buffers may be parts of far larger ones."""
_ARROW_ROWS = 1 << 16


def tables_of(info: TraceInfo) -> Tables:
    """The tables of a trace. Their schema has the header of the trace."""
    return Tables(info.types, info.clock, {HEADER: json.dumps(to_json(info))})


class ParquetSink:
    """Writes a Parquet file, which can be read once it is closed."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        self._file = ParquetFile(path, tables_of(info), force=force)

    def write(self, batch: Batch) -> None:
        """Add the records of a batch."""
        self._file.put(batch.columns)

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Write the tables that are held back, the losses, and the table of contents."""
        self._file.end(losses_to_json(lost))


class ArrowSink:
    """Writes an Arrow IPC file, also known as Feather."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        self._lost: Mapping[tuple[int, str], int] = {}
        self._file = ArrowFile(path, tables_of(info), force=force)

    def write(self, batch: Batch) -> None:
        """Add the records of a batch."""
        self._lost = batch.lost or self._lost
        self._file.put(batch.columns, losses_to_json(self._lost))

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Write the losses, and the table of contents."""
        self._file.end(losses_to_json(lost))


class ParquetFile:
    """A Parquet file of these tables."""

    def __init__(self, path: str, tables: Tables, *, force: bool = False) -> None:
        from pyarrow import parquet

        self._tables = tables
        self._new: list[Any] = []  # tables as they came
        self._held: list[Any] = []  # earlier tables, joined: each has more rows than the next
        self._rows = self._bytes = 0
        self._file = create(path, force=force)
        self._writer = parquet.ParquetWriter(
            self._file,
            self._tables.schema,
            compression="zstd",
            compression_level=1,
            # Numbers rarely repeat often enough for a dictionary to pay; times are in order.
            use_dictionary=["name", *self._tables.texts],
            column_encoding={"time": "DELTA_BINARY_PACKED"},
            write_statistics=True,
        )

    def put(self, batch: Sequence[Columns], losses: Losses = ()) -> None:
        """Add records. What was lost is written at the end."""
        if not any(len(columns.time) for columns in batch):
            return
        table = self._tables.table(batch)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        self._new.append(table)
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()
        elif len(self._new) >= _FEW:
            self._join()

    def end(self, losses: Losses) -> None:
        """Write the tables that are held back, the losses, and the table of contents."""
        try:
            if self._rows:
                self._flush()
            self._writer.add_key_value_metadata({LOST: json.dumps(losses)})
            self._writer.close()
        finally:
            self._file.close()

    def _join(self) -> None:
        """Join the new tables with the earlier ones that are no larger.

        Each row is then copied only a few times, however small the tables are that come.
        """
        table = joined(self._new)
        self._new = []
        while self._held and self._held[-1].num_rows <= table.num_rows:
            table = joined([self._held.pop(), table])
        self._held.append(table)

    def _flush(self) -> None:
        table = pa.concat_tables([*self._held, *self._new])
        self._new, self._held = [], []
        self._rows = self._bytes = 0
        self._writer.write_table(table, row_group_size=_GROUP_ROWS)
        self._file.flush()


class ArrowFile:
    """An Arrow IPC file of these tables."""

    def __init__(self, path: str, tables: Tables, *, force: bool = False) -> None:
        self._tables = tables
        self._file = create(path, force=force)
        options = pa.ipc.IpcWriteOptions(compression="lz4", emit_dictionary_deltas=True)
        self._writer = pa.ipc.new_file(self._file, self._tables.schema, options=options)
        self._empty = self._tables.empty_batch()
        self._put(self._empty, ())  # writes the header
        self._file.flush()

    def put(self, batch: Sequence[Columns], losses: Losses = ()) -> None:
        """Add records, and what was lost so far."""
        if not any(len(columns.time) for columns in batch):
            return
        table = self._tables.table(batch).combine_chunks()
        for rows in table.to_batches(max_chunksize=_ARROW_ROWS):
            self._put(rows, losses)
        self._file.flush()

    def end(self, losses: Losses) -> None:
        """Write the losses, and the table of contents."""
        try:
            self._put(self._empty, losses)
            self._writer.close()
        finally:
            self._file.close()

    def _put(self, batch: Any, losses: Losses) -> None:
        self._writer.write_batch(batch, custom_metadata={LOST: json.dumps(losses)})
