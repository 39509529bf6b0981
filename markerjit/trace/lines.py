"""An event as a line: for people, or as JSON."""

from __future__ import annotations

import json as json_module
import math
import time
from collections.abc import Callable, Mapping, Sequence

from markerjit.elf import show
from markerjit.model import Event, Field, Value


def line_formatter(
    fields: Mapping[str, Sequence[Field]], *, json: bool = False
) -> Callable[[Event], str]:
    """A function from an event to its line. Text shows each field as its marker's format does, and
    the time of day as of now; `fields` are those of each marker, by its name."""
    if json:
        return as_json
    offset = wall_offset()
    return lambda event: as_text(event, fields.get(event.name, ()), offset)


def as_text(event: Event, fields: Sequence[Field], wall_offset_ns: int) -> str:
    """`time cpu tid marker field=value …`, the time of day with nanoseconds.

    `wall_offset_ns` is what to add to CLOCK_MONOTONIC to get the time since 1970.
    """
    seconds, nanoseconds = divmod(event.time + wall_offset_ns, 1_000_000_000)
    clock = time.strftime("%H:%M:%S", time.localtime(seconds))
    shown = "".join(f" {field.name}={show(field, event.fields[field.name])}" for field in fields)
    return f"{clock}.{nanoseconds:09d} cpu{event.cpu} {event.tid} {event.name}{shown}"


def as_json(event: Event) -> str:
    """One JSON object. What JSON has no value for becomes a string: bytes that are no text, as
    hexadecimal digits, and floats such as nan and inf."""
    fields = {name: _json_value(value) for name, value in event.fields.items()}
    return json_module.dumps(
        {
            "time": event.time,
            "cpu": event.cpu,
            "tid": event.tid,
            "name": event.name,
            "fields": fields,
        },
        ensure_ascii=False,
    )


def _json_value(value: Value) -> Value:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def wall_offset() -> int:
    """The time since 1970 less CLOCK_MONOTONIC, nanoseconds, now."""
    return time.time_ns() - time.monotonic_ns()
