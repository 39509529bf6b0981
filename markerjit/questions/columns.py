"""The answers for many events at once, with numpy.

Each value is an array with an element for each event, or an array without dimensions where all
events have the same. Integers wrap, and what C leaves undefined has the answer that
docs/reference/questions.md gives it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from markerjit.questions.ir import (
    Binary,
    Choice,
    Compare,
    Constant,
    Convert,
    Logic,
    Node,
    Slice,
    TextTest,
    Unary,
    Value,
)
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    Array = np.ndarray[Any, np.dtype[Any]]

_DTYPES = {
    Type.BOOL: np.bool_,
    Type.CHAR: np.uint8,
    Type.I8: np.int8,
    Type.U8: np.uint8,
    Type.I16: np.int16,
    Type.U16: np.uint16,
    Type.I32: np.int32,
    Type.U32: np.uint32,
    Type.I64: np.int64,
    Type.U64: np.uint64,
    Type.F64: np.float64,
    Type.POINTER: np.uint64,
}
_I64 = np.iinfo(np.int64)
_END_OF_I64 = 2.0**63
_BLOCK = 4096
"""The number of texts that are compared at a time."""


class TextColumn(NamedTuple):
    """A text of each event: data[starts[i]:starts[i] + lengths[i]], unless it is missing."""

    data: Array  # uint8
    starts: Array  # int64
    lengths: Array  # int64, 0 where it is missing
    missing: Array  # bool


Columns = Mapping[str, "Array | TextColumn"]
"""The values of names. Numbers may have any type that has all values of the name's type."""


def answers(condition: Node, columns: Columns, count: int) -> Array:
    """Whether each of `count` events meets the condition (bool)."""
    with np.errstate(all="ignore"):
        return np.broadcast_to(_number(condition, columns), (count,))


def values(node: Node, columns: Columns, count: int) -> Array:
    """A number, in its type, for each of `count` events."""
    with np.errstate(all="ignore"):
        numbers = np.broadcast_to(_number(node, columns), (count,))
    return numbers.astype(_DTYPES[node.type])


def _number(node: Node, columns: Columns) -> Array:
    match node:
        case Constant(type=type_, value=value):
            return np.array(value, _DTYPES[type_])
        case Value(type=type_, name=name):
            column = columns[name]
            assert not isinstance(column, TextColumn)
            return column.astype(_DTYPES[type_], copy=False)
        case Convert(type=type_, operand=operand):
            return _converted(_number(operand, columns), type_)
        case Unary():
            return _unary(node, columns)
        case Binary(operator=symbol, left=left, right=right):
            return np.asarray(_binary(symbol, _number(left, columns), _number(right, columns)))
        case Compare(operator=symbol, left=left, right=right):
            return _compared(symbol, _number(left, columns), _number(right, columns))
        case TextTest(operator=symbol, text=text, other=other):
            return _text_test(symbol, _text(text, columns), other, columns)
        case Logic(operator=symbol, parts=parts):
            joined = np.logical_and if symbol == "and" else np.logical_or
            answer = _number(parts[0], columns)
            for part in parts[1:]:
                answer = joined(answer, _number(part, columns))
            return answer
        case Choice(condition=condition, yes=yes, no=no):
            return np.where(
                _number(condition, columns), _number(yes, columns), _number(no, columns)
            )
    raise AssertionError(f"{type(node).__name__} is not computed of columns")


def _converted(values: Array, type_: Type) -> Array:
    dtype = _DTYPES[type_]
    if values.dtype.kind != "f":
        return values.astype(dtype)
    fits = (values >= -_END_OF_I64) & (values < _END_OF_I64)
    return np.where(fits, np.where(fits, values, 0).astype(np.int64), _I64.min)


def _unary(node: Unary, columns: Columns) -> Array:
    if node.operator in ("len", "missing"):
        text = _text(node.operand, columns)
        return text.missing if node.operator == "missing" else text.lengths.astype(np.int32)
    values = _number(node.operand, columns)
    match node.operator:
        case "-":
            return np.negative(values)
        case "~":
            return np.invert(values)
        case "not":
            return np.logical_not(values)
        case "truth":
            return np.asarray(values != 0)
        case "log2":
            return _log2(values)
    raise AssertionError(f"there is no {node.operator}")


def _binary(symbol: str, left: Array, right: Array) -> Array:
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
            return _shifted(np.left_shift, left, right)
        case ">>":
            return _shifted(np.right_shift, left, right)
        case "/" if left.dtype.kind == "f":
            return left / right
        case "/":
            return _divided(left, right)
        case "%":
            rest: Array = left - _divided(left, right) * right
            return np.where(right == 0, left.dtype.type(0), rest)
    raise AssertionError(f"there is no {symbol}")


