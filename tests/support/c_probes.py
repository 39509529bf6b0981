"""Probes written in C, and what they have counted in a process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.support.commands import facts

TURNS = """
#include <markerjit/probe.h>

MJ_COUNTER(turns);
MJ_COUNTER(sum);
MJ_HISTOGRAM(numbers);

void count(struct mj_slot *slot, int i, unsigned long n) {
    mj_count(&turns);
    mj_add(&sum, (uint64_t)i);
    mj_histogram(&numbers, n);
}

void tell(struct mj_slot *slot, int i, unsigned long n) {
    count(slot, i, n);
    if (n % 10 == 0)
        mj_emit(tenth, "who %d n %lu tid %u at %s", i, n, mj_tid(), mj_marker_name(slot));
}
"""

ANY = """
#include <markerjit/probe.h>

MJ_COUNTER(passed);

void any(struct mj_slot *slot, ...) { mj_count(&passed); }
"""

SLOW = """
#include <markerjit/probe.h>

MJ_COUNTER(begun);
MJ_COUNTER(ended);

void slow(struct mj_slot *slot, ...) {
    const uint64_t since = mj_time();

    mj_count(&begun);
    while (mj_ns(mj_time() - since) < 20000000)
        __asm__ __volatile__("pause");
    mj_count(&ended);
}
"""


def write_probe(directory: Path, source: str, function: str, name: str = "probe.c") -> str:
    """Write a file of probes: what --probe calls a function in it."""
    (directory / name).write_text(source)
    return f"{directory / name}:{function}"


def values(pid: int) -> dict[str, Any]:
    """What all probes have counted, as `status` says."""
    values: dict[str, Any] = {}
    for probe in facts("status", pid)["probes"]:
        values |= probe["counters"] | probe["histograms"]
    return values
