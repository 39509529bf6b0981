"""The header of a trace, as JSON: the part of our files that is the same in all formats.

Files keep times as nanoseconds, and say from which clock they came: `for_reading` is the info of a
trace that was read again. Its clock needs no calibration any more.

Files may be damaged, or made to harm: what is read is checked here, so that all of it can be
printed, summed up and written again.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from markerjit.errors import BadTrace
from markerjit.frames import StackText
from markerjit.model import CType, Event, Field, FieldType, TypeClass
from markerjit.ring.brakes import Brakes
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import FILLER, RecordType, Time, has_stacks
from markerjit.trace.sink import TraceInfo

VERSION = 2
_WITHOUT_STACKS = 1
"""The version of a trace without stacks, for readers that do not know stacks."""
JOINT = {"joint": True}
"""Further fields in the header of a program in a file of several programs."""
_CLASSES = {
    "i": TypeClass.SIGNED,
    "u": TypeClass.UNSIGNED,
    "f": TypeClass.FLOAT,
    "p": TypeClass.POINTER,
    "c": TypeClass.CHARS,
    "b": TypeClass.BOOL,
}
"""The class by the first letter of a CType's text, such as "i32" and "chars"."""

_INTEGERS = (TypeClass.SIGNED, TypeClass.UNSIGNED, TypeClass.BOOL)
_POINTERS = (TypeClass.POINTER, TypeClass.CHARS)
_ALLOWED = {
    FieldType.INT: (_INTEGERS, r"#?[xXobB]|[du]"),
    FieldType.FLOAT: ((TypeClass.FLOAT,), r"(\.\d{1,4})?[eEfFgGaA]"),
    FieldType.BOOL: ((TypeClass.BOOL,), r"[duxXobB]"),
    FieldType.CHAR: (_INTEGERS, r"c"),
    FieldType.POINTER: (_POINTERS, r"p"),
    FieldType.STRING: (_POINTERS, r"s"),
    FieldType.BYTES: (_POINTERS, r"s|ph"),
    FieldType.STACK: ((TypeClass.UNSIGNED,), r"pB"),
}
"""The argument and the conversion of each type of field: what elf/format.py makes."""

_VALUES = {str, StackText, float, bool, bytes, type(None)}
"""The types that the value of a field can have, besides a whole number."""

LONGEST_TIME = 1 << 62
"""The largest time in nanoseconds, also before 0. The sum of two such times is still in the
calendar."""
LARGEST, SMALLEST = (1 << 64) - 1, -(1 << 63)
"""The bounds of the numbers that a field can hold."""


def to_json(info: TraceInfo) -> dict[str, Any]:
    """A TraceInfo as JSON has it."""
    return {
        "version": VERSION if has_stacks(info.types) else _WITHOUT_STACKS,
        "pid": info.pid,
        "command": info.command,
        "host": info.host,
        "started_ns": info.started_ns,
        "clock": {**info.clock._asdict(), "time": str(info.clock.time)},
        "types": [_type_to_json(kind) for kind in info.types],
        "sources": dict(info.sources),
    }


def from_json(document: Any, path: str) -> TraceInfo:
    """The TraceInfo again, its times as nanoseconds. Raises BadTrace where it makes no sense."""
    try:
        version = whole(document["version"], 0, LARGEST)
        if version > VERSION:
            raise BadTrace(f"{path} was written by a newer markerjit: its header is {version}")
        clock = document["clock"]
        info = TraceInfo(
            types=tuple(_type_from_json(kind) for kind in document["types"]),
            clock=Calibration(
                Time(clock["time"]),
                whole(clock["counter"], 0, LARGEST),
                whole(clock["monotonic_ns"], -LONGEST_TIME, LONGEST_TIME),
                whole(clock["frequency_hz"], 1, LONGEST_TIME),
                whole(clock["wall_offset_ns"], -LONGEST_TIME, LONGEST_TIME),
            ),
            pid=whole(document["pid"], 0, (1 << 31) - 1),
            command=as_text(document["command"]),
            host=as_text(document["host"]),
            started_ns=whole(document["started_ns"], -LONGEST_TIME, LONGEST_TIME),
            sources={as_text(name): as_text(place) for name, place in document["sources"].items()},
        )
        if len({kind.id for kind in info.types}) != len(info.types):
            raise ValueError("two types have one number")
        if any(kind.time is not info.clock.time for kind in info.types):
            raise ValueError("a type has another clock")
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadTrace(f"the header of {path} makes no sense: {error!r}") from error
    return info


