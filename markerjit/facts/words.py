"""Facts in a few words, for a cell of a table or a line."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markerjit.model import Field
    from markerjit.session.status import MarkerStatus
    from markerjit.session.usdt import UsdtProbe


def state_words(marker: MarkerStatus) -> str:
    """`off`, or how the marker is on, or that its code is neither."""
    if len(marker.altered) == len(marker.sites):
        return "altered"
    state = f"on ({marker.mode}, {marker.probe})" if marker.mode else "off"
    if marker.partly:
        state += ", not all sites"
    if marker.altered:
        state += f", {len(marker.altered)} of {len(marker.sites)} sites altered"
    return state


def where_words(marker: MarkerStatus) -> str:
    """The question that the marker's executions have to meet, behind its state: ` where size > 9`;
    empty without one."""
    return f" where {marker.where}" if marker.where else ""


def holder_words(marker: MarkerStatus) -> str:
    """The process that switched the marker on, and what holds it: `pid 7 (trace)`, or `-`."""
    holder = f"pid {marker.by}" if marker.by else "-"
    return f"{holder} ({marker.held})" if marker.held else holder


def place_words(marker: MarkerStatus) -> str:
    """Source and object of the marker's first site, and how many more it has."""
    site = marker.sites[0]
    more = f" and {len(marker.sites) - 1} more" if len(marker.sites) > 1 else ""
    deleted = " (deleted)" if site.object.deleted else ""
    path = site.object.path
    return f"{site.source}{more} in {os.path.basename(path) or path}{deleted}"


def field_words(fields: Iterable[Field]) -> str:
    """`key: string, len: int`, or `-` without fields."""
    return ", ".join(f"{field.name}: {field.type}" for field in fields) or "-"


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
