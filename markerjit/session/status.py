"""The state of a process: a summary by marker, from the sites and the arena."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from markerjit.abi import PROBE_COUNTED, MarkerEntry
from markerjit.arena.arena import Arena
from markerjit.arena.counters import Counted
from markerjit.arena.deadlines import at_time, overdue
from markerjit.arena.hashes import fnv1a
from markerjit.arena.journal import Journal, Pause
from markerjit.arena.lease import Reader, is_flying, reader_of
from markerjit.arena.mapped import Probes
from markerjit.arena.markers import BEFORE_PROBE
from markerjit.arguments import check_path, check_text
from markerjit.elf import parse_format
from markerjit.errors import MarkerError, NoMarkers, UnexpectedBytes
from markerjit.events.hits import Calls, calls_now, late, since, total
from markerjit.model import Field, Mode, RemoteAddress, Site
from markerjit.patch.holds import Holds
from markerjit.patch.switchable import SiteState
from markerjit.patch.where import Where
from markerjit.printable import counted
from markerjit.proc.owner import Owner, is_gone
from markerjit.ring.brakes import Brakes
from markerjit.sites import Lot, Lots, discover_file, matching, parse_name
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import STUBBED

_MOST_HALVINGS = 64
"""Of a sample; whatever the process has written, there is an end."""


class MarkerStatus(NamedTuple):
    """A marker of a process.

    mode    how it is on, None when it is off
    partly  some of its sites are on and others are not: an accident, or the program itself did it
    since   when it was switched on, seconds of CLOCK_REALTIME; 0 when it is off
    by      the pid of the controller that did it, or that changed its mode or probe since
    probe   "count", "record", "aggregate", "inherited" (by fork, and does nothing), "another
            version's" (of markerjit), "the program's own", "none" (open, with nothing to call)
            or ""
    hits    executions of our probes since it was switched on, or while it was on the last time
    lost    those of them that found a ring full
    altered what is wrong with those of its sites whose code is neither off nor on; they count for
            nothing above
    total   executions of our probes since the runtime was loaded, over all switches
    held    "trace", "flight" or "aggregate" if it has a holder: then other controllers may not
            switch it
    where   the condition that an execution must meet to be counted or recorded; None without one
    select  what is recorded in place of the fields; None if the fields are
    sample  the share of the executions that is counted or recorded, such as "1/100", chosen at
            random from those that meet the condition; None for all. `hits` are of that share
    at_most    how many of those are counted or recorded in a second; None for all
    held_back  how many were held back for that since it was switched on
    budget     the share of processor time that the probes of its trace may take, such as "1%"; a
               sample is then what the budget has made of it. None without one
    until   when it will be switched off, seconds of CLOCK_REALTIME; 0: it stays on
    aggregate  what is added up of it, as `count() by key`; None for nothing
    unmatched  returns since it was switched on that gave no event and do not count, because their
               events need something of the entry, which was not seen
    """

    name: str
    format: str
    fields: tuple[Field, ...]
    kind: str
    sites: Sequence[Site]
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
    select: str | None = None
    until: int = 0
    aggregate: str | None = None
    unmatched: int = 0
    sample: str | None = None
    at_most: int | None = None
    held_back: int = 0
    budget: str | None = None

    @property
    def on(self) -> bool:
        """Whether it is on, at some of its sites at least."""
        return self.mode is not None

    def __repr__(self) -> str:
        state = f"{state_words(self)}{where_words(self)}"
        sites = counted(len(self.sites), "site")
        hits = counted(self.hits, "hit")
        return f"<MarkerStatus of {self.name}: {state}, {sites}, {hits}, {self.lost} lost>"

    def _repr_html_(self) -> str:
        from markerjit.printable.html import html_of

        return html_of([self])

    def _repr_cells_(self) -> Mapping[str, str]:
        return {
            "marker": self.name,
            "kind": str(self.kind),
            "state": f"{state_words(self)}{where_words(self)}",
            "sites": str(len(self.sites)),
            "fields": ", ".join(f"{field.name}: {field.type}" for field in self.fields),
            "hits": str(self.hits),
            "lost": str(self.lost),
        }


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
    """What the marker's executions have to meet, behind its state: ` sample 1/100 where size > 9`;
    empty where that is nothing."""
    where = f" where {marker.where}" if marker.where else ""
    return f"{brakes_words(marker)}{where}"


def brakes_words(marker: MarkerStatus) -> str:
    """The brakes of a marker: ` sample 1/100 at most 1000/s`; empty without any."""
    sample = f" sample {marker.sample}" if marker.sample else ""
    rate = f" at most {marker.at_most}/s" if marker.at_most else ""
    return f"{sample}{rate} budget {marker.budget}" if marker.budget else f"{sample}{rate}"


class ArenaStatus(NamedTuple):
    """The runtime in a process.

    owner      the controller that put the runtime there, and `since` when (CLOCK_REALTIME, s)
    runtime    which build of it: a hash of its code
    reader     the process that records now, or None
    writer     the controller that is making a change, or None
    abandoned  whether that change is half done, and its controller no longer works on it
    pause      its lease, where it is made in stages and paused
    version    of its layout: an older or newer markerjit may have made it
    overdue    markers that are on, but were to be off by now
    left       the process that has left an aggregate and is gone, or None
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
    overdue: tuple[str, ...] = ()
    left: Owner | None = None

    def __repr__(self) -> str:
        keeps = ", with a flight recorder" if self.flight else ""
        reader = f", {self.reader.owner} reads" if self.reader else ""
        problem = self.to_mend
        left = f", to be repaired: {problem}" if problem else ""
        return f"<ArenaStatus of the runtime of {self.owner}{keeps}{reader}{left}>"

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
        if self.left:
            return f"{self.left} is gone and left its markers adding up"
        if self.overdue:
            more = f" and {len(self.overdue) - 1} more" if len(self.overdue) > 1 else ""
            return f"the time of {self.overdue[0]}{more} is over, and nobody has switched it off"
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
        overdue(arena),
        next((other.owner for other in arena.aggregates.all() if other.is_left), None),
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

    def entry_of(self, group: Sequence[SiteState]) -> MarkerEntry | None:
        """The entry of a marker now, or when it was on the last time. A stub that was made for
        arguments that we do not know has the entry of these."""
        site = group[0].site
        hashed = fnv1a(site.signature.text.encode())
        is_any = site.form.name in STUBBED and not site.signature.args
        # Sites that are on come first; their slots are few.
        places = dict.fromkeys(state.data for state in group if state.mode)
        places.update(dict.fromkeys(state.data for state in group))
        for data in places:
            marker = self._arena.markers.at(data)
            entry = None if marker is None else self._entries.get(marker)
            if entry is not None and (is_any or entry.name_hash == hashed):
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
    states = [dormant(lot) for lot in Lots.of(matching(objects.sites, name)).lots]
    return marker_statuses(states, None), objects.problems


