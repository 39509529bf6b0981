"""Costs as figures, from a fifth of a nanosecond to half a millisecond."""

from __future__ import annotations

from collections.abc import Callable

from markerjit.printable import counted as whole_counted
from markerjit.tuples import NamedTuple


class Unit(NamedTuple):
    """The way to write an amount, and the ends of an interval."""

    amount: Callable[[float], str]
    span: Callable[[float, float], str]


def figure(value: float) -> str:
    """A number with its significant digits: 0.21, 17.4, 2,029."""
    size = abs(value)
    if size < 99.995:
        return f"{value:.2f}"
    return f"{value:.1f}" if size < 999.95 else f"{value:,.0f}"


def signed(value: float) -> str:
    """A figure with its sign."""
    return figure(value) if value < 0 else f"+{figure(value)}"


def time_text(ns: float) -> str:
    """A time with three digits, in the unit that suits it."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size * 0.9995:
            value = ns / size
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:.{digits}f} {unit}".replace("-", "−")
    return f"{ns:.0f} ns".replace("-", "−")


TIME = Unit(time_text, lambda low, high: f"{time_text(low)} … {time_text(high)}")
"""Times from a few nanoseconds up to seconds."""


def unit(name: str) -> Unit:
    """A unit for all figures: ns, %."""
    return Unit(
        lambda amount: f"{figure(amount)} {name}",
        lambda low, high: f"{signed(low)} … {signed(high)} {name}",
    )


NS = unit("ns")


def counted(number: float, noun: str) -> str:
    """A count with its noun: 1 site, 1,000 sites. Numbers of a report are floats."""
    return whole_counted(round(number), noun)


def noise(floor: float, again: float, unit: str) -> str:
    """The noise floor, and the difference that it was made from, in words."""
    text = f"{floor:.2g} {unit}"
    return f"Noise floor: {text}; the same code twice differed by up to {again:.2g} {unit}."


def times(ratio: float) -> str:
    """A ratio with two digits, which is never shown as 1 unless it is 1."""
    if ratio < 10:
        return f"{ratio:.1f}"
    power = 10 ** max(0, len(str(int(ratio))) - 2)
    return f"{round(ratio / power) * power:,}"
