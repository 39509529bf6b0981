"""Calculations with the constants of a question, before there is an event."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

from markerjit.questions.types import Type, wrapped

COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
"""Comparisons of constants."""
_ON_FLOATS: dict[str, Callable[[float, float], float]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}
_ON_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
}


def constant_in(value: int | float, type_: Type) -> int | float:
    """The number in another type, as C converts it."""
    if type_ is Type.F64:
        return float(value)
    if isinstance(value, float):
        fits = math.isfinite(value) and type_.least <= int(value) <= type_.most
        return int(value) if fits else type_.least
    return wrapped(value, type_)


def of_integers(symbol: str, left: int, right: int) -> int:
    """The exact result of an operator. A count of a shift is not negative."""
    if symbol in _ON_INTEGERS:
        return _ON_INTEGERS[symbol](left, right)
    match symbol:
        case "<<":
            return left << right
        case ">>":
            return left >> right
    if right == 0:
        return 0
    quotient = abs(left) // abs(right)
    quotient = -quotient if (left < 0) != (right < 0) else quotient
    return quotient if symbol == "/" else left - quotient * right


def of_floats(symbol: str, left: float, right: float) -> float:
    """The result of an operator as IEEE 754 has it."""
    if symbol != "/":
        return _ON_FLOATS[symbol](left, right)
    if right:
        return left / right
    if left == 0 or math.isnan(left):
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1, right)
