"""Samples as a histogram."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

BINS = 24
_TAIL = 50


def histogram(samples: Sequence[float]) -> dict[str, Any]:
    """Bins of equal width over the middle 96 % of the samples, with the number of the others in
    `outside`. The caller must pass at least one sample. `low`, `width` and `median` have the unit
    of the samples."""
    in_order = sorted(samples)
    tail = len(in_order) // _TAIL
    inner = in_order[tail : len(in_order) - tail]
    low, high = inner[0], inner[-1]
    width = (high - low) / BINS or 1.0
    counts = [0] * BINS
    for sample in inner:
        counts[min(int((sample - low) / width), BINS - 1)] += 1
    return {
        "low": low,
        "width": width,
        "counts": counts,
        "median": in_order[len(in_order) // 2],
        "outside": 2 * tail,
    }
