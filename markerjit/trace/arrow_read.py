"""Readers of the Parquet and Arrow files that arrow.py writes."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.errors import BadTrace
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.types import FILLER, TEXT_COLUMNS, TextState, number_code
from markerjit.trace.header import (
    LARGEST,
    as_text,
    for_reading,
    from_json,
    is_joint,
    losses_from_json,
    losses_of_process,
    of_several,
    parse_json,
    whole,
)
from markerjit.trace.missing import missing
from markerjit.trace.reading import ColumnTrace, open_to_read
from markerjit.trace.sink import TraceInfo
from markerjit.trace.table import HEAD, JOINT_HEAD, KIND, layout
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.model import Field
    from markerjit.ring.batch import Array

try:
    import pyarrow as pa
    import pyarrow.compute as pc
except ImportError:
    raise missing("reading a table", "pyarrow") from None

from markerjit.trace.arrow import HEADER, LOST
from markerjit.trace.arrow_table import CHARS, Tables

_ROWS = 1 << 16
_MAGIC_SIZE = 8
"""An Arrow file is a stream between eight bytes of magic and a table of contents."""


class _TableTrace(ColumnTrace):
    """The common part of the readers of Parquet and Arrow. In a table of several processes it reads
    the events of `pid`."""

    _pid: int | None = None

    def _begin(self, schema: Any, metadata: Mapping[bytes, bytes]) -> None:
        text = metadata.get(HEADER.encode())
        if text is None:
            raise BadTrace(f"{self.path} is a table, but not a trace of markerjit")
        header = self._parse_json(text)
        self.programs = _programs_of(header, self.path) if is_joint(header) else ()
        self.info = for_reading(from_json(header, self.path))
        self._types = self.info.types
        self._head = JOINT_HEAD if self.programs else HEAD
        self._layout = layout(self._types, self._head)
        self._by_marker = {kind.marker: number for number, kind in enumerate(self._types)}
        self._schema = Tables(self._types, None, head=self._head).schema
        self._lost: Mapping[tuple[int, str], int] = {}
        self._check(schema)
        if self._pid is not None:
            self.info = self._info_of(self._pid)

    def _info_of(self, pid: int) -> TraceInfo:
        """The description of a process's own trace."""
        own = [program for program in self.programs if program.pid == pid]
        ids = {id for program in own for id in program.types}
        sources = {place: file for program in own for place, file in program.sources.items()}
        types = tuple(kind for kind in self._types if kind.id in ids)
        return self.info._replace(pid=pid, command=own[-1].command, types=types, sources=sources)

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
        """Raise BadTrace where the columns are not those that the header describes."""
        if schema.names != self._schema.names:
            raise BadTrace(f"{self.path} has other columns than its header says")
        for actual, expected in zip(schema.types, self._schema.types, strict=True):
            if not _is_like(actual, expected):
                raise BadTrace(f"{self.path} has a column of {actual}, and not of {expected}")

    def _parse_json(self, text: bytes) -> Any:
        try:
            return parse_json(text)
        except ValueError as error:
            raise BadTrace(f"the header of {self.path} is not JSON") from error

    def _losses(self, text: bytes) -> Mapping[tuple[int, str], int]:
        losses = self._parse_json(text)
        if self._pid is not None:
            losses = losses_of_process(losses, self._pid)
        return losses_from_json(losses, self.path)

    def _columns(self, rows: Any) -> Iterator[Columns]:
        """A Columns for each type that occurs in the rows."""
        for name in (*self._head, KIND) if self._layout.has_kind else self._head:
            if rows.column(name).null_count:
                raise BadTrace(f"{self.path} is damaged: it has an event without {name}")
        if self._pid is not None:
            rows = rows.filter(pc.equal(rows.column("pid"), self._pid))
        numbers = self._numbers(rows)
        present = np.unique(numbers).tolist()
        for number in sorted(present, key=lambda number: self._types[number].id):
            of_type = numbers == number
            selected = rows if of_type.all() else rows.filter(pa.array(of_type))
            kind = self._types[number]
            if kind not in self.info.types:
                raise BadTrace(f"{self.path} is damaged: process {self._pid} has no {kind.marker}")
            times = selected.column("time").cast(pa.int64()).to_numpy(zero_copy_only=False)
            if not self._layout.numbered:
                times = times - self.info.clock.wall_offset_ns
            places = zip(kind.fields, self._layout.places[number], strict=True)
            yield Columns(
                kind,
                times.astype(np.uint64),
                selected.column("cpu").to_numpy(zero_copy_only=False),
                selected.column("tid").to_numpy(zero_copy_only=False),
                {field.name: _from_arrow(field, selected.column(place)) for field, place in places},
            )

    def _numbers(self, rows: Any) -> Array:
        """The index of each row's type among the types of the trace."""
        if self._layout.has_kind:
            numbers: Array = rows.column(KIND).to_numpy(zero_copy_only=False)
            if len(numbers) and not 0 <= numbers.min() <= numbers.max() < len(self._types):
                raise BadTrace(f"{self.path} is damaged: it has an event of an unknown kind")
            return numbers
        names = rows.column("name")
        names.dictionary.validate(full=True)
        of_code = np.array([self._by_marker[name] for name in names.dictionary.to_pylist()] or [0])
        codes: Array = of_code[names.indices.to_numpy(zero_copy_only=False)]
        return codes


