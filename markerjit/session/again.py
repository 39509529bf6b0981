"""A switch that is made once more in a session that stays, while nothing but the markers changes.

All that a switch asks a process about is known from the last time that it was made. So it is asked,
under the lock, whether that is still the same:

    1  the process lives, and has the mappings of the last look. Into our own process no object was
       loaded, and none unloaded, and it has the same arenas: a Python process has a hundred
       mappings and more, and to ask for all of them would take longer than the rest
    2  each of its threads was asked for filters, or has none
    3  the control block of the arena is the same. So the journal is empty, there is no reader, no
       deadline, no aggregate, no probe in C, and no marker or head more than before
    4  the rings are as they were, and so is the marker's entry, but for what switches write
    5  heads and slots: the native part compares them before it writes

The rest is as in any switch (switch.py): the pages that could be read are forgotten, the edits are
in the journal while they are applied, and the entry says what has become of the marker.

Where anything is different nothing is done here. The ordinary way makes the switch, or says why it
cannot be made.

What this does not do: switches of several markers, of breakpoints, of sites with stubs, and those
for which a thread is borrowed.
"""

from __future__ import annotations

import ctypes
import os
import struct
import time

from markerjit.abi import (
    CONTROL,
    JOURNAL_EMPTY,
    NO_LIMIT,
    RING_LIMIT,
    Control,
    JournalHead,
    MarkerEntry,
)
from markerjit.arena.arena import Arena
from markerjit.arena.journal import Journal
from markerjit.arena.markers import Noted, Switched
from markerjit.arena.readable import forget_pages
from markerjit.errors import MarkerError, NotPermitted, UnexpectedBytes
from markerjit.patch.apply import Applied, apply
from markerjit.patch.prepared import Prepared
from markerjit.proc.owner import NOBODY, from_entry
from markerjit.remote import native
from markerjit.remote.mappings import are_as_seen
from markerjit.session.target import Seen
from markerjit.session.turn import Turn, Turns

_JOURNAL = slice(
    Control.journal.offset + JournalHead.state.size,
    Control.journal.offset + ctypes.sizeof(JournalHead),
)
"""What our own last switch has left there behind the word that says that it is empty."""
_WRITTEN = (
    (MarkerEntry.since.offset, MarkerEntry.id.offset),
    (MarkerEntry.mode.offset, MarkerEntry.asks.offset),
    (MarkerEntry.hits_before.offset, MarkerEntry.counted.offset),
)
"""What switches write into an entry: since when, by whom, how, and what was counted before."""
_COUNTS_BEFORE = struct.Struct("<QQ")
_COUNT = struct.Struct("<QQ")
_WORD = 1 << 64


def again(turn: Turn, turns: Turns, arena: Arena, prepared: Prepared) -> Again | None:
    """A switch that was just made, to be made once more. None for one that has to be asked about
    anew each time."""
    seen, plan = turn.seen, prepared.plan
    is_known = seen.mapped is not None and not (seen.arenas.unfinished or seen.opened)
    is_alone = is_known and tuple(seen.arenas.open) == (arena,) and arena.is_current
    is_special = bool(
        prepared.planted or plan.traps or plan.untraps or plan.carries or plan.left_out
    )
    borrows = plan.strategy.borrows and not turn.target.own  # a thread that has to run
    if not is_alone or is_special or borrows or turns.has_filters or len(prepared.switched) != 1:
        return None
    control = arena.control.now()
    is_quiet = control.journal.state == JOURNAL_EMPTY and from_entry(control.reader) == NOBODY
    if not is_quiet or any(
        (control.reading, control.until_ns, control.aggregates_made, control.stacks,
         control.data_used)
    ):  # fmt: skip
        return None
    ((marker, change),) = prepared.switched.items()
    entry = arena.markers.entry(marker)
    alone = list(arena.markers.with_hash(int(entry.name_hash))) == [marker]
    if not alone or change.calling or change.before is not None:
        return None
    if entry.held or entry.calling or entry.asks or entry.until_ns:
        return None
    return Again(turn, turns, arena, prepared, marker, change)


