"""The knee of dormant jumps, which get expensive when a processor cannot predict all of them.

A dormant `jump` is a taken jump, and a dormant `nop` is the same code without it. Both were run in
the same rounds, so the difference of their times has an interval of its own. The knee is between
the two measured numbers of sites at which that difference begins to stand out.
"""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.apps.bench.sampling.shapes import Part, Report
from markerjit.apps.bench.sampling.statistics import Estimate, difference
from markerjit.tuples import NamedTuple

TAKEN, NOT_TAKEN = "jump", "nop"
_SHOWS_NS = 0.5
"""The least difference at the knee: more than layout does to a few sites, and less than the cost of
a jump that is not predicted (about 5 ns)."""


class Point(NamedTuple):
    """The extra time of the jump over the no-op, at some number of sites."""

    sites: int
    more: Estimate
    shows: bool


def points(report: Report) -> list[Point]:
    """The points by number of sites, without those where a form was not measured or the noise was
    too large."""
    measured = []
    for part in sorted(report.parts, key=lambda part: part.sites):
        if part.kind == "large" and not part.noisy and (more := _more(part)):
            measured.append(Point(round(part.sites), more, more.low > max(_SHOWS_NS, part.floor)))
    return measured


def sentence(measured: Sequence[Point]) -> str:
    """The knee in a sentence; "" where fewer than two numbers of sites were measured."""
    if len(measured) < 2:
        return ""
    first = next((number for number, point in enumerate(measured) if point.shows), None)
    if first is None:
        most = measured[-1].sites
        same = f"{TAKEN} is not seen to cost {_SHOWS_NS} ns more than {NOT_TAKEN}"
        return f"Taken jumps have no knee here up to {most:,} sites: {same}."
    at = measured[first]
    before = f"between {measured[first - 1].sites:,} and" if first else "below"
    return (
        f"Taken jumps have a knee here {before} {at.sites:,} sites. With that many a dormant "
        f"{TAKEN} takes {at.more.text()} more than a dormant {NOT_TAKEN}. Compile a program with "
        f"as many hot sites with -DMJ_MODE={NOT_TAKEN}."
    )


def _more(part: Part) -> Estimate | None:
    taken, not_taken = part.form(TAKEN), part.form(NOT_TAKEN)
    return difference(taken.samples, not_taken.samples) if taken and not_taken else None
