"""Numbers for threads, in the order in which they are first seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from markerjit.ring.batch import Array


class Threads:
    """The threads that were seen.

    tids    the kernel's number of each, by our number
    """

    def __init__(self) -> None:
        self.tids: Array = np.zeros(0, np.uint32)
        self._sorted: Array = np.zeros(0, np.uint32)
        self._numbers: Array = np.zeros(0, np.uint32)

    def __len__(self) -> int:
        return len(self.tids)

    def numbers(self, tids: Array) -> Array:
        """The number of each of these threads."""
        places = np.searchsorted(self._sorted, tids)
        known = np.zeros(len(tids), np.bool_)
        if len(self._sorted):
            known = self._sorted.take(places, mode="clip") == tids
        if not known.all():
            new = np.unique(tids[~known])
            self.tids = np.concatenate([self.tids, new])
            order = np.argsort(self.tids)
            self._sorted, self._numbers = self.tids[order], order.astype(np.uint32)
            places = np.searchsorted(self._sorted, tids)
        numbers: Array = self._numbers[places]
        return numbers
