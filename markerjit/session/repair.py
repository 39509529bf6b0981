"""Repairing what a controller left that died in the middle: `markerjit repair PID`.

    1  the journal: if all of its edits stand, the change is taken as done; otherwise every place
       that it touched gets its old bytes back. A place that holds neither, or that belongs to no
       marker that is mapped now and to no patch whose slot has our probe still (its object was
       unloaded), is left alone and named
    2  the rings: a reader that is gone, or has not renewed its lease, loses its probes
    3  heads that no site explains (strays.py) are closed where their slots prove that they are
       ours; entries of heads whose code is gone are forgotten; all others are left alone and named
    4  an arena that was never finished is unmapped, and its descriptor closed

All under the target's lock, by the same transactions as every switch, so that being killed here
changes nothing: the journal stays open until its last byte is repaired.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, suppress
from typing import NamedTuple

from markerjit.arena.arena import Arena
from markerjit.arena.create import remove_unfinished
from markerjit.arena.find import Probes, find_unfinished
from markerjit.arena.journal import Journal
from markerjit.arguments import check_pid
from markerjit.errors import MarkerError, MemoryFault
from markerjit.memory import Memory
from markerjit.model import Change, Edit, RemoteAddress, Site
from markerjit.patch.plan import SLOT_ADAPTER, SLOT_SIZE, Plan
from markerjit.patch.protocol import Context, Refusal, plan_change
from markerjit.printable import counted
from markerjit.probes.recorders import Recorders
from markerjit.proc.owner import Owner
from markerjit.quiesce.strategies import default_strategy
from markerjit.session.entries import Entries
from markerjit.session.strays import Remedy, StrayHead, find_strays
from markerjit.session.switch import Switcher
from markerjit.session.target import Target
from markerjit.session.turn import Turn
from markerjit.x86.forms import is_breakpoint

NOTHING = "nothing"
FINISHED = "finished"
ROLLED_BACK = "rolled back"


class Repaired(NamedTuple):
    """The result of a repair.

    journal       "nothing", "finished" (it was complete) or "rolled back"
    owner, since  the controller that left it open, or None; and its start (CLOCK_REALTIME, s)
    places        how many places the journal had, and `written` how many were repaired
    left_alone    why places were not touched, a line each
    switched_off  markers that recorded for a reader that is gone
    removed       arenas that were never finished
    closed        stray heads that were closed
    forgotten     stray heads whose code is gone, and whose entries are, too
    """

    journal: str
    owner: Owner | None
    since: int
    places: int
    written: int
    left_alone: tuple[str, ...]
    switched_off: tuple[str, ...]
    removed: int
    closed: int = 0
    forgotten: int = 0

    @property
    def anything(self) -> bool:
        """Whether anything had to be repaired."""
        numbers = self.removed + self.closed + self.forgotten
        return self.journal != NOTHING or bool(self.switched_off) or numbers > 0

    def sentences(self) -> Iterator[str]:
        """The repairs, one line each; none where there was nothing to repair."""
        if self.journal == FINISHED:
            yield f"a change that {self.owner} began was complete; it stands"
        if self.journal == ROLLED_BACK:
            yield (
                f"a change of {counted(self.places, 'place')} that {self.owner} began was taken "
                f"back: {self.written} had to be repaired"
            )
        yield from (f"left alone: {reason}" for reason in self.left_alone)
        if self.switched_off:
            names = ", ".join(self.switched_off)
            yield f"switched off, since their reader is gone: {names}"
        if self.closed:
            yield f"{counted(self.closed, 'stray head')} closed"
        if self.forgotten:
            yield f"{counted(self.forgotten, 'stray head')} forgotten, whose code is gone"
        if self.removed:
            yield f"{counted(self.removed, 'unfinished arena')} removed"


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


def repair(pid: int) -> Repaired:
    """Repair a process. Does nothing where nothing was left.

    Raises what attaching and stopping raise; then nothing was changed.
    """
    check_pid(pid)
    with closing(Target(pid)) as target:
        switcher = Switcher(target)
        with switcher.turn(repairing=True) as turn:
            repaired = _repair_journal(turn, switcher)
            names = switcher.switch_off_for_the_gone(turn)
            closed, forgotten, strays = _repair_strays(turn, switcher)
            removed, kept = _remove_unfinished(turn)
        return repaired._replace(
            left_alone=(*repaired.left_alone, *strays, *kept), switched_off=tuple(names),
            removed=removed, closed=closed, forgotten=forgotten,
        )  # fmt: skip


# ---- 1: the journal ------------------------------------------------------------------------------


def _repair_journal(turn: Turn, switcher: Switcher) -> Repaired:
    recorders = switcher.recorders
    journal = Journal(recorders.arena) if recorders else None
    left = journal.left() if journal else None
    if not recorders or not journal or not left:
        return Repaired(NOTHING, None, 0, 0, 0, (), (), 0)
    memory, sites = turn.target.memory, turn.seen.sites
    places = places_of(left.edits)
    ours, left_alone = _split(memory, sites, places, recorders.arena)
    now = [(place, memory.read(place.address, len(place.before))) for place in ours]
    complete = not left_alone and all(actual == place.after for place, actual in now)
    edits = [] if complete else list(_back(now))
    plan = Plan("repair", tuple(edits), default_strategy(own=turn.target.own))
    # The journal is left as it is while this is written. If we die, the next controller finds
    # the same places in it.
    switcher.write(turn, plan)
    _note_breakpoints(recorders.arena, ours, complete=complete)
    journal.close()
    _note_as_found(turn, recorders, ours)
    return Repaired(
        FINISHED if complete else ROLLED_BACK,
        left.owner, left.since, len(places), len(edits), tuple(left_alone), (), 0,
    )  # fmt: skip


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
    probes = Probes([arena.base])
    for entry in arena.patches.entries():
        if not entry.size or not entry.slot:
            continue
        with suppress(MemoryFault):
            probe = int.from_bytes(memory.read(RemoteAddress(entry.slot), 8), "little")
            if probe in probes:
                yield entry.address, entry.address + entry.size
                yield from _of_slot(entry.slot)


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
            yield from _of_slot(site.slot)


def _of_slot(slot: int) -> Iterator[tuple[int, int]]:
    """Not the counts between them, which the target changes."""
    yield slot, slot + SLOT_SIZE
    yield slot + SLOT_ADAPTER, slot + SLOT_ADAPTER + 8


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


# ---- 3: stray heads ------------------------------------------------------------------------------


def _repair_strays(turn: Turn, switcher: Switcher) -> tuple[int, int, list[str]]:
    """How many were closed, how many forgotten, and why others were left alone."""
    target = turn.target
    closed, forgotten, left_alone = 0, 0, []
    for head, arena, _ in find_strays(target.pid, target.memory, turn.seen):
        if head.remedy is Remedy.FORGET:
            arena.patches.forget([head.address])
            forgotten += 1
            continue
        reason = head.advice if head.remedy is Remedy.LEAVE else None
        try:
            reason = reason or _close(turn, switcher, head)
        except MarkerError as error:
            if target.memory.is_gone():
                raise
            reason = str(error)  # the repairs made so far have to be reported
        if reason:
            left_alone.append(f"{head.sentence}; {reason}")
        else:
            arena.patches.mark(removed=[head.address])
            closed += 1
    return closed, forgotten, left_alone


def _close(turn: Turn, switcher: Switcher, head: StrayHead) -> str | None:
    """Put the old bytes back by a plan as of any switch. The reason if no protocol does."""
    assert head.now is not None
    own = turn.target.own
    strategy = default_strategy(own=own)
    change = Change(head.address, head.now, head.before, "stray head", code=True)
    edits = plan_change(change, Context(strategy, own, handler=is_breakpoint(head.now)))
    if isinstance(edits, Refusal):
        return edits.sentence
    plan = Plan("close a stray head", edits, strategy)
    switcher.planner.refuse_shared(plan)
    switcher.apply_plan(turn, plan)
    return None


# ---- 4: arenas that were never finished ----------------------------------------------------------


def _remove_unfinished(turn: Turn) -> tuple[int, list[str]]:
    """How many were removed, and why others were not."""
    target = turn.target
    removed, kept = 0, []
    for unfinished in find_unfinished(target.pid, target.memory, turn.seen.maps):
        try:
            remove_unfinished(turn.caller(), unfinished)
            removed += 1
        except MarkerError as error:
            if target.memory.is_gone():
                raise
            # The repairs made so far have to be reported.
            kept.append(f"an unfinished arena: {error}")
    return removed, kept
