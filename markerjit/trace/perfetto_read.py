"""A reader of the Perfetto traces that PerfettoSink writes.

Columns are made of a piece of the file at once (perfetto_columns.py). Perfetto's own Python package
reads everything that is no event, and the events of a piece that has something unexpected.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from markerjit.errors import BadTrace
from markerjit.frames import StackText
from markerjit.model import Event, Field, FieldType, Value
from markerjit.ring.types import RecordType
from markerjit.trace.collect import Collector
from markerjit.trace.header import (
    checked,
    for_reading,
    from_json,
    is_joint,
    losses_from_json,
    of_several,
    parse_json,
)
from markerjit.trace.kinds import Kinds
from markerjit.trace.missing import missing
from markerjit.trace.perfetto import BEGAN, ENDED, JSON
from markerjit.trace.perfetto_fields import SEQUENCE
from markerjit.trace.reading import EventTrace, open_to_read
from markerjit.trace.spans import cpu_key

if TYPE_CHECKING:
    from markerjit.ring.batch import Columns
    from markerjit.trace.perfetto_columns import Events

_READ = 1 << 20
_LONGEST = 1 << 28
_TAG = 0x0A
_BEGAN = BEGAN.encode()
_VARINT, _BYTES = 0, 2
_FIXED = {1: 8, 5: 4}
"""Sorts of fields, as their tags say them, and the sizes of those that have one."""
_MOST_SHIFT = 70
"""A varint has ten groups of seven bits at most."""


class _Piece(NamedTuple):
    """Whole packets of the file: the bytes between each start and its end."""

    data: bytes
    starts: list[int]
    ends: list[int]

    def packet(self, number: int) -> bytes:
        return self.data[self.starts[number] : self.ends[number]]


class PerfettoTrace(EventTrace):
    """A Perfetto trace of ours; of a file of several programs that with this `sequence` of packets.
    The losses are at the end, and known once all has been read."""

    def __init__(self, path: str, sequence: int | None = None) -> None:
        super().__init__(path)
        self._packet = _packet_type()
        self._sequence = sequence
        self._lost: Mapping[tuple[int, str], int] | None = None
        self.info = for_reading(from_json(self._header(), path))
        self._collector = Collector(self.info.types)
        self._kinds = Kinds(self.info.types)
        self._types = dict(enumerate(self.info.types, 1))
        self._cpu_keys = {number: cpu_key(kind.fields) for number, kind in self._types.items()}

    def _header(self) -> Any:
        """What the trace says of itself, before its first event. Raises BadTrace."""
        for packet in self._packets():
            if packet.track_event.name == BEGAN:
                header = self.parse_json(packet)
                if self._sequence is None and is_joint(header):
                    raise of_several(self.path)
                return header
            if packet.track_event.name_iid:
                break
        raise BadTrace(f"{self.path} is not a trace of markerjit; other traces are not supported")

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        if self._lost is None:
            for _ in self.batches():
                pass
        return self._lost or {}

    def events(self) -> Iterator[Event]:
        reading = _Reading(self)
        try:
            for packet in self._packets():
                if reading.is_event(packet):
                    yield self._with_origin(self._event(packet, reading.names))
        except BadTrace:
            self._lost = self._lost or {}  # so that a converted trace can be closed
            raise
        self._finish(reading)

    def batches(self) -> Iterator[Sequence[Columns]]:
        from markerjit.trace.perfetto_columns import columns_of

        reading = _Reading(self)
        most = 1 + max((len(kind.fields) for kind in self.info.types), default=0)
        try:
            for piece in self._pieces():
                events = self._events_of(piece, most, reading)
                columns = events and columns_of(events, self._types, reading.names)
                if columns is None:
                    columns = self._one_by_one(piece, reading)
                if columns:
                    yield columns
        except BadTrace:
            self._lost = self._lost or {}
            raise
        self._finish(reading)

    def _events_of(self, piece: _Piece, most: int, reading: _Reading) -> Events | None:
        """The events of a piece, after its other packets have been read; None where one of those
        is an event, too, or changes what an event means."""
        from markerjit.trace.perfetto_columns import events_of

        starts, ends = np.array(piece.starts, np.int64), np.array(piece.ends, np.int64)
        events = events_of(piece.data, starts, ends, most)
        others = [(number, self._parsed(piece.packet(number))) for number in events.others.tolist()]
        first = int(events.packets[0]) if len(events.packets) else len(starts)
        if any(
            packet.track_event.source_location_iid
            or (packet.HasField("interned_data") and number > first)
            for number, packet in others
        ):
            return None
        for _, packet in others:
            reading.is_event(packet)
        return events

    def _one_by_one(self, piece: _Piece, reading: _Reading) -> list[Columns]:
        events = []
        for number in range(len(piece.starts)):
            packet = self._parsed(piece.packet(number))
            if reading.is_event(packet):
                events.append(self._event(packet, reading.names))
        return self._collector.columns(events)

    def _finish(self, reading: _Reading) -> None:
        """Keep what was lost, once all is read."""
        if reading.lost is None:
            self.complain("it has no end: more may have been lost than is known")
        self._lost = reading.lost or self._lost or {}

    def _event(self, packet: Any, names: Mapping[int, str]) -> Event:
        event = packet.track_event
        number = event.source_location_iid
        kind = self._types.get(number)
        if kind is None:
            raise BadTrace(f"{self.path} has an event of a marker that it does not describe")
        fields = {
            names.get(annotation.name_iid, ""): _value(annotation)
            for annotation in event.debug_annotations
        }
        cpu: Any = fields.pop(self._cpu_keys[number], 0)
        tid = event.track_uuid & (1 << 22) - 1
        time = packet.timestamp - (
            (packet.timestamp >> 63) << 64
        )  # a negative time has its 64 bits
        try:
            decoded = Event(time, cpu, tid, kind.marker, _typed(kind, fields))
            checked(decoded, self.info.clock.time)
        except ValueError as error:
            raise BadTrace(f"{self.path} has an impossible event: {error}") from error
        return self._kinds.marked(decoded, kind)

    def parse_json(self, packet: Any) -> Any:
        """The JSON in one of our own instants."""
        for annotation in packet.track_event.debug_annotations:
            if annotation.name == JSON:
                try:
                    return parse_json(annotation.string_value)
                except ValueError as error:
                    raise BadTrace(f"the header of {self.path} is not JSON") from error
        return None

    def _packets(self) -> Iterator[Any]:
        """The packets, one by one."""
        for piece in self._pieces():
            for number in range(len(piece.starts)):
                yield self._parsed(piece.packet(number))

    def _parsed(self, data: bytes) -> Any:
        """A packet. Raises BadTrace at a malformed one."""
        from google.protobuf.message import DecodeError

        try:
            return self._packet.FromString(data)
        except DecodeError as error:
            raise self._damaged() from error

    def _damaged(self) -> BadTrace:
        return BadTrace(f"{self.path} is not a Perfetto trace, or damaged")

    def _pieces(self) -> Iterator[_Piece]:
        """The packets up to the end of the file, some at a time. Raises BadTrace behind the last
        one before a place that is none."""
        with os.fdopen(open_to_read(self.path), "rb") as file:
            rest = b""
            size = _READ
            while more := file.read(size):
                data = rest + more
                piece, end, longest = _split(data)
                if self._sequence is not None:
                    piece = _of_sequence(piece, self._sequence)
                if piece.starts:
                    yield piece
                if longest > _LONGEST:
                    raise self._damaged()
                rest = data[end:]
                size = max(_READ, longest - len(rest))
            if rest:
                self.complain("it is cut off in the middle of an event")


class _Programs(PerfettoTrace):
    """A file that may be of several programs, of which only the headers are looked at."""

    def __init__(self, path: str) -> None:
        EventTrace.__init__(self, path)
        self._packet = _packet_type()
        self._sequence = None

    def sequences(self) -> Iterator[int]:
        """The numbers of their sequences of packets, in order; none for any other file."""
        has_begun = False
        for piece in self._pieces():
            for at in range(len(piece.starts)):
                data = piece.packet(at)
                if has_begun and _BEGAN not in data:
                    continue
                packet = self._parsed(data)
                if packet.track_event.name == BEGAN:
                    if not is_joint(self.parse_json(packet)):
                        return
                    has_begun = True
                    yield packet.trusted_packet_sequence_id
                elif packet.track_event.name_iid and not has_begun:  # another tool's
                    return


def joint_perfetto(path: str) -> list[PerfettoTrace]:
    """The traces of a file of several programs, in order; none for any other file."""
    return [PerfettoTrace(path, sequence) for sequence in _Programs(path).sequences()]


def _packet_type() -> Any:
    try:
        from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket
    except ImportError:
        raise missing("reading a Perfetto trace", "perfetto") from None
    return TracePacket


class _Reading:
    """What is known so far in one reading of the file: names by number, and the losses, which
    come at the end."""

    def __init__(self, trace: PerfettoTrace) -> None:
        self.names: dict[int, str] = {}
        self.lost: Mapping[tuple[int, str], int] | None = None
        self._trace = trace

    def is_event(self, packet: Any) -> bool:
        """Whether the packet is an event; from any other, what it says is kept."""
        if packet.HasField("interned_data"):
            self.names.update(
                (name.iid, name.name) for name in packet.interned_data.debug_annotation_names
            )
        if not packet.HasField("track_event"):
            return False
        if packet.track_event.source_location_iid:
            return True
        if packet.track_event.name == ENDED:
            document = self._trace.parse_json(packet)
            self.lost = losses_from_json(document, self._trace.path)
        return False


def _of_sequence(piece: _Piece, sequence: int) -> _Piece:
    """Those of the packets that are of a sequence."""
    data, starts, ends = piece
    chosen = [
        (start, end)
        for start, end in zip(starts, ends, strict=True)
        if _sequence_of(data, start, end) == sequence
    ]
    return _Piece(data, [start for start, _ in chosen], [end for _, end in chosen])


def _sequence_of(data: bytes, at: int, end: int) -> int:
    """The number of a packet's sequence; 0 where it has none, or makes no sense."""
    while at < end:
        tag, at = _varint(data, at, end)
        value, behind = 0, at + _FIXED.get(tag & 7, 0)
        if tag & 7 in (_VARINT, _BYTES):
            value, behind = _varint(data, at, end)
        if tag == SEQUENCE << 3 | _VARINT:
            return value
        at = behind + (value if tag & 7 == _BYTES else 0)
    return 0


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    """A number, and where it ends."""
    value = shift = 0
    while at < end and data[at] >= 0x80 and shift < _MOST_SHIFT:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
    return (value | data[at] << shift if at < end else value), at + 1


