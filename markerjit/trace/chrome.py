"""The JSON trace format of Chrome, which chrome://tracing, Perfetto and speedscope open.

    [
    {"ph": "M", "name": "markerjit", "args": {…}}        the header of the trace (header.py)
    {"ph": "B", "name": "query", "pid", "tid", "ts", "marker": "query_start", "args": {…}},
    {"ph": "E", "name": "query", …, "marker": "query_done", …},
    {"ph": "i", "s": "t", "name": "tick", …, "marker": "tick", …},
    {"ph": "M", "name": "markerjit_losses", "args": {…}}
    ]

The file is an array and not an object around one, because readers accept an array that was cut off.
`ts` is in microseconds with a fraction. Readers take it for a double, which is exact to the
nanosecond up to a hundred days of uptime. Where markers of one name have different fields, `kind`
is the number of an event's type. spans.py pairs the spans. An event's CPU is among its `args`.
Addresses are strings there, because a double cannot hold them. A loss is an instant when it is
noticed, and the end of the file has the total.

Authority: the Trace Event Format (docs.google.com, "Trace Event Format", Google).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.model import FieldType
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.types import RecordType, fields_by_marker
from markerjit.trace import cells
from markerjit.trace.batch import Batch
from markerjit.trace.files import WholeWriter
from markerjit.trace.header import beginning, losses_to_json, to_json
from markerjit.trace.kinds import ambiguous
from markerjit.trace.pairing import BEGIN, END, INSTANT, Cut, Pairing, with_cuts
from markerjit.trace.records import in_order, pieces, split
from markerjit.trace.rows import in_json, json_cells
from markerjit.trace.sink import TraceInfo
from markerjit.trace.spans import cpu_key

if TYPE_CHECKING:
    from markerjit.model import Field
    from markerjit.ring.batch import Array
    from markerjit.trace.cells import Cells

HEADER = "markerjit"
LOSSES = "markerjit_losses"
CUT = "(no end seen)"
"""The argument of an end that was not recorded: the span around it ended first."""


class ChromeSink:
    """Writes Chrome's JSON."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        self._info = info
        self._pairing = Pairing(info.types)
        self._cpu_keys = cpu_keys(info.types)
        self._lost: dict[tuple[int, str], int] = {}
        self._latest = beginning(info)
        self._numbered = ambiguous(info.types)
        self._file = WholeWriter(path, _whole_elements, force=force)
        name = {"name": info.command or f"process {info.pid}"}
        self._file.write_text(
            f"[\n{self._metadata(HEADER, to_json(info))},\n{self._metadata('process_name', name)}"
        )

    def write(self, batch: Batch) -> None:
        """Add the events of a batch, and the losses since the last one."""
        for piece in pieces(batch.columns, self._info.clock):
            self._file.write(self._of_events(piece))
        self._file.write_text("".join(f",\n{line}" for line in self._of_losses(batch.lost)))

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Add the losses, and end the array."""
        lines = [*self._of_losses(lost), self._metadata(LOSSES, {"losses": losses_to_json(lost)})]
        try:
            self._file.write_text("".join(f",\n{line}" for line in lines) + "\n]\n")
        finally:
            self._file.close()

    def _of_events(self, batch: Sequence[Columns]) -> bytes:
        """The elements of a batch, in order of time: one for each record and unrecorded end."""
        times, order = in_order(batch, self._info.clock)
        self._latest = int(times[order[-1]])
        kinds, cuts = self._pairing.look_at(batch, order)
        tables = [
            self._of_type(columns, *rows)
            for columns, *rows in zip(batch, split(times, batch), split(kinds, batch), strict=True)
        ]
        if cuts:
            ends = [self._of_cut(cut, int(times[cut.row])) for cut in cuts]
            tables.append(cells.texts_of([f",\n{end}".encode() for end in ends]))
        return cells.packed(tables, with_cuts(order, cuts))

    def _of_type(self, columns: Columns, times: Array, kinds: Array) -> Cells:
        """The elements of the records of one type."""
        kind = columns.type
        name = in_json(kind.marker)
        heads = {INSTANT: f'{{"ph":"i","s":"t","name":{name}'}
        side = self._pairing.sides.get(kind.marker)
        if side is not None:
            span = in_json(side.pair.name)
            heads.update({BEGIN: f'{{"ph":"B","name":{span}', END: f'{{"ph":"E","name":{span}'})
        phases = [f",\n{heads.get(phase, '')}".encode() for phase in range(max(heads) + 1)]
        number = f'"kind":{kind.id},' if kind.id in self._numbered else ""
        parts: list[bytes | Cells] = [
            cells.texts_of(phases)[kinds],
            f',"pid":{self._info.pid},"tid":'.encode(),
            cells.decimal(columns.tid),
            b',"ts":',
            *_microseconds(times),
            f',"marker":{name},{number}"args":{{'.encode(),
            f"{in_json(self._cpu_keys[kind.marker])}:".encode(),
            cells.decimal(columns.cpu),
        ]
        for field in kind.fields:
            value = _json_cells(field, columns.fields[field.name])
            parts += [f",{in_json(field.name)}:".encode(), *value]
        return cells.table([*parts, b"}}"], len(times))

    def _of_cut(self, cut: Cut, time: int) -> str:
        name, when = in_json(cut.pair.name), self._when(cut.tid, time)
        return f'{{"ph":"E","name":{name},{when},"args":{{"{CUT}":true}}}}'

    def _when(self, tid: int, time: int) -> str:
        return f'"pid":{self._info.pid},"tid":{tid},"ts":{microseconds(time)}'

    def _of_losses(self, lost: Mapping[tuple[int, str], int]) -> Iterator[str]:
        for (cpu, marker), count in lost.items():
            more = count - self._lost.get((cpu, marker), 0)
            if more > 0:
                self._lost[cpu, marker] = count
                name = in_json(f"{more} lost: {marker}")
                yield (
                    f'{{"ph":"i","s":"p","name":{name},{self._when(0, self._latest)},'
                    f'"args":{{"cpu":{cpu}}}}}'
                )

    def _metadata(self, name: str, args: Mapping[str, Any]) -> str:
        return _dump({"ph": "M", "name": name, "pid": self._info.pid, "tid": 0, "args": args})


def cpu_keys(types: Iterable[RecordType]) -> dict[str, str]:
    """By marker, the name of the CPU among its fields."""
    return {marker: cpu_key(fields) for marker, fields in fields_by_marker(types).items()}


def microseconds(time_ns: int) -> str:
    """A time in microseconds, as text, without the rounding of a float."""
    if time_ns < 0:
        return f"-{microseconds(-time_ns)}"
    whole, rest = divmod(time_ns, 1000)
    return f"{whole}.{rest:03d}"


def _whole_elements(data: bytes) -> int:
    """The number of bytes that are whole elements of the array. Each begins with a comma."""
    return max(data.rfind(b",\n"), 0)


def _microseconds(times: Array) -> list[bytes | Cells]:
    whole, rest = np.divmod(np.abs(times), 1000)
    sign = cells.texts_of(["", "-"])[(times < 0).astype(np.intp)]
    return [sign, cells.decimal(whole), b".", cells.thousandths(rest)]


def _json_cells(field: Field, column: Array | Texts) -> list[bytes | Cells]:
    if field.type is FieldType.POINTER:
        return [b'"0x', cells.hexadecimal(np.asarray(column)), b'"']
    return [json_cells(field, column)]


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
