"""Costs as figures, whether they are a fifth of a nanosecond or half a millisecond."""

from __future__ import annotations


def figure(value: float) -> str:
    """With as many digits as say something: 0.21, 17.4, 2,029."""
    size = abs(value)
    if size < 99.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 999.95 else f"{value:,.0f}"


def signed(value: float) -> str:
    """The same with its sign."""
    return figure(value) if value < 0 else f"+{figure(value)}"


def times(ratio: float) -> str:
    """How many times as much: to two digits, and never 1 where it is not."""
    if ratio < 10:
        return f"{ratio:.1f}"
    power = 10 ** max(0, len(str(int(ratio))) - 2)
    return f"{round(ratio / power) * power:,}"
