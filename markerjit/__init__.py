"""markerjit: markers in running programs, switched on and off while they run.

    import markerjit

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.time, event.name, event.fields)

This is the public interface; `markerjit.lowlevel` has the parts beneath it. Names are loaded when
they are first used, because start-up is part of a command's latency.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False  # type checkers assume true; importing typing would take 10 ms

if TYPE_CHECKING:
    from typing import Any

    from markerjit.allocations.files import check_allocations_file, write_allocations
    from markerjit.allocations.summary import Allocations, AllocationSite, CallSite
    from markerjit.arena.waiting import Waits
    from markerjit.calls.files import check_calls_file, write_calls
    from markerjit.calls.graph import CalledFunction, CallGraph, Calling, CallNode, NotOpened
    from markerjit.calls.of_events import weigh_stacks
    from markerjit.calls.samples import SampledFunction, SampledNode, StackSamples, WeighedStacks
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
        UnknownField,
        UnknownMarker,
        Unsupported,
    )
    from markerjit.events.aggregates import AggregateRow, Answers, Missed, Statistics
    from markerjit.events.budget import Cut
    from markerjit.events.feed import StreamStatistics
    from markerjit.events.flight import Flight, Picture
    from markerjit.events.latencies import Latencies, LatencyRow, PairEnd, SlowPair
    from markerjit.events.merging import Merged, Merger, merge
    from markerjit.events.stream import EventStream
    from markerjit.facts.table import Table, table
    from markerjit.fleet.attach import attach
    from markerjit.fleet.failed import Failed
    from markerjit.fleet.family import Family, Price
    from markerjit.fleet.fleet import Fleet
    from markerjit.fleet.launch import Launched, launch
    from markerjit.fleet.marked import find_marked
    from markerjit.fleet.members import Ended, Member
    from markerjit.fleet.newcomers import Newcomers
    from markerjit.fleet.overview import Overview, ProcessOverview, overview
    from markerjit.frames import Frame, StackText
    from markerjit.model import Event, Field, Kind, Mode, Seccomp, Site
    from markerjit.patch.apply import Applied
    from markerjit.patch.plan import LeftOut, Plan, Refusal
    from markerjit.patch.steps import Step, Verb
    from markerjit.probes.c.compile import compile_probe
    from markerjit.probes.c.unit import Compiled
    from markerjit.probes.loaded import Values
    from markerjit.probes.recorders import compiled_probe
    from markerjit.proc.priority import raised_priority, reason_for_waiting
    from markerjit.questions.buckets import Bucket, Histogram, Sketch
    from markerjit.ring.batch import Columns
    from markerjit.ring.brakes import Sample
    from markerjit.ring.clock import Calibration
    from markerjit.session.aggregate import AddingUp
    from markerjit.session.allocations import AllocationTrace
    from markerjit.session.background import Events, Subscription
    from markerjit.session.calls import CallTrace
    from markerjit.session.coverage import (
        Coverage,
        coverage_of_file,
        coverage_of_process,
    )
    from markerjit.session.functions import (
        Function,
        FunctionExit,
        FunctionView,
        list_file_functions,
    )
    from markerjit.session.latency import Latency
    from markerjit.session.plot import Plots
    from markerjit.session.repair import Repaired, repair
    from markerjit.session.session import Session
    from markerjit.session.stacks import Stacks, ThreadStack, sample_stacks, stacks_of_process
    from markerjit.session.status import ArenaStatus, MarkerStatus, list_file
    from markerjit.session.stepping import Stepper
    from markerjit.session.strays import StrayHead
    from markerjit.session.tracing import Tracing
    from markerjit.session.usdt import UsdtNeed, UsdtProbe, UsdtView, list_file_usdt
    from markerjit.session.view import View
    from markerjit.session.watch import Ending, Watch
    from markerjit.sites.selection import matching_names
    from markerjit.spans.coverage import Share
    from markerjit.targets.find import choose_one, find_processes
    from markerjit.targets.request import Targets, parse_targets
    from markerjit.trace import line_formatter
    from markerjit.trace.batch import Batch
    from markerjit.trace.computed import select_fields
    from markerjit.trace.convert import convert
    from markerjit.trace.narrow import only_fields
    from markerjit.trace.open import (
        check_output,
        is_joint,
        needs_all_first,
        open_joint,
        open_sink,
        open_trace,
        open_traces,
        read,
        takes_packets,
    )
    from markerjit.trace.reading import Trace
    from markerjit.trace.rows import event_lines
    from markerjit.trace.statistics import (
        MarkerSummary,
        NumberSummary,
        Summary,
        ValueSummary,
        summarise,
    )
    from markerjit.trace.template import LineTemplate, times_of
    from markerjit.trace.where import where
    from markerjit.unwind.frames import WalkedStack
    from markerjit.unwind.walk import StackEnd

__version__ = "0.6.0"

_HOME = {
    "Session": "session.session",
    **dict.fromkeys(("Events", "Subscription"), "session.background"),
    "attach": "fleet.attach",
    "Repaired": "session.repair",
    "repair": "session.repair",
    "View": "session.view",
    "Batch": "trace.batch",
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
    "Ending": "session.watch",
    "Watch": "session.watch",
    "Failed": "fleet.failed",
    "Family": "fleet.family",
    "Ended": "fleet.members",
    "Member": "fleet.members",
    "Newcomers": "fleet.newcomers",
    "Price": "fleet.family",
    "Fleet": "fleet.fleet",
    **dict.fromkeys(("Launched", "launch"), "fleet.launch"),
    "find_marked": "fleet.marked",
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
    "is_joint": "trace.open",
    "join_traces": "trace.join",
    "needs_all_first": "trace.open",
    "open_joint": "trace.open",
    "open_sink": "trace.open",
    "read": "trace.open",
    "open_trace": "trace.open",
    "open_traces": "trace.open",
    "takes_packets": "trace.open",
    "matching_names": "sites.selection",
    "only_fields": "trace.narrow",
    "select_fields": "trace.computed",
    "weigh_stacks": "calls.of_events",
    "LineTemplate": "trace.template",
    "times_of": "trace.template",
    "where": "trace.where",
    "Applied": "patch.apply",
    "LeftOut": "patch.plan",
    "Plan": "patch.plan",
    "Refusal": "patch.plan",
    "Step": "patch.steps",
    "Verb": "patch.steps",
    "Plots": "session.plot",
    "Stepper": "session.stepping",
    "Tracing": "session.tracing",
    "event_lines": "trace.rows",
    **dict.fromkeys(("raised_priority", "reason_for_waiting"), "proc.priority"),
    "line_formatter": "trace",
    "list_file": "session.status",
    "EventStream": "events.stream",
    "AddingUp": "session.aggregate",
    "Latency": "session.latency",
    **dict.fromkeys(("Latencies", "LatencyRow", "PairEnd", "SlowPair"), "events.latencies"),
    "AllocationTrace": "session.allocations",
    **dict.fromkeys(("Allocations", "AllocationSite", "CallSite"), "allocations.summary"),
    **dict.fromkeys(("check_allocations_file", "write_allocations"), "allocations.files"),
    "CallTrace": "session.calls",
    **dict.fromkeys(
        ("CallGraph", "CallNode", "CalledFunction", "Calling", "NotOpened"), "calls.graph"
    ),
    **dict.fromkeys(
        ("SampledFunction", "SampledNode", "StackSamples", "WeighedStacks"), "calls.samples"
    ),
    **dict.fromkeys(("check_calls_file", "write_calls"), "calls.files"),
    **dict.fromkeys(("AggregateRow", "Answers", "Missed", "Statistics"), "events.aggregates"),
    **dict.fromkeys(("Bucket", "Histogram", "Sketch"), "questions.buckets"),
    **dict.fromkeys(("Table", "table"), "facts.table"),
    "Cut": "events.budget",
    "Sample": "ring.brakes",
    "StreamStatistics": "events.feed",
    "Waits": "arena.waiting",
    "ArenaStatus": "session.status",
    "MarkerStatus": "session.status",
    "StrayHead": "session.strays",
    **dict.fromkeys(("Coverage", "coverage_of_file", "coverage_of_process"), "session.coverage"),
    "Share": "spans.coverage",
    **dict.fromkeys(
        ("Stacks", "ThreadStack", "sample_stacks", "stacks_of_process"), "session.stacks"
    ),
    **dict.fromkeys(("Frame", "StackText"), "frames"),
    "WalkedStack": "unwind.frames",
    "StackEnd": "unwind.walk",
    **dict.fromkeys(
        ("Function", "FunctionExit", "FunctionView", "list_file_functions"), "session.functions"
    ),
    **dict.fromkeys(("UsdtNeed", "UsdtProbe", "UsdtView", "list_file_usdt"), "session.usdt"),
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
            "UnknownField",
            "UnknownMarker",
            "Unsupported",
        ),
        "errors",
    ),
}

__all__ = [
    "AddingUp",
    "AggregateRow",
    "AllocationSite",
    "AllocationTrace",
    "Allocations",
    "Answers",
    "Applied",
    "ArenaStatus",
    "BadArgument",
    "BadFile",
    "BadNote",
    "BadQuestion",
    "BadTrace",
    "Batch",
    "Bucket",
    "Calibration",
    "CallGraph",
    "CallNode",
    "CallSite",
    "CallTrace",
    "CalledFunction",
    "Calling",
    "ChangeFailed",
    "Columns",
    "Compiled",
    "Coverage",
    "Cut",
    "Ended",
    "Ending",
    "Event",
    "EventStream",
    "Events",
    "Failed",
    "Family",
    "Field",
    "Fleet",
    "Flight",
    "Frame",
    "Function",
    "FunctionExit",
    "FunctionView",
    "Histogram",
    "Kind",
    "Latencies",
    "Latency",
    "LatencyRow",
    "Launched",
    "LeftOut",
    "LineTemplate",
    "MarkerError",
    "MarkerStatus",
    "MarkerSummary",
    "Member",
    "MemoryFault",
    "Merged",
    "Merger",
    "Missed",
    "Mode",
    "Newcomers",
    "NoMarkers",
    "NoMatch",
    "NoSuchProcess",
    "NotOpened",
    "NotPermitted",
    "NotRolledBack",
    "NotVerified",
    "NumberSummary",
    "Overview",
    "PairEnd",
    "Picture",
    "Plan",
    "Plots",
    "Price",
    "ProcessOverview",
    "Reason",
    "Refusal",
    "Refused",
    "Repaired",
    "Sample",
    "SampledFunction",
    "SampledNode",
    "Seccomp",
    "Session",
    "Share",
    "Site",
    "Sketch",
    "SlowPair",
    "StackEnd",
    "StackSamples",
    "StackText",
    "Stacks",
    "Statistics",
    "Step",
    "Stepper",
    "StrayHead",
    "StreamStatistics",
    "Subscription",
    "Summary",
    "Table",
    "TargetGone",
    "Targets",
    "ThreadStack",
    "Trace",
    "Tracing",
    "UnexpectedBytes",
    "UnknownField",
    "UnknownMarker",
    "Unsupported",
    "UsdtNeed",
    "UsdtProbe",
    "UsdtView",
    "ValueSummary",
    "Values",
    "Verb",
    "View",
    "Waits",
    "WalkedStack",
    "Watch",
    "WeighedStacks",
    "__version__",
    "attach",
    "check_allocations_file",
    "check_calls_file",
    "check_output",
    "choose_one",
    "compile_probe",
    "compiled_probe",
    "convert",
    "coverage_of_file",
    "coverage_of_process",
    "event_lines",
    "find_marked",
    "find_processes",
    "is_joint",
    "join_traces",
    "launch",
    "line_formatter",
    "list_file",
    "list_file_functions",
    "list_file_usdt",
    "matching_names",
    "merge",
    "needs_all_first",
    "only_fields",
    "open_joint",
    "open_sink",
    "open_trace",
    "open_traces",
    "overview",
    "parse_targets",
    "raised_priority",
    "read",
    "reason_for_waiting",
    "repair",
    "sample_stacks",
    "select_fields",
    "stacks_of_process",
    "summarise",
    "table",
    "takes_packets",
    "times_of",
    "weigh_stacks",
    "where",
    "write_allocations",
    "write_calls",
]


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name == "lowlevel":
        return import_module("markerjit.lowlevel")
    home = _HOME.get(name)
    if home is None:
        sentence = f"module 'markerjit' has no attribute '{name}'"
        raise AttributeError(sentence, name=name, obj=sys.modules[__name__])  # and what is like it
    value = getattr(import_module(f"markerjit.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """All public names, so that they complete before they are loaded."""
    return sorted({*globals(), *__all__, "lowlevel"})
