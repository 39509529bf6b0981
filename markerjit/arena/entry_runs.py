"""Entries of markers that follow each other, as they stand: for a switch that is made once more.

All of them are read at once, compared but for what switches write, and written at once. That takes
one system call in place of one for each marker.

What this does not do: know whether others may write entries meanwhile (session/again.py).
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from operator import add

from markerjit.abi import MarkerEntry
from markerjit.arena.arena import Arena
from markerjit.arena.markers import NUMBERS, WORD_MASK
from markerjit.model import Mode

_SINCE, _MODE = MarkerEntry.since.offset, MarkerEntry.mode.offset
_BEFORE = MarkerEntry.hits_before.offset
_SWITCHED = struct.Struct("<QI")
"""The fields `since` and `by`."""
_PAIR = struct.Struct("<QQ")
_COUNT_BYTES = 16

Parts = list[tuple[bytes, ...]]
"""The parts of entries that no switch writes."""


class EntryRun:
    """The entries of these markers of an arena, each of which is the only one of its marker."""

    def __init__(self, arena: Arena, markers: range) -> None:
        geometry = arena.geometry
        self._store = arena.store
        self._size = arena.markers.entry_size
        self._at = geometry.markers.at(markers.start)
        self._count = len(markers)
        self._counts_at = [
            geometry.count_offset(ring, markers.start) for ring in range(geometry.rings)
        ]
        self._unwritten = _unwritten(self._size)
        self._pair = struct.Struct(f"<{_BEFORE}x2Q{self._size - _BEFORE - _PAIR.size}x")
        self._counts: list[bytes] = []
        self._counted: list[tuple[int, int]] = []

    def read(self) -> bytes:
        """The entries, as they are now."""
        return self._store.read(self._at, self._count * self._size)

    def parts(self, entries: bytes) -> Parts:
        """What no switch writes of them."""
        return list(self._unwritten.iter_unpack(entries))

    def counted(self, entries: bytes) -> Sequence[tuple[int, int]]:
        """Executions and losses of each marker, up to now. What readers took out and what probes in
        C had is among what no switch writes: the same `parts` are expected each time."""
        size = self._count * _COUNT_BYTES
        counts = [self._store.read(at, size) for at in self._counts_at]
        if counts != self._counts:
            step = self._size
            known = (MarkerEntry.from_buffer_copy(entries, at * step) for at in range(self._count))
            hits, lost = [int(entry.delivered + entry.calls) for entry in known], [0] * self._count
            for ring in counts:
                words = memoryview(ring).cast("Q").tolist()
                lost = list(map(add, lost, words[1::2]))
                hits = list(map(add, hits, map(add, words[::2], words[1::2])))
            self._counted = [
                (hits & WORD_MASK, lost & WORD_MASK) for hits, lost in zip(hits, lost, strict=True)
            ]
            self._counts = counts
        return self._counted

    def note(
        self,
        entries: bytes,
        modes: Sequence[Mode | None],
        *,
        since: int,
        by: int,
        counted: Sequence[tuple[int, int]] = (),
    ) -> None:
        """Write down that the markers were switched: on since `since` (CLOCK_REALTIME, s), by the
        process `by`. `counted` is what was counted of each before it was switched on."""
        noted, on, off = bytearray(entries), _SWITCHED.pack(since, by), bytes(_SWITCHED.size)
        step = self._size
        for at, mode in zip(range(0, self._count * step, step), modes, strict=True):
            noted[at + _SINCE : at + _SINCE + _SWITCHED.size] = on if mode else off
            noted[at + _MODE] = NUMBERS[mode] if mode else 0
        if counted and counted != list(self._pair.iter_unpack(entries)):
            for index, mode in enumerate(modes):
                if mode:
                    _PAIR.pack_into(noted, index * step + _BEFORE, *counted[index])
        self._store.write(self._at, bytes(noted))


def _unwritten(size: int) -> struct.Struct:
    """The parts of an entry of so many bytes that no switch writes."""
    written = (
        (_SINCE, MarkerEntry.id.offset),
        (_MODE, MarkerEntry.asks.offset),
        (_BEFORE, MarkerEntry.counted.offset),
    )
    layout, at = "<", 0
    for start, end in written:
        layout += f"{start - at}s{end - start}x"
        at = end
    return struct.Struct(f"{layout}{size - at}s")
