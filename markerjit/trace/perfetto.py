"""Perfetto's protobuf trace, which ui.perfetto.dev and the trace processor open.

A file is a sequence of packets, in this order, so a truncated file can be read up to the cut:

  1  names and places in the source, each sent once and referred to by number afterwards
  2  the clock: times are CLOCK_MONOTONIC, with the time of day at one moment
  3  tracks: the process, and each thread before its first event
  4  an instant "trace began", with the header of the trace (header.py)
  5  events: instants, and slices where markers come in pairs (spans.py). Fields and the CPU are
     debug annotations. A loss is an instant on a track of its own, when it is noticed
  6  an instant "trace ended", with all losses

Fields are never counters, because a number in a marker may be an address as well as a length.

The numbers of its fields are in perfetto_fields.py.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from markerjit.model import FieldType, TypeClass
from markerjit.ring.batch import Columns, Texts
from markerjit.ring.types import RecordType, TextState, Time
from markerjit.trace import perfetto_fields as number
from markerjit.trace import wire
from markerjit.trace.batch import Batch
from markerjit.trace.files import WholeWriter
from markerjit.trace.header import beginning, losses_to_json, to_json
from markerjit.trace.pairing import END, INSTANT, Pairing, with_cuts
from markerjit.trace.records import in_order, pieces, showable, split
from markerjit.trace.sink import TraceInfo
from markerjit.trace.spans import Pair, cpu_key

if TYPE_CHECKING:
    from markerjit.model import Field
    from markerjit.ring.batch import Array

BEGAN, ENDED, JSON = "trace began", "trace ended", "json"
CUT = "(no end seen)"
_LOST_TRACK = 1 << 44
"""The track of a process is pid << 22, and that of a thread is this plus its tid. No pid reaches
1 << 22, so tracks of concatenated traces stay distinct."""

# Each character of a CHAR, as UTF-8.
_CHARS = [chr(code).encode() for code in range(256)]
_CHAR_DATA = np.frombuffer(b"".join(_CHARS), np.uint8)
_CHAR_LENGTHS = np.array([len(text) for text in _CHARS])
_CHAR_STARTS = np.cumsum(_CHAR_LENGTHS) - _CHAR_LENGTHS


class Program:
    """The packets of a program, in a file that may have those of others. They are a sequence of
    their own, with this number. `header` is the JSON of the first instant."""

    def __init__(
        self, file: WholeWriter, info: TraceInfo, sequence: int, header: Mapping[str, object]
    ) -> None:
        self._file = file
        self._info = info
        self._process = info.pid << 22
        self._sequence = wire.field(number.SEQUENCE, sequence)
        self._pairing = Pairing(info.types)
        self._names = _Names(info, self._pairing.pairs)
        self._threads: set[int] = set()
        self._lost: dict[tuple[int, str], int] = {}
        self._latest = beginning(info)
        self._put(self._beginning(header))

    def write(self, batch: Batch) -> None:
        """Add the events of a batch, and the losses since the last one."""
        for piece in pieces(batch.columns, self._info.clock):
            self._put([self._new_threads(piece), self._events(piece)])
        self._put(self._losses(batch.lost))

    def end(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Add all losses."""
        losses = json.dumps(losses_to_json(lost))
        self._put([*self._losses(lost), self._instant(ENDED, {JSON: losses}, self._process)])

    def _put(self, packets: Iterable[bytes]) -> None:
        self._file.write(b"".join(packets))

    def _packet(self, *fields: bytes) -> bytes:
        return wire.field(number.PACKET, [*fields, self._sequence])

    # ---- packets that are sent once ----

    def _beginning(self, header: Mapping[str, object]) -> Iterable[bytes]:
        info, field = self._info, wire.field
        yield self._packet(
            field(number.FIRST, 1),
            field(number.FLAGS, number.CLEARED),
            field(number.DEFAULTS, [field(number.CLOCK_ID, number.MONOTONIC)]),
            field(number.INTERNED, [*self._names.interned()]),
        )
        clocks = [field(1, [field(1, number.MONOTONIC), field(2, self._latest)])]
        if info.clock.time is not Time.NONE:
            clocks.append(field(1, [field(1, number.REALTIME), field(2, info.started_ns)]))
        yield self._packet(field(number.CLOCK_SNAPSHOT, [*clocks, field(2, number.MONOTONIC)]))
        name = info.command or f"process {info.pid}"
        process = field(3, [field(1, info.pid), field(6, name)])
        yield self._packet(field(number.TRACK, [field(1, self._process), process]))
        parent = field(5, self._process)
        yield self._packet(
            field(number.TRACK, [field(1, _LOST_TRACK | info.pid), field(2, "lost"), parent])
        )
        yield self._instant(BEGAN, {JSON: json.dumps(header)}, self._process)

    def _new_threads(self, batch: Sequence[Columns]) -> bytes:
        tids = {tid for columns in batch for tid in np.unique(columns.tid).tolist()}
        new = sorted(tids - self._threads - {0})
        self._threads.update(new)
        field = wire.field
        return b"".join(
            self._packet(
                field(
                    number.TRACK,
                    [
                        field(1, self._process + tid),
                        field(5, self._process),
                        field(4, [field(1, self._info.pid), field(2, tid)]),
                    ],
                )
            )
            for tid in new
        )

    def _instant(self, name: str, notes: Mapping[str, int | str], track: int) -> bytes:
        field = wire.field
        return self._packet(
            field(number.TIMESTAMP, self._latest),
            field(number.FLAGS, number.NEEDS_STATE),
            field(
                number.EVENT,
                [
                    field(number.TYPE, INSTANT),
                    field(number.TRACK_UUID, track),
                    field(number.NAME_TEXT, name),
                    *(_annotation(key, value) for key, value in notes.items()),
                ],
            ),
        )

    def _losses(self, lost: Mapping[tuple[int, str], int]) -> list[bytes]:
        instants = []
        for (cpu, marker), total in lost.items():
            more = total - self._lost.get((cpu, marker), 0)
            if more > 0:
                self._lost[cpu, marker] = total
                notes: dict[str, int | str] = {"cpu": cpu, "marker": marker, "lost": more}
                track = _LOST_TRACK | self._info.pid
                instants.append(self._instant(f"{more} lost: {marker}", notes, track))
        return instants

    # ---- events ----

    def _events(self, batch: Sequence[Columns]) -> bytes:
        """The packets of all records of a batch, in order of time."""
        if not batch:
            return b""
        times, order = in_order(batch, self._info.clock)
        self._latest = int(times[order[-1]])
        kinds, cuts = self._pairing.look_at(batch, order)
        blocks = [
            self._block(columns, *rows)
            for columns, *rows in zip(batch, split(times, batch), split(kinds, batch), strict=True)
        ]
        if len(batch) == 1 and not cuts:
            return wire.bytes_of(blocks[0], len(times))
        packets = [
            packet
            for block, columns in zip(blocks, batch, strict=True)
            for packet in wire.rows_of(block, len(columns.time))
        ]
        packets += [self._cut(int(times[cut.row]), cut.tid, cut.pair) for cut in cuts]
        return b"".join([packets[row] for row in with_cuts(order, cuts).tolist()])

    def _block(self, columns: Columns, times: Array, kinds: Array) -> wire.Parts:
        """The packets of the records of one type."""
        rows = len(times)
        names = self._names
        marker = columns.type.marker
        side = self._pairing.sides.get(marker)
        name: wire.Parts = [wire.field(number.NAME, names.event(marker))]
        if side is not None:
            is_instant = kinds == INSTANT
            name = wire.numbers(
                number.NAME, np.where(is_instant, names.event(marker), names.event(side.pair.name))
            )
        cpu = names.field(cpu_key(columns.type.fields))
        event: list[wire.Part] = [
            *wire.numbers(number.TYPE, kinds),
            *wire.numbers(number.TRACK_UUID, columns.tid.astype(np.int64) + self._process),
            *name,
            wire.field(number.SOURCE, names.source(columns.type)),
            *wire.message(number.ANNOTATION, [cpu, *wire.numbers(number.UINT, columns.cpu)], rows),
        ]
        for field in columns.type.fields:
            value = _value(field, columns.fields[field.name])
            event += wire.message(number.ANNOTATION, [names.field(field.name), *value], rows)
        packet = [
            *wire.numbers(number.TIMESTAMP, times),
            self._sequence,
            *wire.message(number.EVENT, event, rows),
            wire.field(number.FLAGS, number.NEEDS_STATE),
        ]
        return wire.message(number.PACKET, packet, rows)

    def _cut(self, when: int, tid: int, pair: Pair) -> bytes:
        """The packet that ends a span whose own end was not recorded."""
        field = wire.field
        return self._packet(
            field(number.TIMESTAMP, when),
            field(number.FLAGS, number.NEEDS_STATE),
            field(
                number.EVENT,
                [
                    field(number.TYPE, END),
                    field(number.TRACK_UUID, self._process + tid),
                    field(number.NAME, self._names.event(pair.name)),
                    _annotation(CUT, 1),
                ],
            ),
        )


