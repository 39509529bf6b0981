"""Perfetto's protobuf trace as PerfettoSink writes it, read with Perfetto's own Python package."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from markerjit.errors import BadTrace
from markerjit.model import Event, FieldType, Value
from markerjit.ring.types import RecordType
from markerjit.trace.header import checked, for_reading, from_json, losses_from_json, parse_json
from markerjit.trace.kinds import Kinds
from markerjit.trace.perfetto import BEGAN, ENDED, TOLD
from markerjit.trace.reading import EventTrace, missing, open_to_read
from markerjit.trace.spans import cpu_key

_READ = 1 << 20
_LONGEST = 1 << 28
_TAG = 0x0A


class PerfettoTrace(EventTrace):
    """A Perfetto trace of ours. What was lost is known when all has been read: it is at the end."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        try:
            from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import TracePacket
        except ImportError:
            raise missing("reading a Perfetto trace", "perfetto") from None
        self._packet: Any = TracePacket
        self._lost: Mapping[tuple[int, str], int] | None = None
        for packet in self._packets():
            if packet.track_event.name == BEGAN:
                self.info = for_reading(from_json(self._told(packet), path))
                break
            if packet.track_event.name_iid:
                break
        if not hasattr(self, "info"):
            raise BadTrace(f"{path} is no trace of markerjit: other programs' traces are not read")
        self._kinds = Kinds(self.info.types)
        self._types = dict(enumerate(self.info.types, 1))
        self._cpu_keys = {number: cpu_key(kind.fields) for number, kind in self._types.items()}

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        if self._lost is None:
            for _ in self.events():
                pass
        return self._lost or {}

    def events(self) -> Iterator[Event]:
        names: dict[int, str] = {}
        ended = False
        try:
            for packet in self._packets():
                if packet.HasField("interned_data"):
                    names.update(
                        (one.iid, one.name) for one in packet.interned_data.debug_annotation_names
                    )
                if not packet.HasField("track_event"):
                    continue
                if packet.track_event.source_location_iid:
                    yield self._event(packet, names)
                elif packet.track_event.name == ENDED:
                    self._lost = losses_from_json(self._told(packet), self.path)
                    ended = True
        except BadTrace:
            self._lost = self._lost or {}  # so that what is known of the trace can be written
            raise
        if not ended:
            self._lost = self._lost or {}
            self.complain("it has no end: more may have been lost than is known")

    def _event(self, packet: Any, names: Mapping[int, str]) -> Event:
        event = packet.track_event
        number = event.source_location_iid
        kind = self._types.get(number)
        if kind is None:
            raise BadTrace(f"{self.path} has an event of a marker that it does not describe")
        fields = {names.get(one.name_iid, ""): _value(one) for one in event.debug_annotations}
        cpu: Any = fields.pop(self._cpu_keys[number], 0)
        tid = event.track_uuid & (1 << 22) - 1
        time = packet.timestamp - ((packet.timestamp >> 63) << 64)  # below 0 as its 64 bits
        try:
            found = Event(time, cpu, tid, kind.marker, _typed(kind, fields))
            checked(found, self.info.clock.time)
        except ValueError as error:
            raise BadTrace(f"{self.path} has an event that there cannot be: {error}") from error
        return self._kinds.marked(found, kind)

    def _told(self, packet: Any) -> Any:
        """The JSON of one of our instants."""
        for one in packet.track_event.debug_annotations:
            if one.name == TOLD:
                try:
                    return parse_json(one.string_value)
                except ValueError as error:
                    raise BadTrace(f"what {self.path} says of itself is no JSON") from error
        return None

    def _packets(self) -> Iterator[Any]:
        """The packets, up to where the file ends or makes no sense."""
        from google.protobuf.message import DecodeError

        with os.fdopen(open_to_read(self.path), "rb", _READ) as file:
            while head := file.read(1):
                length = _length(file) if head[0] == _TAG else None
                if length is None or length > _LONGEST:
                    raise BadTrace(f"{self.path} is no Perfetto trace, or damaged")
                data = file.read(length)
                if length < 0 or len(data) < length:
                    self.complain("it is cut off in the middle of an event")
                    return
                try:
                    packet = self._packet.FromString(data)
                except DecodeError as error:
                    raise BadTrace(f"{self.path} is no Perfetto trace, or damaged") from error
                yield packet


def _length(file: BinaryIO) -> int | None:
    """A varint; -1 where the file ends, None for one that is none."""
    value = 0
    for shift in range(0, 70, 7):
        byte = file.read(1)
        if not byte:
            return -1
        value |= (byte[0] & 0x7F) << shift
        if byte[0] < 0x80:
            return value
    return None


def _value(annotation: Any) -> Value:
    sort = annotation.WhichOneof("value")
    found: Value = getattr(annotation, sort) if sort else None
    return found


def _typed(kind: RecordType, fields: dict[str, Value]) -> dict[str, Value]:
    """The fields in the order of their type; viewers keep no order."""
    return {
        field.name: bool(value) if field.type is FieldType.BOOL else value
        for field in kind.fields
        for value in (fields.get(field.name),)
    }
