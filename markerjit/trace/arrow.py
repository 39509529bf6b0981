"""Parquet and Arrow: a trace as one table (table.py), for DuckDB, Polars, pandas and others.

Numbers and texts are handed over without a copy where all records of a batch are of one type. The
rows of a batch are in order of time. Batches are collected into row groups of a bounded size, so
memory stays flat.

What the trace says of itself is in the metadata of the schema, under `markerjit`. Losses are known
at the end: in Parquet in the file's metadata, under `markerjit.lost`; in Arrow in the metadata of
the last record batch. A Parquet file can be read when it was closed and not before; an Arrow file
that was cut off is read up to there.
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
"""So many tables are kept as they came; each has buffers that may be parts of far larger ones."""
_ARROW_ROWS = 1 << 16
CHARS = pa.array([chr(code) for code in range(256)])


class Tables:
    """Turns batches into tables of one schema."""

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
        told = json.dumps(to_json(info))
        self.schema = pa.schema(head + fields, metadata={HEADER: told})
        self.texts = [name for name, sort in self._layout.columns if sort in ("string", "char")]

    def table(self, batch: Sequence[Columns]) -> Any:
        """The records of a batch, in order of time."""
        batch = [columns for columns in batch if len(columns.time)]
        whole = pa.concat_tables([self._of_one(columns) for columns in batch])
        if len(batch) < 2:
            return whole
        _, order = in_order(batch, self._clock)
        return whole.take(pa.array(order))

    def empty_batch(self) -> Any:
        """A record batch without records, which has the names of all markers."""
        codes = pa.array([], self.schema.field("name").type.index_type)
        names = pa.DictionaryArray.from_arrays(codes, self.names)
        columns = [
            names if field.name == "name" else pa.array([], field.type) for field in self.schema
        ]
        return pa.record_batch(columns, schema=self.schema)

    def _of_one(self, columns: Columns) -> Any:
        """The records of one type, and nulls where it has no such field."""
        number = self._numbers[columns.type.id]
        rows = len(columns.time)
        times = monotonic(columns.time, self._clock)
        if not self._layout.numbered:
            times = times + self._clock.wall_offset_ns
        names = np.full(rows, self._markers.index(columns.type.marker), self._codes)
        found: dict[str, Any] = {
            "time": pa.array(times).cast(self.schema.field("time").type),
            "cpu": pa.array(columns.cpu),
            "tid": pa.array(columns.tid),
            "name": pa.DictionaryArray.from_arrays(pa.array(names), self.names),
        }
        if self._layout.has_kind:
            found[KIND] = pa.array(np.full(rows, number, np.int32))
        places = zip(columns.type.fields, self._layout.places[number], strict=True)
        for field, place in places:
            found[place] = to_arrow(field, columns.fields[field.name])
        return pa.table(
            [
                found[field.name] if field.name in found else pa.nulls(rows, field.type)
                for field in self.schema
            ],
            schema=self.schema,
        )


class ParquetSink:
    """Writes a Parquet file. It cannot be read before it was closed."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        from pyarrow import parquet

        self._tables = Tables(info)
        self._new: list[Any] = []  # tables as they came
        self._held: list[Any] = []  # those before, joined: each has more rows than the next
        self._rows = self._bytes = 0
        self._file = create(path, force=force)
        self._writer = parquet.ParquetWriter(
            self._file,
            self._tables.schema,
            compression="zstd",
            compression_level=1,
            # Numbers rarely repeat so often that to look for it pays; times are in order.
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
        """Write what is held back, the losses, and where everything is."""
        try:
            if self._rows:
                self._flush()
            self._writer.add_key_value_metadata({LOST: json.dumps(losses_to_json(lost))})
            self._writer.close()
        finally:
            self._file.close()

    def _join(self) -> None:
        """Make one table of the new ones, and of those before that are no larger: so each row is
        copied a few times only, however small the tables are that come."""
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
        self._nothing = self._tables.empty_batch()
        self._put(self._nothing, {})  # so that there is a header
        self._file.flush()

    def write(self, batch: Batch) -> None:
        """Add the records of a batch."""
        self._lost = batch.lost or self._lost
        if not any(len(columns.time) for columns in batch.columns):
            return
        table = self._tables.table(batch.columns).combine_chunks()
        for some in table.to_batches(max_chunksize=_ARROW_ROWS):
            self._put(some, self._lost)
        self._file.flush()

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Write the losses, and where everything is."""
        try:
            self._put(self._nothing, lost)
            self._writer.close()
        finally:
            self._file.close()

    def _put(self, batch: Any, lost: Mapping[tuple[int, str], int]) -> None:
        told = {LOST: json.dumps(losses_to_json(lost))}
        self._writer.write_batch(batch, custom_metadata=told)


def joined(tables: Sequence[Any]) -> Any:
    """One table, which has nothing of the buffers of these."""
    return pa.concat_tables(tables).combine_chunks()


def arrow_type(sort: str) -> Any:
    """The type of a column."""
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
    """A field's values as Arrow has them."""
    sort = sort_of(field)
    if isinstance(column, Texts):
        return _texts(field, column, sort)
    if sort == "char":
        return CHARS.take(pa.array(column.astype(np.uint8)))
    if sort == "bool":
        return pa.array(column.astype(np.bool_))
    return pa.array(column)


def _texts(field: Field, texts: Texts, sort: str) -> Any:
    """Texts: a NULL one is null. What cannot be as it is, is as events have it: escaped where it is
    no UTF-8, with an ellipsis where it was cut."""
    odd = _is_cut(field, texts) or (texts.states == TextState.UNREADABLE).any()
    if sort == "string" and (odd or not is_utf8(texts)):
        texts = make_texts(
            value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value
            for value in text_values(field, texts)
        )
    rows = len(texts.states)
    there = (texts.states == TextState.WHOLE) | (texts.states == TextState.CUT)
    mask = None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
    offsets = np.ascontiguousarray(texts.offsets, np.int64)
    return pa.Array.from_buffers(
        arrow_type(sort), rows, [mask, pa.py_buffer(offsets), pa.py_buffer(texts.data)]
    )


def _is_cut(field: Field, texts: Texts) -> bool:
    return field.limit is None and bool((texts.states == TextState.CUT).any())
