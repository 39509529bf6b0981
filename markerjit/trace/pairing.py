"""The records of a batch that begin and end spans (spans.py), for viewers that draw spans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from markerjit.ring.batch import Columns
from markerjit.ring.types import RecordType, Time
from markerjit.trace.spans import OpenSpans, Pair, pair_names
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

BEGIN, END, INSTANT = 1, 2, 3
"""The role of a record, with the numbers of Perfetto."""


class Side(NamedTuple):
    """A marker's side of a span: its begin, or its end."""

    pair: Pair
    begins: bool


class Cut(NamedTuple):
    """An end to insert before a record, for a span whose own end was not recorded."""

    row: int
    tid: int
    pair: Pair


class Pairing:
    """Finds the spans of batches, which come in order of time.

    Without recorded times the order of events is unknown, and there are no spans.
    """

    def __init__(self, types: Sequence[RecordType]) -> None:
        self.pairs = pair_names(kind.marker for kind in types if kind.time is not Time.NONE)
        self.sides = {pair.begin: Side(pair, True) for pair in self.pairs}
        self.sides.update((pair.end, Side(pair, False)) for pair in self.pairs)
        self._open = OpenSpans()

    def look_at(self, batch: Sequence[Columns], order: Array) -> tuple[Array, list[Cut]]:
        """The role of each record, and the ends to insert.

        Records are numbered as if the columns were concatenated.
        """
        sizes = [len(columns.time) for columns in batch]
        kinds = np.full(sum(sizes), INSTANT, np.uint8)
        sides = [self.sides.get(columns.type.marker) for columns in batch]
        cuts: list[Cut] = []
        if not any(sides):
            return kinds, cuts
        tids = np.concatenate([columns.tid for columns in batch])
        batches = np.repeat(np.arange(len(batch)), sizes)
        # A span belongs to a thread, so records without a thread id have none.
        paired = np.array([side is not None for side in sides])[batches] & (tids != 0)
        rows = order[paired[order]]
        for row, column, tid in zip(
            rows.tolist(), batches[rows].tolist(), tids[rows].tolist(), strict=True
        ):
            side = sides[column]
            assert side is not None
            if side.begins:
                if self._open.begin(tid, side.pair):
                    kinds[row] = BEGIN
            elif (inner := self._open.end(tid, side.pair)) is not None:
                kinds[row] = END
                cuts += [Cut(row, tid, pair) for pair in inner]
        return kinds, cuts


def with_cuts(order: Array, cuts: Sequence[Cut]) -> Array:
    """The order with the cuts inserted, each before its record.

    Cuts are numbered behind all records, in the order of `cuts`.
    """
    if not cuts:
        return order
    keys = np.empty(len(order), np.int64)
    keys[order] = np.arange(len(order)) * 2 + 1
    before = np.array([keys[cut.row] - 1 for cut in cuts])
    return np.argsort(np.concatenate([keys, before]), kind="stable")
