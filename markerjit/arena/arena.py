"""The arena: the memory that the runtime and its controllers share inside the target.

It is a memfd that the target itself makes, at our request, and maps; abi.h says what stands
where. The target's descriptor of it is moved out of the way of the low numbers, and may be closed
by the program without harm: then we read through /proc/PID/mem instead. Each part of the arena has
a module of its own beside this one.

What this does not do: find an arena (find.py) or make one (create.py), decide which probe goes
where (session/), or write code of the program (patch/).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import markerjit.abi as abi
from markerjit.abi import (
    ALIVE,
    ASKS_AGGREGATE,
    ASKS_BEFORE_COUNT,
    CODE_SIZE,
    CONTROL,
    Control,
    Geometry,
    MarkerEntry,
)
from markerjit.arena.aggregates import Aggregate, Aggregates
from markerjit.arena.braking import Braking
from markerjit.arena.calls import Calls
from markerjit.arena.code import Code, Taken
from markerjit.arena.control import ControlBlock
from markerjit.arena.counters import Counters
from markerjit.arena.islands import Islands
from markerjit.arena.markers import Markers
from markerjit.arena.patches import Patches
from markerjit.arena.rings import RingHeads
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.arena.units import Units
from markerjit.arena.versions import control_of, layout_of
from markerjit.errors import MarkerError, Refused
from markerjit.model import RemoteAddress
from markerjit.proc.owner import Owner, from_entry
from markerjit.ring.types import HEAD, HEAD_OF_16, Head

_HEADS_AS_OURS = 5
"""The first version whose records have our heads. Those before had ids of 16 bits."""
_PRESERVING_CALLS = 7
"""The first version that has probes for bodies which make preserving calls."""
_LONGEST_QUESTION = 4 * 4096
"""Bytes of a text: a character of the longest question has four at most."""


class Arena:
    """An arena that exists. `base` is where the target has it; `facts` is the control block as it
    was when we came; use only those of its fields that never change."""

    def __init__(
        self,
        pid: int,
        base: RemoteAddress,
        store: FileStore | MemoryStore,
        mapped_size: int,
    ) -> None:
        self.pid = pid
        self.base = base
        self.store = store
        block = store.read(CONTROL, ctypes.sizeof(Control))
        layout = layout_of(block)
        self.facts = control_of(block, layout)
        geometry = abi.checked_geometry(self.facts, mapped_size)
        self.entry = abi.Entry.from_buffer_copy(store.read(0, ctypes.sizeof(abi.Entry)))
        self.control = ControlBlock(store, layout)
        self.rings = RingHeads(pid, store, self.control, geometry)
        self.markers = Markers(base, store, self.control, layout, geometry)
        self.calls = Calls(store, self.control, geometry, self.markers)
        self.counters = Counters(store, geometry, self.markers, self.calls)
        self.patches = Patches(pid, store, self.control, layout, geometry)
        self.units = Units(store, self.control, geometry)
        self.islands = Islands(pid, base, store, geometry)
        self.braking = Braking(base, store, geometry)
        self.aggregates = Aggregates(pid, store, self.control, geometry)
        self.code = Code(pid, base, store, self.control, geometry, self._taken)

    def close(self) -> None:
        """Let go of it; it stays in the target for the next controller."""
        self.store.close()

    @property
    def version(self) -> int:
        """The version of markerjit's layout that it has."""
        return int(self.facts.version)

    @property
    def is_current(self) -> bool:
        """Whether the arena has our version. Markers are switched on only in such an arena."""
        return self.version == abi.VERSION

    @property
    def division(self) -> Head:
        """How the heads of the records in its rings are divided."""
        return HEAD if self.version >= _HEADS_AS_OURS else HEAD_OF_16

    @property
    def geometry(self) -> Geometry:
        """Where its parts are."""
        return self.rings.geometry

    @property
    def owner(self) -> Owner:
        """The controller that put the arena here."""
        return from_entry(self.facts.owner)

    @property
    def scratch(self) -> RemoteAddress:
        """Where a borrowed thread's way back is kept."""
        return RemoteAddress(self.base + self.geometry.scratch.offset)

    @property
    def alive(self) -> RemoteAddress:
        """The address of the word that is 0 in the child of a fork."""
        return RemoteAddress(self.base + ALIVE)

    def count_probe(self, *, preserving: bool) -> RemoteAddress:
        """The probe that only counts, for bodies that call so."""
        entry = self.entry.count_block if preserving else self.entry.count
        return RemoteAddress(self.base + entry)

    def counts(self, probe: RemoteAddress, data: RemoteAddress) -> bool:
        """Whether a slot with these words only counts, perhaps what a question lets through."""
        offset = probe - self.base
        if offset == self.entry.count:
            return True
        if self.version >= _PRESERVING_CALLS and 0 < offset == self.entry.count_block:
            return True
        entry = self._entry_at(data)
        if entry is None or entry.asks != ASKS_BEFORE_COUNT:
            return False
        return bool(0 < offset == entry.recorder)

    def record_probe(self, marker: int, *, preserving: bool) -> RemoteAddress:
        """The probe that records a marker, for bodies that call so: code of its own, or the one
        that records any."""
        (probe,) = self.record_probes([marker], preserving=preserving)
        return probe

    def record_probes(self, markers: Sequence[int], *, preserving: bool) -> list[RemoteAddress]:
        """The same for many markers, whose entries are read together."""
        field = "recorder" if preserving else "recorder_of_c"
        any_marker = self.entry.record_block if preserving else self.entry.record
        entries = self.markers.entries_of(markers)
        own = {marker: getattr(entry, field) for marker, entry in entries.items()}
        return [RemoteAddress(self.base + (own[marker] or any_marker)) for marker in markers]

    def asking_probe(self, marker: int) -> RemoteAddress:
        """The code of the question of a marker, which stands before its probe. Raises MarkerError
        where it has none."""
        entry = self.markers.entry(marker)
        if not entry.asks or not entry.recorder:
            raise MarkerError(f"the question of marker {marker} has no code")
        return RemoteAddress(self.base + entry.recorder)

    def records(self, probe: RemoteAddress, data: RemoteAddress) -> bool:
        """Whether a slot with these words records."""
        offset = probe - self.base
        if offset == self.entry.record:
            return True
        if self.version >= _PRESERVING_CALLS and 0 < offset == self.entry.record_block:
            return True
        entry = self._entry_at(data)
        if entry is None or entry.asks in (ASKS_BEFORE_COUNT, ASKS_AGGREGATE):
            return False
        return offset > 0 and offset in (entry.recorder, entry.recorder_of_c)

    def aggregate(self, probe: RemoteAddress, data: RemoteAddress) -> Aggregate | None:
        """The aggregate that a slot with these words adds to; None where it adds to none."""
        entry = self._entry_at(data)
        if entry is None or entry.asks != ASKS_AGGREGATE or not entry.aggregate:
            return None
        if not 0 < probe - self.base == entry.recorder:
            return None
        return self.aggregates.find(int(entry.aggregate))

    def adds_up(self, probe: RemoteAddress, data: RemoteAddress) -> bool:
        """Whether a slot with these words adds to an aggregate, which may have gone."""
        entry = self._entry_at(data)
        is_aggregate = entry is not None and entry.asks == ASKS_AGGREGATE
        return bool(is_aggregate and entry and 0 < probe - self.base == entry.recorder)

    def is_entered(self, ticket: int) -> bool:
        """Whether a thread is in the memory of an aggregate by locked instructions. Where the
        aggregate has ended, a thread that comes later is not: it counts itself, and then looks at
        the ticket."""
        return self.calls.is_entered(self.markers.adding_to(ticket))

    def question(self, data: RemoteAddress) -> str:
        """The text of the question of a slot with this data, and in a second line the selection, if
        it has one; "" where there is none. The target can write anything there."""
        entry = self._entry_at(data)
        if entry is None or not entry.asks:
            return ""
        start, size = int(entry.question_text), min(int(entry.question_size), _LONGEST_QUESTION)
        if not start or start + size > CODE_SIZE:
            return ""
        return self.store.read(start, size).decode(errors="replace")

    def _entry_at(self, data: RemoteAddress) -> MarkerEntry | None:
        marker = self.markers.at(data)
        return None if marker is None else self.markers.entry(marker)

    def adapter(self, *, vectors: bool) -> RemoteAddress:
        """The adapter through which a preserving body calls a C function. There are two: for
        functions that change vector registers, and for functions that do not."""
        entry = self.entry.call_saving_vectors if vectors else self.entry.call
        return RemoteAddress(self.base + entry)

    @property
    def trap_places(self) -> tuple[int, int]:
        """Our SIGTRAP handler, and the room in which the kernel is to say which one there is."""
        return self.base + self.entry.trap, self.base + self.control.offset("seen_trap")

    @property
    def trap_installed(self) -> bool:
        """Whether the runtime's handler may have been the action for SIGTRAP at any time."""
        return bool(self.control.now().trap_installed)

    def _taken(self) -> Taken:
        units = self.units.all()
        code = (*(unit.code for unit in units), *self.markers.questions())
        return Taken(code, tuple(unit.data for unit in units))

    def refuse_newer(self) -> None:
        """Raises Refused for an arena of a later version than ours: it can be looked at only."""
        if self.version > abi.VERSION:
            raise Refused(
                f"process {self.pid} holds an arena of version {self.version}, which a newer "
                f"markerjit has made; this one knows {abi.VERSION} and can only look at it; use "
                "the newer one"
            )
