"""Histograms and quantiles, compared with the values that were added."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest


def compare_with_histogram(values: np.ndarray, histogram: Any) -> None:
    """Each power of two has as many values as were in it."""
    buckets = [bucket for bucket in histogram.buckets() if bucket.number]
    is_whole = isinstance(buckets[0].low, int)
    for low, high, number in buckets:
        is_behind_low = values >= low if is_whole or low >= 0 else values > low
        is_before_high = values <= high if is_whole or high <= 0 else values < high
        assert np.count_nonzero(is_behind_low & is_before_high) == number


def compare_with_quantiles(values: np.ndarray, sketch: Any) -> None:
    """Each quantile differs by at most 2 % from the exact one."""
    for fraction in (0, 0.01, 0.1, 0.5, 0.9, 0.99, 0.999, 1):
        exact = np.quantile(values, fraction, method="lower")
        assert sketch.quantile(fraction) == pytest.approx(exact, rel=0.02, abs=2.0**-32)
