"""Units that nothing uses, whose room may be given to others; and why that cannot be said of the
rest.

The caller holds the target's lock all the time, so no probe is connected meanwhile. A unit may go
when each of these holds, looked at in this order:

    1  no slot of an object that we see holds a probe of it, and none of those that were ever
       written down as its callers (arena/units.py). One that cannot be read any more, or that was
       loaded anew, keeps it
    2  no thread is inside: after a barrier in all threads (proc/barrier.py), each of those slots,
       and each marker that they have had, was left as often as it was entered. A thread counts
       itself, and looks again afterwards what the slot holds. So one that we do not see counted
       finds the slot as it was in 1, without the unit, whichever strategy emptied it
       Nobody counts who is inside of a function that replaces another one. With all threads
       stopped, no register and no word of memory that the process may write is an address in its
       code (native/src/stop/references.c): no frame of it is on any stack, and no pointer leads to
       it
    3  its events are known, or can no longer be asked for: their names go with it
    4  no other process has the arena mapped (proc/sharers.py). One that is made after 2 by a fork
       has the slots of 1, and a thread that is not inside

docs/decisions/0021-giving-back-and-islands.md, 0025-who-is-inside.md
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from markerjit.abi import PROBE_COUNTED
from markerjit.arena.arena import Arena
from markerjit.arena.lease import reader_of
from markerjit.arena.units import Unit
from markerjit.errors import MarkerError, MemoryFault
from markerjit.events.rings import Rings
from markerjit.memory import read_maps
from markerjit.model import RemoteAddress
from markerjit.patch.slots import SLOT_DATA, SLOT_PROBE
from markerjit.probes.inside import Read, is_inside
from markerjit.proc.owner import ourselves
from markerjit.proc.sharers import Sharer, find_sharer
from markerjit.tuples import NamedTuple

_UNLOADED = "an object that called it was unloaded"


Mentioned = Callable[[Sequence[tuple[int, int]]], list[bool]]
"""Whether the process may still come to each of these ranges: a start and a size, in order."""


class Unused(NamedTuple):
    """Units that may go, the oldest first; and why others stay, by their places in the table."""

    units: tuple[Unit, ...]
    kept: dict[int, str]


def find_unused(
    arena: Arena,
    read: Read,
    slots: Iterable[RemoteAddress],
    emits: Callable[[Unit], bool],
    sharer: Callable[[Arena], Sharer | None],
    fence: Callable[[], bool],
    mentioned: Mentioned | None = None,
) -> Unused:
    """The units that may be given back now. `read` reads the target, `slots` are those of all
    objects that we see, `emits` says whether a unit has events. `fence` has a barrier in all
    threads; False where there is none. Units that replace functions stay unless `mentioned` is
    there to ask."""
    units: list[Unit] = []
    kept: dict[int, str] = {}
    seen = list(slots)
    all_units = arena.units.all()
    called = [_reason_in_slots(arena, read, unit, seen) for unit in all_units]
    counted = [reason for unit, reason in zip(all_units, called, strict=True) if not unit.replaces]
    is_fenced = all(counted) or fence()
    replacing = [
        unit for unit, reason in zip(all_units, called, strict=True) if unit.replaces and not reason
    ]
    used = _mentioned(arena, replacing, mentioned)
    for unit, reason in zip(all_units, called, strict=True):
        if not unit.replaces:
            reason = reason or _reason_of_threads(arena, read, unit, is_fenced=is_fenced)
        reason = reason or used.get(unit.number)
        if not reason and emits(unit):
            reason = reason_to_keep_events(arena)
        if reason:
            kept[unit.number] = reason
        else:
            units.append(unit)
    if units and (user := sharer(arena)):
        kept |= dict.fromkeys((unit.number for unit in units), user.why)
        units = []
    return Unused(tuple(units), kept)


def sharer_of(arena: Arena) -> Sharer | None:
    """A process that shares the arena, if there may be one."""
    pieces = [mapping for mapping in read_maps(arena.pid) if mapping.start == arena.base]
    if not pieces:
        return Sharer(arena.pid, f"process {arena.pid} does not have the runtime mapped any more")
    # The controller that made the arena was started before that.
    maker = arena.owner
    since = maker.started if maker.pid_namespace == ourselves().pid_namespace else 0
    return find_sharer(arena.pid, pieces[0], since)


def _reason_in_slots(
    arena: Arena, read: Read, unit: Unit, seen: Iterable[RemoteAddress]
) -> str | None:
    """Step 1; None where it holds."""
    if unit.is_kept:
        return "not all of its callers are known"
    callers = arena.units.callers(unit)
    try:
        if any(_holds(arena, read, slot, unit) for slot in {*seen, *callers}):
            return "markers call it"
        for slot in callers:
            data = int.from_bytes(read(RemoteAddress(slot + SLOT_DATA), 8), "little")
            if arena.markers.at(RemoteAddress(data)) is None:
                return "an object that called it was loaded anew"
    except MemoryFault:
        return _UNLOADED
    return None


def _mentioned(arena: Arena, units: Sequence[Unit], mentioned: Mentioned | None) -> dict[int, str]:
    """Step 2 of those that replace functions, by their numbers; nothing where it holds."""
    if mentioned is None or not units:
        return {unit.number: "it has replaced a function" for unit in units}
    in_order = sorted(units, key=lambda unit: unit.code.start)
    ranges = [(arena.base + unit.code.start, unit.code.end - unit.code.start) for unit in in_order]
    try:
        used = mentioned(ranges)
    except MarkerError as error:  # a thread does not stop just now, or there is too much memory
        return {unit.number: str(error) for unit in units}
    why = "the memory of the process has an address in it, of a frame on a stack, or a pointer"
    return {unit.number: why for unit, is_used in zip(in_order, used, strict=True) if is_used}


def _reason_of_threads(arena: Arena, read: Read, unit: Unit, *, is_fenced: bool) -> str | None:
    """Step 2; None where it holds."""
    if not is_fenced:
        return "the kernel does not say whether a thread is in it"
    try:
        return "a thread is in it" if is_inside(arena, read, arena.units.callers(unit)) else None
    except MemoryFault:
        return _UNLOADED


def _holds(arena: Arena, read: Read, slot: RemoteAddress, unit: Unit) -> bool:
    word = int.from_bytes(read(RemoteAddress(slot + SLOT_PROBE), 8), "little")
    return unit.code.start <= (word & ~PROBE_COUNTED) - arena.base < unit.code.end


def reason_to_keep_events(arena: Arena) -> str | None:
    """Why records in the rings may have to be read yet; None where there are none."""
    reader = reader_of(arena)
    if reader and not reader.over:
        return "its events are being traced"
    if arena.rings.are_overwritten():
        return "a flight recorder may have its events; a trace of any marker ends that"
    if Rings(arena, {}).unread():
        return "its events were not read; a trace of any marker ends that"
    return None
