"""Perfetto's protobuf of several processes: each program has a sequence of packets of its own.

Perfetto joins the sequences by time. A process is a track, with its threads below it; a program
that it executes has the same track, and packets with another number of their sequence.

The header of each program says `"joint": true`, and `open_traces` gives a trace for each again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from markerjit.arguments import check_all, check_flag, check_is, check_path
from markerjit.ring.batch import Columns
from markerjit.ring.clock import Calibration
from markerjit.ring.types import RecordType
from markerjit.trace.batch import Batch
from markerjit.trace.files import WholeWriter
from markerjit.trace.header import JOINT, to_json
from markerjit.trace.perfetto import Program, whole_packets
from markerjit.trace.sink import TraceInfo


class JointPerfetto:
    """Writes Perfetto's protobuf of several programs. Raises Refused where the file exists, unless
    `force`."""

    def __init__(self, path: str, *, force: bool = False) -> None:
        check_path("path", path)
        check_flag("force", force)
        self._file = WholeWriter(path, whole_packets, force=force)
        self._programs: list[Program] = []
        self._by_type: dict[RecordType, Program] = {}
        self._latest: dict[int, Program] = {}  # by pid
        self._clock: Calibration | None = None

    def add(self, info: TraceInfo) -> None:
        """Take a program, of which no event was written yet. All have one clock."""
        check_is("info", info, TraceInfo)
        self._clock = self._clock or info.clock
        info = info._replace(clock=self._clock)
        header = {**to_json(info), **JOINT}
        program = Program(self._file, info, len(self._programs) + 1, header)
        self._programs.append(program)
        self._by_type.update(dict.fromkeys(info.types, program))
        self._latest[info.pid] = program

    def write(self, batch: Sequence[Columns]) -> None:
        """Add events of programs that were taken, later than all before."""
        check_all("batch", batch, Columns)
        by_program: dict[Program, list[Columns]] = {}
        for columns in batch:
            by_program.setdefault(self._by_type[columns.type], []).append(columns)
        for program, of_program in by_program.items():
            program.write(Batch((), of_program, {}))

    def close(self, lost: Mapping[int, Mapping[tuple[int, str], int]]) -> None:
        """Add the losses, which are by (cpu, marker), by process: those of a process that has
        executed files are told of the last one."""
        by_program = {self._latest[pid]: of for pid, of in lost.items() if pid in self._latest}
        try:
            for program in self._programs:
                program.end(by_program.get(program, {}))
        finally:
            self._file.close()
