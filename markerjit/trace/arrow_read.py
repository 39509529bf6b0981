"""Parquet and Arrow files as arrow.py writes them, as columns again."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.errors import BadTrace
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.types import TEXTS, TextState, number_code
from markerjit.trace.header import for_reading, from_json, losses_from_json, parse_json
from markerjit.trace.reading import ColumnTrace, missing, open_to_read
from markerjit.trace.table import HEAD, KIND, layout

if TYPE_CHECKING:
    from markerjit.model import Field
    from markerjit.ring.batch import Array

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise missing("reading a table", "pyarrow") from None

from markerjit.trace.arrow import CHARS, HEADER, LOST, Tables

_ROWS = 1 << 16
_MAGIC_SIZE = 8
"""An Arrow file is a stream, with this before it and a table of contents behind it."""


class _TableTrace(ColumnTrace):
    """What Parquet and Arrow have in common."""

    def _begin(self, schema: Any, metadata: Mapping[bytes, bytes]) -> None:
        header = metadata.get(HEADER.encode())
        if header is None:
            raise BadTrace(f"{self.path} is a table, but no trace of markerjit")
        self.info = for_reading(from_json(self._told(header), self.path))
        self._layout = layout(self.info.types)
        self._by_marker = {kind.marker: number for number, kind in enumerate(self.info.types)}
        self._wanted = Tables(self.info).schema
        self._lost: Mapping[tuple[int, str], int] = {}
        self._check(schema)

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._lost

    def batches(self) -> Iterator[Sequence[Columns]]:
        try:
            for rows in self._rows():
                self._check(rows.schema)
                rows.validate(full=True)
                yield list(self._columns(rows))
        except (pa.ArrowException, OSError, ValueError, KeyError, IndexError) as error:
            raise BadTrace(f"{self.path} is damaged: {error}") from error

    def _rows(self) -> Iterator[Any]:
        raise NotImplementedError

    def _check(self, schema: Any) -> None:
        """Whether the columns are those of a trace that says this of itself."""
        if schema.names != self._wanted.names:
            raise BadTrace(f"{self.path} has other columns than its header says")
        for found, wanted in zip(schema.types, self._wanted.types, strict=True):
            if not _is_like(found, wanted):
                raise BadTrace(f"{self.path} has a column of {found}, and not of {wanted}")

    def _told(self, text: bytes) -> Any:
        try:
            return parse_json(text)
        except ValueError as error:
            raise BadTrace(f"what {self.path} says of itself is no JSON") from error

    def _columns(self, rows: Any) -> Iterator[Columns]:
        """A Columns for each type that occurs."""
        for name in (*HEAD, KIND) if self._layout.has_kind else HEAD:
            if rows.column(name).null_count:
                raise BadTrace(f"{self.path} is damaged: it has an event without {name}")
        numbers = self._numbers(rows)
        present, first = np.unique(numbers, return_index=True)
        for number in present[np.argsort(first)].tolist():
            of_type = numbers == number
            some = rows if of_type.all() else rows.filter(pa.array(of_type))
            kind = self.info.types[number]
            times = some.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
            if not self._layout.numbered:
                times = times - self.info.clock.wall_offset_ns
            places = zip(kind.fields, self._layout.places[number], strict=True)
            yield Columns(
                kind,
                times.astype(np.uint64),
                some.column("cpu").to_numpy(zero_copy_only=False),
                some.column("tid").to_numpy(zero_copy_only=False),
                {field.name: _from_arrow(field, some.column(place)) for field, place in places},
            )

    def _numbers(self, rows: Any) -> Array:
        """Of each row, its type's place among the trace's types."""
        if self._layout.has_kind:
            found: Array = rows.column(KIND).to_numpy(zero_copy_only=False)
            if len(found) and not 0 <= found.min() <= found.max() < len(self.info.types):
                raise BadTrace(f"{self.path} is damaged: it has an event of no kind")
            return found
        names = rows.column("name")
        names.dictionary.validate(full=True)
        of_code = np.array([self._by_marker[name] for name in names.dictionary.to_pylist()] or [0])
        codes: Array = of_code[names.indices.to_numpy(zero_copy_only=False)]
        return codes


class ParquetTrace(_TableTrace):
    """A Parquet file."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        from pyarrow import parquet

        os.close(open_to_read(path))
        try:
            self._file = parquet.ParquetFile(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadTrace(
                f"{path} is no Parquet file, or was not closed by who wrote it; then nothing of it "
                f"can be read: {error}"
            ) from error
        metadata = self._file.metadata.metadata or {}
        schema = self._file.schema_arrow
        self._begin(schema, {**(schema.metadata or {}), **metadata})
        if LOST.encode() in metadata:
            self._lost = losses_from_json(self._told(metadata[LOST.encode()]), path)

    def _rows(self) -> Iterator[Any]:
        yield from self._file.iter_batches(batch_size=_ROWS)


class ArrowTrace(_TableTrace):
    """An Arrow IPC file, also one that was cut off. What was lost is in its last batch."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        os.close(open_to_read(path))
        self._whole = True
        try:
            with self._open() as reader:
                self._begin(reader.schema, reader.schema.metadata or {})
                if self._whole and reader.num_record_batches:
                    last = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
                    self._note_losses(last.custom_metadata)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadTrace(f"{path} is no Arrow file: {error}") from error
        if not self._whole:
            self.complain("it is cut off: more may have been lost than is known")

    def _open(self) -> Any:
        """A reader of the file, or where it has no end of the stream in it."""
        if self._whole:
            try:
                return pa.ipc.open_file(pa.memory_map(self.path))
            except pa.ArrowInvalid:
                self._whole = False
        source = pa.memory_map(self.path)
        source.seek(_MAGIC_SIZE)
        return pa.ipc.open_stream(source)

    def _rows(self) -> Iterator[Any]:
        with self._open() as reader:
            if self._whole:
                for number in range(reader.num_record_batches):
                    yield reader.get_batch(number)
                return
            while True:
                try:
                    batch, metadata = reader.read_next_batch_with_custom_metadata()
                except (StopIteration, pa.ArrowInvalid, OSError):
                    return
                self._note_losses(metadata)
                yield batch

    def _note_losses(self, metadata: Any) -> None:
        if metadata and LOST in metadata:
            self._lost = losses_from_json(self._told(metadata[LOST]), self.path)


def _is_like(found: Any, wanted: Any) -> bool:
    """Whether two columns have one type; the numbers that stand for names may be of any."""
    if pa.types.is_dictionary(wanted) and pa.types.is_dictionary(found):
        return bool(found.value_type == wanted.value_type)
    return bool(found == wanted)


def _from_arrow(field: Field, column: Any) -> Array | Texts:
    """A field's values again."""
    if field.type in TEXTS:
        return _texts(column)
    if pa.types.is_string(column.type):  # a CHAR
        column = pc.index_in(column, value_set=CHARS)
    if column.null_count:
        column = column.fill_null(0)
    values: Array = column.to_numpy(zero_copy_only=False)
    return values if values.dtype == np.bool_ else values.astype(number_code(field), copy=False)


def _texts(column: Any) -> Texts:
    _, offsets, data = column.buffers()
    rows = len(column)
    found = np.frombuffer(offsets, np.int64)[column.offset : column.offset + rows + 1]
    states = np.where(
        column.is_null().to_numpy(zero_copy_only=False), TextState.NULL, TextState.WHOLE
    )
    text = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return Texts(found, text, states.astype(np.uint8))
