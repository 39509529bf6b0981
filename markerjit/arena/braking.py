"""The words of brakes: what the code before a probe has of each CPU and of all (probes/braking.py).

They are in the table of the calls of probes in C, where an entry with a question has nothing else.
The row of a CPU has the state of its generator, and how many events it has held back. The first
shared row has the time of the next event, and the highest number of the generator that takes one.
"""

from __future__ import annotations

import os

from markerjit.abi import Geometry
from markerjit.model import RemoteAddress
from markerjit.ring.raw import Store

_WORD = 8


class Braking:
    """The brakes of an arena's markers."""

    def __init__(self, base: RemoteAddress, store: Store, geometry: Geometry) -> None:
        self._base = base
        self._store = store
        self._geometry = geometry

    def row(self, marker: int) -> RemoteAddress:
        """Where a marker's row of the first CPU is."""
        return RemoteAddress(self._base + self._geometry.calls_offset(0, marker))

    def next(self, marker: int) -> RemoteAddress:
        """Where the time of a marker's next event is."""
        return RemoteAddress(self._base + self._common(marker))

    def highest(self, marker: int) -> RemoteAddress:
        """Where the highest number is that takes an event of a marker."""
        return RemoteAddress(self._base + self._common(marker) + _WORD)

    def begin(self, marker: int, highest: int) -> None:
        """Give a marker its words anew: a state for each CPU, and the highest number that takes an
        event; and let none be held back. Nothing may lead to the code that uses them now."""
        for cpu in range(self._geometry.cpus):
            state = os.urandom(_WORD)
            self._store.write(self._geometry.calls_offset(cpu, marker), state + bytes(_WORD))
        words = bytes(_WORD) + highest.to_bytes(_WORD, "little")
        self._store.write(self._common(marker), words)

    def set_highest(self, marker: int, highest: int) -> None:
        """From now on the highest number that takes an event of a marker is this."""
        place = self._common(marker) + _WORD
        self._store.write(place, highest.to_bytes(_WORD, "little"))

    def highest_now(self, marker: int) -> int:
        """The highest number that takes an event of a marker."""
        return int.from_bytes(self._store.read(self._common(marker) + _WORD, _WORD), "little")

    def held_back(self, marker: int) -> int:
        """How many events of a marker were held back since it has its words."""
        rows = (self._geometry.calls_offset(cpu, marker) for cpu in range(self._geometry.cpus))
        words = (self._store.read(row + _WORD, _WORD) for row in rows)
        return sum(int.from_bytes(word, "little") for word in words)

    def _common(self, marker: int) -> int:
        """The offset of the first shared row."""
        return self._geometry.calls_offset(self._geometry.cpus, marker)
