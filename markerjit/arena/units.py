"""The table of units: files of probes that were put into an arena."""

from __future__ import annotations

from markerjit.abi import UNIT_READY, Geometry, UnitEntry
from markerjit.arena.control import ControlBlock
from markerjit.arena.tables import Table
from markerjit.errors import Refused
from markerjit.ring.raw import Store


class Units:
    """The units of an arena, by their numbers."""

    def __init__(self, store: Store, control: ControlBlock, geometry: Geometry) -> None:
        self._control = control
        self._table = Table(store, geometry.units, UnitEntry)

    @property
    def used(self) -> int:
        """How many entries of the table were ever used."""
        return min(int(self._control.now().units_used), self._table.part.entries)

    def entries(self) -> list[UnitEntry]:
        """Those that are ready, the first one first."""
        used = self.used
        units = self._table.read_many(0, used) if used else []
        return [unit for unit in units if unit.state == UNIT_READY]

    def check_room(self) -> None:
        """Raises Refused when the table is full."""
        if self.used >= self._table.part.entries:
            raise Refused(f"the arena has room for {self._table.part.entries} files of probes")

    def add(self, unit: UnitEntry) -> None:
        """Enter a unit whose code and data are there. The caller must hold the lock, and have asked
        for room."""
        number = self.used
        unit.state = UNIT_READY
        self._table.write(number, unit)
        self._control.write("units_used", number + 1)
