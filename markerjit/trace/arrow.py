"""Writers of Parquet and Arrow: a trace as a table (table.py), for DuckDB, Polars and others.

Numbers and texts are not copied where all records of a batch are of one type. The rows of a batch
are in order of time. Batches are collected into row groups of a bounded size, which bounds memory.

The header of the trace is in the metadata of the schema, under `markerjit`. The losses, which are
known at the end, are in the metadata of the file (Parquet, under `markerjit.lost`) or of the last
record batch (Arrow). A Parquet file can be read only once it is closed. A truncated Arrow file can
be read up to the cut.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.ring.batch import Batch, Columns, Texts
from markerjit.ring.columns import monotonic
from markerjit.ring.types import TextState
from markerjit.trace.collect import make_texts
from markerjit.trace.files import create
from markerjit.trace.header import losses_to_json, to_json
from markerjit.trace.reading import missing
from markerjit.trace.records import in_order, is_utf8, text_values
from markerjit.trace.sink import TraceInfo
from markerjit.trace.table import KIND, layout, sort_of

if TYPE_CHECKING:
    from markerjit.model import Field
    from markerjit.ring.batch import Array

try:
    import pyarrow as pa
except ImportError:
    raise missing("a table", "pyarrow") from None

HEADER, LOST = "markerjit", "markerjit.lost"

_GROUP_ROWS = 1 << 20
_GROUP_BYTES = 64 << 20
_FEW = 64
"""The most tables that are kept unjoined. Their buffers may be parts of far larger ones."""
_ARROW_ROWS = 1 << 16
CHARS = pa.array([chr(code) for code in range(256)])


class Tables:
    """Converts batches to tables of one schema."""

    def __init__(self, info: TraceInfo) -> None:
        self._clock = info.clock
        self._layout = layout(info.types)
        self._numbers = {kind.id: number for number, kind in enumerate(info.types)}
        self._markers = list(dict.fromkeys(kind.marker for kind in info.types))
        code = pa.int8() if len(self._markers) <= 128 else pa.int32()
        self._codes = code.to_pandas_dtype()
        self.names = pa.array(self._markers, pa.string())
        head = [
            ("time", pa.int64() if self._layout.numbered else pa.timestamp("ns", "UTC")),
            ("cpu", pa.uint16()),
            ("tid", pa.uint32()),
            ("name", pa.dictionary(code, pa.string())),
        ]
        if self._layout.has_kind:
            head.append((KIND, pa.int32()))
        fields = [(name, arrow_type(sort)) for name, sort in self._layout.columns]
        header = json.dumps(to_json(info))
        self.schema = pa.schema(head + fields, metadata={HEADER: header})
        self.texts = [name for name, sort in self._layout.columns if sort in ("string", "char")]

    def table(self, batch: Sequence[Columns]) -> Any:
        """The records of a batch, in order of time."""
        batch = [columns for columns in batch if len(columns.time)]
        whole = pa.concat_tables([self._of_type(columns) for columns in batch])
        if len(batch) < 2:
            return whole
        _, order = in_order(batch, self._clock)
        return whole.take(pa.array(order))

    def empty_batch(self) -> Any:
        """A record batch without records, with the names of all markers in its dictionary."""
        codes = pa.array([], self.schema.field("name").type.index_type)
        names = pa.DictionaryArray.from_arrays(codes, self.names)
        columns = [
            names if field.name == "name" else pa.array([], field.type) for field in self.schema
        ]
        return pa.record_batch(columns, schema=self.schema)

    def _of_type(self, columns: Columns) -> Any:
        """The records of one type, with nulls for the fields that it does not have."""
        number = self._numbers[columns.type.id]
        rows = len(columns.time)
        times = monotonic(columns.time, self._clock)
        if not self._layout.numbered:
            times = times + self._clock.wall_offset_ns
        names = np.full(rows, self._markers.index(columns.type.marker), self._codes)
        arrays: dict[str, Any] = {
            "time": pa.array(times).cast(self.schema.field("time").type),
            "cpu": pa.array(columns.cpu),
            "tid": pa.array(columns.tid),
            "name": pa.DictionaryArray.from_arrays(pa.array(names), self.names),
        }
        if self._layout.has_kind:
            arrays[KIND] = pa.array(np.full(rows, number, np.int32))
        places = zip(columns.type.fields, self._layout.places[number], strict=True)
        for field, place in places:
            arrays[place] = to_arrow(field, columns.fields[field.name])
        return pa.table(
            [
                arrays[field.name] if field.name in arrays else pa.nulls(rows, field.type)
                for field in self.schema
            ],
            schema=self.schema,
        )


class ParquetSink:
    """Writes a Parquet file, which can be read once it is closed."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        from pyarrow import parquet

        self._tables = Tables(info)
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

    def write(self, batch: Batch) -> None:
        """Add the records of a batch."""
        if not any(len(columns.time) for columns in batch.columns):
            return
        table = self._tables.table(batch.columns)
        self._rows += table.num_rows
        self._bytes += table.nbytes
        self._new.append(table)
        if self._rows >= _GROUP_ROWS or self._bytes >= _GROUP_BYTES:
            self._flush()
        elif len(self._new) >= _FEW:
            self._join()

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Write the tables that are held back, the losses, and the table of contents."""
        try:
            if self._rows:
                self._flush()
            self._writer.add_key_value_metadata({LOST: json.dumps(losses_to_json(lost))})
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


class ArrowSink:
    """Writes an Arrow IPC file, also known as Feather."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        self._tables = Tables(info)
        self._lost: Mapping[tuple[int, str], int] = {}
        self._file = create(path, force=force)
        options = pa.ipc.IpcWriteOptions(compression="lz4", emit_dictionary_deltas=True)
        self._writer = pa.ipc.new_file(self._file, self._tables.schema, options=options)
        self._empty = self._tables.empty_batch()
        self._put(self._empty, {})  # writes the header
        self._file.flush()

    def write(self, batch: Batch) -> None:
        """Add the records of a batch."""
        self._lost = batch.lost or self._lost
        if not any(len(columns.time) for columns in batch.columns):
            return
        table = self._tables.table(batch.columns).combine_chunks()
        for rows in table.to_batches(max_chunksize=_ARROW_ROWS):
            self._put(rows, self._lost)
        self._file.flush()

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Write the losses, and the table of contents."""
        try:
            self._put(self._empty, lost)
            self._writer.close()
        finally:
            self._file.close()

    def _put(self, batch: Any, lost: Mapping[tuple[int, str], int]) -> None:
        metadata = {LOST: json.dumps(losses_to_json(lost))}
        self._writer.write_batch(batch, custom_metadata=metadata)


def joined(tables: Sequence[Any]) -> Any:
    """The tables as one table with buffers of its own."""
    return pa.concat_tables(tables).combine_chunks()


def arrow_type(sort: str) -> Any:
    """Arrow's type of a column of this sort."""
    match sort:
        case "bool":
            return pa.bool_()
        case "char":
            return pa.string()
        case "string":
            return pa.large_string()
        case "bytes":
            return pa.large_binary()
        case _:
            return pa.from_numpy_dtype(np.dtype(sort))


