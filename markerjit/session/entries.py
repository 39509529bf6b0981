"""The entries of markers in the arena, as switches change them: all of that is written here.

An entry says how its marker is on, since when, by whom and for which reading of the rings, and from
which numbers on its hits count. A switch writes in this order:

    1  `before`   what is counted so far is asked, before a probe can count more
    2  `hold`     for which reading the marker will record. Before the code is written: if the
                  controller is killed after it, the next one knows the owner of the probes
    3  the code (switch.py)
    4  `note`     what has become of the markers. Also where a switch off, or one on for a reader,
                  finds nothing to write: a controller may have been killed between its 3 and its 4.
                  Any other switch on that finds nothing to write leaves the entries as they are

What this does not do: the numbers (events/hits.py), or new entries (probes/recorders.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from markerjit.abi import PROBE_COUNTED
from markerjit.arena.arena import Arena
from markerjit.arena.markers import Switched
from markerjit.errors import MemoryFault
from markerjit.events.hits import Before, before_switch, note_hits
from markerjit.model import Mode, RemoteAddress, Site
from markerjit.patch.plan import Plan, by_slot
from markerjit.patch.request import Request
from markerjit.patch.switchable import SiteState
from markerjit.probes.recorders import Recorders
from markerjit.session.turn import Turn

Slots = dict[int, list[RemoteAddress]]
"""The slots of each entry."""


class Entries:
    """The entries in the arena of `recorders`, for one turn."""

    def __init__(self, turn: Turn, recorders: Recorders) -> None:
        self._turn = turn
        self._recorders = recorders

    @property
    def _arena(self) -> Arena:
        """To be written. Raises RuntimeError when the turn is over."""
        self._turn.check()
        return self._recorders.arena

    def before(self, slots: Mapping[int, Sequence[RemoteAddress]], *, calls: bool) -> Before:
        """The counts before a switch, by the entry that a marker gets. `calls`: the switch is for a
        probe in C."""
        counted = self._turn.target.calls if calls else None
        return before_switch(self._arena, slots, calls=counted)

    def hold(self, slots: Slots, reading: int) -> dict[int, int]:
        """Write down for which reading of the rings these will record. The result is the reading
        that each was written down for before."""
        markers = self._arena.markers
        before = {marker: int(markers.entry(marker).held) for marker in slots}
        for marker in slots:
            markers.note_held(marker, reading)
        return before

    def hold_again(self, before: Mapping[int, int]) -> None:
        """Take back what `hold` wrote down."""
        for marker, reading in before.items():
            self._arena.markers.note_held(marker, reading)

    def note(self, switched: Mapping[int, Switched], before: Before, *, held: int = 0) -> None:
        """Write down what a switch has made of the markers."""
        note_hits(self._arena, switched, before, self._turn.target.calls, held=held)

    def switched(
        self, states: Sequence[SiteState], plan: Plan, request: Request, new: Slots
    ) -> dict[int, Switched]:
        """The entries of these markers after a plan, given their states before it, and the slots of
        the entries that they get. A marker that is off is off in each of its entries.

        That the plan was carried out is known when it was applied: all was read back. A marker that
        it left out is as it was.
        """
        arena = self._arena
        slots = {marker: [*of] for marker, of in new.items()}
        gets = {slot: marker for marker, of in slots.items() for slot in of}
        had: dict[RemoteAddress, int | None] = {}
        was_on: dict[int, int] = {}
        modes: dict[int, Mode | None] = {}
        for state in states:
            slot = state.site.slot
            is_first = slot not in had
            if is_first:
                before = had[slot] = arena.markers.at(state.data)
                if before is not None and slot not in slots.setdefault(before, []):
                    slots[before].append(slot)
                is_planned = state.site.address in plan.modes
                after = gets.get(slot, before) if is_planned else before
                if slot and after is not None and (is_planned or not state.problem):
                    mode = plan.modes[state.site.address] if is_planned else state.mode
                    modes.setdefault(after, mode)
            known = had[slot]
            if known is not None and slot in gets and gets[slot] not in was_on and state.mode:
                was_on[gets[slot]] = known
        return {
            marker: Switched(
                mode,
                was_on.get(marker),
                tuple(slots.get(marker, ())),
                calling=request.calls and mode is not None,
            )
            for marker, mode in (dict.fromkeys(slots) | modes).items()
        }

    def modes(self, sites: Sequence[Site]) -> dict[int, Mode | None]:
        """How each marker is, by its first site."""
        modes: dict[int, Mode | None] = {}
        for site in by_slot(sites):
            # The switch is done, so an object that was unloaded since does not make it fail.
            with suppress(MemoryFault):
                state = self._turn.target.state(site)
                marker = self._arena.markers.at(state.data)
                if marker is not None and not state.problem:
                    modes.setdefault(marker, state.mode)
        return modes

    def note_gone(self) -> None:
        """Write down that markers are off which are said to be on, and are not: the controller that
        switched one off may have been killed before step 4, and an object may have gone with its
        markers."""
        modes = self.modes(self._turn.seen.sites)
        for entry in self._arena.markers.entries():
            if entry.since and not modes.get(int(entry.id)):
                self._arena.markers.note_switched(int(entry.id), None)

    def note_found(self, state: SiteState) -> None:
        """Write down the state in which a marker was found. The controller that made it is gone."""
        marker = self._arena.markers.at(state.data)
        if marker is None or state.problem:
            return
        slots = {marker: [state.site.slot]}
        entry = self._arena.markers.entry(marker)
        calling = bool(state.mode and state.probe & PROBE_COUNTED)
        known = marker if entry.since else None
        switched = Switched(state.mode, known, tuple(slots[marker]), calling)
        # It still records for the same reader. If that one is gone, the marker is taken from it
        # after this.
        self.note({marker: switched}, self.before(slots, calls=True), held=int(entry.held))

    def note_by(self, controllers: Mapping[int, int]) -> None:
        """Write down that markers that are on were switched on by these processes."""
        for marker, pid in controllers.items():
            if self._arena.markers.entry(marker).since:
                self._arena.markers.note_by(marker, pid)

    def note_counts(self) -> None:
        """Write down how far the counters of all markers are: what is recorded begins anew."""
        markers = self._arena.markers
        self._arena.counters.note_began(int(entry.id) for entry in markers.entries())


def slots_by_entry(sites: Sequence[Site], request: Request, recorders: Recorders) -> Slots:
    """The entries that the slots get; none where they are switched off."""
    slots: Slots = {}
    if not request.on:
        return slots
    each = list(by_slot(sites))
    markers = recorders.find_many([site.signature for site in each], request.probe)
    for site, marker in zip(each, markers, strict=True):
        if marker is not None:
            slots.setdefault(marker, []).append(site.slot)
    return slots