def parse_json(text: str | bytes) -> Any:
    """Parse JSON from an untrusted file. Raises ValueError, also where it is nested too deeply."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it goes too deep") from None


def whole(value: Any, least: int, most: int) -> int:
    """A whole number between these. Raises ValueError for anything else."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError(f"{_shortened(value)} is no number from {least} to {most}")
    return value


def checked(event: Event, clock: Time = Time.MONOTONIC) -> Event:
    """An event from a file. Raises ValueError where no record can have been like this."""
    whole(event.time, 0 if clock is Time.NONE else -LONGEST_TIME, LONGEST_TIME)
    whole(event.cpu, 0, 0xFFFF)
    whole(event.tid, 0, 0xFFFF_FFFF)
    if not is_event_name(event.name):
        raise ValueError(f"{_shortened(event.name)} is no name of an event")
    for name, value in event.fields.items():
        if type(value) is int:
            whole(value, SMALLEST, LARGEST)
        elif type(value) not in _VALUES:
            raise ValueError(f"{_shortened(value)} is no value of a field")
        if type(name) is not str:
            raise ValueError(f"{_shortened(name)} is no name of a field")
    return event


@lru_cache(maxsize=4096)
def is_name(text: str) -> bool:
    """Whether a marker can have this name, and a field of any event."""
    return text.replace("$", "_").isidentifier()


@lru_cache(maxsize=4096)
def is_event_name(text: str) -> bool:
    """Whether an event can have this name: that of a marker, or one with a colon, such as
    `postgresql:query__start` and `func:malloc`. A symbol may have nearly everything in it."""
    return is_name(text) or (":" in text and text.isprintable() and text == text.strip())


def for_reading(info: TraceInfo) -> TraceInfo:
    """The info of a trace whose times are nanoseconds already, whatever they were."""
    return info._replace(
        types=tuple(_with_nanoseconds(kind) for kind in info.types),
        clock=nanoseconds(info.clock.wall_offset_ns, info.clock.time),
    )


def nanoseconds(wall_offset_ns: int, recorded: Time = Time.MONOTONIC) -> Calibration:
    """The clock of times that are nanoseconds of CLOCK_MONOTONIC already, or numbers as before."""
    time = Time.NONE if recorded is Time.NONE else Time.MONOTONIC
    return Calibration(time, 0, 0, NS, wall_offset_ns)


def beginning(info: TraceInfo) -> int:
    """The start of a trace in the unit of its events' times."""
    return 0 if info.clock.time is Time.NONE else info.started_ns - info.clock.wall_offset_ns


def losses_to_json(lost: Mapping[tuple[int, str], int]) -> list[dict[str, Any]]:
    """Losses for JSON, without zeros."""
    return [
        {"cpu": cpu, "name": name, "lost": count} for (cpu, name), count in lost.items() if count
    ]


def is_joint(document: Any) -> bool:
    """Whether this is the header of a program in a file of several."""
    return isinstance(document, dict) and document.get("joint") is True


def of_several(path: str) -> BadTrace:
    """The error for a file of several processes that is opened as one trace."""
    return BadTrace(f"{path} holds the events of several processes; read shows all of them")


def joint_losses(lost: Mapping[int, Mapping[tuple[int, str], int]]) -> list[dict[str, Any]]:
    """The losses of several processes as JSON has them."""
    return [{"pid": pid, **loss} for pid, of in lost.items() for loss in losses_to_json(of)]


