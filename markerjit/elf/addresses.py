"""Columns of addresses as sets. numpy has such functions too, which since its version 2.3 go by a
table of hashes: that takes ten times as long for the hundred thousands of addresses of an object.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Addresses = NDArray[np.int64]


def distinct(addresses: Addresses) -> Addresses:
    """Each of these once, sorted."""
    ordered = np.sort(addresses)
    is_first = np.ones(len(ordered), bool)
    is_first[1:] = ordered[1:] != ordered[:-1]
    chosen: Addresses = ordered[is_first]
    return chosen


def are_among(addresses: Addresses, known: Addresses) -> NDArray[np.bool_]:
    """Whether each of these is one of those that are known, which are sorted."""
    among: NDArray[np.bool_] = np.searchsorted(known, addresses) < np.searchsorted(
        known, addresses, "right"
    )
    return among
