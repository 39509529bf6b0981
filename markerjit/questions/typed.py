"""A tree of syntax, with the names of a scope, as a typed expression.

Numbers meet as C has them (types.py). A calculation with constants alone is exact, however large
they are in between, and then has the type that C gives such a constant. A condition that depends
only on the name of the marker is decided here, and the part that it rules out is not typed.

A comparison with a name that these events do not have is unknown, and `and`, `or` and `not` treat
it as SQL does. An unknown condition is not met.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence

from markerjit.errors import BadQuestion
from markerjit.questions.constants import COMPARE, constant_in, of_floats, of_integers
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
    Span,
    Stack,
    TextAt,
    TextTest,
    Unary,
    Value,
    may_be_missing,
)
from markerjit.questions.scope import DEPTH, MOST_DEPTH, NAME, STACK, Scope, hidden
from markerjit.questions.syntax import (
    EVENT,
    FIELD,
    HAS,
    MEMORY,
    TEXT_AT,
    Syntax,
    event_name,
    field_name,
    name_asked_for,
)
from markerjit.questions.types import (
    Type,
    common,
    compared,
    promoted,
    type_of_constant,
)

_ARITHMETIC: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.Mod: "%",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
}


class LacksName(Exception):
    """The events have no value of this name, so the condition is unknown."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


def condition(syntax: Syntax, scope: Scope) -> Node:
    """The expression as a bool. Raises BadQuestion, and LacksName."""
    return _Typing(syntax, scope).condition(syntax.tree)


def expression(syntax: Syntax, scope: Scope) -> Node:
    """The expression as a number, a bool or a text. Raises BadQuestion, and LacksName."""
    return _Typing(syntax, scope).node(syntax.tree)


def as_float(node: Node) -> Node:
    """The number as an f64."""
    return _converted(node, Type.F64)


