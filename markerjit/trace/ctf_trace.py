"""A reader of our CTF directories: their packets as columns.

Rings are read one after the other, so a packet may begin before a packet of the previous batch
ends. Records that may be newer than some of the next batch are held back until that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from markerjit.ring.batch import Columns
from markerjit.ring.columns import merge_types, take
from markerjit.ring.decode import decode
from markerjit.ring.types import Time, has_stacks
from markerjit.trace.ctf import read_ctf
from markerjit.trace.ctf.reader import size_of_rings
from markerjit.trace.ctf.stacks import read_stacks
from markerjit.trace.reading import ColumnTrace
from markerjit.trace.stacks import with_texts

_HELD_AT_MOST = 1 << 16
"""More records than this are held back only where they are all of one batch."""


class CtfTrace(ColumnTrace):
    """A CTF directory. Times are as they were recorded; `info.clock` converts them."""

    part = 0.0

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.info, _, self._lost = read_ctf(path, self.complain)

    @cached_property
    def _stacks(self) -> Mapping[int, str]:
        return read_stacks(Path(self.path), self.complain)

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._lost

    def batches(self) -> Iterator[Sequence[Columns]]:
        batches = self._as_written()
        return batches if self.info.clock.time is Time.NONE else in_order(batches)

    def _as_written(self) -> Iterator[Sequence[Columns]]:
        """The batches as they were written."""
        _, packets, _ = read_ctf(self.path, self.complain)
        read_bytes, size_bytes = 0, size_of_rings(self.path)
        types = {kind.id: kind for kind in self.info.types}
        counted: dict[tuple[int, int], int] = {}
        stacks = self._stacks if has_stacks(self.info.types) else None
        for batch in packets:
            read_bytes += sum(len(packet.data) for packet in batch)
            self.part = min(1.0, read_bytes / max(1, size_bytes))
            if columns := decode(batch, types, counted=counted):
                yield columns if stacks is None else with_texts(columns, stacks.get)


def in_order(batches: Iterable[Sequence[Columns]]) -> Iterator[Sequence[Columns]]:
    """The same records, in batches without records older than those of the previous batch.

    Looks one batch ahead. A record that is late by more than one batch stays in its batch, or comes
    a little earlier.
    """
    held: Sequence[Columns] = []
    before = last = -1  # the newest times up to the batch before last, and up to the last
    for batch in batches:
        until = min(int(part.time[0]) for part in batch)
        if sum(len(part.time) for part in held) > _HELD_AT_MOST:
            until = max(until, before + 1)
        halves = [take(part, until) for part in held]
        if earlier := [early for early, _ in halves if len(early.time)]:
            yield earlier
        held = merge_types([*(late for _, late in halves if len(late.time)), *batch])
        before, last = last, max(last, *(int(part.time[-1]) for part in batch))
    if held:
        yield held
