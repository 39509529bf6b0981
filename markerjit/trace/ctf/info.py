"""The description in a trace: its environment and its clock for viewers, and JSON in the
environment for us, because CTF cannot express all of it. See trace/header.py."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from markerjit.errors import BadTrace
from markerjit.ring.clock import NS, Calibration
from markerjit.ring.types import HEAD, HEAD_OF_16, Head, Time
from markerjit.trace.header import from_json, losses_from_json, losses_to_json, parse_json, to_json
from markerjit.trace.sink import TraceInfo
from markerjit.tuples import NamedTuple

Lost = Mapping[tuple[int, str], int]

OURS = "markerjit_trace"
_HEADS = (HEAD, HEAD_OF_16)
LOST = "markerjit_lost"
_FREQUENCY_AT_MOST = (1 << 63) // NS
"""Nanoseconds times counts of less than a second, as 64 bits hold them: 9.2 GHz."""
_COMMAND_SHOWN = 15  # as the kernel cuts a thread's name, and viewers expect of `procname`


class Clock(NamedTuple):
    """A clock as CTF describes it: a time is `seconds` and `cycles` since 1970 and the timestamp.

    base    what is taken from a record's time before it is written, and may be below 0. Viewers
            compute with doubles, which have no nanoseconds for the time stamp counter of a machine
            that has been up for a year.
    """

    name: str
    description: str
    frequency_hz: int
    seconds: int
    cycles: int
    base: int


def make_clock(calibration: Calibration, earliest: int) -> Clock | None:
    """A clock for records that are not older than `earliest`; None where they have no time."""
    if calibration.time is Time.NONE:
        return None
    name, description, frequency_hz = "monotonic", "CLOCK_MONOTONIC", NS
    if calibration.time is not Time.TSC:
        if calibration.time is Time.COARSE:
            name, description = "monotonic_coarse", "CLOCK_MONOTONIC_COARSE"
        seconds, cycles = divmod(calibration.wall_offset_ns, NS)
        return Clock(name, description, frequency_hz, seconds, cycles, 0)
    # Whole seconds, so that what is left out is a whole number of nanoseconds too.
    frequency_hz = calibration.frequency_hz
    before = max(0, -((earliest - calibration.counter) // frequency_hz))
    base = calibration.counter - before * frequency_hz
    began = calibration.wall_offset_ns + calibration.monotonic_ns - before * NS
    seconds, left = divmod(began, NS)
    cycles = -(-left * frequency_hz // NS)
    # Viewers turn this into nanoseconds too, with doubles, and cut off what is behind the point.
    cycles += int(1e9 * cycles / frequency_hz) < left
    cycles = min(cycles, frequency_hz - 1)
    return Clock("tsc", "the time stamp counter", frequency_hz, seconds, cycles, base)


def environment(info: TraceInfo, clock: Clock | None, lost: Lost | None) -> dict[str, str | int]:
    """Names and values for the metadata. `lost` is None while the trace is being written."""
    name = info.command.split(" ")[0].rsplit("/", 1)[-1]
    try:
        major, minor, *_ = (*version("markerjit").split("."), "0")
    except PackageNotFoundError:  # used from where it was not installed
        major = minor = "0"
    values: dict[str, str | int] = {
        "hostname": printable(info.host),
        "procname": printable(name[:_COMMAND_SHOWN]),
        "vpid": info.pid,
        "command": printable(info.command),
        "tracer_name": "markerjit",
        "tracer_major": int(major),
        "tracer_minor": int(minor),
        OURS: dump(info, clock),
    }
    if lost is not None:
        values[LOST] = json.dumps(losses_to_json(lost))
    return values


def printable(text: str) -> str:
    """Text that any reader of metadata takes: what cannot be printed becomes a question mark."""
    return "".join(char if char.isprintable() else "?" for char in text)


def dump(info: TraceInfo, clock: Clock | None) -> str:
    """Everything, as JSON of ASCII characters."""
    base = clock.base if clock else 0
    return json.dumps({"base": base, "marker_bits": HEAD.marker_bits, **to_json(info)})


def load(text: str, path: str) -> tuple[TraceInfo, int, Head]:
    """The arguments of `dump`: the description, the clock's base, and the division of the records'
    heads. Raises BadTrace."""
    document = _parse(text, path)
    info = from_json(document, path)
    ids = {type_.id for type_ in info.types}
    base = document.get("base")
    bits = document.get("marker_bits", HEAD_OF_16.marker_bits)
    head = next((head for head in _HEADS if head.marker_bits == bits), None)
    if (
        type(base) is not int
        or head is None
        or not 0 < info.clock.frequency_hz <= _FREQUENCY_AT_MOST
        or len(ids) != len(info.types)
        or not all(0 <= id_ < head.filler for id_ in ids)
        or any(type_.time is not info.clock.time for type_ in info.types)
    ):
        raise BadTrace(f"the header of {path} contradicts itself")
    return info, base, head


def load_lost(text: str, path: str) -> dict[tuple[int, str], int]:
    """The losses by CPU and marker. Raises BadTrace."""
    return losses_from_json(_parse(text, path), path)


def _parse(text: str, path: str) -> Any:
    try:
        return parse_json(text)
    except ValueError as error:
        raise BadTrace(f"the header of {path} makes no sense: {error!r}") from error
