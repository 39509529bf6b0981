"""The metadata of CTF 1.8: a text in TSDL.

Authority: CTF 1.8.3, diamon.org/ctf/v1.8.3. Every name of a field begins with an underscore, which
readers take away, so that no field is a keyword.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
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

SIGNATURE = "/* CTF 1.8 */"
_CHARACTER = "integer { size = 8; align = 8; signed = false; encoding = UTF8; }"


def metadata(
    info: TraceInfo, uuid: UUID, clock: Clock | None, environment: Mapping[str, str | int]
) -> str:
    """The whole text. Without a clock there are no times."""
    time = info.clock.time if clock else Time.NONE
    return "\n".join([SIGNATURE, *_blocks(info, uuid, time, clock, environment), ""])


def _blocks(
    info: TraceInfo,
    uuid: UUID,
    time: Time,
    clock: Clock | None,
    environment: Mapping[str, str | int],
) -> Iterator[str]:
    magic, *header = map(_member, packet_header())
    header = [magic, "integer { size = 8; align = 8; signed = false; } uuid[16];", *header]
    yield "trace {"
    yield f'\tmajor = 1;\n\tminor = 8;\n\tuuid = "{uuid}";\n\tbyte_order = le;'
    yield f"\tpacket.header := {_struct(header)};"
    yield "};\nenv {"
    for name, value in environment.items():
        yield f"\t{name} = {value if isinstance(value, int) else _quoted(value)};"
    yield "};"
    if clock:
        yield f"clock {{\n\tname = {clock.name};\n\tdescription = {_quoted(clock.description)};"
        yield f"\tfreq = {clock.frequency_hz};\n\toffset_s = {clock.seconds};"
        yield f"\toffset = {clock.cycles};\n\tabsolute = TRUE;\n}};"
    mapped = f" map = clock.{clock.name}.value;" if clock else ""
    yield "stream {\n\tid = 0;"
    yield f"\tpacket.context := {_struct(_member(m, mapped) for m in packet_context(time))};"
    yield f"\tevent.header := {_struct(_member(m, mapped) for m in event_header(time))} align(64);"
    context = event_context(info.types[0].tid if info.types else False)
    if context:
        yield f"\tevent.context := {_struct(map(_member, context))};"
    yield "};"
    for type_ in info.types:
        if type_.marker in info.sources:
            where = printable(info.sources[type_.marker]).replace("*/", "* /")
            yield f"/* {where} */"
        yield f"event {{\n\tname = {_quoted(type_.marker)};\n\tid = {type_.id};\n\tstream_id = 0;"
        fields = (_member(member._replace(name=f"_{member.name}")) for member in payload(type_))
        yield f"\tfields := {_struct(fields)} align(64);"
        yield "};"


def _struct(members: Iterable[str]) -> str:
    return "".join(["struct {\n", *(f"\t\t{member}\n" for member in members), "\t}"])


def _member(member: Member, mapped: str = "") -> str:
    name = member.name
    match member.kind:
        case Kind.FLOAT:
            return (
                f"floating_point {{ exp_dig = 11; mant_dig = 53; align = {member.align}; }} {name};"
            )
        case Kind.CHARS:
            return f"{_CHARACTER} {name}[{member.chars}];"
        case Kind.TEXT:
            return f"{_CHARACTER} {name}[_{member.length}];"
    signed = "true" if member.kind is Kind.SIGNED else "false"
    base = f" base = {member.base};" if member.base != 10 else ""
    clock = mapped if member.role.startswith("timestamp") else ""
    size = f"size = {member.bits}; align = {member.align}; signed = {signed};"
    integer = f"integer {{ {size}{base}{clock} }}"
    match member.kind:
        case Kind.STATE:
            labels = ", ".join(f"{_quoted(label)} = {value}" for label, value in STATES.items())
            return f"enum : {integer} {{ {labels} }} {name};"
        case Kind.RAW:
            return f"{integer} {name}[_{member.length}];"
        case _:
            return f"{integer} {name};"


def _quoted(text: str) -> str:
    escaped = printable(text).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def unquoted(text: str) -> str:
    """The text between the quotation marks of a literal, as it was before."""
    return re.sub(r"\\(.)", r"\1", text)