def losses_of_process(losses: Any, pid: int) -> Any:
    """The losses of one process among those of several, still as JSON."""
    if not isinstance(losses, list):
        return losses
    return [loss for loss in losses if isinstance(loss, dict) and loss.get("pid") == pid]


def losses_from_json(document: Any, path: str) -> dict[tuple[int, str], int]:
    """The losses again."""
    try:
        return {
            (whole(lost["cpu"], -1, 0xFFFF), as_text(lost["name"])): whole(lost["lost"], 0, LARGEST)
            for lost in document
        }
    except (KeyError, TypeError, ValueError) as error:
        raise BadTrace(f"the losses in {path} make no sense: {error!r}") from error


def _with_nanoseconds(kind: RecordType) -> RecordType:
    if kind.time in (Time.MONOTONIC, Time.NONE):
        return kind
    return RecordType(
        kind.id, kind.marker, kind.format, kind.fields, time=Time.MONOTONIC, tid=kind.tid,
        brakes=kind.brakes,
    )  # fmt: skip


def _type_to_json(kind: RecordType) -> dict[str, Any]:
    return {
        "id": kind.id,
        "marker": kind.marker,
        "format": kind.format,
        "time": str(kind.time),
        "tid": kind.tid,
        **kind.brakes.facts(),
        "fields": [
            {**field._asdict(), "type": str(field.type), "ctype": str(field.ctype)}
            for field in kind.fields
        ],
    }


def _type_from_json(document: Mapping[str, Any]) -> RecordType:
    fields = [_field_from_json(field) for field in document["fields"]]
    name, names = document["marker"], [field.name for field in fields]
    if not is_event_name(name) or not all(map(is_name, names)) or len({*names}) != len(fields):
        raise ValueError(f"{_shortened(name)} or its fields have names that there cannot be")
    return RecordType(
        whole(document["id"], 0, FILLER - 1),
        str(document["marker"]),
        as_text(document["format"]),
        fields,
        time=Time(document["time"]),
        tid=bool(document["tid"]),
        brakes=_brakes_from_json(document),
    )


def _brakes_from_json(document: Mapping[str, Any]) -> Brakes:
    names = ("sample", "at_most", "budget")
    return Brakes.of(**{name: document.get(name) for name in names})


def _field_from_json(document: Mapping[str, Any]) -> Field:
    type_, ctype = FieldType(document["type"]), ctype_from_text(document["ctype"])
    conversion, limit = document["conversion"], document["limit"]
    classes, conversions = _ALLOWED[type_]
    if ctype.type_class not in classes or not re.fullmatch(conversions, conversion, re.ASCII):
        raise ValueError(f"{type_} is not shown by {_shortened(conversion)}")
    return Field(
        as_text(document["name"]),
        type_,
        ctype,
        whole(document["arg"], 0, 0xFFFF),
        conversion,
        None if limit is None else whole(limit, 0, LARGEST),
    )


def as_text(value: Any) -> str:
    """A text that every format can have: half characters are spelled out."""
    if not isinstance(value, str):
        raise ValueError(f"{_shortened(value)} is no text")
    return value.encode("utf-8", "backslashreplace").decode()


def _shortened(value: Any) -> str:
    """For a message; nothing bounds the digits of a number, nor how deep a list goes."""
    return repr(value)[:60] if isinstance(value, str | float) else f"a {type(value).__name__}"


def ctype_from_text(text: str) -> CType:
    """`i32`, `chars`: as `str` shows it. Raises KeyError or ValueError."""
    type_class = _CLASSES[text[:1]]
    if type_class is TypeClass.BOOL:
        return CType(type_class, 1)
    if type_class in (TypeClass.POINTER, TypeClass.CHARS):
        return CType(type_class, 8)
    size = int(text[1:]) // 8
    if size not in (1, 2, 4, 8):
        raise ValueError(f"{text} is no type")
    return CType(type_class, size)
