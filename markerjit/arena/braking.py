"""The words of brakes: the state that the code before a probe keeps for each CPU and for all of
them (probes/braking.py).

They are in the table of calls of probes in C, which an entry with a question does not use
otherwise. The row of a CPU has the state of its generator, and how many events it has held back.
The first shared row has the time of the next event, and the highest number of the generator that
takes one.
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
        """Initialise a marker's words: a state for each CPU, the highest number that takes an
        event, and no event held back. No code that uses the words may be reachable now."""
        for cpu in range(self._geometry.cpus):
            state = os.urandom(_WORD)
            self._store.write(self._geometry.calls_offset(cpu, marker), state + bytes(_WORD))
        words = bytes(_WORD) + highest.to_bytes(_WORD, "little")
        self._store.write(self._common(marker), words)

    def set_highest(self, marker: int, highest: int) -> None:
        """Set the highest number that takes an event of a marker."""
        place = self._common(marker) + _WORD
        self._store.write(place, highest.to_bytes(_WORD, "little"))

    def highest_now(self, marker: int) -> int:
        """The highest number that takes an event of a marker."""
        return int.from_bytes(self._store.read(self._common(marker) + _WORD, _WORD), "little")

    def held_back(self, marker: int) -> int:
        """The number of events of a marker that were held back since its words were initialised."""
        rows = (self._geometry.calls_offset(cpu, marker) for cpu in range(self._geometry.cpus))
        words = (self._store.read(row + _WORD, _WORD) for row in rows)
        return sum(int.from_bytes(word, "little") for word in words)

    def _common(self, marker: int) -> int:
        """The offset of the first shared row."""
        return self._geometry.calls_offset(self._geometry.cpus, marker)