class _Typing:
    """The typing of one expression in one scope."""

    def __init__(self, syntax: Syntax, scope: Scope) -> None:
        self._syntax = syntax
        self._scope = scope

    def condition(self, tree: ast.expr, dropping: str = "or") -> Node:
        """The tree as a bool that is 0 where it is unknown. `dropping` is the operator whose
        unknown operands then change nothing: `or`, and behind a `not` it is `and`."""
        span = self._syntax.span(tree)
        match tree:
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                inner = self.condition(operand, "and" if dropping == "or" else "or")
                return _negated(inner, span)
            case ast.BoolOp(op=op, values=values):
                symbol = "and" if isinstance(op, ast.And) else "or"
                return self._logic(symbol, values, span, dropping)
        return self.truth(self.node(tree), tree)

    def node(self, tree: ast.expr) -> Node:
        """The typed expression of a tree."""
        span = self._syntax.span(tree)
        match tree:
            case ast.Constant(value=value):
                return self._constant(value, tree)
            case ast.Name(id=name):
                return self._value(name, span)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return _negated(self.truth(self.node(operand), operand), span)
            case ast.UnaryOp(op=sign, operand=operand):
                return self._unary(sign, operand, tree)
            case ast.BinOp(left=left, op=op, right=right):
                return self._binary(_ARITHMETIC[type(op)], left, right, tree)
            case ast.BoolOp(op=op, values=values):
                return self._logic("and" if isinstance(op, ast.And) else "or", values, span, "")
            case ast.Compare():
                return self._comparisons(tree)
            case ast.IfExp(test=test, body=yes, orelse=no):
                return self._choice(test, yes, no, tree)
            case ast.Subscript(value=inner, slice=ast.Slice(lower=lower, upper=upper)):
                return self._slice(inner, lower, upper, span)
            case ast.Call():
                return self._call(tree)
        raise AssertionError(f"{type(tree).__name__} is not in the language")

    def truth(self, node: Node, tree: ast.expr) -> Node:
        """The expression as a bool: whether a number is not 0."""
        if node.type is Type.TEXT:
            raise self._wrong('a text is neither true nor false; compare it, as in s != ""', tree)
        if node.type is Type.BOOL:
            return node
        if isinstance(node, Constant):
            return _bool(node.value != 0, node.span)
        return Unary(Type.BOOL, "truth", _converted(node, promoted(node.type)), node.span)

    def _wrong(self, sentence: str, place: ast.expr | Span) -> BadQuestion:
        return self._syntax.wrong(sentence, place)

    def _constant(self, value: object, tree: ast.expr) -> Node:
        span = self._syntax.span(tree)
        match value:
            case bool():
                return _bool(value, span)
            case int():
                return self._integer(value, tree)
            case float():
                return Constant(Type.F64, value, span)
            case str():
                try:
                    return Constant(Type.TEXT, value.encode(), span)
                except UnicodeEncodeError:
                    raise self._wrong("a text is of characters that UTF-8 has", tree) from None
            case bytes():
                return Constant(Type.TEXT, value, span)
        raise AssertionError(f"{value!r} is not in the language")

    def _integer(self, value: int, tree: ast.expr) -> Node:
        """An integer with the type that C gives such a constant."""
        type_ = type_of_constant(value)
        if type_ is None:
            raise self._wrong("this constant does not fit into 64 bits", tree)
        return Constant(type_, value, self._syntax.span(tree))

    def _value(self, name: str, span: Span) -> Node:
        scope = self._scope
        if name in scope.types:
            if name == NAME and name not in scope.fields:
                return Constant(Type.TEXT, scope.marker.encode(errors="replace"), span)
            if scope.types[name] is Type.STACK:
                return Stack(Type.STACK, DEPTH, span)
            return Value(scope.types[name], name, span)
        raise self._lack(name, span)

    def _field(self, name: str, span: Span) -> Node:
        if name not in self._scope.fields:
            raise LacksName(name)
        return self._value(name, span)

    def _of_event(self, name: str, span: Span) -> Node:
        """A value that is no field, also where a field has its name."""
        scope = self._scope
        if name not in scope.fields:
            return self._value(name, span)
        if name not in scope.event:
            raise self._lack(name, span)
        if name == NAME:
            return Constant(Type.TEXT, scope.marker.encode(errors="replace"), span)
        if name == STACK:
            return Stack(Type.STACK, DEPTH, span)
        return Value(scope.event[name], hidden(name), span)

    def _lack(self, name: str, span: Span) -> Exception:
        if name in self._scope.unknown:
            return self._wrong(f"{name} is not known: {self._scope.unknown[name]}", span)
        return LacksName(name)

    def _number(self, tree: ast.expr, use: str) -> Node:
        node = self.node(tree)
        if node.type is Type.TEXT:
            raise self._wrong(f"this is a text, and {use} takes a number", tree)
        return node

    def _whole(self, tree: ast.expr, use: str) -> Node:
        node = self._number(tree, use)
        if node.type is Type.F64:
            raise self._wrong(f"this is a float, and {use} takes an integer; see int(x)", tree)
        return node

    def _unary(self, sign: ast.unaryop, operand: ast.expr, tree: ast.expr) -> Node:
        symbol = {ast.USub: "-", ast.UAdd: "+", ast.Invert: "~"}[type(sign)]
        node = (self._whole if symbol == "~" else self._number)(operand, symbol)
        span = self._syntax.span(tree)
        if isinstance(node, Constant):
            assert not isinstance(node.value, bytes)
            if isinstance(node.value, float):
                return Constant(Type.F64, -node.value if symbol == "-" else node.value, span)
            value = node.value
            return self._integer({"-": -value, "+": value, "~": ~value}[symbol], tree)
        converted = _converted(node, promoted(node.type))
        return converted if symbol == "+" else Unary(converted.type, symbol, converted, span)

    def _binary(self, symbol: str, left: ast.expr, right: ast.expr, tree: ast.expr) -> Node:
        span = self._syntax.span(tree)
        take = self._number if symbol in "+-*/" else self._whole
        first, second = take(left, symbol), take(right, symbol)
        if isinstance(first, Constant) and isinstance(second, Constant):
            return self._calculated(symbol, first, second, tree)
        if symbol in ("<<", ">>"):
            type_ = promoted(first.type)
            count = Type.U64 if promoted(second.type) is Type.U64 else Type.I64
            return Binary(type_, symbol, _converted(first, type_), _converted(second, count), span)
        type_ = common(first.type, second.type)
        return Binary(type_, symbol, _converted(first, type_), _converted(second, type_), span)

    def _calculated(self, symbol: str, first: Constant, second: Constant, tree: ast.expr) -> Node:
        left, right = first.value, second.value
        assert not isinstance(left, bytes) and not isinstance(right, bytes)
        if isinstance(left, int) and isinstance(right, int):
            if symbol in ("<<", ">>") and not 0 <= right < 64:
                raise self._wrong("a constant is shifted by 0 to 63 bits", tree)
            return self._integer(of_integers(symbol, left, right), tree)
        return Constant(
            Type.F64, of_floats(symbol, float(left), float(right)), self._syntax.span(tree)
        )

    def _logic(self, symbol: str, trees: Sequence[ast.expr], span: Span, dropping: str) -> Node:
        decides = symbol == "or"
        parts: list[Node] = []
        wrong: Exception | None = None
        for tree in trees:
            try:
                part = (
                    self.condition(tree, dropping)
                    if dropping
                    else self.truth(self.node(tree), tree)
                )
            except LacksName as error:
                wrong = wrong or error
                continue
            except BadQuestion as error:
                wrong = error
                continue
            if not isinstance(part, Constant):
                parts.append(part)
            elif bool(part.value) is decides:
                # The others cannot change that, in whatever order they stand.
                return _bool(decides, span)
        if wrong and (isinstance(wrong, BadQuestion) or symbol != dropping or not parts):
            raise wrong
        return _joined(symbol, parts, span)

    def _comparisons(self, tree: ast.Compare) -> Node:
        parts: list[Node] = []
        left = tree.left
        for op, right in zip(tree.ops, tree.comparators, strict=True):
            parts.append(self._comparison(op, left, right))
            left = right
        span = self._syntax.span(tree)
        if any(isinstance(part, Constant) and not part.value for part in parts):
            return _bool(False, span)
        return _joined("and", [part for part in parts if not isinstance(part, Constant)], span)

    def _comparison(self, op: ast.cmpop, left: ast.expr, right: ast.expr) -> Node:
        span = Span(self._syntax.span(left).start, self._syntax.span(right).end)
        match op:
            case ast.Is() | ast.IsNot():
                test = self._missing(left, span)
                return test if isinstance(op, ast.Is) else _negated(test, span)
            case ast.In() | ast.NotIn():
                test = self._within(left, right, span)
                return test if isinstance(op, ast.In) else _negated(test, span)
        symbol = _COMPARISONS[type(op)]
        return self._compared(symbol, self.node(left), self.node(right), left, right, span)

    def _missing(self, tree: ast.expr, span: Span) -> Node:
        node = self.node(tree)
        if node.type is Type.TEXT:
            if isinstance(node, Constant):
                return _bool(False, span)
            return Unary(Type.BOOL, "missing", node, span)
        if node.type is Type.POINTER:
            zero = Constant(Type.U64, 0, span)
            return Compare(Type.BOOL, "==", _converted(node, Type.U64), zero, span)
        if may_be_missing(node):
            return Unary(Type.BOOL, "missing", node, span)
        raise self._wrong(f"this is of type {node.type}, which is never None", tree)

    def _within(self, left: ast.expr, right: ast.expr, span: Span) -> Node:
        if isinstance(right, ast.Tuple):
            node = self.node(left)
            parts = [
                self._compared("==", node, self.node(tree), left, tree, span) for tree in right.elts
            ]
            if any(isinstance(part, Constant) and part.value for part in parts):
                return _bool(True, span)
            return _joined("or", [part for part in parts if not isinstance(part, Constant)], span)
        needle, text = self.node(left), self.node(right)
        if text.type is not Type.TEXT:
            raise self._wrong(
                f"behind `in` stands a text or (1, 2, 3), and this is of type {text.type}", right
            )
        return self._text_test("contains", text, needle, left, span)

    def _compared(
        self, symbol: str, first: Node, second: Node, left: ast.expr, right: ast.expr, span: Span
    ) -> Node:
        first = self._as_character(first, second, left)
        second = self._as_character(second, first, right)
        if (first.type is Type.TEXT) != (second.type is Type.TEXT):
            raise self._wrong(
                f"a text and a number cannot be compared: {self._described(first)}, and "
                f"{self._described(second)}",
                span,
            )
        if first.type is Type.TEXT:
            return self._texts_compared(symbol, first, second, span)
        self._check_fit(first, second, left)
        self._check_fit(second, first, right)
        if isinstance(first, Constant) and isinstance(second, Constant):
            return _bool(COMPARE[symbol](first.value, second.value), span)
        left_type, right_type = _types_compared(first, second)
        first, second = _converted(first, left_type), _converted(second, right_type)
        return Compare(Type.BOOL, symbol, first, second, span)

    def _texts_compared(self, symbol: str, first: Node, second: Node, span: Span) -> Node:
        if symbol not in ("==", "!="):
            raise self._wrong("texts are compared with == and != only", span)
        test: Node
        if isinstance(first, Constant) and isinstance(second, Constant):
            test = _bool(first.value == second.value, span)
        elif isinstance(first, Constant):
            test = TextTest(Type.BOOL, "==", second, first, span)
        else:
            test = TextTest(Type.BOOL, "==", first, second, span)
        return _negated(test, span) if symbol == "!=" else test

    def _as_character(self, node: Node, other: Node, tree: ast.expr) -> Node:
        """A constant text that is compared with a character, as a number."""
        if other.type is not Type.CHAR or not isinstance(node, Constant):
            return node
        if not isinstance(node.value, bytes):
            return node
        if len(node.value) != 1:
            raise self._wrong("this is not one byte, and it is compared with a character", tree)
        return Constant(Type.I32, node.value[0], node.span)

    def _check_fit(self, node: Node, other: Node, tree: ast.expr) -> None:
        """Refuse a constant that the type of what it is compared with does not have."""
        if not isinstance(node, Constant) or not isinstance(node.value, int):
            return
        type_ = other.type
        if isinstance(other, Constant) or type_ is Type.F64:
            return
        if not type_.least <= node.value <= type_.most:
            raise self._wrong(
                f"{node.value} does not fit into {type_}, the type of what it is compared with "
                f"({type_.least} to {type_.most})",
                tree,
            )

    def _described(self, node: Node) -> str:
        start, end = node.span
        text = self._syntax.text[start:end]
        return f"{text if len(text) <= 30 else 'the other'} is of type {node.type}"

    def _choice(self, test: ast.expr, yes: ast.expr, no: ast.expr, tree: ast.expr) -> Node:
        decision = self.truth(self.node(test), test)
        if isinstance(decision, Constant):
            return self.node(yes if decision.value else no)
        first, second = (self._number(part, "x if c else y") for part in (yes, no))
        both = {first.type, second.type}
        type_ = first.type if len(both) == 1 else common(first.type, second.type)
        span = self._syntax.span(tree)
        return Choice(type_, decision, _converted(first, type_), _converted(second, type_), span)

    def _slice(
        self, inner: ast.expr, lower: ast.expr | None, upper: ast.expr | None, span: Span
    ) -> Node:
        text = self.node(inner)
        if text.type is not Type.TEXT:
            raise self._wrong(f"this is of type {text.type}, and only texts have parts", inner)
        low, high = (
            bound.value if isinstance(bound, ast.Constant) else None for bound in (lower, upper)
        )
        assert isinstance(low, int | None) and isinstance(high, int | None)
        low = low or 0
        if isinstance(text, Constant):
            assert isinstance(text.value, bytes)
            return Constant(Type.TEXT, text.value[low:high], span)
        if isinstance(text, Slice):  # a part of a part is a part
            ends = [text.high, None if high is None else text.low + high]
            end = min((end for end in ends if end is not None), default=None)
            return Slice(Type.TEXT, text.text, text.low + low, end, span)
        return Slice(Type.TEXT, text, low, high, span)

    def _call(self, call: ast.Call) -> Node:
        span = self._syntax.span(call)
        argument = call.args[0]
        if isinstance(call.func, ast.Attribute):
            text = self.node(call.func.value)
            if text.type is not Type.TEXT:
                raise self._wrong(f"this is of type {text.type}; only texts start with", call)
            return self._text_test("startswith", text, self.node(argument), argument, span)
        assert isinstance(call.func, ast.Name)
        name = call.func.id
        if name == FIELD:
            return self._field(field_name(call) or "", span)
        if name == EVENT:
            return self._of_event(event_name(call) or "", span)
        if name == STACK:
            return self._stack(argument, call)
        if name == HAS:
            return _bool(name_asked_for(call) in self._scope.types, span)
        if name in (*MEMORY, TEXT_AT):
            return self._memory(name, argument, call)
        if name == "len":
            return self._length(argument, span)
        if name == "log2":
            return self._log2(argument, span)
        node = self._number(argument, name)
        return _converted(node, Type.F64 if name == "float" else Type.I64)._replace(span=span)

    def _memory(self, name: str, argument: ast.expr, call: ast.Call) -> Node:
        if self._scope.memory:
            raise self._wrong(f"{name}(…) reads memory, and {self._scope.memory}", call)
        span = self._syntax.span(call)
        address = _converted(self._whole(argument, name), Type.U64)
        if name == TEXT_AT:
            return TextAt(Type.TEXT, address, span)
        if name in ("f32", "f64"):
            return Load(Type.F64, address, span, single=name == "f32")
        return Load(Type(name), address, span)

    def _stack(self, argument: ast.expr, call: ast.Call) -> Node:
        node = self._of_event(STACK, self._syntax.span(call))
        depth = self.node(argument)
        value = depth.value if isinstance(depth, Constant) else None
        if type(value) is not int or not 1 <= value <= MOST_DEPTH:
            sentence = f"stack takes a number of frames, from 1 to {MOST_DEPTH}"
            raise self._wrong(sentence, argument)
        if not isinstance(node, Stack):  # of a stored trace
            raise self._wrong("these events have a field of this name", call)
        return node._replace(depth=value)

    def _length(self, argument: ast.expr, span: Span) -> Node:
        text = self.node(argument)
        if text.type is not Type.TEXT:
            raise self._wrong(f"this is of type {text.type}, and len takes a text", argument)
        if isinstance(text, Constant):
            assert isinstance(text.value, bytes)
            return Constant(Type.I32, len(text.value), span)
        return Unary(Type.I32, "len", text, span)

    def _log2(self, argument: ast.expr, span: Span) -> Node:
        node = self._whole(argument, "log2")
        if isinstance(node, Constant):
            assert isinstance(node.value, int)
            return Constant(Type.I32, max(node.value, 0).bit_length() - 1, span)
        return Unary(Type.I32, "log2", _converted(node, promoted(node.type)), span)

    def _text_test(self, symbol: str, text: Node, other: Node, tree: ast.expr, span: Span) -> Node:
        if not isinstance(other, Constant) or not isinstance(other.value, bytes):
            raise self._wrong("this has to be a constant text", tree)
        if isinstance(text, Constant):
            assert isinstance(text.value, bytes)
            if symbol == "contains":
                return _bool(other.value in text.value, span)
            return _bool(text.value.startswith(other.value), span)
        return TextTest(Type.BOOL, symbol, text, other, span)


