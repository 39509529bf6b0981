"""A CTF directory of ours as any other trace: its packets as columns.

Rings are read one after the other, so a packet may begin before another one of the batch before it
ends. What could have something older in the next batch is kept back until that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from markerjit.ring.batch import Columns
from markerjit.ring.columns import merge_types, take
from markerjit.ring.decode import decode
from markerjit.ring.types import Time
from markerjit.trace.ctf import read_ctf
from markerjit.trace.reading import ColumnTrace

_HELD_AT_MOST = 1 << 16
"""More records than this are kept back only where they are all of one batch."""


class CtfTrace(ColumnTrace):
    """A CTF directory. Its times are as they were recorded: `info.clock` turns them round."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.info, _, self._lost = read_ctf(path, self.complain)

    @property
    def lost(self) -> Mapping[tuple[int, str], int]:
        return self._lost

    def batches(self) -> Iterator[Sequence[Columns]]:
        found = self._as_written()
        return found if self.info.clock.time is Time.NONE else in_order(found)

    def _as_written(self) -> Iterator[Sequence[Columns]]:
        """A batch for each that was written."""
        _, packets, _ = read_ctf(self.path, self.complain)
        types = {kind.id: kind for kind in self.info.types}
        counted: dict[tuple[int, int], int] = {}
        for some in packets:
            if found := decode(some, types, counted=counted):
                yield found


def in_order(batches: Iterable[Sequence[Columns]]) -> Iterator[Sequence[Columns]]:
    """The same records, those of a batch not older than those of the batch before. It looks one
    batch ahead, so what is more than one too late stays where it is, or comes a little sooner."""
    held: Sequence[Columns] = []
    before = last = -1  # the newest times of what came up to the batch before last, and the last
    for batch in batches:
        until = min(int(one.time[0]) for one in batch)
        if sum(len(one.time) for one in held) > _HELD_AT_MOST:
            until = max(until, before + 1)
        parts = [take(one, until) for one in held]
        if earlier := [early for early, _ in parts if len(early.time)]:
            yield earlier
        held = merge_types([*(late for _, late in parts if len(late.time)), *batch])
        before, last = last, max(last, *(int(one.time[-1]) for one in batch))
    if held:
        yield held
