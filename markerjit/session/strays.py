"""Stray heads: what the tables of patches say is ours, at places that no site explains.

The notes of a site may be gone, its object may have been unloaded while no controller looked, and
a newer markerjit opens heads of kinds that we do not know. An entry of a table is a stray head
where its bytes stand open in the code now, or where it says that a breakpoint of ours stands there.
A closed head is none, and neither is one at the address of a site, whose state says more.

The slot of a head tells whether its object is still the one that it was of. A slot gets a probe of
ours before its head is opened, and has it until the head is closed. Without that proof the bytes
may be another object's, and are left alone. So is a head whose events a live controller reads.

What this does not do: change anything (repair.py). A table whose memory the target has closed its
descriptor of is not searched: that would fill it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import Enum

import markerjit.abi as abi
from markerjit.abi import MarkerEntry
from markerjit.arena.arena import Arena
from markerjit.arena.lease import reader_of
from markerjit.arena.mapped import Probes
from markerjit.arena.patches import Patch, PatchKind, mode_of
from markerjit.errors import MemoryFault
from markerjit.memory import Mapping, Memory
from markerjit.model import Mode, RemoteAddress
from markerjit.patch.slots import BINDING_SIZE
from markerjit.proc.owner import Owner
from markerjit.session.states import words_of
from markerjit.session.target import Seen
from markerjit.tuples import NamedTuple, brief
from markerjit.x86.forms import is_planted


class Remedy(Enum):
    """The part of a repair in a stray head."""

    CLOSE = "close"  # the old bytes are put back
    FORGET = "forget"  # its code is gone, and so the entry
    LEAVE = "leave"  # whose the bytes are cannot be proved

    def __str__(self) -> str:
        return self.value


class StrayHead(NamedTuple):
    """A head that no site explains.

    object   the file that is mapped at the address, "" for memory without one; None: not mapped
    mode     how the head was opened, None where a newer markerjit did it in another way
    now      the bytes that stand there; None: they cannot be read
    before   the bytes of the closed head
    marker   the name of the marker that it was of, cut to 64 bytes; "" where that is not known
    by       the pid of the controller that switched that marker last, 0 where that is not known
    remedy   what `markerjit repair` does about it
    advice   what to do next
    """

    address: RemoteAddress
    object: str | None
    mode: Mode | None
    now: bytes | None
    before: bytes
    marker: str
    by: int
    remedy: Remedy
    advice: str

    def __repr__(self) -> str:
        return brief(self)

    @property
    def sentence(self) -> str:
        """It in words, without the advice."""
        where = "not mapped" if self.object is None else self.object or "memory without a file"
        now = "nothing" if self.now is None else self.now.hex(" ")
        of = f" of {self.marker}" if self.marker else ""
        by = f", by process {self.by}" if self.by else ""
        return (
            f"{self.address:#x} ({where}): head{of}, opened by {self.mode or 'a newer way'}{by}, "
            f"belongs to no marker that is mapped now: holds {now}, {self.before.hex(' ')} before"
        )


class Stray(NamedTuple):
    """A stray head, and the arena and the entry that say it is ours."""

    head: StrayHead
    arena: Arena
    entry: Patch


def find_strays(pid: int, memory: Memory, seen: Seen) -> list[Stray]:
    """The stray heads of a process by address, and behind them the holes to which they lead.

    What was seen must be of this moment: the heads of an object that was loaded since would be
    strays.
    """
    known = {site.address for site in seen.sites}
    known |= {site.body.hole.address for site in seen.opened if site.body.hole}
    strays: dict[int, Stray] = {}
    for arena in seen.arenas.open:
        for stray in _of_arena(pid, memory, seen.maps, arena, known):
            strays.setdefault(stray.head.address, stray)
    return sorted(strays.values(), key=_heads_first)


def _heads_first(stray: Stray) -> tuple[bool, int]:
    """A hole is given back when no short jump leads there any more."""
    return stray.entry.kind == PatchKind.HOLE, stray.head.address


def _of_arena(
    pid: int, memory: Memory, maps: Sequence[Mapping], arena: Arena, known: set[RemoteAddress]
) -> Iterator[Stray]:
    from markerjit.arena.stash import is_kept

    for entry in arena.patches.entries(besides=known):
        if not 0 < entry.size <= len(bytes(entry.before)):
            continue
        before, after = bytes(entry.before)[: entry.size], bytes(entry.after)[: entry.size]
        now = _read(memory, RemoteAddress(entry.address), entry.size)
        stands = now == after or bool(entry.planted and now and is_planted(now, (before, after)))
        if (not stands and not entry.planted) or now == before:
            continue
        probe, data = _words(memory, entry)
        kept = is_kept(memory.read, arena, RemoteAddress(entry.slot))
        is_ours = kept or probe in Probes([arena.base])
        remedy, advice = _remedy(pid, arena, stands=stands, is_ours=is_ours)
        marker = arena.markers.at(data) if is_ours else None
        known_as = None if marker is None else arena.markers.entry(marker)
        if remedy is Remedy.CLOSE and (
            holder := _holder(arena, known_as, probe, data) or (_reader(arena) if kept else None)
        ):
            remedy, advice = Remedy.LEAVE, f"{holder} reads what it records; end that first"
        head = StrayHead(
            RemoteAddress(entry.address),
            _object_at(maps, entry.address),
            mode_of(entry),
            now,
            before,
            known_as.name.decode(errors="replace") if known_as else "",
            int(known_as.by) if known_as else 0,
            remedy,
            advice,
        )
        yield Stray(head, arena, entry)


def _holder(
    arena: Arena, entry: MarkerEntry | None, probe: RemoteAddress, data: RemoteAddress
) -> Owner | None:
    """The live controller that reads what a head records or adds up; None where there is none. It
    sees a site where we see none, as one of a function whose debugging information only it has."""
    reader = reader_of(arena)
    if entry and reader and not reader.over and entry.held == arena.control.now().reading:
        return reader.owner
    aggregate = arena.aggregate(probe, data)
    return aggregate.owner if aggregate and not aggregate.is_left else None


def _reader(arena: Arena) -> Owner | None:
    """The live controller that reads anything, for an entry that keeps arguments for exits: those
    may be what it reads."""
    reader = reader_of(arena)
    if reader and not reader.over:
        return reader.owner
    return next((other.owner for other in arena.aggregates.all() if not other.is_left), None)


def _remedy(pid: int, arena: Arena, *, stands: bool, is_ours: bool) -> tuple[Remedy, str]:
    if arena.version > abi.VERSION:
        return Remedy.LEAVE, "use the newer markerjit that opened it"
    if stands and is_ours:
        return Remedy.CLOSE, f"markerjit repair {pid} closes it"
    if is_ours:
        return Remedy.LEAVE, "another tool has changed the bytes; take that away"
    if stands:
        return (
            Remedy.LEAVE,
            "its slot holds no probe of ours, so the bytes may be another object's; restart the "
            "process if they are not",
        )
    return Remedy.FORGET, f"its code is gone; markerjit repair {pid} forgets it"


def _words(memory: Memory, entry: Patch) -> tuple[RemoteAddress, RemoteAddress]:
    """The probe and the data of its slot; zeros where that cannot be read."""
    with suppress(MemoryFault):
        if 0 < entry.slot <= (1 << 64) - BINDING_SIZE:
            return words_of(memory.read, RemoteAddress(entry.slot), preserving=False)[:2]
    return RemoteAddress(0), RemoteAddress(0)


def _read(memory: Memory, address: RemoteAddress, size: int) -> bytes | None:
    with suppress(MemoryFault):
        return memory.read(address, size)
    return None


def _object_at(maps: Sequence[Mapping], address: int) -> str | None:
    at = bisect_right([mapping.start for mapping in maps], address) - 1
    if at < 0 or address >= maps[at].end:
        return None
    return maps[at].path
