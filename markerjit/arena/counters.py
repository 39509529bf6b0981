"""The counters of the runtime: executions and losses of each marker, by ring."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from operator import add
from types import MappingProxyType

from markerjit.abi import Count, Geometry, MarkerEntry
from markerjit.arena.calls import Calls
from markerjit.arena.markers import NEAR, Markers, runs
from markerjit.ring.raw import Store
from markerjit.tuples import NamedTuple


class Counted(NamedTuple):
    """A marker's counters over all CPUs: executions of its probe, and those not recorded."""

    hits: int
    lost: int

    def plus(self, hits: int, lost: int = 0) -> Counted:
        """The sum."""
        return Counted(self.hits + hits, self.lost + lost)


class Counters:
    """The counters of an arena's markers."""

    def __init__(self, store: Store, geometry: Geometry, markers: Markers, calls: Calls) -> None:
        self._store = store
        self._geometry = geometry
        self._markers = markers
        self._calls = calls

    def of(self, marker: int) -> Counted:
        """A marker's counters, added up."""
        return self.of_all([marker])[marker]

    def of_all(
        self, markers: Iterable[int], known: Mapping[int, MarkerEntry] = MappingProxyType({})
    ) -> dict[int, Counted]:
        """The counters of many markers, each added up, with the calls of probes in C that the
        runtime's adapters counted. What slots counted of a probe that is connected is not in it.
        `known` are entries that were read just now."""
        asked = {*markers}
        counted: dict[int, Counted] = {}
        for run in runs(asked, apart=NEAR):
            if known.keys() >= set(run):
                entries = [known[marker] for marker in run]
            else:
                entries = self._markers.entries_between(run.start, len(run))
            hits = [int(entry.delivered + entry.calls) for entry in entries]
            calls = self._calls.of_run(run)
            for at, entry in enumerate(entries):  # with a question these are other words
                hits[at] += 0 if entry.asks else calls[at]
            lost = [0] * len(run)
            for words in self._words_by_ring(run):
                lost = list(map(add, lost, words[1::2]))
                hits = list(map(add, hits, map(add, words[::2], words[1::2])))
            counted.update(zip(run, map(Counted, hits, lost), strict=True))
        return {marker: counted[marker] for marker in sorted(asked)}

    def by_ring(self, marker: int) -> list[Count]:
        """A marker's counters, one for each ring."""
        geometry, size = self._geometry, ctypes.sizeof(Count)
        offsets = (geometry.count_offset(ring, marker) for ring in range(geometry.rings))
        return [Count.from_buffer_copy(self._store.read(at, size)) for at in offsets]

    def lost_by_ring(self, markers: Iterable[int]) -> dict[int, list[int]]:
        """The events of each of these markers that were lost, a number for each ring."""
        lost: dict[int, list[int]] = {}
        for run in runs(markers):
            columns = [words[1::2] for words in self._words_by_ring(run)]
            lost.update(zip(run, map(list, zip(*columns, strict=True)), strict=True))
        return lost

    def note_began(self, markers: Iterable[int]) -> None:
        """Write down how far the counters of these markers are, before they are switched on."""
        for run in runs(markers):
            passed, lost = [0] * len(run), [0] * len(run)
            for words in self._words_by_ring(run):
                passed = list(map(add, passed, words[::2]))
                lost = list(map(add, lost, words[1::2]))
            self._markers.note_began(list(zip(run, passed, lost, strict=True)))

    def _words_by_ring(self, run: range) -> Iterator[list[int]]:
        """For each ring the words of markers that follow each other: executions that passed, and
        those that were lost, of one marker after the other."""
        size = len(run) * ctypes.sizeof(Count)
        for ring in range(self._geometry.rings):
            table = self._store.read(self._geometry.count_offset(ring, run.start), size)
            yield memoryview(table).cast("Q").tolist()
