"""A change that a controller left in the journal: settling it.

If all of its edits stand, the change is taken as done. Otherwise every place that it touched gets
its old bytes back. A place that holds neither, or that belongs to no marker that is mapped now and
to no patch whose slot has our probe still (its object was unloaded), is left alone and named.

The caller holds the target's lock. The same transactions are used as for every switch, and the
journal stays open until its last byte is settled, so that being killed here changes nothing.

What this does not do: decide whether the journal may be settled (turn.py, stepping.py, repair.py).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress

from markerjit.abi import SLOT_SIZE
from markerjit.arena.arena import Arena
from markerjit.arena.journal import Journal
from markerjit.arena.mapped import Probes
from markerjit.errors import MemoryFault
from markerjit.memory import Memory
from markerjit.model import Edit, RemoteAddress, Site
from markerjit.patch.plan import Plan
from markerjit.patch.slots import BINDING_SIZE, SEMAPHORE_SIZE, SLOT_ADAPTER, SLOT_TOKEN
from markerjit.probes.recorders import Recorders
from markerjit.proc.owner import Owner
from markerjit.quiesce.strategies import default_strategy
from markerjit.session.entries import Entries
from markerjit.session.turn import Turn
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import is_breakpoint

NOTHING = "nothing"
FINISHED = "finished"
ROLLED_BACK = "rolled back"


class Settled(NamedTuple):
    """What became of a journal.

    journal       "nothing", "finished" (it was complete) or "rolled back"
    owner, since  the controller that left it open, or None; and its start (CLOCK_REALTIME, s)
    places        how many places the journal had, and `written` how many were repaired
    left_alone    why places were not touched, a line each
    """

    journal: str = NOTHING
    owner: Owner | None = None
    since: int = 0
    places: int = 0
    written: int = 0
    left_alone: tuple[str, ...] = ()


class Place(NamedTuple):
    """One place of a journal: what stood there before the change, what does after it, and what may
    stand there in between."""

    address: RemoteAddress
    before: bytes
    after: bytes
    between: frozenset[bytes]
    code: bool
    step: int


def places_of(edits: Sequence[Edit]) -> list[Place]:
    """The places that edits touch, the last step's first."""
    places: dict[tuple[int, int], Place] = {}
    for edit in edits:
        known = places.get((edit.address, len(edit.old)))
        if known is None:
            known = Place(
                edit.address, edit.old, edit.new,
                frozenset((edit.old, edit.new)), edit.code, edit.step,
            )  # fmt: skip
        else:
            known = known._replace(after=edit.new, between=known.between | {edit.new})
        places[edit.address, len(edit.old)] = known
    return sorted(places.values(), key=lambda place: (-place.step, place.address))


def settle(turn: Turn, recorders: Recorders | None, write: Callable[[Plan], object]) -> Settled:
    """Settle the journal, if it is open. `write` applies a plan beside the journal, which stays as
    it is meanwhile."""
    journal = Journal(recorders.arena) if recorders else None
    left = journal.left() if journal else None
    if not recorders or not journal or not left:
        return Settled()
    memory, sites = turn.target.memory, turn.seen.sites
    places = places_of(left.edits)
    ours, left_alone = _split(memory, sites, places, recorders.arena)
    now = [(place, memory.read(place.address, len(place.before))) for place in ours]
    complete = not left_alone and all(actual == place.after for place, actual in now)
    edits = [] if complete else list(_back(now))
    # If we die while this is written, the next controller finds the same places in the journal.
    write(Plan("repair", tuple(edits), default_strategy(own=turn.target.own)))
    _note_breakpoints(recorders.arena, ours, complete=complete)
    journal.close()
    _note_as_found(turn, recorders, ours)
    journalled = FINISHED if complete else ROLLED_BACK
    return Settled(journalled, left.owner, left.since, len(places), len(edits), tuple(left_alone))


