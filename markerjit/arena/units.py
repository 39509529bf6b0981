"""The table of units: files of probes that are in an arena; and which slots may call each.

A unit exists as soon as its state says so. The state is written after everything else, and taking
it back ends the unit. Room that belongs to no unit is free (code.py). So a controller that is
killed while it puts a unit there, or gives one back, leaves either the unit or free room.

A slot is written down as a caller before it gets a probe of the unit, and stays so for as long as
the unit does: a thread may be in the probe long after the slot was emptied.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from markerjit.abi import (
    UNIT_FREE,
    UNIT_KEPT,
    UNIT_READY,
    UNIT_REPLACES,
    CallerEntry,
    Geometry,
    UnitEntry,
)
from markerjit.arena.control import ControlBlock
from markerjit.arena.extents import Extent
from markerjit.arena.tables import Table
from markerjit.errors import Refused
from markerjit.model import RemoteAddress
from markerjit.ring.raw import Store
from markerjit.tuples import NamedTuple

_CHUNK = 512
_PRESENT = (UNIT_READY, UNIT_KEPT, UNIT_REPLACES)


class Unit(NamedTuple):
    """A unit, by its place in the table."""

    number: int
    entry: UnitEntry

    @property
    def code(self) -> Extent:
        """Its bytes of the code."""
        return Extent(int(self.entry.code), int(self.entry.code + self.entry.code_size))

    @property
    def data(self) -> Extent:
        """Its bytes of the data."""
        return Extent(int(self.entry.data), int(self.entry.data + self.entry.data_size))

    @property
    def is_kept(self) -> bool:
        """Whether slots that are not written down may call it."""
        return self.entry.state == UNIT_KEPT or not self.entry.order

    @property
    def replaces(self) -> bool:
        """Whether it replaces a function, so that nobody counts who is inside."""
        return bool(self.entry.state == UNIT_REPLACES)


class Noted(NamedTuple):
    """Callers that were written down for a unit: their places in the table; and whether it is kept
    for good since, for lack of such places."""

    unit: Unit
    numbers: tuple[int, ...] = ()
    kept: bool = False


class Units:
    """The units of an arena. The caller of what writes must hold the target's lock."""

    def __init__(self, store: Store, control: ControlBlock, geometry: Geometry) -> None:
        self._control = control
        self._table = Table(store, geometry.units, UnitEntry)
        self._callers = Table(store, geometry.callers, CallerEntry)

    @property
    def used(self) -> int:
        """How many entries of the table were ever used."""
        return min(int(self._control.now().units_used), self._table.part.entries)

    def all(self) -> list[Unit]:
        """Those that are there, the oldest first."""
        units = [Unit(number, entry) for number, entry in enumerate(self._entries())]
        present = (unit for unit in units if unit.entry.state in _PRESENT)
        return sorted(present, key=lambda unit: int(unit.entry.order))

    def is_there(self, unit: Unit) -> bool:
        """Whether it still is: a reader without the lock asks after it has read."""
        return bytes(self._table.read(unit.number)) == bytes(unit.entry)

    def has_room(self) -> bool:
        """Whether the table takes another one."""
        return _free(self._entries()) < self._table.part.entries

    def check_room(self) -> None:
        """Raises Refused when the table is full."""
        if not self.has_room():
            raise Refused(f"the arena has room for {self._table.part.entries} files of probes")

    def add(self, entry: UnitEntry) -> Unit:
        """Enter a unit whose code and data are there. Raises Refused when the table is full."""
        self.check_room()
        entries = self._entries()
        number = _free(entries)
        entry.order = max((int(row.order) for row in entries), default=0) + 1
        entry.state = UNIT_FREE
        self._table.write(number, entry)
        if number >= self.used:
            self._control.write("units_used", number + 1)
        self._set_state(number, UNIT_READY)
        entry.state = UNIT_READY
        return Unit(number, entry)

    def give_back(self, unit: Unit) -> None:
        """From now on its code and data are free. They stay as they are until they are used
        again."""
        self._set_state(unit.number, UNIT_FREE)

    # ---- callers -------------------------------------------------------------------------------

    def note_callers(self, unit: Unit, slots: Iterable[RemoteAddress]) -> Noted:
        """Write down that these slots may call it from now on. A unit whose callers have no room
        is kept for good. The result is what is new."""
        orders = {int(known.entry.order) for known in self.all()}
        order = int(unit.entry.order)
        missing, free = dict.fromkeys(slots), []
        for number, entry in self._caller_entries():
            if entry.unit == order:
                missing.pop(RemoteAddress(entry.slot), None)
            elif entry.unit not in orders:
                free.append(number)
        used = self._callers_used
        free += range(used, self._callers.part.entries)
        if len(missing) > len(free) or not order:
            before = int(self._table.read(unit.number).state)
            self._set_state(unit.number, UNIT_KEPT)
            return Noted(unit, kept=before != UNIT_KEPT)
        numbers = tuple(free[: len(missing)])
        for number, slot in zip(numbers, missing, strict=True):
            self._callers.write(number, CallerEntry(slot, order))
        last = max(numbers, default=-1)
        if last >= used:
            self._control.write("callers_used", last + 1)
        return Noted(unit, numbers)

    def note_replaces(self, unit: Unit) -> None:
        """Write down that it replaces a function: from now on nobody counts who is inside."""
        if self._table.read(unit.number).state != UNIT_KEPT:
            self._set_state(unit.number, UNIT_REPLACES)

    def forget_callers(self, noted: Noted) -> None:
        """Take back what `note_callers` wrote down. No thread can have found the unit in these
        slots since."""
        for number in noted.numbers:
            self._callers.write(number, CallerEntry())
        if noted.kept:
            self._set_state(noted.unit.number, UNIT_READY)

    def callers(self, unit: Unit) -> list[RemoteAddress]:
        """The slots that may have called it."""
        order = int(unit.entry.order)
        entries = self._caller_entries()
        return [RemoteAddress(entry.slot) for _, entry in entries if entry.unit == order]

    def _caller_entries(self) -> Iterator[tuple[int, CallerEntry]]:
        used = self._callers_used
        for first in range(0, used, _CHUNK):
            entries = self._callers.read_many(first, min(_CHUNK, used - first))
            yield from enumerate(entries, first)

    @property
    def _callers_used(self) -> int:
        return min(int(self._control.now().callers_used), self._callers.part.entries)

    def _entries(self) -> list[UnitEntry]:
        used = self.used
        return [
            entry
            for first in range(0, used, _CHUNK)
            for entry in self._table.read_many(first, min(_CHUNK, used - first))
        ]

    def _set_state(self, number: int, state: int) -> None:
        self._table.write_field(number, "state", state.to_bytes(4, "little"))


def _free(entries: Sequence[UnitEntry]) -> int:
    """The first place of a table that is free, perhaps the one behind these entries."""
    free = (number for number, entry in enumerate(entries) if entry.state not in _PRESENT)
    return next(free, len(entries))
