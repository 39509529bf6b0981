"""A switch that is made once more in a session that stays, while nothing but the markers changes.

All that a switch asks a process about is known from the last time that it was made. So it is asked,
under the lock, whether that is still the same:

    1  the process lives, and has the mappings of the last look that can be executed: without one
       more no object has come, and without one less none has gone. Into our own process no object
       was loaded, and none unloaded, and it has the same arenas: a Python process has a hundred
       mappings and more, and to ask for all of them would take longer than the rest
    2  each of its threads was asked for filters, or has none
    3  the control block of the arena is the same. So the journal is empty, there is no reader, no
       deadline, no aggregate, no probe in C, and no marker more than before. The table of patches
       has changed by our own breakpoints alone, and that of a parent's arena not at all
    4  the rings are as they were, and so are the markers' entries, but for what switches write
    5  breakpoints that are to be removed are ours, and a thread can be borrowed where one is: to be
       asked for their handler, or to make the fences
    6  heads and slots: the native part compares them before it writes, and where they are mapped

The rest is as in any switch (switch.py): the pages that could be read are forgotten, the edits are
in the journal while they are applied, and the entries say what has become of the markers.

Where anything is different nothing is done here. The ordinary way makes the switch, or says why it
cannot be made.

What was left out stays left out, for the same reason. That is known before (switch.py): a switch is
only prepared where what each marker was left out for lasts as long as 1 holds, and no site gets a
stub, which 3 would show (`LeftOut.lasts`). So a switch that leaves out a marker for what may change
without a trace in 1 to 5 is planned each time: the program's own probe, bytes that another tool has
changed, a thread that blocks SIGTRAP, a semaphore that is not mapped, another site that is on.

What this does not do: open sites with instructions that other sites have, too, and in our own
process breakpoints and foreign sites.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Mapping, Sequence

from markerjit.abi import (
    CONTROL,
    JOURNAL_EMPTY,
    NO_LIMIT,
    RING_LIMIT,
    TRAP_INSTALLED,
    Control,
    JournalHead,
)
from markerjit.arena.arena import Arena
from markerjit.arena.entry_runs import EntryRun
from markerjit.arena.journal import Journal
from markerjit.arena.markers import Switched, runs
from markerjit.arena.readable import forget_pages
from markerjit.arena.store import FileStore
from markerjit.errors import MarkerError, NotPermitted, Refused, UnexpectedBytes
from markerjit.model import Edit
from markerjit.patch.apply import Applied, apply
from markerjit.patch.prepared import Prepared
from markerjit.proc.cgroup import frozen_by
from markerjit.proc.owner import NOBODY, from_entry
from markerjit.remote.before import Before, Place
from markerjit.remote.mappings import CODE, SHARED_CODE
from markerjit.session.target import Seen
from markerjit.session.turn import Turn, Turns

_MOST_MARKERS = 1 << 16
"""Their entries are read and written whole."""
_WORD = 8
_TABLE = (Control.patches_changed.offset, Control.units_used.offset)
"""How often the table of patches was changed, in the control block."""
_JOURNAL = (
    Control.journal.offset + JournalHead.state.size,
    Control.journal.offset + ctypes.sizeof(JournalHead),
)
"""What stands there in the journal behind the word that says that it is empty."""


def again(turn: Turn, turns: Turns, arena: Arena, prepared: Prepared) -> Again | None:
    """A switch that was just made, to be made once more. None for one that has to be asked about
    anew each time."""
    seen, plan = turn.seen, prepared.plan
    is_known = seen.mapped is not None and not seen.arenas.unfinished
    is_alone = is_known and tuple(seen.arenas.open) == (arena,) and arena.is_current
    # With sites that share instructions it depends on the others what may be opened.
    shared = turn.target.sharing()
    opens_shared = shared and any(mode and at in shared for at, mode in plan.modes.items())
    is_special = bool(plan.carries or opens_shared)
    if not is_alone or is_special or turns.has_filters:
        return None
    has_traps = bool(plan.traps or plan.untraps or prepared.planted)
    if turn.target.own and (has_traps or seen.opened):
        return None
    control = arena.control.now()
    if plan.traps and not (plan.strategy.stops and control.trap_installed == TRAP_INSTALLED):
        return None
    is_quiet = control.journal.state == JOURNAL_EMPTY and from_entry(control.reader) == NOBODY
    if not is_quiet or any(
        (control.reading, control.until_ns, control.aggregates_made, control.stacks,
         control.data_used)
    ):  # fmt: skip
        return None
    if not _are_plain(arena, prepared.switched):
        return None
    if arena.store.read(_limit_at(arena), _WORD) == NO_LIMIT.to_bytes(_WORD, "little"):
        return None
    return Again(turn, turns, arena, prepared)


def _limit_at(arena: Arena) -> int:
    """Where the limit of the first ring is: there is none while another controller reads."""
    return arena.geometry.head_offset(0) + RING_LIMIT


def _are_plain(arena: Arena, switched: Mapping[int, Switched]) -> bool:
    """Whether each of these markers has no other entry, and only counts or records."""
    if not 0 < len(switched) <= _MOST_MARKERS:
        return False
    entries = arena.markers.entries_of(switched)
    alike = arena.markers.with_hashes(int(entry.name_hash) for entry in entries.values())
    for (marker, entry), others in zip(entries.items(), alike, strict=True):
        change = switched[marker]
        if [*others] != [marker] or change.calling or change.before is not None:
            return False
        if entry.held or entry.calling or entry.asks or entry.until_ns:
            return False
    return True


class Again:
    """A switch to be made once more. Made by `again`."""

    def __init__(self, turn: Turn, turns: Turns, arena: Arena, prepared: Prepared) -> None:
        self._target = turn.target
        self._turns = turns
        self._arena = arena
        self._prepared = prepared
        self._objects, self._opened = turn.seen.objects, turn.seen.opened
        # In our own process breakpoints take a turn: no switch made here changes the table there.
        tables = turn.target.tables()
        self._tables = () if turn.target.own and len(tables) == 1 else tables
        asks_for_trap = bool(prepared.plan.traps)
        self._borrows = asks_for_trap or (prepared.plan.strategy.borrows and not turn.target.own)
        self._process = turn.native_target(prepared.mapped, borrowing=self._borrows)
        self._process.is_private = True
        self._process.is_registered = turns.is_registered
        if asks_for_trap:
            self._process.needs_sigtrap = True
            self._process.trap, self._process.seen_trap = arena.trap_places
        self._journal = Journal(arena)
        self._runs = [
            (EntryRun(arena, run), [prepared.switched[marker].mode for marker in run])
            for run in runs(prepared.switched)
        ]
        own, memory = turn.target.own, turn.target.memory
        self._before = Before(
            memory.maps_fileno(),
            SHARED_CODE if own else CODE,
            pidfd=memory.pidfd,
            loads=turns.loads if own else b"",
            places=_places(turn, arena, (_JOURNAL,) if not self._tables else (_TABLE, _JOURNAL)),
        )
        self._parts = [run.parts(run.read()) for run, _ in self._runs]

    def make(self) -> Applied | None:
        """Make it. None where something is not as it was: then nothing was done. Raises what a
        switch raises."""
        target = self._target
        target.check_open()
        with target.memory.locked() as locked:
            if not locked:
                return None
            try:
                entries = self._entries_if_same(target.seen)
                if entries is None:
                    return None
                counted = [
                    run.counted(of_run) if any(modes) else ()
                    for (run, modes), of_run in zip(self._runs, entries, strict=True)
                ]
            except (MarkerError, OSError):
                return None
            forget_pages(target.memory, self._arena)
            applied = self._applied()
            if applied:
                now, us = int(time.time()), os.getpid()
                noted = zip(self._runs, entries, counted, strict=True)
                for (run, modes), of_run, counts in noted:
                    run.note(of_run, modes, since=now, by=us, counted=counts)
            return applied

    def _applied(self) -> Applied | None:
        prepared = self._prepared
        self._process.move_count = 0
        try:
            return apply(
                prepared.plan, self._process, self._journal, prepared.packed, prepared.changes,
                self._copies,
            )  # fmt: skip
        except (UnexpectedBytes, NotPermitted, Refused):  # it is undone, and a turn says why
            return None

    def _copies(self, edit: Edit) -> Mapping[int, int]:
        """Where a thread may go on that stands inside an edit."""
        if not self._opened:
            return {}
        from markerjit.session.copies import copies_inside  # decodes and assembles

        return copies_inside(self._target, edit)

    def _entries_if_same(self, seen: Seen) -> list[bytes] | None:
        """The markers' entries, where all is as it was."""
        is_known = seen.objects is self._objects and seen.arenas.own is self._arena
        if not is_known or seen.mapped is None or seen.opened is not self._opened:
            return None
        if seen.arenas.unfinished or not self._before.is_now(seen.mapped):
            return None
        self._turns.check_filters()
        if self._turns.has_filters or not self._has_its_breakpoints():
            return None
        entries = [run.read() for run, _ in self._runs]
        parts = [run.parts(of_run) for (run, _), of_run in zip(self._runs, entries, strict=True)]
        return entries if parts == self._parts else None

    def _has_its_breakpoints(self) -> bool:
        """Whether the table of patches has the heads that it had, and says of those breakpoints
        that they are ours which are in the code; and whether a borrowed thread would run."""
        if self._tables and self._target.tables() != self._tables:
            return False
        if not self._arena.patches.have_planted(self._prepared.planted):
            return False
        return not (self._borrows and frozen_by(self._target.pid))


def _places(turn: Turn, arena: Arena, besides: Sequence[tuple[int, int]]) -> list[Place]:
    """The control block of an arena, but for what switches leave there, and the limit of its first
    ring."""
    starts = (0, *(end for _, end in besides))
    ends = (*(start for start, _ in besides), ctypes.sizeof(Control))
    spans = [(CONTROL + start, end - start) for start, end in zip(starts, ends, strict=True)]
    spans.append((_limit_at(arena), _WORD))
    store = arena.store
    is_file = isinstance(store, FileStore)
    file = store.fileno() if isinstance(store, FileStore) else turn.target.memory.fileno()
    base = 0 if is_file else arena.base
    return [Place(file, base + offset, store.read(offset, size)) for offset, size in spans]