def dormant(lot: Lot) -> SiteState:
    """The state of untouched sites, as in a file."""
    return SiteState(lot.first, None, lot.first.body.idle, RemoteAddress(0), alike=lot)


def _status(
    group: Sequence[SiteState], arena: Arena | None, probes: Probes, tallies: _Tallies | None
) -> MarkerStatus:
    site = group[0].site
    signature = site.signature
    sound = [state for state in group if not state.problem]
    first = sound[0] if sound else group[0]
    modes = {state.mode for state in sound}
    mode = next((mode for mode in modes if mode), None)
    entry = tallies.entry_of(sound or group) if tallies else None
    hashed = int(entry.name_hash) if entry else fnv1a(signature.text.encode())
    sums = tallies.total(group, hashed) if tallies else Counted(0, 0)
    asks = entry is not None and entry.asks  # else the text need not be looked for
    question = (arena.question(first.data) or None) if arena and mode and asks else None
    adds = bool(arena and question and arena.adds_up(first.probe, first.data))
    asked = Where.again(question, 0) if question and not adds else None
    return MarkerStatus(
        name=signature.name,
        format=signature.format,
        fields=parse_format(signature.format, signature.args),
        kind=site.kind,
        sites=Lots(state.lot for state in group),
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
        where=(asked.text or None) if asked else None,
        select=asked.select if asked else None,
        until=round(at_time(int(entry.until_ns))) if entry and mode and entry.until_ns else 0,
        aggregate=question if adds else None,
        unmatched=sum(unmatched(group).values()),
        sample=_sample_now(arena, entry, asked.brakes) if arena and entry and asked else None,
        at_most=asked.brakes.at_most if asked else None,
        held_back=_held_back(arena, entry) if arena and entry else 0,
        budget=asked.brakes.percent if asked else None,
    )


def _sample_now(arena: Arena, entry: MarkerEntry, brakes: Brakes) -> str | None:
    """The sample of an entry, which a budget may have made smaller."""
    halvings = 0
    if brakes.budget and arena.is_current:
        now = arena.braking.highest_now(int(entry.id))
        while halvings < _MOST_HALVINGS and brakes.first.halved(halvings).highest > now:
            halvings += 1
    return str(brakes.first.halved(halvings)) if brakes.sample or halvings else None


def _held_back(arena: Arena, entry: MarkerEntry) -> int:
    """The events of an entry that its brakes have held back. An older arena has no such words."""
    is_braked = entry.asks in BEFORE_PROBE and arena.is_current
    return arena.braking.held_back(int(entry.id)) if is_braked else 0


def unmatched(states: Sequence[SiteState]) -> dict[RemoteAddress, int]:
    """The returns whose entries were not seen, of these sites, by their slots."""
    return {state.site.slot: state.unmatched for state in states}


def _probe_name(state: SiteState, arena: Arena | None, probes: Probes) -> str:
    if arena and arena.records(state.probe, state.data):
        return "record"
    if arena and arena.adds_up(state.probe, state.data):
        return "aggregate"
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
    if not arena.control.now().data_used:
        return None
    from markerjit.probes.loaded import function_at, replacement_at

    if state.probe & PROBE_COUNTED:
        return function_at(arena, state.probe)
    new = replacement_at(arena, state.probe)
    return f"replaced by {new}" if new else None
