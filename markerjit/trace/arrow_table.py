"""Columns of records as tables of pyarrow, with the columns of table.py.

Numbers and texts are not copied where all records of a batch are of one type. The rows of a batch
are in order of time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.ring.batch import Columns, Texts
from markerjit.ring.columns import monotonic
from markerjit.ring.types import TextState
from markerjit.trace.collect import make_texts
from markerjit.trace.missing import missing
from markerjit.trace.records import in_order, is_utf8, text_values
from markerjit.trace.table import HEAD, KIND, layout, sort_of

if TYPE_CHECKING:
    from markerjit.model import Field
    from markerjit.ring.batch import Array
    from markerjit.ring.clock import Calibration
    from markerjit.ring.types import RecordType

try:
    import pyarrow as pa
except ImportError:
    raise missing("a table", "pyarrow", "parquet") from None

__all__ = ["CHARS", "Tables", "arrow_type", "joined", "pa", "to_arrow"]

CHARS = pa.array([chr(code) for code in range(256)])


class Tables:
    """Converts batches to tables of one schema. Without a clock there is only the schema."""

    def __init__(
        self,
        types: Sequence[RecordType],
        clock: Calibration | None,
        metadata: Mapping[str, str] | None = None,
        head: Sequence[str] = HEAD,
    ) -> None:
        self._clock = clock
        self._layout = layout(types, head)
        self._numbers = {kind.id: number for number, kind in enumerate(types)}
        self._markers = list(dict.fromkeys(kind.marker for kind in types))
        code = pa.int8() if len(self._markers) <= 128 else pa.int32()
        self._codes = code.to_pandas_dtype()
        self.names = pa.array(self._markers, pa.string())
        sorts = {
            "time": pa.int64() if self._layout.numbered else pa.timestamp("ns", "UTC"),
            "pid": pa.uint32(),
            "cpu": pa.uint16(),
            "tid": pa.uint32(),
            "name": pa.dictionary(code, pa.string()),
        }
        first = [(name, sorts[name]) for name in head]
        if self._layout.has_kind:
            first.append((KIND, pa.int32()))
        fields = [(name, arrow_type(sort)) for name, sort in self._layout.columns]
        self.schema = pa.schema(first + fields, metadata=metadata)
        self.texts = [name for name, sort in self._layout.columns if sort in ("string", "char")]

    def table(self, batch: Sequence[Columns]) -> Any:
        """The records of a batch, in order of time."""
        assert self._clock
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

    def _number(self, kind: RecordType) -> int:
        """The index of a type among those of the trace."""
        return self._numbers[kind.id]

    def _origin(self, columns: Columns) -> Mapping[str, Any]:
        """The columns that say where the records come from: none, since all are of one process."""
        return {}

    def _of_type(self, columns: Columns) -> Any:
        """The records of one type, with nulls for the fields that it does not have."""
        number = self._number(columns.type)
        rows = len(columns.time)
        assert self._clock
        times = monotonic(columns.time, self._clock)
        if not self._layout.numbered:
            times = times + self._clock.wall_offset_ns
        names = np.full(rows, self._markers.index(columns.type.marker), self._codes)
        arrays: dict[str, Any] = {
            "time": pa.array(times).cast(self.schema.field("time").type),
            "cpu": pa.array(columns.cpu),
            "tid": pa.array(columns.tid),
            "name": pa.DictionaryArray.from_arrays(pa.array(names), self.names),
            **self._origin(columns),
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
