"""How often probes in C were entered and left through the runtime's adapters, by CPU and marker.

A thread may leave on a CPU other than the one on which it entered, so only sums over all rings are
meaningful. A thread counts itself by a plain store, before it checks that the slot still has its
probe. So a look from outside says something about threads that came before a barrier in all of them
(proc/barrier.py), or before they were all stopped: docs/decisions/0025-who-is-inside.md
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from markerjit.abi import CALLS_SIZE, Geometry
from markerjit.arena.control import ControlBlock
from markerjit.arena.markers import BEFORE_PROBE, Markers, runs
from markerjit.model import RemoteAddress
from markerjit.ring.raw import Store

_ENTERED, _LEFT = 0, 1


class Calls:
    """The calls of an arena's markers. An older arena has none: slots counted them."""

    def __init__(
        self, store: Store, control: ControlBlock, geometry: Geometry, markers: Markers
    ) -> None:
        self._store = store
        self._control = control
        self._geometry = geometry
        self._markers = markers

    def of_run(self, run: range) -> list[int]:
        """How often markers that follow each other were entered, each added up."""
        if not self._geometry.calls.entries or not self._control.number("data_used"):
            return [0] * len(run)
        return self._sums(run, _ENTERED)

    def is_entered(self, markers: Iterable[int]) -> bool:
        """Whether a thread is in a probe in C of one of these markers, or in the memory of an
        aggregate that one of them adds to, by locked instructions."""
        if not self._geometry.calls.entries:
            return False
        asked = [*runs(markers)]
        # First how often each was left: between the reads a thread that comes and goes would
        # otherwise balance one that is still inside.
        left = [self._sums(run, _LEFT) for run in asked]
        return left != [self._sums(run, _ENTERED) for run in asked]

    def _sums(self, run: range, word: int) -> list[int]:
        sums = [0] * len(run)
        for ring in range(self._geometry.rings):
            offset = self._geometry.calls_offset(ring, run.start)
            table = self._store.read(offset, len(run) * CALLS_SIZE)
            words: Sequence[int] = memoryview(table).cast("Q").tolist()
            sums = [(a + b) % (1 << 64) for a, b in zip(sums, words[word::2], strict=True)]
        return sums

    def markers_of(self, data: Iterable[int]) -> set[int]:
        """The markers that slots with these data may have had probes in C of: a slot is for a name,
        and has the entry of the way in which that was recorded last."""
        ids = (self._markers.at(RemoteAddress(word)) for word in data)
        names = {bytes(self._markers.entry(id).name) for id in ids if id is not None}
        if not names:
            return set()
        return {
            id
            for id, entry in enumerate(self._markers.entries())
            if bytes(entry.name) in names and entry.asks not in BEFORE_PROBE  # those have brakes
        }
