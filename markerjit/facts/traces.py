"""Traces and their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markerjit.facts import Json
from markerjit.trace.lines import json_value
from markerjit.trace.open import format_of
from markerjit.trace.statistics import MarkerSummary, NumberSummary, Summary, ValueSummary

if TYPE_CHECKING:
    from markerjit.trace.reading import Trace

_LATER_MIB = 16
"""The largest rings that every process with a runtime has room for."""
_FAST = ("CTF 1.8", "CTF 2", "Parquet", "Arrow")
"""The formats that take much less time than lines."""


def trace_facts(trace: Trace, summary: Summary) -> Json:
    """A trace: where it comes from, its summary, and what is wrong with its file."""
    info = trace.info
    return {
        "file": trace.path,
        "pid": info.pid,
        "command": info.command,
        "host": info.host,
        "started_ns": info.started_ns,
        "wall_offset_ns": info.clock.wall_offset_ns,
        **summary_facts(summary),
        "problems": list(trace.problems),
    }


def remedies(
    *, ring_size: int, output: str | None, calls: bool, markers: int, fields: int, lossless: bool
) -> list[str]:
    """Ways to lose fewer events in the next trace, for one that found rings full.

    ring_size   bytes of each ring at the start
    output      the file that was written; None where events were printed
    calls       whether a function in Python was called with each event
    markers     number of markers that recorded
    fields      the most fields of one of them that were recorded
    lossless    whether events waited for the trace
    """
    sentences = []
    size = ring_size >> 20
    if size < _LATER_MIB:
        larger = min(max(8 * size, 8), _LATER_MIB)
        sentences.append(f"--ring-size {larger}: each ring began with {size} MiB")
    if calls:
        sentences.append("-o FILE.ctf or a probe in C: calls of a Python function take most time")
    elif output is None or format_of(output).name not in _FAST:
        sentences.append("-o FILE.ctf: it takes a quarter of the time of lines")
    if fields > 1:
        sentences.append("--fields: a ring has room for more records that are smaller")
    if markers > 1:
        sentences.append(f"a pattern that matches fewer markers: it matched {markers}")
    if not lossless:
        sentences.append("--lossless: the process waits instead, and may become much slower")
    return sentences


def summary_facts(summary: Summary) -> Json:
    """The statistics of a trace and of its markers. Times are nanoseconds of CLOCK_MONOTONIC."""
    return {**summary._asdict(), "markers": [_marker_facts(marker) for marker in summary.markers]}


def _marker_facts(marker: MarkerSummary) -> Json:
    fields = [
        _number_facts(field) if isinstance(field, NumberSummary) else _value_facts(field)
        for field in marker.fields
    ]
    return {**marker._asdict(), "fields": fields}


def _number_facts(summary: NumberSummary) -> Json:
    numbers = {
        "min": summary.least,
        "p50": summary.p50,
        "p90": summary.p90,
        "p99": summary.p99,
        "max": summary.largest,
        "mean": summary.mean,
    }
    return {
        "name": summary.field.name,
        "type": str(summary.field.type),
        "count": summary.values,
        "nans": summary.nans,
        **{name: json_value(number) for name, number in numbers.items()},
        "error": summary.error,
    }


def _value_facts(summary: ValueSummary) -> Json:
    return {
        "name": summary.field.name,
        "type": str(summary.field.type),
        "count": summary.values,
        "nulls": summary.nulls,
        "distinct": summary.distinct,
        "top": [{"value": json_value(value), "count": count} for value, count in summary.top],
        "missed": summary.missed,
    }
