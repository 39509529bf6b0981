"""Markers that only counted before a trace or an aggregate took them: they count again after it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic_ns

from markerjit.model import Mode, Site
from markerjit.patch.request import Count, Request
from markerjit.patch.where import Where
from markerjit.probes.recorders import Recorders
from markerjit.quiesce.strategies import default_strategy
from markerjit.session.entries import Entries
from markerjit.session.switch import Switcher
from markerjit.session.turn import Turn
from markerjit.tuples import NamedTuple


class Counting(NamedTuple):
    """Sites that only count, and how each is on, with which question; by which process, by the
    entry; and by when each is to be off."""

    ways: Mapping[Site, tuple[Mode, Count]]
    by: Mapping[int, int]
    until_ns: Mapping[Site, int]


def counting(turn: Turn, recorders: Recorders, sites: Sequence[Site]) -> Counting:
    """Those of these sites that are on and only count."""
    arena = recorders.arena
    ways: dict[Site, tuple[Mode, Count]] = {}
    by: dict[int, int] = {}
    until: dict[Site, int] = {}
    for state in turn.target.states(sites):
        if state.mode and arena.counts(state.probe, state.data):
            probe = Count()
            if (marker := arena.markers.at(state.data)) is not None:
                entry = arena.markers.entry(marker)
                by[marker] = int(entry.by)
                until |= dict.fromkeys(state.lot.sites(), int(entry.until_ns))
                if entry.asks:
                    probe = Count(Where.again(arena.question(state.data), int(entry.question)))
            ways |= dict.fromkeys(state.lot.sites(), (state.mode, probe))
    return Counting(ways, by, until)


def count_again(
    turn: Turn,
    switcher: Switcher,
    recorders: Recorders,
    sites: Sequence[Site],
    before: Counting,
    again: set[Site],
) -> None:
    """Let the sites that only counted before count again, but for those whose deadline has passed
    meanwhile; `again` gets them as soon as they do. They were on all the time, and belong again to
    the controller that switched them on."""
    now = monotonic_ns()
    until = {site: before.until_ns.get(site, 0) for site in sites if site in before.ways}
    rest = [site for site, until_ns in until.items() if not 0 < until_ns <= now]
    strategy = default_strategy(own=turn.target.own)
    for way, until_ns in {(before.ways[site], until[site]) for site in rest}:
        alike = [site for site in rest if (before.ways[site], until[site]) == (way, until_ns)]
        switcher.switch(turn, alike, Request(True, strategy, *way), until_ns=until_ns)
        again.update(alike)
    if again:
        Entries(turn, recorders).note_by(before.by)