class PerfettoSink(Program):
    """Writes Perfetto's protobuf."""

    def __init__(self, path: str, info: TraceInfo, *, force: bool = False) -> None:
        file = WholeWriter(path, whole_packets, force=force)
        super().__init__(file, info, info.pid or 1, to_json(info))

    def close(self, lost: Mapping[tuple[int, str], int]) -> None:
        """Add all losses."""
        try:
            self.end(lost)
        finally:
            self._file.close()


class _Names:
    """The numbers by which packets refer to names."""

    def __init__(self, info: TraceInfo, pairs: Sequence[Pair]) -> None:
        names = (*(kind.marker for kind in info.types), *(pair.name for pair in pairs))
        fields = chain.from_iterable(
            (cpu_key(kind.fields), *(field.name for field in kind.fields)) for kind in info.types
        )
        self._events = _numbered(names)
        self._fields = _numbered(fields)
        self._by_id = {kind.id: iid for iid, kind in enumerate(info.types, 1)}
        self._sources = [info.sources.get(kind.marker, "") for kind in info.types]

    def event(self, name: str) -> int:
        """The number of a marker's or span's name."""
        return self._events[name]

    def field(self, name: str) -> bytes:
        """The field with the name of an annotation."""
        return wire.field(number.ANNOTATION_NAME, self._fields[name])

    def source(self, kind: RecordType) -> int:
        """The number of a marker's place in the source, which is distinct for each type."""
        return self._by_id[kind.id]

    def interned(self) -> Iterable[bytes]:
        """The messages that define all names and places."""
        field = wire.field
        yield from (field(2, [field(1, n), field(2, name)]) for name, n in self._events.items())
        yield from (field(3, [field(1, n), field(2, name)]) for name, n in self._fields.items())
        for iid, source in enumerate(self._sources, 1):
            file, _, line = source.rpartition(":")
            place = (
                [field(2, file), field(4, int(line))] if line.isdecimal() else [field(2, source)]
            )
            yield field(4, [field(1, iid), *place])


