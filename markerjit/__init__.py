"""markerjit: markers in running programs, switched on and off while they run.

    import markerjit

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.time, event.name, event.fields)

This is the public interface; `markerjit.lowlevel` has the parts beneath it. Names are loaded when
they are first used, because start-up is part of a command's latency.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers assume true; importing typing would take 10 ms

if TYPE_CHECKING:
    from typing import Any

    from markerjit.arena.waiting import Waits
    from markerjit.errors import (
        BadArgument,
        BadFile,
        BadNote,
        BadQuestion,
        BadTrace,
        ChangeFailed,
        MarkerError,
        MemoryFault,
        NoMarkers,
        NoMatch,
        NoSuchProcess,
        NotPermitted,
        NotRolledBack,
        NotVerified,
        Reason,
        Refused,
        TargetGone,
        UnexpectedBytes,
        UnknownMarker,
        Unsupported,
    )
    from markerjit.events.feed import StreamStatistics
    from markerjit.events.flight import Flight, Picture
    from markerjit.events.merging import Merged, Merger, merge
    from markerjit.events.stream import EventStream
    from markerjit.facts.table import Table, table
    from markerjit.fleet.failed import Failed
    from markerjit.fleet.family import Family, Member, Price
    from markerjit.fleet.fleet import Fleet
    from markerjit.fleet.launch import Launched
    from markerjit.fleet.overview import Overview, ProcessOverview, overview
    from markerjit.model import Event, Field, Kind, Mode, Seccomp, Site
    from markerjit.patch.apply import Applied
    from markerjit.patch.plan import LeftOut, Plan, Refusal
    from markerjit.patch.steps import Step, Verb
    from markerjit.probes.c.compile import compile_probe
    from markerjit.probes.c.unit import Compiled
    from markerjit.probes.loaded import Values
    from markerjit.probes.recorders import compiled_probe
    from markerjit.proc.priority import raised_priority, reason_for_waiting
    from markerjit.ring.batch import Batch, Columns
    from markerjit.ring.clock import Calibration
    from markerjit.session.functions import Function, FunctionView, list_file_functions
    from markerjit.session.repair import Repaired, repair
    from markerjit.session.session import Session, attach
    from markerjit.session.status import ArenaStatus, MarkerStatus, list_file
    from markerjit.session.stepping import Stepper
    from markerjit.session.strays import StrayHead
    from markerjit.session.usdt import UsdtProbe, UsdtView, list_file_usdt
    from markerjit.session.view import View
    from markerjit.session.watch import Watch
    from markerjit.sites.selection import matching_names
    from markerjit.targets.find import choose_one, find_processes
    from markerjit.targets.request import Targets, parse_targets
    from markerjit.trace import line_formatter
    from markerjit.trace.convert import convert
    from markerjit.trace.narrow import only_fields
    from markerjit.trace.open import check_output, open_sink, open_trace, open_traces, takes_packets
    from markerjit.trace.reading import Trace
    from markerjit.trace.rows import event_lines
    from markerjit.trace.statistics import (
        MarkerSummary,
        NumberSummary,
        Summary,
        ValueSummary,
        summarise,
    )
    from markerjit.trace.where import where

__version__ = "0.6.0"

_HOME = {
    "Session": "session.session",
    "attach": "session.session",
    "Repaired": "session.repair",
    "repair": "session.repair",
    "View": "session.view",
    "Batch": "ring.batch",
    "Calibration": "ring.clock",
    "Columns": "ring.batch",
    "Compiled": "probes.c.unit",
    "compile_probe": "probes.c.compile",
    "compiled_probe": "probes.recorders",
    "Values": "probes.loaded",
    "Flight": "events.flight",
    "Picture": "events.flight",
    "Merged": "events.merging",
    "Merger": "events.merging",
    "merge": "events.merging",
    "Watch": "session.watch",
    "Failed": "fleet.failed",
    "Family": "fleet.family",
    "Member": "fleet.family",
    "Price": "fleet.family",
    "Fleet": "fleet.fleet",
    "Launched": "fleet.launch",
    "Overview": "fleet.overview",
    "ProcessOverview": "fleet.overview",
    "overview": "fleet.overview",
    **dict.fromkeys(("Targets", "parse_targets"), "targets.request"),
    **dict.fromkeys(("choose_one", "find_processes"), "targets.find"),
    "convert": "trace.convert",
    "Trace": "trace.reading",
    **dict.fromkeys(
        ("MarkerSummary", "NumberSummary", "Summary", "ValueSummary", "summarise"),
        "trace.statistics",
    ),
    "check_output": "trace.open",
    "open_sink": "trace.open",
    "open_trace": "trace.open",
    "open_traces": "trace.open",
    "takes_packets": "trace.open",
    "matching_names": "sites.selection",
    "only_fields": "trace.narrow",
    "where": "trace.where",
    "Applied": "patch.apply",
    "LeftOut": "patch.plan",
    "Plan": "patch.plan",
    "Refusal": "patch.plan",
    "Step": "patch.steps",
    "Verb": "patch.steps",
    "Stepper": "session.stepping",
    "event_lines": "trace.rows",
    **dict.fromkeys(("raised_priority", "reason_for_waiting"), "proc.priority"),
    "line_formatter": "trace",
    "list_file": "session.status",
    "EventStream": "events.stream",
    **dict.fromkeys(("Table", "table"), "facts.table"),
    "StreamStatistics": "events.feed",
    "Waits": "arena.waiting",
    "ArenaStatus": "session.status",
    "MarkerStatus": "session.status",
    "StrayHead": "session.strays",
    **dict.fromkeys(("Function", "FunctionView", "list_file_functions"), "session.functions"),
    **dict.fromkeys(("UsdtProbe", "UsdtView", "list_file_usdt"), "session.usdt"),
    **dict.fromkeys(("Event", "Field", "Kind", "Mode", "Seccomp", "Site"), "model"),
    **dict.fromkeys(
        (
            "BadArgument",
            "BadFile",
            "BadNote",
            "BadQuestion",
            "BadTrace",
            "ChangeFailed",
            "MarkerError",
            "MemoryFault",
            "NoMarkers",
            "NoMatch",
            "NoSuchProcess",
            "NotPermitted",
            "NotRolledBack",
            "NotVerified",
            "Reason",
            "Refused",
            "TargetGone",
            "UnexpectedBytes",
            "UnknownMarker",
            "Unsupported",
        ),
        "errors",
    ),
}

__all__ = [
    "Applied",
    "ArenaStatus",
    "BadArgument",
    "BadFile",
    "BadNote",
    "BadQuestion",
    "BadTrace",
    "Batch",
    "Calibration",
    "ChangeFailed",
    "Columns",
    "Compiled",
    "Event",
    "EventStream",
    "Failed",
    "Family",
    "Field",
    "Fleet",
    "Flight",
    "Function",
    "FunctionView",
    "Kind",
    "Launched",
    "LeftOut",
    "MarkerError",
    "MarkerStatus",
    "MarkerSummary",
    "Member",
    "MemoryFault",
    "Merged",
    "Merger",
    "Mode",
    "NoMarkers",
    "NoMatch",
    "NoSuchProcess",
    "NotPermitted",
    "NotRolledBack",
    "NotVerified",
    "NumberSummary",
    "Overview",
    "Picture",
    "Plan",
    "Price",
    "ProcessOverview",
    "Reason",
    "Refusal",
    "Refused",
    "Repaired",
    "Seccomp",
    "Session",
    "Site",
    "Step",
    "Stepper",
    "StrayHead",
    "StreamStatistics",
    "Summary",
    "Table",
    "TargetGone",
    "Targets",
    "Trace",
    "UnexpectedBytes",
    "UnknownMarker",
    "Unsupported",
    "UsdtProbe",
    "UsdtView",
    "ValueSummary",
    "Values",
    "Verb",
    "View",
    "Waits",
    "Watch",
    "__version__",
    "attach",
    "check_output",
    "choose_one",
    "compile_probe",
    "compiled_probe",
    "convert",
    "event_lines",
    "find_processes",
    "line_formatter",
    "list_file",
    "list_file_functions",
    "list_file_usdt",
    "matching_names",
    "merge",
    "only_fields",
    "open_sink",
    "open_trace",
    "open_traces",
    "overview",
    "parse_targets",
    "raised_priority",
    "reason_for_waiting",
    "repair",
    "summarise",
    "table",
    "takes_packets",
    "where",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "lowlevel":
        return import_module("markerjit.lowlevel")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'markerjit' has no attribute '{name}'")
    value = getattr(import_module(f"markerjit.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, so that they complete before they are loaded."""
    return sorted({*globals(), *__all__, "lowlevel"})
