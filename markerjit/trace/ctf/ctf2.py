"""The metadata of CTF 2: a sequence of JSON objects, each after an RS character.

Authority: CTF2-SPEC-2.0, diamon.org/ctf. Here roles say what a member means, not its name.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from uuid import UUID

from markerjit.ring.types import Time
from markerjit.trace.ctf.info import Clock, printable
from markerjit.trace.ctf.layout import (
    STATES,
    Kind,
    Member,
    event_context,
    event_header,
    packet_context,
    packet_header,
    payload,
)
from markerjit.trace.sink import TraceInfo

SEPARATOR = "\x1e"
Json = dict[str, Any]

_LITTLE = {"byte-order": "little-endian"}
_ROLES = {
    "magic": "packet-magic-number",
    "stream_id": "data-stream-class-id",
    "stream_instance_id": "data-stream-id",
    "packet_size": "packet-total-length",
    "content_size": "packet-content-length",
    "packet_seq_num": "packet-sequence-number",
    "events_discarded": "discarded-event-record-counter-snapshot",
    "timestamp_begin": "default-clock-timestamp",
    "timestamp_end": "packet-end-default-clock-timestamp",
    "timestamp": "default-clock-timestamp",
    "id": "event-record-class-id",
}
_NUMBERS = {
    Kind.UNSIGNED: "fixed-length-unsigned-integer",
    Kind.STATE: "fixed-length-unsigned-integer",
    Kind.SIGNED: "fixed-length-signed-integer",
    Kind.BOOL: "fixed-length-boolean",
    Kind.FLOAT: "fixed-length-floating-point-number",
}


def metadata(
    info: TraceInfo, uuid: UUID, clock: Clock | None, environment: Mapping[str, str | int]
) -> str:
    """The whole text. Without a clock there are no times."""
    time = info.clock.time if clock else Time.NONE
    fragments = _fragments(info, uuid, time, clock, environment)
    return "".join(f"{SEPARATOR}{json.dumps(fragment)}\n" for fragment in fragments)


def _fragments(
    info: TraceInfo,
    uuid: UUID,
    time: Time,
    clock: Clock | None,
    environment: Mapping[str, str | int],
) -> Iterator[Json]:
    yield {"type": "preamble", "version": 2, "uuid": list(uuid.bytes)}
    header = _structure(packet_header())
    blob = {"type": "static-length-blob", "length": 16, "roles": ["metadata-stream-uuid"]}
    header["member-classes"].insert(1, {"name": "uuid", "field-class": blob})
    yield {
        "type": "trace-class",
        "uid": str(uuid),
        "environment": dict(environment),
        "packet-header-field-class": header,
    }
    if clock:
        yield {
            "type": "clock-class",
            "id": clock.name,
            "name": clock.name,
            "description": clock.description,
            "frequency": clock.frequency_hz,
            "offset-from-origin": {"seconds": clock.seconds, "cycles": clock.cycles},
            "origin": "unix-epoch",
        }
    stream: Json = {"type": "data-stream-class", "id": 0}
    if clock:
        stream["default-clock-class-id"] = clock.name
    stream["packet-context-field-class"] = _structure(packet_context(time))
    stream["event-record-header-field-class"] = _structure(event_header(time), align=64)
    context = event_context(info.types[0].tid if info.types else False)
    if context:
        stream["event-record-common-context-field-class"] = _structure(context)
    yield stream
    for type_ in info.types:
        event: Json = {
            "type": "event-record-class",
            "id": type_.id,
            "data-stream-class-id": 0,
            "name": printable(type_.marker),
            "payload-field-class": _structure(payload(type_), align=64),
        }
        if type_.marker in info.sources:
            event["attributes"] = {"markerjit": {"source": printable(info.sources[type_.marker])}}
        yield event


def _structure(members: Iterable[Member], *, align: int = 1) -> Json:
    return {
        "type": "structure",
        "minimum-alignment": align,
        "member-classes": [{"name": m.name, "field-class": _field_class(m)} for m in members],
    }


def _field_class(member: Member) -> Json:
    length = {"length-field-location": {"path": [member.length]}}
    match member.kind:
        case Kind.CHARS:
            return {"type": "static-length-string", "length": member.chars, "encoding": "utf-8"}
        case Kind.TEXT:
            return {"type": "dynamic-length-string", "encoding": "utf-8", **length}
        case Kind.RAW:
            return {"type": "dynamic-length-blob", **length}
    number: Json = {
        "type": _NUMBERS[member.kind],
        "length": member.bits,
        "alignment": member.align,
        **_LITTLE,
    }
    if member.base != 10:
        number["preferred-display-base"] = member.base
    if member.kind is Kind.STATE:
        number["mappings"] = {label: [[value, value]] for label, value in STATES.items()}
    if member.role:
        number["roles"] = [_ROLES[member.role]]
    return number
