"""The buckets of histograms: where C puts a value and where the controller looks for it."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import c_uint64

from markerjit.probes.c.unit import Compiled
from markerjit.probes.c.values import BUCKETS, Histogram, bucket_low
from tests.support.probe_host import Host

BUCKET = """
#include <markerjit/probe.h>
void f(struct mj_slot *slot, uint64_t value, unsigned *bucket) { *bucket = mj_bucket(value); }
"""


def test_buckets_are_where_the_controller_thinks(
    host: Host, build_one: Callable[..., Compiled]
) -> None:
    probe = host.load(build_one(BUCKET))
    bucket = ctypes.c_uint()

    for index in range(BUCKETS):
        for value in (bucket_low(index), bucket_low(index + 1) - 1):
            probe.call("f", c_uint64(value), ctypes.byref(bucket))
            assert bucket.value == index

    assert bucket_low(BUCKETS) == 1 << 64


def test_a_bucket_is_at_most_a_quarter_as_wide_as_its_values_are_large() -> None:
    for index in range(4, BUCKETS):
        assert (bucket_low(index + 1) - bucket_low(index)) * 4 <= bucket_low(index)


def test_percentiles_are_upper_ends_of_buckets() -> None:
    counts = [0] * BUCKETS
    counts[1], counts[20] = 98, 2
    histogram = Histogram(tuple(counts))

    assert histogram.total == 100
    assert histogram.percentile(50) == 1
    assert histogram.percentile(99) == bucket_low(21) - 1
    assert Histogram((0,) * BUCKETS).percentile(50) is None