def _numbered(names: Iterable[str]) -> dict[str, int]:
    return {name: iid for iid, name in enumerate(dict.fromkeys(names), 1)}


def whole_packets(data: bytes) -> int:
    """The number of leading bytes that are whole packets."""
    end = 0
    while True:
        at, size, shift = end + 1, 0, 0  # behind the tag
        while at < len(data) and data[at] >= 0x80:
            size |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        if at >= len(data) or (last := at + 1 + size + (data[at] << shift)) > len(data):
            return end
        end = last


def _annotation(key: str, value: int | str) -> bytes:
    encoded = wire.field(number.STRING if isinstance(value, str) else number.INT, value)
    return wire.field(number.ANNOTATION, [wire.field(number.ANNOTATION_NAME_TEXT, key), encoded])


def _value(field: Field, column: Array | Texts) -> wire.Parts:
    """The value field of an annotation; a NULL text has none."""
    if isinstance(column, Texts):
        texts = showable(field, column)
        text = wire.Ragged(texts.data, texts.offsets[:-1], np.diff(texts.offsets))
        return wire.texts(number.STRING, text, texts.states != TextState.NULL)
    match field.type:
        case FieldType.BOOL:
            return wire.numbers(number.BOOL, column)
        case FieldType.FLOAT:
            return wire.doubles(number.DOUBLE, column)
        case FieldType.POINTER:
            return wire.numbers(number.POINTER, column)
        case FieldType.CHAR:
            codes = column.astype(np.int64) & 0xFF
            text = wire.Ragged(_CHAR_DATA, _CHAR_STARTS[codes], _CHAR_LENGTHS[codes])
            return wire.texts(number.STRING, text, np.ones(len(codes), np.bool_))
        case _:
            signed = field.ctype.type_class is TypeClass.SIGNED
            return wire.numbers(number.INT if signed else number.UINT, column)
