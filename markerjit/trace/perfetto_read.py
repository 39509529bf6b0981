"""A reader of the Perfetto traces that PerfettoSink writes, with Perfetto's own Python package."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

from markerjit.errors import BadTrace
from markerjit.model import Event, FieldType, Value
from markerjit.ring.types import RecordType
from markerjit.trace.header import checked, for_reading, from_json, losses_from_json, parse_json
from markerjit.trace.kinds import Kinds
from markerjit.trace.missing import missing
from markerjit.trace.perfetto import BEGAN, ENDED, JSON
from markerjit.trace.reading import EventTrace, open_to_read
from markerjit.trace.spans import cpu_key

_READ = 1 << 20
_LONGEST = 1 << 28
_TAG = 0x0A


class PerfettoTrace(EventTrace):
    """A Perfetto trace of ours. The losses are at the end, and known once all has been read."""

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
                self.info = for_reading(from_json(self._parse_json(packet), path))
                break
            if packet.track_event.name_iid:
                break
        if not hasattr(self, "info"):
            raise BadTrace(f"{path} is not a trace of markerjit; other traces are not supported")
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
                        (name.iid, name.name)
                        for name in packet.interned_data.debug_annotation_names
                    )
                if not packet.HasField("track_event"):
                    continue
                if packet.track_event.source_location_iid:
                    yield self._with_origin(self._event(packet, names))
                elif packet.track_event.name == ENDED:
                    self._lost = losses_from_json(self._parse_json(packet), self.path)
                    ended = True
        except BadTrace:
            self._lost = self._lost or {}  # so that a converted trace can be closed
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

    def _parse_json(self, packet: Any) -> Any:
        """The JSON in one of our own instants."""
        for annotation in packet.track_event.debug_annotations:
            if annotation.name == JSON:
                try:
                    return parse_json(annotation.string_value)
                except ValueError as error:
                    raise BadTrace(f"the header of {self.path} is not JSON") from error
        return None

    def _packets(self) -> Iterator[Any]:
        """The packets up to the end of the file. Raises BadTrace at a malformed one."""
        from google.protobuf.message import DecodeError

        with os.fdopen(open_to_read(self.path), "rb", _READ) as file:
            while head := file.read(1):
                length = _length(file) if head[0] == _TAG else None
                if length is None or length > _LONGEST:
                    raise BadTrace(f"{self.path} is not a Perfetto trace, or damaged")
                data = file.read(length)
                if length < 0 or len(data) < length:
                    self.complain("it is cut off in the middle of an event")
                    return
                try:
                    packet = self._packet.FromString(data)
                except DecodeError as error:
                    raise BadTrace(f"{self.path} is not a Perfetto trace, or damaged") from error
                yield packet


def _length(file: BinaryIO) -> int | None:
    """The next varint; -1 where the file ends, None where it is malformed."""
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
    value: Value = getattr(annotation, sort) if sort else None
    return value


def _typed(kind: RecordType, fields: dict[str, Value]) -> dict[str, Value]:
    """The fields in the order of their type, which a viewer may have changed."""
    return {
        field.name: bool(value) if field.type is FieldType.BOOL else value
        for field in kind.fields
        for value in (fields.get(field.name),)
    }