def to_arrow(field: Field, column: Array | Texts) -> Any:
    """The values of a field as an Arrow array."""
    sort = sort_of(field)
    if isinstance(column, Texts):
        return _texts(field, column, sort)
    if sort == "char":
        return CHARS.take(pa.array(column.astype(np.uint8)))
    if sort == "bool":
        return pa.array(column.astype(np.bool_))
    return pa.array(column)


def _texts(field: Field, texts: Texts, sort: str) -> Any:
    """The texts as an Arrow array; NULL becomes null.

    A text that is not UTF-8 is escaped, and one that was cut gets an ellipsis, as in events.
    """
    odd = _is_cut(field, texts) or (texts.states == TextState.UNREADABLE).any()
    if sort == "string" and (odd or not is_utf8(texts)):
        texts = make_texts(
            value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
            for value in text_values(field, texts)
        )
    rows = len(texts.states)
    valid = (texts.states == TextState.WHOLE) | (texts.states == TextState.CUT)
    mask = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    offsets = np.ascontiguousarray(texts.offsets, np.int64)
    return pa.Array.from_buffers(
        arrow_type(sort), rows, [mask, pa.py_buffer(offsets), pa.py_buffer(texts.data)]
    )


def _is_cut(field: Field, texts: Texts) -> bool:
    return field.limit is None and bool((texts.states == TextState.CUT).any())