class _Program(NamedTuple):
    """A program in a table of several: the numbers of its types, and their sources by marker."""

    pid: int
    command: str
    types: frozenset[int]
    sources: Mapping[str, str]


def _programs_of(header: Any, path: str) -> tuple[_Program, ...]:
    try:
        return tuple(
            _Program(
                whole(program["pid"], 0, LARGEST),
                as_text(program["command"]),
                frozenset(whole(id, 0, FILLER - 1) for id in program["types"]),
                {as_text(marker): as_text(place) for marker, place in program["sources"].items()},
            )
            for program in header["programs"]
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadTrace(f"the header of {path} makes no sense: {error!r}") from error


def only_one(trace: _TableTrace) -> _TableTrace:
    """The trace of a table that is of one process. Raises BadTrace for one of several."""
    if trace.programs:
        raise of_several(trace.path)
    return trace


def joint_tables(path: str, kind: type[ParquetTrace] | type[ArrowTrace]) -> list[_TableTrace]:
    """The traces of a table of several processes, in order; none for any other file."""
    pids = dict.fromkeys(program.pid for program in kind(path).programs)
    return [kind(path, pid) for pid in pids]


class ParquetTrace(_TableTrace):
    """A Parquet file."""

    part = 0.0

    def __init__(self, path: str, pid: int | None = None) -> None:
        super().__init__(path)
        self._pid = pid
        from pyarrow import parquet

        os.close(open_to_read(path))
        try:
            self._file = parquet.ParquetFile(path)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadTrace(
                f"{path} is not a Parquet file, or its writer did not close it, and then it cannot "
                f"be read: {error}"
            ) from error
        metadata = self._file.metadata.metadata or {}
        schema = self._file.schema_arrow
        self._begin(schema, {**(schema.metadata or {}), **metadata})
        if LOST.encode() in metadata:
            self._lost = self._losses(metadata[LOST.encode()])

    def _rows(self) -> Iterator[Any]:
        done, rows = 0, max(1, self._file.metadata.num_rows)
        for batch in self._file.iter_batches(batch_size=_ROWS):
            done += len(batch)
            self.part = done / rows
            yield batch


class ArrowTrace(_TableTrace):
    """An Arrow IPC file, also a truncated one. Its last batch has the losses."""

    def __init__(self, path: str, pid: int | None = None) -> None:
        super().__init__(path)
        self._pid = pid
        os.close(open_to_read(path))
        self._whole = True
        try:
            with self._open() as reader:
                self._begin(reader.schema, reader.schema.metadata or {})
                if self._whole and reader.num_record_batches:
                    last = reader.get_batch_with_custom_metadata(reader.num_record_batches - 1)
                    self._note_losses(last.custom_metadata)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise BadTrace(f"{path} is not an Arrow file: {error}") from error
        if not self._whole:
            self.complain("it is cut off: more may have been lost than is known")

    def _open(self) -> Any:
        """A reader of the file, or of the stream within it where the file has no end."""
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
            self._lost = self._losses(metadata[LOST])


def _is_like(actual: Any, expected: Any) -> bool:
    """Whether two types of columns are equal, up to the type of a dictionary's indices."""
    if pa.types.is_dictionary(expected) and pa.types.is_dictionary(actual):
        return bool(actual.value_type == expected.value_type)
    return bool(actual == expected)


def _from_arrow(field: Field, column: Any) -> Array | Texts:
    """The values of a field, from a column of Arrow."""
    if field.type in TEXT_COLUMNS:
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
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + rows + 1]
    states = np.where(
        column.is_null().to_numpy(zero_copy_only=False), TextState.NULL, TextState.WHOLE
    )
    text = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    return Texts(starts, text, states.astype(np.uint8))