def _split(data: bytes) -> tuple[_Piece, int, int]:
    """The whole packets at the beginning, where the last one ends, and the length of the one that
    follows in part, which is more than there can be where there is none."""
    starts: list[int] = []
    ends: list[int] = []
    end = 0
    size = len(data)
    longest = 0
    while end < size:
        if data[end] != _TAG:
            longest = _LONGEST + 1
            break
        at, length, shift = end + 1, 0, 0
        while at < size and data[at] >= 0x80 and shift < _MOST_SHIFT:
            length |= (data[at] & 0x7F) << shift
            at, shift = at + 1, shift + 7
        if shift >= _MOST_SHIFT:
            longest = _LONGEST + 1
            break
        if at >= size:
            break
        length |= data[at] << shift
        if at + 1 + length > size:
            longest = length
            break
        starts.append(at + 1)
        end = at + 1 + length
        ends.append(end)
    return _Piece(data, starts, ends), end, longest


def _value(annotation: Any) -> Value:
    sort = annotation.WhichOneof("value")
    value: Value = getattr(annotation, sort) if sort else None
    return value


def _of_type(field: Field, value: Value) -> Value:
    if field.type is FieldType.STACK and isinstance(value, str):
        return StackText(value)
    return bool(value) if field.type is FieldType.BOOL else value


def _typed(kind: RecordType, fields: dict[str, Value]) -> dict[str, Value]:
    """The fields in the order of their type, which a viewer may have changed."""
    return {
        field.name: _of_type(field, value)
        for field in kind.fields
        for value in (fields.get(field.name),)
    }
