"""markerjit: markers in running programs, switched on and off while they run.

    import markerjit

    with markerjit.attach(pid) as session, session.trace("kv_*") as events:
        for event in events:
            print(event.time, event.name, event.fields)

This is the front door; `markerjit.lowlevel` has the sharp tools. Names are loaded when they are
first used, because start-up is part of a command's latency.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from markerjit.errors import (
        BadFile,
        BadNote,
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
    from markerjit.mend import Repaired, repair
    from markerjit.model import Event, Field, Kind, Mode, Site
    from markerjit.patch.apply import Applied
    from markerjit.patch.plan import Plan, Refusal
    from markerjit.session import Session, attach
    from markerjit.status import ArenaStatus, MarkerStatus, list_file
    from markerjit.stream import EventStream, StreamStatistics
    from markerjit.trace import line_formatter
    from markerjit.view import View

__version__ = "0.2.0"

_HOME = {
    "Session": "session",
    "attach": "session",
    "Repaired": "mend",
    "repair": "mend",
    "View": "view",
    "Applied": "patch.apply",
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
            "BadFile",
            "BadNote",
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
    "BadFile",
    "BadNote",
    "Event",
    "EventStream",
    "Field",
    "Kind",
    "MarkerError",
    "MarkerStatus",
    "MemoryFault",
    "Mode",
    "NoMarkers",
    "NoSuchProcess",
    "NotPermitted",
    "Plan",
    "Refusal",
    "Refused",
    "Repaired",
    "Session",
    "Site",
    "StreamStatistics",
    "TargetGone",
    "UnexpectedBytes",
    "UnknownMarker",
    "Unsupported",
    "View",
    "__version__",
    "attach",
    "line_formatter",
    "list_file",
    "repair",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'markerjit' has no attribute '{name}'")
    from importlib import import_module

    value = getattr(import_module(f"markerjit.{home}"), name)
    globals()[name] = value
    return value
