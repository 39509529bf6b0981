"""The sums that the runtime has made of blocks, by the numbers of their sites.

What this does not do: resolve the numbers of sites (session/allocation_sites.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

import markerjit.abi as abi
from markerjit.arena.aggregates import Words
from markerjit.arena.blocks import Blocks
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    import numpy.typing as npt

    Column = npt.NDArray[np.int64]

_JUMP = abi.BLOCK_KEPT | abi.BLOCK_JUMP


class Heap(NamedTuple):
    """The content of a copy of the tables in the target. Every column has a row for each site, by
    its number.

    keys       the key of each site, by its number
    counts     a row of MJ_BLOCK_COUNTS numbers for each site
    live       the number of live blocks; `live_asked` and `live_given` are their bytes
    oldest     the time at which the oldest live block was allocated, in ticks of the blocks' clock
    unknown    frees of blocks that are not known: allocated before, or untracked
    unseen     allocations whose block is not known
    begun      allocations that another function had not finished yet
    no_site    allocations whose site found no room
    """

    keys: Mapping[int, int]
    counts: Column
    live: Column
    live_asked: Column
    live_given: Column
    oldest: npt.NDArray[np.uint64]
    unknown: int
    unseen: int
    begun: int
    no_site: int

    @property
    def made(self) -> int:
        """The number of allocations that gave a block, including those without a site."""
        return int(self.counts[:, abi.BLOCK_ALLOCATIONS].sum()) + self.no_site


def heap_of(copy: Words | Blocks) -> Heap:
    """The numbers of a copy, summed over CPUs. A copy without blocks has none live."""
    rings = [np.frombuffer(ring, np.int64) for ring in copy.rings]
    missed = np.sum([ring[: abi.MISSED] for ring in rings], axis=0)
    each = [ring[abi.MISSED :].reshape(-1, abi.BLOCK_COUNTS) for ring in rings]
    counts = np.sum(each, axis=0)
    if len(counts):
        counts[:, abi.BLOCK_LONGEST] = np.max([ring[:, abi.BLOCK_LONGEST] for ring in each], axis=0)
    sites = len(counts)
    blocks = copy.blocks if isinstance(copy, Blocks) else b""
    rows = np.frombuffer(blocks, np.uint64).reshape(-1, abi.BLOCK_WORDS)
    key, time, asked, given, where, _ = rows.T
    is_jump = (key & np.uint64(_JUMP)) == np.uint64(_JUMP)
    site = (where & np.uint64(abi.NO_SITE)).astype(np.int64)
    is_live = ~is_jump & (site < sites)
    site = site[is_live]
    oldest = np.full(sites, np.iinfo(np.uint64).max, np.uint64)
    np.minimum.at(oldest, site, time[is_live])
    sums = [np.zeros(sites, np.int64) for _ in range(3)]
    for column, value in zip(sums, (np.ones_like(asked), asked, given), strict=True):
        np.add.at(column, site, value[is_live].astype(np.int64))
    keys = {number: int.from_bytes(key, "little") for key, number in copy.keys if number < sites}
    return Heap(
        keys, counts, sums[0], sums[1], sums[2], oldest, int(missed[abi.MISSED_UNKNOWN]),
        int(missed[abi.MISSED_UNSEEN]), int(is_jump.sum()), int(missed[abi.MISSED_FULL]),
    )  # fmt: skip
