"""Typed expressions. Each has its type, and its span in the text of the question.

Both operands of an operator have one type, and so has its result, except where a class says
otherwise. All conversions are explicit.
"""

from __future__ import annotations

from collections.abc import Iterator

from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple


class Span(NamedTuple):
    """A place in the text of the question, in characters."""

    start: int
    end: int


class Constant(NamedTuple):
    """A number or a text that is known. A bool is 0 or 1."""

    type: Type
    value: int | float | bytes
    span: Span


class Value(NamedTuple):
    """A field of the event, or a name that every event has."""

    type: Type
    name: str
    span: Span


class Stack(NamedTuple):
    """The number of the stack of an event, of at most `depth` frames. 0 where it is not known."""

    type: Type
    depth: int
    span: Span


class Load(NamedTuple):
    """A number in memory. The address is a u64. Where that cannot be read the number is missing,
    and so is what is computed of it: it passes no test. A float has 8 bytes, or 4 if it is
    `single`."""

    type: Type
    address: Node
    span: Span
    single: bool = False

    @property
    def size(self) -> int:
        """Its bytes in memory."""
        if self.type is Type.F64:
            return 4 if self.single else 8
        return self.type.bits // 8


class TextAt(NamedTuple):
    """A text in memory, up to its NUL. The address is a u64. It is missing where that cannot be
    read."""

    type: Type
    address: Node
    span: Span


class Convert(NamedTuple):
    """A number in another type, as C converts it; an f64 that an i64 cannot hold is its least."""

    type: Type
    operand: Node
    span: Span


class Unary(NamedTuple):
    """`-` and `~`; `not` (bool); `truth`: whether a number is not 0 (bool); `log2`: the number of
    the highest bit of an integer that is set, or -1 (i32); `len` of a text (i32); `missing`:
    whether a text is NULL, or a text or number could not be read (bool)."""

    type: Type
    operator: str
    operand: Node
    span: Span


class Binary(NamedTuple):
    """Arithmetic and bit operations. The count of a shift is an i64 or u64, whatever is shifted."""

    type: Type
    operator: str
    left: Node
    right: Node
    span: Span


class Compare(NamedTuple):
    """`==`, `!=`, `<`, `<=`, `>`, `>=` of two numbers, by their values (bool). Their types are
    equal, or i64 and u64."""

    type: Type
    operator: str
    left: Node
    right: Node
    span: Span


class TextTest(NamedTuple):
    """`==` of two texts, `startswith` or `contains` with a constant (bool). A text that is missing
    passes none."""

    type: Type
    operator: str
    text: Node
    other: Node
    span: Span


class Slice(NamedTuple):
    """The bytes of a text from `low` up to, and without, `high`; None is its end."""

    type: Type
    text: Node
    low: int
    high: int | None
    span: Span


class Logic(NamedTuple):
    """`and` or `or` of bools. What follows the one that decides is not computed."""

    type: Type
    operator: str
    parts: tuple[Node, ...]
    span: Span


class Choice(NamedTuple):
    """One of two numbers of its type, as a bool says."""

    type: Type
    condition: Node
    yes: Node
    no: Node
    span: Span


Node = (
    Constant
    | Value
    | Stack
    | Load
    | TextAt
    | Convert
    | Unary
    | Binary
    | Compare
    | TextTest
    | Slice
    | Logic
    | Choice
)


def operands(node: Node) -> tuple[Node, ...]:
    """The expressions that an expression is made of."""
    match node:
        case Constant() | Value() | Stack():
            return ()
        case Load(address=inner) | TextAt(address=inner) | Slice(text=inner):
            return (inner,)
        case Convert(operand=inner) | Unary(operand=inner):
            return (inner,)
        case Binary(left=left, right=right) | Compare(left=left, right=right):
            return (left, right)
        case TextTest(text=left, other=right):
            return (left, right)
        case Logic(parts=parts):
            return parts
        case Choice(condition=condition, yes=yes, no=no):
            return (condition, yes, no)


def may_be_missing(node: Node) -> bool:
    """Whether a number may be missing: what it is computed of has been read from memory. A bool is
    never missing."""
    if node.type is Type.BOOL or (isinstance(node, Unary) and node.operator == "len"):
        return False
    return isinstance(node, Load) or any(map(may_be_missing, operands(node)))


def whole_text(node: Node) -> Node:
    """The text that a text is a part of. A part of a part is a part of the whole (typed.py)."""
    return node.text if isinstance(node, Slice) else node


def show(node: Node) -> Iterator[str]:
    """The expression as lines, an operation each, its operands below it and indented."""
    yield f"{_label(node)} : {node.type}"
    for operand in operands(node):
        for line in show(operand):
            yield f"  {line}"


def _label(node: Node) -> str:
    match node:
        case Constant(value=value):
            return f"constant {value!r}"
        case Value(name=name):
            return f"value {name}"
        case Stack(depth=depth):
            return f"stack of {depth} frames"
        case Load():
            return "load"
        case TextAt():
            return "text at"
        case Convert(operand=operand):
            return f"convert from {operand.type}"
        case Slice(low=low, high=high):
            return f"bytes {low}:{'' if high is None else high}"
        case Choice():
            return "choice"
        case TextTest(operator=operator) | Compare(operator=operator) | Logic(operator=operator):
            return operator
        case Unary(operator=operator) | Binary(operator=operator):
            return operator
