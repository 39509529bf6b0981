"""Questions that nothing uses, whose code is given back.

A marker that is asked another question, or none, leaves the code of the one before, and so does one
whose aggregate ended. It is used again when the same question is asked. The rest would fill the
arena, so it is given back when a marker has MOST_IDLE of them, or there is no room for another. The
caller holds the target's lock all the time, so no question is connected meanwhile. One may go when
each of these holds, looked at in this order:

    1  no slot holds its code or its entry, of those of objects that we see and in the arena
    2  no thread is in its code, returns to it, or is on its way: no register of a stopped thread
       and no word on its stacks is an address in the code, what is behind it, or the entry
       (native/src/stop/references.c). None finds the way there later, because of 1
    3  records of it are known, or can no longer be asked for: their type goes with it
    4  no thread is counted as inside the memory of an aggregate by its entry, as one is that left
       a signal handler there by longjmp: the next aggregate would be taken for one with a thread
    5  no other process has the arena mapped (proc/sharers.py)

What this does not do: our own process, whose threads we cannot stop.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Collection, Iterable, Sequence

from markerjit.abi import ASKS_AGGREGATE, ASKS_BEFORE_RECORD, MarkerEntry
from markerjit.arena.arena import Arena
from markerjit.arena.markers import Asking, question_extent
from markerjit.errors import MarkerError, MemoryFault
from markerjit.model import RemoteAddress
from markerjit.patch.slots import SLOT_DATA, SLOT_PROBE
from markerjit.probes.inside import Read
from markerjit.probes.unused import reason_to_keep_events
from markerjit.proc.sharers import Sharer

MOST_IDLE = 64
"""Questions about a marker that keep their code without being asked."""

Referred = Callable[[Sequence[tuple[int, int]]], list[bool]]
"""A function that returns whether a thread may be in each of these ranges, or on its way there
(remote/references.py)."""
_WORD = 8
_WORDS = struct.Struct("<QQ")


def idle_questions(arena: Arena, signature: str) -> int:
    """How many questions about a marker have code and are not asked."""
    return sum(map(_is_idle, arena.markers.asking(signature)))


def give_back_questions(
    arena: Arena,
    read: Read,
    slots: Iterable[RemoteAddress],
    referred: Referred,
    sharer: Callable[[Arena], Sharer | None],
    keep: Collection[int] = (),
) -> int:
    """Give back the code of all questions that nothing uses, but for those of the markers to
    `keep`; returns how many these were. `read` reads the target, `slots` are those of all objects
    that we see. All threads are stopped for a moment. Nothing is given back where it cannot be said
    whether a thread is there."""
    idle = {int(entry.id): entry for entry in arena.markers.entries() if _is_idle(entry)}
    idle = {id: entry for id, entry in idle.items() if id not in keep}
    if reason_to_keep_events(arena):
        idle = {id: entry for id, entry in idle.items() if entry.asks != ASKS_BEFORE_RECORD}
    contents = {content for content in _contents(arena, read, slots) if content[0]}
    idle = {id: entry for id, entry in idle.items() if not _is_led_to(arena, entry, contents)}
    ranges = sorted(extent for id, entry in idle.items() for extent in _ranges(arena, id, entry))
    try:
        used = {start for (start, _), is_used in zip(ranges, referred(ranges), strict=True)
                if is_used}  # fmt: skip
    except MarkerError:  # a thread does not stop just now
        return 0
    free = [
        id
        for id, entry in idle.items()
        if not any(start in used for start, _ in _ranges(arena, id, entry))
        and not (entry.asks == ASKS_AGGREGATE and arena.calls.is_entered([id]))
    ]
    if free and sharer(arena):
        return 0
    for id in free:
        arena.markers.give_back(id)
    return len(free)


def _is_idle(entry: MarkerEntry | Asking) -> bool:
    return bool(entry.asks and entry.recorder and not entry.since)


def _contents(
    arena: Arena, read: Read, slots: Iterable[RemoteAddress]
) -> Iterable[tuple[int, int]]:
    """The probe and the data of each slot, those in the arena, too."""
    part, step = arena.geometry.slots, arena.geometry.slots.entry_size // _WORD
    if part.entries:
        words = memoryview(read(RemoteAddress(arena.base + part.offset), part.size)).cast("Q")
        yield from {*zip(words[0::step].tolist(), words[1::step].tolist(), strict=True)}
    for slot in slots:
        try:
            yield _WORDS.unpack(read(slot, _WORDS.size))
        except MemoryFault:  # its object went, and the code that would look at it
            continue


def _is_led_to(arena: Arena, entry: MarkerEntry, contents: Iterable[tuple[int, int]]) -> bool:
    """Whether a slot with one of these contents leads to a question's code or entry."""
    code, place = question_extent(entry), arena.markers.address(int(entry.id))
    return any(
        code.start <= probe - arena.base < code.end or data == place for probe, data in contents
    )


def _ranges(arena: Arena, id: int, entry: MarkerEntry) -> list[tuple[int, int]]:
    """The addresses of a question's code, and of its entry: starts and sizes."""
    code = question_extent(entry)
    place = arena.markers.address(id)
    return [(arena.base + code.start, code.end - code.start), (place, arena.markers.entry_size)]


assert (SLOT_PROBE, SLOT_DATA) == (0, 8), "one read of a slot"
