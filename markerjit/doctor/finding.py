"""A finding, and the verdict on several of them."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.tuples import NamedTuple

GOOD = "good"
WARNING = "warning"
WALL = "wall"


class Finding(NamedTuple):
    """A fact about one subject. `level` is GOOD, WARNING or WALL.

    `what` is the subject, one of the words of docs/reference/doctor.md, `found` the fact, and
    `way_round` the advice, "" where nothing has to be done.
    """

    level: str
    what: str
    found: str
    way_round: str = ""


def split(level: str, what: str, message: str) -> Finding:
    """A finding from the message of an error, whose way round follows its last semicolon."""
    fact, _, way_round = message.rpartition("; ")
    if not fact:
        return Finding(level, what, message, "none that is known here")
    return Finding(level, what, fact, way_round)


def works(findings: Sequence[Finding]) -> bool:
    """Whether the job can work: no wall is in the way."""
    return all(finding.level != WALL for finding in findings)


def verdict(findings: Sequence[Finding]) -> str:
    """One line: `this will work`, or the first wall and how many more there are."""
    walls = [finding for finding in findings if finding.level == WALL]
    if not walls:
        return "this will work"
    more = f" (and {len(walls) - 1} more in the way)" if len(walls) > 1 else ""
    return f"this cannot work: {walls[0].found}{more}"
