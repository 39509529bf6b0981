"""JSON lines of several processes, in one order of time.

    {"trace": {…, "joint": true}}       the header of a program, before its first event
    {"pid": …, "time": …, "cpu": …, "tid": …, "name": …, "fields": {…}}
    {"summary": {"events": 2, "lost": 0, "losses": [{"pid": …, …}]}}

Types of records have numbers that no two programs of the file share, so that a process may execute
another file. `open_traces` gives a trace for each process again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markerjit.arguments import check_all, check_flag, check_is, check_path
from markerjit.errors import Refused
from markerjit.ring.batch import Columns
from markerjit.ring.clock import Calibration
from markerjit.ring.types import FILLER, RecordType
from markerjit.trace.files import WholeWriter, whole_lines
from markerjit.trace.header import JOINT, joint_losses, to_json
from markerjit.trace.jsonl import dump
from markerjit.trace.kinds import ambiguous
from markerjit.trace.sink import TraceInfo


class JointLines:
    """Writes JSON lines of several programs. Raises Refused where the file exists, unless
    `force`."""

    def __init__(self, path: str, *, force: bool = False) -> None:
        check_path("path", path)
        check_flag("force", force)
        self._file = WholeWriter(path, whole_lines, force=force)
        self._types: dict[RecordType, RecordType] = {}  # as they are in the file
        self._pids: dict[RecordType, int] = {}
        self._numbered: set[int] = set()
        self._clock: Calibration | None = None
        self._events = 0

    def add(self, info: TraceInfo) -> None:
        """Add a program, before its first event is written. All programs have one clock."""
        check_is("info", info, TraceInfo)
        if len(self._pids) + len(info.types) >= FILLER:
            raise Refused("one file has no room for the markers of more programs; take .ctf")
        types = [self._renumbered(kind, number) for number, kind in enumerate(info.types)]
        self._pids.update(dict.fromkeys(types, info.pid))
        self._types.update(zip(info.types, types, strict=True))
        self._numbered |= {*ambiguous(types)}
        self._clock = self._clock or info.clock
        header = {**to_json(info._replace(types=tuple(types))), **JOINT}
        self._file.write_text(f"{dump({'trace': header})}\n")

    def write(self, batch: Sequence[Columns]) -> None:
        """Add events of programs that were taken, later than all before."""
        from markerjit.trace.records import pieces
        from markerjit.trace.rows import json_lines

        check_all("batch", batch, Columns)
        if not batch:
            return
        assert self._clock
        renumbered = [columns._replace(type=self._types[columns.type]) for columns in batch]
        for piece in pieces(renumbered, self._clock):
            lines = json_lines(piece, self._clock, self._numbered, pids=self._pids)
            self._file.write(lines)
            self._events += sum(len(columns.time) for columns in piece)

    def close(self, lost: Mapping[int, Mapping[tuple[int, str], int]]) -> None:
        """Add the summary. `lost` is the number of lost events by (cpu, marker), by process."""
        losses = joint_losses(lost)
        total = sum(sum(of.values()) for of in lost.values())
        summary = {"events": self._events, "lost": total, "losses": losses}
        try:
            self._file.write_text(f"{dump({'summary': summary})}\n")
        finally:
            self._file.close()

    def _renumbered(self, kind: RecordType, number: int) -> RecordType:
        return RecordType(
            len(self._pids) + number + 1, kind.marker, kind.format, kind.fields,
            time=kind.time, tid=kind.tid, brakes=kind.brakes,
        )  # fmt: skip