def _split(
    memory: Memory, sites: Sequence[Site], places: Sequence[Place], arena: Arena
) -> tuple[list[Place], list[str]]:
    """Places that belong to markers or patches and hold what the journal knows; and why others do
    not."""
    known = Spans(_spans(sites))
    patched = Spans(() if all(map(known.have, places)) else _patched(memory, arena))
    ours, left_alone = [], []
    for place in places:
        if not known.have(place) and not patched.have(place):
            left_alone.append(f"{place.address:#x} belongs to no marker that is mapped now")
            continue
        try:
            actual = memory.read(place.address, len(place.before))
        except MemoryFault as fault:
            left_alone.append(str(fault))
            continue
        if actual not in place.between:
            foreign = place.code and is_breakpoint(actual)
            whose = "a breakpoint of another tool" if foreign else "not ours"
            left_alone.append(f"{place.address:#x} holds {actual.hex(' ')}, {whose}")
            continue
        ours.append(place)
    return ours, left_alone


def _patched(memory: Memory, arena: Arena) -> Iterator[tuple[int, int]]:
    """The heads and slots in the table of patches that belong to no marker that is mapped now. Only
    where the slot still has a probe of the arena, which it gets before its head is opened and keeps
    until that is closed: so it is not another object that was loaded there since."""
    from markerjit.arena.stash import is_kept

    probes = Probes([arena.base])
    for entry in arena.patches.entries():
        if not entry.size or not entry.slot:
            continue
        with suppress(MemoryFault):
            slot = RemoteAddress(entry.slot)
            probe = int.from_bytes(memory.read(slot, 8), "little")
            if probe in probes or is_kept(memory.read, arena, slot):
                yield entry.address, entry.address + entry.size
                yield from _of_slot(entry.slot, has_adapter=True)  # nothing says how it is called


def _note_breakpoints(arena: Arena, places: Sequence[Place], *, complete: bool) -> None:
    planted: list[RemoteAddress] = []
    removed: list[RemoteAddress] = []
    for place in places:
        if place.code and any(map(is_breakpoint, place.between)):
            stands = is_breakpoint(place.after if complete else place.before)
            (planted if stands else removed).append(place.address)
    arena.patches.mark(planted, removed)


def _note_as_found(turn: Turn, recorders: Recorders, places: Sequence[Place]) -> None:
    """The controller that switched them is gone; whether they are on is what is written down."""
    touched = {place.address for place in places}
    entries = Entries(turn, recorders)
    for site in turn.seen.sites:
        head = range(site.address, site.address + len(site.form.head))
        near = any(address in touched for address in head)
        if near or site.slot in touched:
            with suppress(MemoryFault):
                entries.note_found(turn.target.state(site))


class Spans:
    """Spans of addresses, which do not overlap, in any order."""

    def __init__(self, spans: Iterable[tuple[int, int]]) -> None:
        self._spans = sorted(spans)
        self._starts = [start for start, _ in self._spans]

    def have(self, place: Place) -> bool:
        """Whether a place lies in one of them."""
        at = bisect_right(self._starts, place.address) - 1
        return at >= 0 and place.address + len(place.before) <= self._spans[at][1]


def _spans(sites: Sequence[Site]) -> Iterator[tuple[int, int]]:
    """The memory that a switch may change: the heads of sites, and slots."""
    for site in sites:
        if site.form.head:
            yield site.address, site.address + len(site.form.head)
        if site.slot:
            yield from _of_slot(site.slot, has_adapter=site.body.preserving)
        if site.body.hole:
            yield site.body.hole.address, site.body.hole.address + len(site.body.hole.before)
        if site.body.semaphore:
            yield site.body.semaphore, site.body.semaphore + SEMAPHORE_SIZE


def _of_slot(slot: int, *, has_adapter: bool) -> Iterator[tuple[int, int]]:
    """The words of a slot that a switch writes. The target changes the counts between them. The
    slot of an ordinary call ends behind its counts."""
    yield slot, slot + BINDING_SIZE
    if has_adapter:
        yield slot + SLOT_ADAPTER, slot + SLOT_ADAPTER + 8
        yield slot + SLOT_TOKEN, slot + SLOT_SIZE


def _back(now: Sequence[tuple[Place, bytes]]) -> Iterator[Edit]:
    """Edits to what stood there before, tails before the breakpoints that guard them."""
    step = 0
    last = None
    for place, actual in now:
        if last is not None and place.step != last:
            step += 1
        last = place.step
        if actual != place.before:
            yield Edit(place.address, actual, place.before, "repair", place.code, step)
