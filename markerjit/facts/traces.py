"""Traces and their statistics."""

from __future__ import annotations

from typing import TYPE_CHECKING

from markerjit.facts import Json
from markerjit.trace.lines import json_value
from markerjit.trace.statistics import MarkerSummary, NumberSummary, Summary, ValueSummary

if TYPE_CHECKING:
    from markerjit.trace.reading import Trace


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
