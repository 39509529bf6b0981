"""Spans of foreign code: what jumps into them, and how an address of them can be opened."""

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
