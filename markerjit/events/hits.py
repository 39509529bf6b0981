"""How often a marker was hit since it was switched on: sums over all that counts it.

A marker has an entry in the arena for each way in which it was recorded, and each entry has
counters by CPU, and what the reader took out of the rings. The calls of a probe in C are counted by
the marker's slots, which count for good: an entry says from which number on, while one is
connected, and has the calls of those that were.

    total   all of that together, since the runtime is in the process
    hits    the same less `hits_before`, the total when the marker was switched on

A marker that is on stays the same marker when its mode or probe is changed. While it is off its
hits are those of the time that it was on. What this does not do: decide which entry a marker is
switched to (switching.py), or write code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from markerjit.abi import MarkerEntry
from markerjit.arena.arena import Arena, Counted, Switched
from markerjit.arena.lease import read_by_us, reader_of
from markerjit.events.rings import Rings
from markerjit.model import RemoteAddress

_WORD = 1 << 64

Calls = Callable[[RemoteAddress], int]
"""How often the probe of a slot was called, as the slot itself counts it."""


class Before(NamedTuple):
    """What was counted before a switch, by the entry that a marker gets."""

    counted: Mapping[int, Counted]
    calls: Mapping[int, int]


def late(arena: Arena) -> dict[int, int]:
    """Executions by entry that nobody has counted: their records are in the rings, and nobody else
    is taking them out."""
    if not arena.current().reading:
        return {}
    reader = reader_of(arena)
    if reader and not reader.over and not read_by_us(arena.pid):
        return {}
    return Rings(arena, {}).waiting()


def total(
    known: Iterable[int], counted: Mapping[int, Counted], unread: Mapping[int, int]
) -> Counted:
    """What the entries of one marker have counted together."""
    found = Counted(0, 0)
    for marker in known:
        found = found.plus(*counted[marker]).plus(unread.get(marker, 0))
    return found


def calls_now(entry: MarkerEntry, slots: Iterable[RemoteAddress], calls: Calls) -> int:
    """Calls of the probe in C that is connected, of slots that have this entry."""
    if not entry.calling:
        return 0
    return since(sum(map(calls, slots)), int(entry.calls_before))


def since(now: int, before: int) -> int:
    """The difference; none where that cannot be: the process can write over both."""
    difference = (now - before) % _WORD
    return difference if difference < _WORD // 2 else 0


def before_switch(
    arena: Arena, slots: Mapping[int, Iterable[RemoteAddress]], *, calls: Calls | None
) -> Before:
    """To be asked before markers are switched on, with the entries and slots that they get.
    `calls`: when that is for a probe in C."""
    entries = {marker: arena.marker_entry(marker) for marker in slots}
    known = {marker: arena.entries_of(int(entry.name_hash)) for marker, entry in entries.items()}
    counted = arena.all_counted(other for others in known.values() for other in others)
    unread = late(arena)
    return Before(
        {marker: total(others, counted, unread) for marker, others in known.items()},
        {marker: sum(map(calls, of)) for marker, of in slots.items()} if calls else {},
    )


def note_hits(
    arena: Arena,
    switched: Mapping[int, Switched],
    before: Before,
    calls: Calls,
    *,
    held: int = 0,
) -> None:
    """Write down what was switched, so that `hits` go on, or begin anew."""
    entries = {marker: arena.marker_entry(marker) for marker in switched}
    for marker, change in switched.items():
        entry = entries[marker]
        if entry.calling and not change.calling:
            more = calls_now(entry, change.slots, calls)
            arena.note_calls(marker, int(entry.calls) + more, 0, calling=False)
        elif change.calling and not entry.calling:
            arena.note_calls(marker, int(entry.calls), before.calls[marker], calling=True)
        when = None
        if change.mode and change.before is None:
            arena.note_before(marker, before.counted[marker])
        elif change.mode and change.before is not None:
            previous = entries.get(change.before) or arena.marker_entry(change.before)
            when = int(previous.since) or None
            if change.before != marker:
                start = Counted(int(previous.hits_before), int(previous.losses_before))
                arena.note_before(marker, start)
        arena.note_switched(marker, change.mode, since=when, held=held)
