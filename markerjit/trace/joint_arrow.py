"""Parquet and Arrow of several processes: one table, with a column `pid`.

    time, pid, cpu, tid, name, …       as in table.py

The columns depend on the types of all programs, so all of them come before the first event. Types
that are the same in several programs are one type of the file, so that a family of one program has
the columns of that program. The header also has the programs:

    {…, "joint": true, "programs": [{"pid": …, "command": …, "types": […], "sources": {…}}]}

`open_traces` gives a trace for each process again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from markerjit.arguments import check_all, check_flag, check_is, check_path
from markerjit.errors import Refused
from markerjit.ring.batch import Columns
from markerjit.ring.clock import Calibration
from markerjit.ring.types import FILLER, RecordType
from markerjit.trace.arrow import HEADER, ArrowFile, ParquetFile
from markerjit.trace.arrow_table import Tables, pa
from markerjit.trace.header import JOINT, joint_losses, nanoseconds, to_json
from markerjit.trace.records import pieces
from markerjit.trace.sink import TraceInfo
from markerjit.trace.table import JOINT_HEAD

_NONE = TraceInfo((), nanoseconds(0), 0, "", "", 0, {})


class JointTable:
    """Writes a table of several programs, by `kind`: ParquetFile or ArrowFile. Raises Refused where
    the file exists, unless `force`."""

    def __init__(
        self, path: str, kind: type[ParquetFile] | type[ArrowFile], *, force: bool = False
    ) -> None:
        check_path("path", path)
        check_flag("force", force)
        self._path = path
        self._kind = kind
        self._force = force
        self._file: ParquetFile | ArrowFile | None = None
        self._infos: list[TraceInfo] = []
        self._of_file: dict[tuple[object, ...], RecordType] = {}  # by all that they say
        self._types: dict[RecordType, RecordType] = {}
        self._pids: dict[RecordType, int] = {}

    def add(self, info: TraceInfo) -> None:
        """Take a program, of which no event was written yet, and none of any other. All have one
        clock. Raises Refused for one that comes later."""
        check_is("info", info, TraceInfo)
        if self._file:
            raise Refused("a table has the columns that it began with; take .pftrace or .jsonl")
        self._infos.append(info)
        for kind in info.types:
            self._types[kind] = self._type_of_file(kind)
            self._pids[kind] = info.pid

    def write(self, batch: Sequence[Columns]) -> None:
        """Add events of programs that were taken, later than all before."""
        check_all("batch", batch, Columns)
        file = self._begun()
        for piece in pieces(batch, self._infos[0].clock) if batch else ():
            file.put(piece)

    def close(self, lost: Mapping[int, Mapping[tuple[int, str], int]]) -> None:
        """End the file. `lost` is the number of all lost events by (cpu, marker), by process."""
        self._begun().end(joint_losses(lost))

    def _type_of_file(self, kind: RecordType) -> RecordType:
        meaning = (kind.marker, kind.format, kind.fields, kind.time, kind.tid, kind.brakes)
        known = self._of_file.get(meaning)
        if known is None:
            if len(self._of_file) + 1 >= FILLER:
                raise Refused("one table has no room for so many markers; take .ctf")
            known = self._of_file[meaning] = RecordType(
                len(self._of_file) + 1, kind.marker, kind.format, kind.fields,
                time=kind.time, tid=kind.tid, brakes=kind.brakes,
            )  # fmt: skip
        return known

    def _begun(self) -> ParquetFile | ArrowFile:
        if self._file is None:
            self._file = self._kind(self._path, self._tables(), force=self._force)
        return self._file

    def _tables(self) -> Tables:
        types = tuple(self._of_file.values())
        first = (self._infos or [_NONE])[0]
        header = {
            **to_json(first._replace(types=types)),
            **JOINT,
            "programs": [
                {
                    "pid": info.pid,
                    "command": info.command,
                    "types": [self._types[kind].id for kind in info.types],
                    "sources": dict(info.sources),
                }
                for info in self._infos
            ],
        }
        metadata = {HEADER: json.dumps(header)}
        return _JointTables(types, first.clock, metadata, self._types, self._pids)


class _JointTables(Tables):
    """Tables of records whose types are those of the programs."""

    def __init__(
        self, types: Sequence[RecordType], clock: Calibration, metadata: Mapping[str, str],
        of_file: Mapping[RecordType, RecordType], pids: Mapping[RecordType, int],
    ) -> None:  # fmt: skip
        super().__init__(types, clock, metadata, JOINT_HEAD)
        self._of_file = of_file
        self._pids = pids

    def _number(self, kind: RecordType) -> int:
        return super()._number(self._of_file[kind])

    def _origin(self, columns: Columns) -> Mapping[str, Any]:
        pid = self._pids[columns.type]
        return {"pid": pa.array(np.full(len(columns.time), pid, np.uint32))}
