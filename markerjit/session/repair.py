"""Mending what a controller left that died in the middle: `markerjit repair PID`.

    1  the journal: if all of its edits stand, the change is taken as done; otherwise every place
       that it touched gets its old bytes back. A place that holds neither, or belongs to no marker
       that is mapped now (its object was unloaded), is left alone and named
    2  the rings: a reader that is gone, or has not renewed its lease, loses its probes
    3  an arena that was never finished is unmapped, and its descriptor closed

All under the target's lock, by the same transactions as every switch, so that being killed here
changes nothing: the journal stays open until its last byte is mended.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from markerjit.abi import PROBE_COUNTED
from markerjit.arena.arena import Arena, Switched
from markerjit.arena.create import remove_unfinished
from markerjit.arena.find import find_unfinished
from markerjit.arena.journal import Journal, Left
from markerjit.errors import MarkerError, MemoryFault
from markerjit.events.hits import before_switch, note_hits
from markerjit.model import Edit, RemoteAddress, Site
from markerjit.patch.apply import apply
from markerjit.patch.plan import SLOT_SIZE, Plan, SiteState, counted
from markerjit.proc.owner import Owner
from markerjit.quiesce.strategy import default_strategy
from markerjit.session.switching import Switching
from markerjit.x86.templates import TEMPLATES, is_breakpoint

NOTHING = "nothing"
FINISHED = "finished"
ROLLED_BACK = "rolled back"


class Repaired(NamedTuple):
    """What was found and done.

    journal       "nothing", "finished" (it was complete) or "rolled back"
    owner, since  who left it open, None if nobody did; and when it was begun (CLOCK_REALTIME, s)
    places        how many places the journal had, and `written` how many of them were mended
    left_alone    why places were not touched, a line each
    switched_off  markers that recorded for a reader that is gone
    removed       arenas that were never finished
    """

    journal: str
    owner: Owner | None
    since: int
    places: int
    written: int
    left_alone: tuple[str, ...]
    switched_off: tuple[str, ...]
    removed: int

    @property
    def anything(self) -> bool:
        """Whether there was something to mend."""
        return self.journal != NOTHING or bool(self.switched_off) or self.removed > 0

    def sentences(self) -> Iterator[str]:
        """What was done, a line each; none where there was nothing to do."""
        if self.journal == FINISHED:
            yield f"a change that {self.owner} began was complete; it stands"
        if self.journal == ROLLED_BACK:
            yield (
                f"a change of {counted(self.places, 'place')} that {self.owner} began was taken "
                f"back: {self.written} had to be mended"
            )
        yield from (f"left alone: {reason}" for reason in self.left_alone)
        if self.switched_off:
            names = ", ".join(self.switched_off)
            yield f"switched off, since whoever recorded them is gone: {names}"
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
    found: dict[tuple[int, int], Place] = {}
    for edit in edits:
        known = found.get((edit.address, len(edit.old)))
        if known is None:
            known = Place(
                edit.address, edit.old, edit.new,
                frozenset((edit.old, edit.new)), edit.code, edit.step,
            )  # fmt: skip
        else:
            known = known._replace(after=edit.new, between=known.between | {edit.new})
        found[edit.address, len(edit.old)] = known
    return sorted(found.values(), key=lambda place: (-place.step, place.address))


def repair(pid: int) -> Repaired:
    """Mend a process. Does nothing where nothing was left.

    Raises what attaching and stopping raise; then nothing was changed.
    """
    with _Repairing(pid) as process:
        return process.repair()


class _Repairing(Switching):
    def repair(self) -> Repaired:
        with self._alone(mending=True):
            left = Journal(self._arena).left() if self._arena else None
            mended = self._mend(left) if left else Repaired(NOTHING, None, 0, 0, 0, (), (), 0)
            names = self._switch_off_for_the_gone(self._arena) if self._arena else []
            removed = 0
            kept: list[str] = []
            for unfinished in find_unfinished(self.pid, self._memory, self._maps):
                try:
                    remove_unfinished(self._caller(), unfinished)
                    removed += 1
                except MarkerError as error:
                    if self._memory.is_gone():
                        raise
                    # What was mended is mended, and is to be told.
                    kept.append(f"an unfinished arena: {error}")
            left_alone = (*mended.left_alone, *kept)
            return mended._replace(
                left_alone=left_alone, switched_off=tuple(names), removed=removed
            )

    def _mend(self, left: Left) -> Repaired:
        assert self._arena
        places = places_of(left.edits)
        ours, left_alone = self._split(places)
        now = [(place, self._memory.read(place.address, len(place.before))) for place in ours]
        complete = not left_alone and all(found == place.after for place, found in now)
        edits = [] if complete else list(_back(now))
        plan = Plan("repair", tuple(edits), default_strategy(own=self._own))
        # The journal is left as it is while this is written: whoever comes after our own death
        # finds the same places in it.
        apply(plan, self._target(self._mapped_at(plan)), None)
        self._note_mended_breakpoints(ours, complete=complete)
        Journal(self._arena).close()
        self._note_as_found(ours)
        return Repaired(
            FINISHED if complete else ROLLED_BACK,
            left.owner, left.since, len(places), len(edits), tuple(left_alone), (), 0,
        )  # fmt: skip

    def _split(self, places: Sequence[Place]) -> tuple[list[Place], list[str]]:
        """Places that belong to markers and hold what the journal knows; and why others do not."""
        spans = sorted(_spans(self._objects.sites))
        starts = [start for start, _ in spans]
        ours, left_alone = [], []
        for place in places:
            at = bisect_right(starts, place.address) - 1
            if at < 0 or place.address + len(place.before) > spans[at][1]:
                left_alone.append(f"{place.address:#x} belongs to no marker that is mapped now")
                continue
            try:
                found = self._memory.read(place.address, len(place.before))
            except MemoryFault as fault:
                left_alone.append(str(fault))
                continue
            if found not in place.between:
                foreign = place.code and is_breakpoint(found)
                whose = "a breakpoint of another tool" if foreign else "not ours"
                left_alone.append(f"{place.address:#x} holds {found.hex(' ')}, {whose}")
                continue
            ours.append(place)
        return ours, left_alone

    def _note_mended_breakpoints(self, places: Sequence[Place], *, complete: bool) -> None:
        assert self._arena
        for place in places:
            if place.code and any(map(is_breakpoint, place.between)):
                stands = is_breakpoint(place.after if complete else place.before)
                self._arena.note_planted(place.address, stands)

    def _note_as_found(self, places: Sequence[Place]) -> None:
        """Who switched them is gone; whether they are on is what is written down."""
        assert self._arena
        touched = {place.address for place in places}
        for site in self._objects.sites:
            near = any(address in touched for address in range(site.address, site.address + 2))
            if near or site.slot in touched:
                with suppress(MemoryFault):
                    state = self._state(site)
                    marker = self._arena.marker_at(state.data)
                    if marker is not None and not state.problem:
                        self._note_found(self._arena, marker, state)

    def _note_found(self, arena: Arena, marker: int, state: SiteState) -> None:
        slots = {marker: [state.site.slot]}
        known = marker if arena.marker_entry(marker).since else None
        calling = bool(state.mode and state.probe & PROBE_COUNTED)
        found = Switched(state.mode, known, tuple(slots[marker]), calling)
        before = before_switch(arena, slots, calls=self._calls)
        # What it records it records for whom it did: a reader that is gone loses it after this.
        held = int(arena.marker_entry(marker).held)
        note_hits(arena, {marker: found}, before, self._calls, held=held)


def _spans(sites: Sequence[Site]) -> Iterator[tuple[int, int]]:
    """What a switch may change: the heads of sites, and slots."""
    for site in sites:
        if site.kind in TEMPLATES:
            yield site.address, site.address + len(TEMPLATES[site.kind].dormant)
        if site.slot:
            yield site.slot, site.slot + SLOT_SIZE


def _back(now: Sequence[tuple[Place, bytes]]) -> Iterator[Edit]:
    """Edits to what stood there before, tails before the breakpoints that guard them."""
    step = 0
    last = None
    for place, found in now:
        if last is not None and place.step != last:
            step += 1
        last = place.step
        if found != place.before:
            yield Edit(place.address, found, place.before, "repair", place.code, step)
