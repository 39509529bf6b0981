"""The state of a process: a summary by marker, from the sites and the arena."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from markerjit.abi import PROBE_COUNTED, MarkerEntry
from markerjit.arena.arena import Arena
from markerjit.arena.counters import Counted
from markerjit.arena.find import Probes
from markerjit.arena.journal import Journal, Pause
from markerjit.arena.lease import Reader, reader_of
from markerjit.arena.markers import fnv1a
from markerjit.arguments import check_path, check_text
from markerjit.elf import parse_format
from markerjit.errors import MarkerError, NoMarkers, UnexpectedBytes
from markerjit.events.hits import Calls, calls_now, late, since, total
from markerjit.events.rings import is_flying
from markerjit.model import Field, Mode, RemoteAddress, Site
from markerjit.patch.holds import Holds
from markerjit.patch.plan import SiteState
from markerjit.proc.owner import Owner, is_gone
from markerjit.sites import discover_file, matching, parse_name


class MarkerStatus(NamedTuple):
    """A marker of a process.

    mode    how it is on, None when it is off
    partly  some of its sites are on and others are not: an accident, or the program itself did it
    since   when it was switched on, seconds of CLOCK_REALTIME; 0 when it is off
    by      the pid of the controller that did it, or changed its mode or probe since
    probe   "count", "record", "inherited" (by fork, and does nothing), "another version's" (of
            markerjit), "the program's own", "none" (open, with nothing to call) or ""
    hits    executions of our probes since it was switched on, or while it was on the last time
    lost    those of them that found a ring full
    altered what is wrong with those of its sites whose code is neither off nor on; they count for
            nothing above
    total   executions of our probes since the runtime was loaded, over all switches
    held    "trace" or "flight" if it has a holder: then other controllers may not switch it
    where   the condition that an execution has to meet to be counted or recorded; None without one
    """

    name: str
    format: str
    fields: tuple[Field, ...]
    kind: str
    sites: tuple[Site, ...]
    mode: Mode | None
    partly: bool
    probe: str
    since: int
    by: int
    hits: int
    lost: int
    altered: tuple[UnexpectedBytes, ...] = ()
    total: int = 0
    held: str | None = None
    where: str | None = None


class ArenaStatus(NamedTuple):
    """The runtime in a process.

    owner      the controller that put the runtime there, and `since` when (CLOCK_REALTIME, s)
    runtime    which build of it: a hash of its code
    reader     the process that records now, or None
    writer     the controller that is making a change, or None
    abandoned  that change is half done, and its controller no longer works on it
    pause      its lease, where it is made in steps and paused
    version    of its layout: an older or newer markerjit may have made it
    """

    owner: Owner
    since: int
    runtime: int
    reader: Reader | None
    writer: Owner | None
    abandoned: bool
    flight: bool = False
    version: int = 0
    pause: Pause | None = None

    @property
    def to_mend(self) -> str | None:
        """The thing that a controller left to repair, in a few words, or None."""
        if self.abandoned and self.writer:
            and_gone = "is gone and " if is_gone(self.writer) else ""
            return f"{self.writer} {and_gone}left a change half done"
        if self.reader and self.reader.over:
            gone = is_gone(self.reader.owner)
            why = "is gone" if gone else "has not read for too long"
            return f"{self.reader.owner} {why} and left its markers recording"
        return None


def arena_status(arena: Arena, *, locked: bool) -> ArenaStatus:
    """Reads it. `locked`: a controller holds the target's lock, so a change may be under way."""
    journal = Journal(arena)
    writer, pause = journal.owner(), journal.pause()
    is_left = pause.over if pause else writer is not None
    return ArenaStatus(
        arena.owner,
        int(arena.facts.owner_since),
        int(arena.facts.runtime_id),
        reader_of(arena),
        writer,
        is_left and not locked,
        is_flying(arena),
        arena.version,
        pause,
    )


def marker_statuses(
    states: Sequence[SiteState],
    arena: Arena | None,
    probes: Probes | None = None,
    calls: Calls = lambda slot: 0,
) -> list[MarkerStatus]:
    """One status for each name and format, in the order of the names.

    `probes` are the addresses of all probes of ours, those of a parent's arena too. `calls` tells
    what a slot has counted.
    """
    groups: dict[tuple[str, str], list[SiteState]] = {}
    for state in states:
        name_and_format = state.site.signature[:2]
        groups.setdefault(name_and_format, []).append(state)
    tallies = _Tallies(arena, calls) if arena else None
    return [
        _status(group, arena, probes or Probes(), tallies) for _, group in sorted(groups.items())
    ]


