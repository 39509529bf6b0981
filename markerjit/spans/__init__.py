"""Spans of foreign code: the jumps into them, and the ways to open an address in them."""

from markerjit.spans.code import Code, Target, TargetKind
from markerjit.spans.openings import (
    Closed,
    HolePlace,
    Opening,
    TurnedDown,
    Way,
    best_opening,
    by_hole,
)

__all__ = [
    "Closed",
    "Code",
    "HolePlace",
    "Opening",
    "Target",
    "TargetKind",
    "TurnedDown",
    "Way",
    "best_opening",
    "by_hole",
]
