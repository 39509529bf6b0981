"""The stack that an address belongs to: areas of memory, between borders.

Stacks of threads, and most of coroutines and signal handlers, are mappings of their own. Some are
parts of one mapping: coroutines in the heap or in a variable. Nothing tells where such a stack ends
and the next one begins. A border between them is learned when a call goes on that had seemed to be
left (repair.py), and borders that were learned stay.

An address outside all mappings belongs to a thread that has ended, or to one that has begun since
the last look. So the mappings are read again at once for a page that is new, and at most once a
second for a page that was missing before.

What this does not do: read mappings (`look`).
"""

from __future__ import annotations

import time
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array

PAGE = 4096
_MOST_LEARNED = 1024
_MOST_MISSED = 1 << 16
_AGAIN_NS = 1_000_000_000


def _nothing() -> Sequence[tuple[int, int]]:
    return ()


class Areas:
    """The areas of a process. `look` returns the borders of its mappings, in order, and `clock` the
    time in nanoseconds."""

    def __init__(
        self,
        look: Callable[[], Sequence[tuple[int, int]]] = _nothing,
        clock: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._look, self._clock = look, clock
        self._mappings: Array = np.zeros(0, np.uint64)
        self._missed: Array = np.zeros(0, np.uint64)  # pages that were in none at the last looks
        self._looked_ns = 0
        self._learned: list[int] = []
        self._borders: list[int] = []

    def need(self, addresses: Array) -> None:
        """Read the mappings again where one of these addresses is in none: at most once a second
        for an address that was missing before."""
        pages = self._unmapped(addresses)
        if not len(pages):
            return
        now = self._clock()
        if now - self._looked_ns < _AGAIN_NS and np.isin(pages, self._missed).all():
            return
        self._looked_ns = now
        flat = [border for mapping in self._look() for border in mapping]
        self._mappings = np.array(flat, np.uint64)
        self._missed = np.union1d(self._missed, self._unmapped(addresses))[-_MOST_MISSED:]
        self._join()

    def of(self, address: int) -> int:
        """The area of an address, as a number that is valid until a border is learned."""
        return bisect_right(self._borders, address)

    def of_all(self, addresses: Array) -> Array:
        """The areas of many addresses."""
        borders = np.array(self._borders, np.uint64)
        return np.searchsorted(borders, addresses, side="right")

    def learn(self, low: int, high: int) -> None:
        """These addresses are of two stacks: `low` near the upper end of one, and `high` above."""
        if low >= high:
            return
        border = min((low // PAGE + 1) * PAGE, high)
        if border not in self._learned and len(self._learned) < _MOST_LEARNED:
            insort(self._learned, border)
            self._join()

    def _unmapped(self, addresses: Array) -> Array:
        """The pages of those of the addresses that are in no mapping."""
        places = np.searchsorted(self._mappings, addresses, side="right")
        # Two mappings that touch have a border twice, so an address in one has an odd place.
        return np.unique(addresses[places % 2 == 0] & np.uint64(-PAGE % (1 << 64)))

    def _join(self) -> None:
        self._borders = sorted({*self._mappings.tolist(), *self._learned})
