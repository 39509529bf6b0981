"""The answers of questions a value at a time, in Python's integers: what the reference of the
language says, as plainly as it can be written down. Other interpreters are compared with it."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping

from markerjit.abi import MAX_ASKED
from markerjit.questions.ir import (
    Binary,
    Choice,
    Compare,
    Constant,
    Convert,
    Load,
    Logic,
    Node,
    Slice,
    TextAt,
    TextTest,
    Unary,
    Value,
)
from markerjit.questions.types import Type

Values = Mapping[str, int | float | bytes | None]
"""By name. A bool is 0 or 1, a missing text None."""

Memory = Callable[[int], bytes]
"""What can be read from an address on, up to the first byte that cannot."""


def nowhere(address: int) -> bytes:
    """Memory of which nothing can be read."""
    return b""


class Missing(Exception):
    """A number in memory cannot be read, so what is computed of it is missing, too."""


def answer(node: Node, values: Values, memory: Memory = nowhere) -> int | float:
    """The value of an expression that is a number. Raises Missing."""
    match node:
        case Constant(value=value):
            assert not isinstance(value, bytes)
            return value
        case Value(name=name):
            number = values[name]
            assert isinstance(number, int | float)
            return number
        case Load(address=address):
            return _loaded(answer(address, values, memory), node, memory)
        case Convert(type=type_, operand=operand):
            return _converted(answer(operand, values, memory), type_)
        case Unary(operator="len", operand=text):
            return len(_text(text, values, memory) or b"")
        case Unary(operator="missing", operand=text) if text.type is Type.TEXT:
            return int(_text(text, values, memory) is None)
        case Unary(operator="missing", operand=operand):
            return int(_is_missing(operand, values, memory))
        case Unary(operator="truth", operand=operand) if _is_missing(operand, values, memory):
            return 0
        case Unary(type=type_, operator=symbol, operand=operand):
            return _unary(symbol, answer(operand, values, memory), type_)
        case Binary(type=Type.F64, operator=symbol, left=left, right=right):
            return _of_floats(symbol, answer(left, values, memory), answer(right, values, memory))
        case Binary(type=type_, operator=symbol, left=left, right=right):
            first, second = answer(left, values, memory), answer(right, values, memory)
            assert isinstance(first, int) and isinstance(second, int)
            return _wrapped(_of_integers(symbol, first, second, type_.bits), type_)
        case Compare(operator=symbol, left=left, right=right):
            if _is_missing(left, values, memory) or _is_missing(right, values, memory):
                return int(symbol == "!=")
            first, second = answer(left, values, memory), answer(right, values, memory)
            return int(_compared(symbol, first, second))
        case TextTest(operator=symbol, text=text, other=other):
            return int(_tested(symbol, _text(text, values, memory), _text(other, values, memory)))
        case Logic(operator="and", parts=parts):
            return int(all(answer(part, values, memory) for part in parts))
        case Logic(parts=parts):
            return int(any(answer(part, values, memory) for part in parts))
        case Choice(condition=condition, yes=yes, no=no):
            return answer(yes if answer(condition, values, memory) else no, values, memory)
    raise AssertionError(f"{type(node).__name__} is no number")


def _is_missing(node: Node, values: Values, memory: Memory) -> bool:
    try:
        answer(node, values, memory)
    except Missing:
        return True
    return False


def _loaded(address: int | float, load: Load, memory: Memory) -> int | float:
    assert isinstance(address, int)
    size = (4 if load.single else 8) if load.type is Type.F64 else load.type.bits // 8
    read = memory(address)[:size]
    if len(read) < size:
        raise Missing
    if load.type is Type.F64:
        number: float = struct.unpack("<f" if load.single else "<d", read)[0]
        return number
    return int.from_bytes(read, "little", signed=load.type.signed)


def _wrapped(value: int, type_: Type) -> int:
    value %= 1 << type_.bits
    return value - (1 << type_.bits) if value > type_.most else value


def _converted(value: int | float, type_: Type) -> int | float:
    if type_ is Type.F64:
        return float(value)
    if isinstance(value, int):
        return _wrapped(value, type_)
    if math.isfinite(value) and -(2**63) <= math.trunc(value) < 2**63:
        return math.trunc(value)
    return -(2**63)


def _unary(symbol: str, value: int | float, type_: Type) -> int | float:
    match symbol:
        case "-":
            return -value if isinstance(value, float) else _wrapped(-value, type_)
        case "~":
            assert isinstance(value, int)
            return _wrapped(-value - 1, type_)
        case "not":
            return int(not value)
        case "truth":
            return int(value != 0)
    assert symbol == "log2" and isinstance(value, int)
    return len(f"{value:b}") - 1 if value > 0 else -1


def _of_floats(symbol: str, left: float, right: float) -> float:
    match symbol:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    assert symbol == "/"
    if right != 0:
        return left / right
    if math.isnan(left) or left == 0:
        return math.nan
    return math.copysign(math.inf, math.copysign(1, left) * math.copysign(1, right))


def _of_integers(symbol: str, left: int, right: int, bits: int) -> int:
    match symbol:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
        case "&":
            return left & right
        case "|":
            return left | right
        case "^":
            return left ^ right
        case "<<":
            return left << right if 0 <= right < bits else 0
        case ">>":
            return left >> (right if 0 <= right < bits else bits)
    if right == 0:
        return 0
    rest = abs(left) % abs(right) * (-1 if left < 0 else 1)
    return rest if symbol == "%" else (left - rest) // right


def _compared(symbol: str, left: int | float, right: int | float) -> bool:
    match symbol:
        case "==":
            return left == right
        case "!=":
            return left != right
        case "<":
            return left < right
        case "<=":
            return left <= right
        case ">":
            return left > right
    assert symbol == ">="
    return left >= right


def _text(node: Node, values: Values, memory: Memory) -> bytes | None:
    match node:
        case TextAt(address=address):
            try:
                place = answer(address, values, memory)
            except Missing:
                return None
            assert isinstance(place, int)
            read = memory(place)[:MAX_ASKED]
            return read.split(b"\0")[0] if read else None
        case Constant(value=bytes() as value):
            return value
        case Value(name=name):
            text = values[name]
            assert text is None or isinstance(text, bytes)
            return text
        case Slice(text=inner, low=low, high=high):
            whole = _text(inner, values, memory)
            return None if whole is None else whole[low:high]
    raise AssertionError(f"{type(node).__name__} is no text")


def _tested(symbol: str, text: bytes | None, other: bytes | None) -> bool:
    if text is None or other is None:
        return False
    match symbol:
        case "==":
            return text == other
        case "startswith":
            return text.startswith(other)
    assert symbol == "contains"
    return other in text
