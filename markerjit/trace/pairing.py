"""Which records of a batch begin and end a span (spans.py), for viewers that draw them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from markerjit.ring.batch import Columns
from markerjit.ring.types import RecordType, Time
from markerjit.trace.spans import OpenSpans, Pair, pair_names

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

BEGIN, END, INSTANT = 1, 2, 3
"""What a record is: Perfetto's numbers."""


class Side(NamedTuple):
    """What a marker is of a span."""

    pair: Pair
    begins: bool


class Cut(NamedTuple):
    """The end of a span, before a record: its own end was not seen."""

    row: int
    tid: int
    pair: Pair


class Pairing:
    """Fed with batches in the order of their time. Without one nobody knows what began before what:
    there are no spans."""

    def __init__(self, types: Sequence[RecordType]) -> None:
        self.pairs = pair_names(kind.marker for kind in types if kind.time is not Time.NONE)
        self.sides = {pair.begin: Side(pair, True) for pair in self.pairs}
        self.sides.update((pair.end, Side(pair, False)) for pair in self.pairs)
        self._open = OpenSpans()

    def look_at(self, batch: Sequence[Columns], order: Array) -> tuple[Array, list[Cut]]:
        """What each record is, and what is to be ended. Records are counted as if the columns stood
        one behind the other."""
        sizes = [len(columns.time) for columns in batch]
        kinds = np.full(sum(sizes), INSTANT, np.uint8)
        sides = [self.sides.get(columns.type.marker) for columns in batch]
        cuts: list[Cut] = []
        if not any(sides):
            return kinds, cuts
        tids = np.concatenate([columns.tid for columns in batch])
        which = np.repeat(np.arange(len(batch)), sizes)
        # Without a thread there is nobody whose spans they could be.
        paired = np.array([side is not None for side in sides])[which] & (tids != 0)
        rows = order[paired[order]]
        for row, column, tid in zip(
            rows.tolist(), which[rows].tolist(), tids[rows].tolist(), strict=True
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
    """The order with the cuts in it, each before its record; they are counted behind all records,
    in the order that they have here."""
    if not cuts:
        return order
    keys = np.empty(len(order), np.int64)
    keys[order] = np.arange(len(order)) * 2 + 1
    before = np.array([keys[cut.row] - 1 for cut in cuts])
    return np.argsort(np.concatenate([keys, before]), kind="stable")
