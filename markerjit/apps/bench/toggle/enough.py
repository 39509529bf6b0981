"""When a measurement ends: it has rounds enough for an interval, or its time is over."""

from __future__ import annotations

from markerjit.errors import MarkerError

FEWEST = 5
LEAST = 2
"""The rounds of a measurement in which one round takes many times the time that there is."""
PATIENCE = 4


class TooSlow(MarkerError):
    """Even a few rounds would take many times the time that there is; the message says how long."""


def is_over(rounds: int, spent: float, seconds: float) -> bool:
    """Whether there is enough: after the time, some rounds; few where each takes very long."""
    return (rounds >= FEWEST and spent > seconds) or (
        rounds >= LEAST and spent > seconds * PATIENCE
    )