def _divided(left: Array, right: Array) -> Array:
    """Towards 0, as C divides; by 0 it is 0."""
    if left.dtype.kind == "u":
        return np.where(right == 0, left.dtype.type(0), left // np.where(right == 0, 1, right))
    # By -1 it is a negation, which wraps: the processor refuses to divide the least integer by it.
    simple = (right == 0) | (right == -1)
    divisor = np.where(simple, left.dtype.type(1), right)
    quotient = left // divisor
    inexact = (quotient * divisor != left) & ((left < 0) != (divisor < 0))
    quotient = quotient + inexact.astype(left.dtype)
    answer = np.where(right == -1, np.negative(left), quotient)
    return np.where(right == 0, left.dtype.type(0), answer)


def _shifted(shift: np.ufunc, values: Array, counts: Array) -> Array:
    """A shift by a negative or too large count leaves nothing; to the right, it leaves the sign."""
    fits = (counts >= 0) & (counts < values.dtype.itemsize * 8)
    shifted = shift(values, np.where(fits, counts, 0).astype(values.dtype))
    gone = values.dtype.type(0)
    rest = np.where(values < 0, ~gone, gone) if shift is np.right_shift else gone
    answer: Array = np.where(fits, shifted, rest)
    return answer


def _log2(values: Array) -> Array:
    values = np.where(values > 0, values, 0).astype(np.uint64)
    answer = np.where(values == 0, -1, 0)
    for step in (32, 16, 8, 4, 2, 1):
        high = values >> np.uint64(step)
        answer = answer + np.where(high != 0, step, 0)
        values = np.where(high != 0, high, values)
    return answer.astype(np.int32)


def _compared(symbol: str, left: Array, right: Array) -> Array:
    match symbol:
        case "==":
            return _equal(left, right)
        case "!=":
            return np.logical_not(_equal(left, right))
        case "<":
            return _less(left, right, or_equal=False)
        case "<=":
            return _less(left, right, or_equal=True)
        case ">":
            return _less(right, left, or_equal=False)
        case ">=":
            return _less(right, left, or_equal=True)
    raise AssertionError(f"there is no {symbol}")


def _equal(left: Array, right: Array) -> Array:
    if left.dtype.kind == right.dtype.kind:
        return np.asarray(left == right)
    signed, unsigned = (left, right) if left.dtype.kind == "i" else (right, left)
    return np.asarray((signed >= 0) & (signed.astype(np.uint64) == unsigned))


def _less(left: Array, right: Array, *, or_equal: bool) -> Array:
    order = np.less_equal if or_equal else np.less
    if left.dtype.kind == right.dtype.kind:
        return np.asarray(order(left, right))
    if left.dtype.kind == "i":
        return np.asarray((left < 0) | order(left.astype(np.uint64), right))
    return np.asarray((right >= 0) & order(left, right.astype(np.uint64)))


def _text(node: Node, columns: Columns) -> TextColumn:
    match node:
        case Value(name=name):
            column = columns[name]
            assert isinstance(column, TextColumn)
            return column
        case Slice(text=inner, low=low, high=high):
            data, starts, lengths, missing = _text(inner, columns)
            begins = np.minimum(lengths, low)
            ends = lengths if high is None else np.minimum(lengths, high)
            return TextColumn(data, starts + begins, np.maximum(ends - begins, 0), missing)
    raise AssertionError(f"{type(node).__name__} is not a text of columns")


def _text_test(symbol: str, text: TextColumn, other: Node, columns: Columns) -> Array:
    if not isinstance(other, Constant):
        return _texts_equal(text, _text(other, columns))
    assert isinstance(other.value, bytes)
    pattern = np.frombuffer(other.value, np.uint8)
    if symbol == "contains":
        return _contains(text, pattern)
    if symbol == "==":
        candidates = ~text.missing & (text.lengths == len(pattern))
    else:
        candidates = ~text.missing & (text.lengths >= len(pattern))
    rows = np.flatnonzero(candidates)
    for place, byte in enumerate(pattern):  # fewer remain with each
        rows = rows[text.data[text.starts[rows] + place] == byte]
    answer = np.zeros(len(text.lengths), np.bool_)
    answer[rows] = True
    return answer


def _contains(text: TextColumn, pattern: Array) -> Array:
    if not len(pattern):
        return ~text.missing
    places = np.flatnonzero(text.data == pattern[0])
    places = places[places <= len(text.data) - len(pattern)]
    for ahead, byte in enumerate(pattern[1:], 1):
        places = places[text.data[places + ahead] == byte]
    # The first occurrence that does not begin before the text, if there is one.
    first = np.searchsorted(places, text.starts)
    ends = np.append(places, _I64.max - len(pattern))[first] + len(pattern)
    return ~text.missing & (ends <= text.starts + text.lengths)


def _texts_equal(left: TextColumn, right: TextColumn) -> Array:
    rows = np.flatnonzero(~left.missing & ~right.missing & (left.lengths == right.lengths))
    answer = np.zeros(len(left.lengths), np.bool_)
    for low in range(0, len(rows), _BLOCK):
        block = rows[low : low + _BLOCK]
        answer[block] = _bytes_equal(left, right, block)
    return answer


def _bytes_equal(left: TextColumn, right: TextColumn, rows: Array) -> Array:
    """Whether the texts of these rows, which are equally long, have equal bytes."""
    lengths = left.lengths[rows]
    ends = np.cumsum(lengths)
    ahead = np.arange(ends[-1]) - np.repeat(ends - lengths, lengths)
    differ = (
        left.data[np.repeat(left.starts[rows], lengths) + ahead]
        != right.data[np.repeat(right.starts[rows], lengths) + ahead]
    )
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(differ)])
    return np.asarray(before[ends] == before[ends - lengths])