def _types_compared(left: Node, right: Node) -> tuple[Type, Type]:
    """The types in which two numbers are compared. An integer constant fits the other's type."""
    for constant, other in ((left, right), (right, left)):
        if isinstance(constant, Constant) and Type.F64 not in (constant.type, other.type):
            return promoted(other.type), promoted(other.type)
    type_ = compared(left.type, right.type)
    if type_ is not None:
        return type_, type_
    return (Type.I64, Type.U64) if promoted(left.type).signed else (Type.U64, Type.I64)


def _bool(value: object, span: Span) -> Constant:
    return Constant(Type.BOOL, int(bool(value)), span)


def _negated(node: Node, span: Span) -> Node:
    if isinstance(node, Constant):
        return _bool(not node.value, span)
    return Unary(Type.BOOL, "not", node, span)


def _joined(symbol: str, parts: Sequence[Node], span: Span) -> Node:
    """The `and` or `or` of these. Without operands it is the constant that decides nothing."""
    if not parts:
        return _bool(symbol == "and", span)
    return parts[0] if len(parts) == 1 else Logic(Type.BOOL, symbol, tuple(parts), span)


def _converted(node: Node, type_: Type) -> Node:
    """The number in another type."""
    if node.type is type_:
        return node
    if isinstance(node, Constant):
        assert not isinstance(node.value, bytes)
        return Constant(type_, constant_in(node.value, type_), node.span)
    return Convert(type_, node, node.span)
