"""Markers that are held: recorded or added up for a live reader, or kept by a flight recorder. A
switch by another controller would lose events for that reader, so it is refused unless it is
forced.

The target's memory decides: the claim on the rings (lease.py), the claim for which an entry was
switched on (`held`), and whether the rings are overwritten. A reader that is gone, or whose lease
has expired, holds nothing. To act on an answer the caller must hold the target's lock.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from enum import Enum

from markerjit.abi import PROBE_COUNTED, MarkerEntry
from markerjit.arena.arena import Arena
from markerjit.arena.lease import read_by_us, reader_of
from markerjit.patch.switchable import SiteState
from markerjit.proc.owner import Owner, ourselves

_COMMAND = 100
"""Characters of a command line that are shown."""


class Hold(Enum):
    """The kinds of holder."""

    TRACE = "trace"
    AGGREGATE = "aggregate"
    FLIGHT = "flight"

    def __str__(self) -> str:
        return self.value


class Holds:
    """The holders of an arena's markers at this moment. `reader` is the live process that has
    claimed the rings, or None."""

    def __init__(self, arena: Arena) -> None:
        self._arena = arena
        control = arena.control.now()
        self._reading = int(control.reading)
        self._overwritten = arena.rings.are_overwritten()
        self._has_aggregates = bool(control.aggregates_made and arena.aggregates.all())
        reader = reader_of(arena, control)
        lives = reader is not None and (not reader.over or read_by_us(arena.pid))
        self.reader = reader.owner if reader and lives else None

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return self.reader is not None or self._overwritten or self._has_aggregates

    def of(self, state: SiteState) -> Hold | None:
        """The holder of the marker of a site in this state, or None."""
        marker = self._arena.markers.at(state.data) if self and state.mode else None
        if marker is None:
            return None
        if self._has_aggregates and adds_for(self._arena, state):
            return Hold.AGGREGATE
        if not is_recorded(self._arena, state):
            return None
        entry = self._arena.markers.entry(marker)
        if self.reader and entry.held == self._reading:
            return Hold.TRACE
        return Hold.FLIGHT if self._overwritten and entry.counted else None


class Held:
    """The markers that one reading holds, by their entries. Other controllers may take them
    meanwhile."""

    def __init__(self, arena: Arena, reading: int, names: Mapping[int, str]) -> None:
        self._arena = arena
        self._reading = reading
        self._names = names
        self.markers = frozenset(names.values())

    def taken(self) -> set[str]:
        """The markers that another controller has switched since."""
        entries = {marker: self._arena.markers.entry(marker) for marker in self._names}
        return {self._names[id] for id, entry in entries.items() if entry.held != self._reading}


def is_recorded(arena: Arena, state: SiteState) -> bool:
    """Whether the probe of a site records, or may record because it is a probe in C."""
    return arena.records(state.probe, state.data) or bool(state.probe & PROBE_COUNTED)


def adds_for(arena: Arena, state: SiteState) -> Owner | None:
    """The live process for which the marker of a site is added up; None where there is none."""
    aggregate = arena.aggregate(state.probe, state.data)
    return aggregate.owner if aggregate and not aggregate.is_left else None


# ---- said in words -------------------------------------------------------------------------------


def recorded_by(
    arena: Arena,
    markers: Mapping[str, SiteState],
    reader: Owner,
    command: str,
    *,
    hold: Hold = Hold.TRACE,
) -> str:
    """`kv_get and 2 more are recorded by process 7 (markerjit trace …), on since 14:03`; or `added
    up`. The command line is another program's: what a terminal might obey is not shown."""
    if reader == ourselves():
        holder = "a trace of this very process" if hold is Hold.TRACE else "this very process"
    else:
        shown = "".join(
            character if character.isprintable() else "?" for character in command[:_COMMAND]
        )
        cut = "…" if len(command) > _COMMAND else ""
        is_named = reader.pid_namespace == ourselves().pid_namespace and shown
        holder = f"{reader} ({shown}{cut})" if is_named else str(reader)
    verb = "recorded" if hold is Hold.TRACE else "added up"
    return f"{_are(markers)} {verb} by {holder}, on since {_since(_entry(arena, markers))}"


def kept_by(arena: Arena, markers: Mapping[str, SiteState]) -> str:
    """`kv_get is kept by the flight recorder that process 7 began, on since 14:03`."""
    entry = _entry(arena, markers)
    who = f"process {entry.by}" if entry and entry.by else "a process"
    since = _since(entry)
    return f"{_are(markers)} kept by the flight recorder that {who} began, on since {since}"


def them(markers: Collection[str]) -> str:
    """`it` or `them`."""
    return "it" if len(markers) == 1 else "them"


def _are(markers: Collection[str]) -> str:
    first, more = next(iter(markers)), len(markers) - 1
    return f"{first} and {more} more are" if more else f"{first} is"


def _entry(arena: Arena, markers: Mapping[str, SiteState]) -> MarkerEntry | None:
    """Of the first of them."""
    marker = arena.markers.at(next(iter(markers.values())).data)
    return None if marker is None else arena.markers.entry(marker)


def _since(entry: MarkerEntry | None) -> str:
    """The time of day, and the day unless it is today."""
    try:
        when, today = time.localtime(entry.since if entry else 0), time.localtime()
        day = "" if when[:3] == today[:3] else "%Y-%m-%d "
        return time.strftime(f"{day}%H:%M", when)
    except (OverflowError, ValueError, OSError):  # the process can write over it
        return "an unknown time"
