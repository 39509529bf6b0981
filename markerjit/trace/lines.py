"""An event as a line, of text or of JSON. parse.py reads lines of text; rows.py makes many at once.

JSON has neither bytes nor nan. They become strings, and stay strings where the reader does not know
the fields. A value that does not fit the format of its marker is shown without the format.
"""

from __future__ import annotations

import json as json_module
import math
import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from markerjit.arguments import check_flag, check_is, check_mapping
from markerjit.elf import show
from markerjit.frames import StackText
from markerjit.model import Event, Field, Value
from markerjit.printable import printable
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import Time
from markerjit.trace.kinds import EventOfKind, fits

_CONTROLS = re.compile("[\x7f-\x9f]")
"""Control characters that JSON allows in a string. A terminal takes U+009B for an escape."""
DAY_NS = 86_400 * NS


def line_formatter(
    fields: Mapping[str, Sequence[Field]], *, json: bool = False, clock: Calibration | None = None
) -> Callable[[Event], str]:
    """A function that formats an event as a line without control characters.

    A line of text has the time of day, and each field in its marker's format.

    fields  the fields of each marker, by its name
    json    JSON in place of text
    clock   the clock of the trace. Without it the present difference between the system's clocks
            gives the time of day
    """
    check_mapping("fields", fields, str, Sequence)
    check_flag("json", json)
    if clock is not None:
        check_is("clock", clock, Calibration)
    if json:
        return lambda event: escape_controls(as_json(event))
    if clock is not None and clock.time is Time.NONE:
        return lambda event: printable(as_numbered_text(event, fields.get(event.name, ())))
    offset = wall_offset() if clock is None else clock.wall_offset_ns
    return lambda event: printable(as_text(event, fields.get(event.name, ()), offset))


def escape_controls(text: str) -> str:
    """The JSON without the control characters that JSON allows and a terminal obeys."""
    return _CONTROLS.sub(_as_json_escape, text)


def _as_json_escape(control: re.Match[str]) -> str:
    return f"\\u{ord(control[0]):04x}"


def shown(field: Field, value: Value) -> str:
    """A value as its format shows it. A value that does not fit is shown without a format."""
    if fits(field, value):
        return show(field, value)
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case _:
            return show(field, value)


def as_text(event: Event, fields: Sequence[Field], wall_offset_ns: int) -> str:
    """The event as `time cpu tid marker field=value …`, the time of day with nanoseconds.

    `wall_offset_ns` is the time since 1970 minus CLOCK_MONOTONIC.
    """
    return f"{time_of_day(event.time + wall_offset_ns)} {_behind_time(event, fields)}"


def time_of_day(time_ns: int) -> str:
    """The local time of day of a time since 1970, with nanoseconds."""
    seconds, rest = divmod(time_ns, NS)
    return f"{time.strftime('%H:%M:%S', time.localtime(seconds))}.{rest:09d}"


def as_numbered_text(event: Event, fields: Sequence[Field]) -> str:
    """The line of an event that was recorded without a time: `#number cpu …`."""
    return f"#{event.time} {_behind_time(event, fields)}"


def _behind_time(event: Event, fields: Sequence[Field]) -> str:
    values = event.fields
    if isinstance(event, EventOfKind):
        fields = event.kind.fields
    rest = "".join(
        f" {field.name}={shown(field, values[field.name])}"
        for field in fields
        if field.name in values
    )
    return f"cpu{event.cpu} {event.tid} {event.name}{rest}"


def as_json(event: Event) -> str:
    """The event as a JSON object. Values that JSON does not have become strings.

    These are bytes that are not text, as hexadecimal digits, and floats such as nan and inf.
    """
    return json_module.dumps(
        {
            "time": event.time,
            "cpu": event.cpu,
            "tid": event.tid,
            "name": event.name,
            "fields": {name: json_value(value) for name, value in event.fields.items()},
        },
        ensure_ascii=False,
    )


def json_value(value: Value) -> Any:
    """The value of a field as one that JSON has."""
    if isinstance(value, StackText):
        return json_module.loads(value) if value.frames else None
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def wall_offset() -> int:
    """The present time since 1970 minus CLOCK_MONOTONIC, in nanoseconds."""
    return time.time_ns() - time.monotonic_ns()