class Again:
    """A switch of one marker, to be made once more. Made by `again`."""

    def __init__(
        self,
        turn: Turn,
        turns: Turns,
        arena: Arena,
        prepared: Prepared,
        marker: int,
        change: Switched,
    ) -> None:
        self._target = turn.target
        self._turns = turns
        self._arena = arena
        self._prepared = prepared
        self._marker = marker
        self._change = change
        self._objects = turn.seen.objects
        self._loads = turns.loads
        self._process = turn.native_target(prepared.mapped)
        self._journal = Journal(arena)
        geometry = arena.geometry
        self._limit_at = geometry.head_offset(0) + RING_LIMIT
        self._entry_at = geometry.markers.at(marker)
        self._counts_at = [geometry.count_offset(ring, marker) for ring in range(geometry.rings)]
        self._control = self._control_now()
        entry = self._entry_now()
        self._entry = _unwritten(entry)
        self._known = MarkerEntry.from_buffer_copy(entry)

    def make(self) -> Applied | None:
        """Make it. None where something is not as it was: then nothing was done. Raises what a
        switch raises."""
        target = self._target
        target.check_open()
        with target.memory.locked() as locked:
            if not locked:
                return None
            try:
                entry = self._entry_if_same(target.seen)
                if entry is None:
                    return None
                counted = self._counted() if self._change.mode else (0, 0)
            except (MarkerError, OSError):
                return None
            forget_pages(target.memory, self._arena)
            prepared = self._prepared
            try:
                applied = apply(
                    prepared.plan, self._process, self._journal, prepared.packed, prepared.changes
                )
            except (UnexpectedBytes, NotPermitted):  # it is undone; a tracer is named by a turn
                return None
            self._note(entry, counted)
            return applied

    def _entry_if_same(self, seen: Seen) -> bytes | None:
        """The marker's entry, where all is as it was."""
        target, store = self._target, self._arena.store
        is_known = seen.objects is self._objects and seen.arenas.own is self._arena
        if not is_known or seen.mapped is None or seen.opened or seen.arenas.unfinished:
            return None
        if not target.memory.alive():
            return None
        if target.own and native.own_loads() != self._loads:
            return None
        maps = target.memory.maps_fileno()
        if not are_as_seen(maps, seen.mapped, shared_code=target.own):
            return None
        self._turns.check_filters()
        if self._turns.has_filters or self._control_now() != self._control:
            return None
        if store.read(self._limit_at, 8) == NO_LIMIT.to_bytes(8, "little"):
            return None
        entry = self._entry_now()
        return entry if _unwritten(entry) == self._entry else None

    def _control_now(self) -> tuple[bytes, bytes]:
        block = self._arena.store.read(CONTROL, ctypes.sizeof(Control))
        return block[: _JOURNAL.start], block[_JOURNAL.stop :]

    def _entry_now(self) -> bytes:
        return self._arena.store.read(self._entry_at, self._arena.markers.entry_size)

    def _counted(self) -> tuple[int, int]:
        """Executions and losses of the marker, as `before_switch` has them. What readers took out
        and what probes in C had is among what is as it was."""
        hits, lost, read = int(self._known.delivered + self._known.calls), 0, self._arena.store.read
        for at in self._counts_at:
            passed, missed = _COUNT.unpack(read(at, 16))
            hits += passed + missed
            lost += missed
        return hits % _WORD, lost % _WORD

    def _note(self, entry: bytes, counted: tuple[int, int]) -> None:
        markers, mode = self._arena.markers, self._change.mode
        if mode and counted != _COUNTS_BEFORE.unpack_from(entry, MarkerEntry.hits_before.offset):
            markers.note_before(self._marker, *counted)
        note = Noted(self._marker, self._known, mode, int(time.time()))
        markers.note_all_switched([note], by=os.getpid())


def _unwritten(entry: bytes) -> tuple[bytes, ...]:
    """The parts of an entry that no switch writes."""
    starts = (0, *(end for _, end in _WRITTEN))
    ends = (*(start for start, _ in _WRITTEN), len(entry))
    return tuple(entry[start:end] for start, end in zip(starts, ends, strict=True))
