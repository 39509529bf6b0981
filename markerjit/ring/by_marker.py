"""A number for each marker, to be looked up for many records at once.

Ids have up to 22 bits, and few of them are in use. So a table ends behind the largest id that has a
number, and all ids above share one entry.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from markerjit.ring.types import HEAD, Head

if TYPE_CHECKING:
    from markerjit.ring.batch import Array


class ByMarker:
    """These numbers, of a type of numpy's, by the id of a marker.

    others   the number of every other id
    filler   the number of a filler
    """

    def __init__(
        self, numbers: Mapping[int, int], dtype: type, *, others: int, filler: int
    ) -> None:
        # Entry id + 1, so that the id of a filler, the largest, wraps around to entry 0.
        self._table: Array = np.full(max(numbers, default=-1) + 3, others, dtype)
        self._table[0] = filler
        for marker, number in numbers.items():
            self._table[marker + 1] = number

    def of(self, heads: Array, head: Head = HEAD) -> Array:
        """The number of each record, by its head or by its marker's id."""
        places = heads + 1
        places &= head.filler
        numbers: Array = self._table.take(places, mode="clip")
        return numbers
