"""Blocks, added up by the site that asked for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from markerjit.allocations.heap import Blocks
from markerjit.allocations.steps import Steps
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

LIFETIMES = 64
"""Of a histogram of lifetimes: the number i is for those of 2^(i-1) to 2^i - 1 ns."""


class Totals(NamedTuple):
    """Sums of a site, each a number, or of all sites, each a column.

    allocations, asked, given  of all
    failed                     allocations that gave none
    frees, freed_asked, freed_given
                               of those that were freed
    lost_frees                 blocks whose address was given out again, without a free in between
    lost_asked, lost_given     their bytes
    other_thread, other_cpu    frees by another thread, or on another CPU, than the allocation
    lifetime_ns, longest_ns    of the blocks that were freed: the sum, and the largest
    """

    allocations: Array
    asked: Array
    given: Array
    failed: Array
    frees: Array
    freed_asked: Array
    freed_given: Array
    lost_frees: Array
    lost_asked: Array
    lost_given: Array
    other_thread: Array
    other_cpu: Array
    lifetime_ns: Array
    longest_ns: Array


class Sums:
    """Sums of all sites, by their numbers."""

    def __init__(self) -> None:
        self.totals = Totals(*(np.zeros(0, np.int64) for _ in Totals._fields))
        self.lifetimes: Array = np.zeros((0, LIFETIMES), np.int64)
        self.unknown_frees = self.unseen = 0
        self.live_given = self.most_given = 0
        self.most_at = 0

    def add(self, blocks: Blocks, sites: int) -> None:
        """Add what became of blocks; there are so many sites now."""
        self._grow(sites)
        self._add(blocks.made, "allocations", "asked", "given")
        self._add(blocks.unmade, "allocations", "asked", "given", sign=-1)
        self._add(blocks.failed, "failed")
        self._add(blocks.ended, "frees", "freed_asked", "freed_given")
        self._add(blocks.reused, "lost_frees", "lost_asked", "lost_given")
        self._add_ends(blocks.ended, blocks.frees)
        self.unknown_frees += blocks.unknown.rows
        self.unseen += blocks.unseen.rows
        self._note_most(blocks)

    def _grow(self, sites: int) -> None:
        more = sites - len(self.lifetimes)
        if more > 0:
            self.totals = Totals(
                *(np.concatenate([column, np.zeros(more, np.int64)]) for column in self.totals)
            )
            empty = np.zeros((more, LIFETIMES), np.int64)
            self.lifetimes = np.concatenate([self.lifetimes, empty])

    def _add(self, steps: Steps, count: str, *sizes: str, sign: int = 1) -> None:
        columns = self.totals._asdict()
        np.add.at(columns[count], steps.site, sign)
        for name, column in zip(sizes, (steps.asked, steps.given), strict=False):
            np.add.at(columns[name], steps.site, sign * column)

    def _add_ends(self, ended: Steps, frees: Steps) -> None:
        site, totals = ended.site, self.totals
        lifetime = np.maximum(frees.time - ended.time, 0)
        np.add.at(totals.other_thread, site, ended.tid != frees.tid)
        np.add.at(totals.other_cpu, site, ended.cpu != frees.cpu)
        np.add.at(totals.lifetime_ns, site, lifetime)
        np.maximum.at(totals.longest_ns, site, lifetime)
        bits = np.frexp(lifetime.astype(np.float64))[1]
        np.add.at(self.lifetimes, (site, np.minimum(bits, LIFETIMES - 1)), 1)

    def _note_most(self, blocks: Blocks) -> None:
        """How many bytes were live at most."""
        gone = Steps.joined([blocks.ended, blocks.reused, blocks.unmade])
        times = np.concatenate([blocks.made.time, blocks.frees.time, blocks.reused.time,
                                blocks.unmade.time])  # fmt: skip
        if not len(times):
            return
        changes = np.concatenate([blocks.made.given, -gone.given])
        order = np.argsort(times, kind="stable")
        live = self.live_given + np.cumsum(changes[order])
        at = int(np.argmax(live))
        if live[at] > self.most_given:
            self.most_given, self.most_at = int(live[at]), int(times[order[at]])
        self.live_given = int(live[-1])