class _Tallies:
    """The counts in the entries of all markers, at one moment."""

    def __init__(self, arena: Arena, calls: Calls) -> None:
        self._arena = arena
        self._calls = calls
        self._entries = {int(entry.id): entry for entry in arena.markers.entries()}
        self._known: dict[int, list[int]] = {}
        for id, entry in self._entries.items():
            self._known.setdefault(int(entry.name_hash), []).append(id)
        self._counted = arena.counters.of_all(self._entries)
        self._late = late(arena)
        self._holds = Holds(arena)

    def hold_of(self, group: Sequence[SiteState]) -> str | None:
        """The kind of holder of a marker, by its sites, or None."""
        if not self._holds:
            return None
        holds = filter(None, map(self._holds.of, group))
        return next(map(str, holds), None)

    def entry_of(self, group: Sequence[SiteState], hashed: int) -> MarkerEntry | None:
        """The entry of a marker now, or when it was on the last time."""
        # Sites that are on come first; their slots are few.
        places = dict.fromkeys(state.data for state in group if state.mode)
        places.update(dict.fromkeys(state.data for state in group))
        for data in places:
            marker = self._arena.markers.at(data)
            entry = None if marker is None else self._entries.get(marker)
            if entry is not None and entry.name_hash == hashed:
                return entry
        return None

    def total(self, group: Sequence[SiteState], hashed: int) -> Counted:
        """Since the runtime is there; with the calls of a probe in C that is connected."""
        known = self._known.get(hashed, ())
        slots: dict[int, set[RemoteAddress]] = {}
        for slot, data in {(state.site.body.slot, state.data) for state in group}:
            marker = self._arena.markers.at(data)
            if marker is not None:
                slots.setdefault(marker, set()).add(slot)
        calling = [calls_now(self._entries[id], slots.get(id, ()), self._calls) for id in known]
        return total(known, self._counted, self._late).plus(sum(calling))


def list_file(path: str, pattern: str = "*") -> tuple[list[MarkerStatus], tuple[MarkerError, ...]]:
    """The markers of an executable or shared object, and what is wrong with those left out.

    Raises BadFile, Unsupported, NoMarkers, UnknownMarker.
    """
    check_path("path", path)
    check_text("pattern", pattern)
    name = parse_name(pattern)
    objects = discover_file(os.fspath(path))
    if not objects.sites:
        more = f": {objects.problems[0]}" if objects.problems else "; was it built with marker.h?"
        raise NoMarkers(f"{path} has no markers{more}")
    states = [dormant(site) for site in matching(objects.sites, name)]
    return marker_statuses(states, None), objects.problems


def dormant(site: Site) -> SiteState:
    """The state of an untouched site, as in a file."""
    return SiteState(site, None, site.body.idle, RemoteAddress(0))


def _status(
    group: Sequence[SiteState], arena: Arena | None, probes: Probes, tallies: _Tallies | None
) -> MarkerStatus:
    site = group[0].site
    signature = site.signature
    sound = [state for state in group if not state.problem]
    first = sound[0] if sound else group[0]
    modes = {state.mode for state in sound}
    mode = next((mode for mode in modes if mode), None)
    hashed = fnv1a(signature.text.encode())
    entry = tallies.entry_of(sound or group, hashed) if tallies else None
    sums = tallies.total(group, hashed) if tallies else Counted(0, 0)
    asks = entry is not None and entry.asks  # else the text need not be looked for
    return MarkerStatus(
        name=signature.name,
        format=signature.format,
        fields=parse_format(signature.format, signature.args),
        kind=site.kind,
        sites=tuple(state.site for state in group),
        mode=mode,
        partly=len(modes) > 1,
        probe=_probe_name(first, arena, probes) if mode else "",
        since=int(entry.since) if entry and mode else 0,
        by=int(entry.by) if entry and mode else 0,
        hits=since(sums.hits, int(entry.hits_before)) if entry else 0,
        lost=since(sums.lost, int(entry.losses_before)) if entry else 0,
        altered=tuple(state.problem for state in group if state.problem),
        total=sums.hits,
        held=tallies.hold_of(group) if tallies else None,
        where=(arena.question(first.data) or None) if arena and mode and asks else None,
    )


def _probe_name(state: SiteState, arena: Arena | None, probes: Probes) -> str:
    if arena and arena.records(state.probe, state.data):
        return "record"
    if arena and arena.counts(state.probe, state.data):
        return "count"
    if arena and (in_c := _probe_in_c(state, arena)):
        return in_c
    if probes.are_unknown(state.probe):
        return "another version's"
    if state.probe in probes:
        return "inherited"
    return "the program's own" if state.probe else "none"


def _probe_in_c(state: SiteState, arena: Arena) -> str | None:
    if not state.probe & PROBE_COUNTED or not arena.control.now().data_used:
        return None
    from markerjit.probes.loaded import function_at

    return function_at(arena, state.probe)
