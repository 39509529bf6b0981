"""Facts in a few words, for a cell of a table or a line."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from markerjit.model import FieldType
from markerjit.printable import counted, printable

if TYPE_CHECKING:
    from markerjit.events.budget import Cut
    from markerjit.model import Field
    from markerjit.session.status import MarkerStatus, brakes_words, state_words, where_words
    from markerjit.session.usdt import UsdtProbe

__all__ = [
    "age_words",
    "brakes_words",
    "budget_words",
    "duration_words",
    "field_words",
    "holder_words",
    "name_words",
    "objects_words",
    "place_words",
    "semaphore_words",
    "state_words",
    "unmatched_words",
    "where_words",
    "wrapped",
]

_OF_STATUSES = ("brakes_words", "state_words", "where_words")


def __getattr__(name: str) -> Any:
    """The words of a status, which are not imported for a list of USDT probes."""
    if name in _OF_STATUSES:
        from markerjit.session import status

        return getattr(status, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_UNITS = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "µs"))
"""Of durations, in nanoseconds."""

_NO_TYPES: Mapping[str, str] = {}


def holder_words(marker: MarkerStatus) -> str:
    """The process that switched the marker on, and what holds it: `pid 7 (trace)`, or `-`."""
    holder = f"pid {marker.by}" if marker.by else "-"
    return f"{holder} ({marker.held})" if marker.held else holder


def name_words(name: str) -> str:
    """The name of a marker, or of a function as its source writes it."""
    if "_Z" not in name and "_R" not in name:
        return name
    from markerjit.sites.names import written_name  # few names need it

    return written_name(name)


def place_words(marker: MarkerStatus) -> str:
    """Source and object of the marker's first site, and how many more it has."""
    site = marker.sites[0]
    more = f" and {len(marker.sites) - 1} more" if len(marker.sites) > 1 else ""
    deleted = " (deleted)" if site.object.deleted else ""
    path = site.object.path
    return f"{site.source}{more} in {os.path.basename(path) or path}{deleted}"


def field_words(fields: Iterable[Field], types: Mapping[str, str] = _NO_TYPES) -> str:
    """`key: string, len: int`, or `-` without fields. Pointers have their C types, where those are
    known: `req: struct request *`."""
    return ", ".join(f"{field.name}: {_type_words(field, types)}" for field in fields) or "-"


def _type_words(field: Field, types: Mapping[str, str]) -> str:
    if field.type is not FieldType.POINTER or field.name not in types:
        return str(field.type)
    return printable(types[field.name])


def semaphore_words(probe: UsdtProbe) -> str:
    """Whether the semaphores of a probe's sites are raised: `semaphore raised (2)`."""
    if not any(state.site.recipe.semaphore for state in probe.states):
        return "no semaphore"
    counts = {state.raised for state in probe.states}
    if None in counts:
        return "semaphore unreadable"
    most = max(count or 0 for count in counts)
    return f"semaphore raised ({most})" if most else "semaphore not raised"


def objects_words(probe: UsdtProbe) -> str:
    """The names of the files that have the probe's sites."""
    paths = dict.fromkeys(state.site.place.object for state in probe.states)
    return ", ".join(
        f"{os.path.basename(mapped.path) or mapped.path}{' (deleted)' if mapped.deleted else ''}"
        for mapped in paths
    )


def unmatched_words(number: int) -> str:
    """The sentence about returns whose entries were not seen: `2 returns gave no event: ...`."""
    theirs = "its entry was" if number == 1 else "their entries were"
    return f"{counted(number, 'return')} gave no event: {theirs} not seen"


def budget_words(pid: int, cut: Cut, budget: str) -> str:
    """A sentence about what was done because the probes took more than their part."""
    took = f"the probes took some {cut.percent:g} % of the processor time of process {pid}"
    if cut.marker is None:
        return f"{took}, more than {budget}, and cannot be thinned any more: they are switched off"
    return f"{took}, more than {budget}: {cut.marker} is sampled {cut.sample} from now on"


def wrapped(text: str, *, indent: int, width: int = 80) -> list[str]:
    """The text in indented lines of at most `width` characters, broken at blanks."""
    lines = [""]
    for word in text.split(" "):
        if lines[-1] and indent + len(lines[-1]) + 1 + len(word) > width:
            lines.append("")
        lines[-1] += f" {word}" if lines[-1] else word
    return [" " * indent + line for line in lines]


def age_words(since: int) -> str:
    """The time since `since`, seconds of CLOCK_REALTIME, in its largest unit: `2 h`."""
    seconds = max(0, int(time.time()) - since)
    for size, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size} {name}"
    return f"{seconds} s"


def duration_words(duration_ns: float | None) -> str:
    """A duration in the unit in which it has three digits: `870 ns`, `1.02 µs`, `16.4 ms`; `-` for
    none."""
    if duration_ns is None:
        return "-"
    for size, unit in _UNITS:
        if duration_ns >= size * 0.9995:  # less would be rounded to three digits below it
            value = duration_ns / size
            digits = sum(value < limit for limit in (9.995, 99.95))
            return f"{value:.{digits}f} {unit}"
    return f"{duration_ns:.0f} ns"
