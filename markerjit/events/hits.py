"""Hits of a marker since it was switched on: sums over all of its counters.

A marker has an entry in the arena for each way in which it was recorded. Each entry has counters by
CPU, calls of probes in C among them, and the number of records that readers took out of the rings.
Bodies of older headers count those calls in the marker's slots, which never start anew: the entry
has the count at which the connected probe began, and the calls of the probes before it.

    total   the sum of all counters, since the runtime came into the process
    hits    the total less `hits_before`, the total when the marker was switched on

A marker that is on keeps its hits when its mode or probe changes. A marker that is off has the hits
of the time when it was on. This module does not decide which entry a marker is switched to, and
writes no code.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from markerjit.abi import VERSION, MarkerEntry
from markerjit.arena.arena import Arena
from markerjit.arena.counters import Counted
from markerjit.arena.lease import read_by_us, reader_of
from markerjit.arena.markers import Noted, Switched
from markerjit.model import RemoteAddress
from markerjit.tuples import NamedTuple

_WORD = 1 << 64

Calls = Callable[[RemoteAddress], int]
"""Number of calls of the probe of a slot, as the slot counts them."""


class Before(NamedTuple):
    """Counts from before a switch, by the entry that a marker gets, and these entries themselves as
    they were then."""

    counted: Mapping[int, Counted]
    calls: Mapping[int, int]
    entries: Mapping[int, MarkerEntry]


def late(arena: Arena) -> dict[int, int]:
    """Executions that are not counted yet, by entry: their records are in the rings, and no other
    reader takes them out."""
    if not arena.control.number("reading") or arena.version > VERSION:
        return {}
    reader = reader_of(arena)
    if reader and not reader.over and not read_by_us(arena.pid):
        return {}
    from markerjit.events.rings import Rings  # most markers only count

    return Rings(arena, {}).waiting()


def total(
    known: Sequence[int], counted: Mapping[int, Counted], unread: Mapping[int, int]
) -> Counted:
    """The sum of the counters of one marker's entries."""
    if len(known) == 1 and not unread:  # most markers
        return counted[known[0]]
    hits = lost = 0
    for marker in known:
        recorded, not_recorded = counted[marker]
        hits += recorded + unread.get(marker, 0)
        lost += not_recorded
    return Counted(hits, lost)


def calls_now(entry: MarkerEntry, slots: Iterable[RemoteAddress], calls: Calls) -> int:
    """Calls of the connected probe in C through the slots that have this entry."""
    if not entry.calling:
        return 0
    return since(sum(map(calls, slots)), int(entry.calls_before))


def since(now: int, before: int) -> int:
    """The difference; 0 where it is not plausible: the process can write over both numbers."""
    difference = (now - before) % _WORD
    return difference if difference < _WORD // 2 else 0


def before_switch(
    arena: Arena, slots: Mapping[int, Iterable[RemoteAddress]], *, calls: Calls | None
) -> Before:
    """The counts before markers are switched on, with the entries and slots that they get. `calls`
    is given when they get a probe in C."""
    entries = arena.markers.entries_of(slots)
    alike = arena.markers.with_hashes(int(entry.name_hash) for entry in entries.values())
    known = dict(zip(entries, alike, strict=True))
    every = (other for others in known.values() for other in others)
    counted = arena.counters.of_all(every, entries)
    unread = late(arena)
    return Before(
        {marker: total(others, counted, unread) for marker, others in known.items()},
        {marker: sum(map(calls, of)) for marker, of in slots.items()} if calls else {},
        entries,
    )


def note_hits(
    arena: Arena,
    switched: Mapping[int, Switched],
    before: Before,
    calls: Calls,
    *,
    held: int = 0,
) -> None:
    """Note a switch in the arena, so that the hits go on, or start anew."""
    known = before.entries if not held else {}  # which reading holds them was written down since
    missing = [marker for marker in switched if marker not in known]
    entries = {**known, **arena.markers.entries_of(missing)}
    now, notes = int(time.time()), list[Noted]()
    for marker, change in switched.items():
        entry = entries[marker]
        if entry.calling and not change.calling:
            more = calls_now(entry, change.slots, calls)
            arena.markers.note_calls(marker, int(entry.calls) + more, 0, calling=False)
        elif change.calling and not entry.calling:
            arena.markers.note_calls(marker, int(entry.calls), before.calls[marker], calling=True)
        when = now
        if change.mode and change.before is None:
            counted = before.counted[marker]
            if counted != (entry.hits_before, entry.losses_before):
                arena.markers.note_before(marker, *counted)
        elif change.mode and change.before is not None:
            previous = entries.get(change.before) or arena.markers.entry(change.before)
            when = int(previous.since) or now
            if change.before != marker:
                start = int(previous.hits_before), int(previous.losses_before)
                arena.markers.note_before(marker, *start)
        notes.append(Noted(marker, entry, change.mode, when))
    arena.markers.note_all_switched(notes, by=os.getpid(), held=held)
