"""markerjit: markers in running programs, switched on and off while they run.

    import markerjit

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.time, event.name, event.fields)

This is the front door; `markerjit.lowlevel` has the sharp tools. Names are loaded when they are
first used, because start-up is part of a command's latency.
"""

from __future__ import annotations

TYPE_CHECKING = False  # type checkers take it for true; importing typing would take 10 ms

if TYPE_CHECKING:
    from typing import Any

    from markerjit.cprobes import Values
    from markerjit.errors import (
        BadArgument,
        BadFile,
        BadNote,
        BadTrace,
        MarkerError,
        MemoryFault,
        NoMarkers,
        NoSuchProcess,
        NotPermitted,
        Refused,
        TargetGone,
        UnexpectedBytes,
        UnknownMarker,
        Unsupported,
    )
    from markerjit.flight import Flight, Picture
    from markerjit.mend import Repaired, repair
    from markerjit.merging import Merged, Merger, merge
    from markerjit.model import Event, Field, Kind, Mode, Site
    from markerjit.patch.apply import Applied
    from markerjit.patch.plan import LeftOut, Plan, Refusal
    from markerjit.probes.compile import compile_probe
    from markerjit.probes.native import Compiled
    from markerjit.recorders import compiled_probe
    from markerjit.ring.batch import Batch
    from markerjit.session import Session, attach
    from markerjit.status import ArenaStatus, MarkerStatus, list_file
    from markerjit.stream import EventStream, StreamStatistics
    from markerjit.trace import line_formatter
    from markerjit.trace.convert import convert
    from markerjit.trace.open import check_output, open_sink, open_trace, open_traces, takes_packets
    from markerjit.trace.reading import Trace
    from markerjit.trace.statistics import (
        MarkerSummary,
        NumberSummary,
        Summary,
        ValueSummary,
        summarise,
    )
    from markerjit.view import View
    from markerjit.watch import Watch

__version__ = "0.5.0"

_HOME = {
    "Session": "session",
    "attach": "session",
    "Repaired": "mend",
    "repair": "mend",
    "View": "view",
    "Batch": "ring.batch",
    "Compiled": "probes.native",
    "compile_probe": "probes.compile",
    "compiled_probe": "recorders",
    "Values": "cprobes",
    "Flight": "flight",
    "Picture": "flight",
    "Merged": "merging",
    "Merger": "merging",
    "merge": "merging",
    "Watch": "watch",
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
    "Applied": "patch.apply",
    "LeftOut": "patch.plan",
    "Plan": "patch.plan",
    "Refusal": "patch.plan",
    "line_formatter": "trace",
    "list_file": "status",
    "EventStream": "stream",
    "StreamStatistics": "stream",
    "ArenaStatus": "status",
    "MarkerStatus": "status",
    **dict.fromkeys(("Event", "Field", "Kind", "Mode", "Site"), "model"),
    **dict.fromkeys(
        (
            "BadArgument",
            "BadFile",
            "BadNote",
            "BadTrace",
            "MarkerError",
            "MemoryFault",
            "NoMarkers",
            "NoSuchProcess",
            "NotPermitted",
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
    "BadTrace",
    "Batch",
    "Compiled",
    "Event",
    "EventStream",
    "Field",
    "Flight",
    "Kind",
    "LeftOut",
    "MarkerError",
    "MarkerStatus",
    "MarkerSummary",
    "MemoryFault",
    "Merged",
    "Merger",
    "Mode",
    "NoMarkers",
    "NoSuchProcess",
    "NotPermitted",
    "NumberSummary",
    "Picture",
    "Plan",
    "Refusal",
    "Refused",
    "Repaired",
    "Session",
    "Site",
    "StreamStatistics",
    "Summary",
    "TargetGone",
    "Trace",
    "UnexpectedBytes",
    "UnknownMarker",
    "Unsupported",
    "ValueSummary",
    "Values",
    "View",
    "Watch",
    "__version__",
    "attach",
    "check_output",
    "compile_probe",
    "compiled_probe",
    "convert",
    "line_formatter",
    "list_file",
    "merge",
    "open_sink",
    "open_trace",
    "open_traces",
    "repair",
    "summarise",
    "takes_packets",
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
    """So that names complete before they are loaded."""
    return sorted({*globals(), *__all__, "lowlevel"})
