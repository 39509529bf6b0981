"""The text of an expression as a tree of Python's `ast`, of which a subset is allowed."""

from __future__ import annotations

import ast
import re
import warnings
from collections.abc import Iterator
from functools import lru_cache

from markerjit.errors import BadQuestion
from markerjit.questions.arrows import prepare
from markerjit.questions.ir import Span
from markerjit.questions.scope import NAME, OF_EVENT
from markerjit.tuples import NamedTuple

LONGEST = 4096
"""The most characters of an expression."""
DEEPEST = 60
"""The most levels of an expression: the functions that walk it recurse once for each."""
MEMORY = ("u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "f32", "f64")
"""Functions that read numbers in memory, by the type that they read."""
TEXT_AT = "str"
"""The function that reads a text in memory."""
FIELD = "field"
"""The function that names a field, whatever it is called."""
EVENT = "event"
"""The function that names a value of the event, which no field hides."""
HAS = "has"
"""The function that says whether an event has a name, which is known before any event comes."""
_TEXTS = 256
"""A question is parsed once, however many markers and steps ask for its tree."""
FUNCTIONS = ("len", "log2", "int", "float", FIELD, EVENT, "stack", HAS, TEXT_AT, *MEMORY)
"""All functions. Each has one argument."""

_NODES = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.UAdd, ast.Invert),
    *(ast.BinOp, ast.Add, ast.Sub, ast.Mult, ast.Div, ast.Mod),
    *(ast.BitAnd, ast.BitOr, ast.BitXor, ast.LShift, ast.RShift),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE),
    *(ast.In, ast.NotIn, ast.Is, ast.IsNot),
    *(ast.IfExp, ast.Call, ast.Constant, ast.Name, ast.Load, ast.Subscript, ast.Slice),
    *(ast.Attribute, ast.Tuple),
)
_REASONS: dict[type[ast.AST], str] = {
    ast.FloorDiv: "there is no //; / divides integers as C does, to an integer",
    ast.Pow: "there is no **; powers of two are 1 << n",
    ast.MatMult: "there is no @",
    ast.List: "there are no lists; write (1, 2, 3) behind `in`",
    ast.Set: "there are no sets; write (1, 2, 3) behind `in`",
    ast.JoinedStr: "there are no f-strings",
    ast.NamedExpr: "there is no assignment",
    ast.Lambda: "there are no functions of your own",
}


_NO_MEMBERS = (
    "members of structures, such as req->url and *p, are known of the arguments of functions "
    "(func:NAME) in a process; a text has only .startswith(…)"
)


_OPERATORS = {
    "&&": "and", "AND": "and", "||": "or", "OR": "or", "!": "not", "=": "==", "===": "==",
    "<>": "!=", "?": "x if c else y",
}  # fmt: skip
"""Those of other languages, and how they are written here."""
_ANY_OPERATOR = re.compile("|".join(map(re.escape, sorted(_OPERATORS, key=len, reverse=True))))


class Named(NamedTuple):
    """A name in an expression, and where it stands. `is_field`: it is written as `field("name")`,
    which means nothing else."""

    name: str
    span: Span
    is_field: bool = False


class Syntax(NamedTuple):
    """An expression whose nodes are all of the subset, but of whose names nothing is known."""

    text: str
    tree: ast.expr
    indent: int

    def span(self, node: ast.expr) -> Span:
        """The place of a node in the text."""
        if self.text.isascii():
            end = self.indent + (node.end_col_offset or 0)
            return Span(self.indent + node.col_offset, end)
        encoded = self.text[self.indent :].encode()
        start, end = (
            self.indent + len(encoded[: offset or 0].decode(errors="replace"))
            for offset in (node.col_offset, node.end_col_offset)
        )
        return Span(start, end)

    def names(self) -> Iterator[Named]:
        """The names of fields and of values of the event, and where they stand; without those of
        `event("name")`, which are known."""
        functions = set()
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Call):
                functions.add(node.func)
                if (name := field_name(node)) is not None:
                    yield Named(name, self.span(node), is_field=True)
            elif isinstance(node, ast.Name) and node not in functions:
                yield Named(node.id, self.span(node))

    def wrong(self, sentence: str, place: ast.expr | Span) -> BadQuestion:
        """The error of a place."""
        return BadQuestion(
            sentence, self.text, *(place if isinstance(place, Span) else self.span(place))
        )


@lru_cache(_TEXTS)
def parse(text: str) -> Syntax:
    """The tree of an expression. Raises BadQuestion where it is not one of the language."""
    line = text.replace("\n", " ")
    if len(text) > LONGEST:
        raise BadQuestion(f"it has more than {LONGEST} characters", text, 0, 0)
    for at, char in enumerate(line):
        if not char.isprintable() and char != "\t":
            raise BadQuestion("it has a character that cannot be printed", line, at, at + 1)
    check_not_empty(line)
    indent = len(line) - len(line.lstrip())
    prepared = prepare(line)
    syntax = Syntax(line, tree_of(prepared.line, indent), indent)
    if prepared.stars:
        star = min(prepared.stars)
        raise syntax.wrong(_NO_MEMBERS, Span(star, star + 1))
    _check(syntax, syntax.tree, 0)
    return syntax


def check_not_empty(text: str) -> None:
    """Raises BadQuestion for a text without an expression."""
    if not text.strip():
        raise BadQuestion("an expression is empty", text, 0, 0)


def field_name(call: ast.Call) -> str | None:
    """The name in `field("name")`; None for other calls."""
    return _name_in(call, FIELD)


def event_name(call: ast.Call) -> str | None:
    """The name in `event("name")`; None for other calls."""
    return _name_in(call, EVENT)


def name_asked_for(call: ast.Call) -> str | None:
    """The name in `has("name")`; None for other calls."""
    return _name_in(call, HAS)


def _name_in(call: ast.Call, function: str) -> str | None:
    if isinstance(call.func, ast.Name) and call.func.id == function and len(call.args) == 1:
        name = call.args[0]
        if isinstance(name, ast.Constant) and isinstance(name.value, str):
            return name.value
    return None


def asks_for_name(syntax: Syntax) -> bool:
    """Whether an expression is `name`, or `event("name")`."""
    match syntax.tree:
        case ast.Name(id=name):
            return name == NAME
        case ast.Call() as call:
            return event_name(call) == NAME
    return False


def tree_of(line: str, indent: int) -> ast.expr:
    """The tree of a line, whatever is in it, with places from `indent` on. Raises BadQuestion."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about escapes in texts
            return ast.parse(line[indent:], mode="eval").body
    except SyntaxError as error:
        # Without an offset the end came too early.
        start = indent + error.offset - 1 if error.offset else len(line)
        end = indent + (error.end_offset or 0) - 1
        sentence = f"this is not an expression: {error.msg}"
        for operator in _ANY_OPERATOR.finditer(line):
            if operator.start() <= start < operator.end():
                start, end = operator.span()
                sentence += f"; write `{_OPERATORS[operator[0]]}` in place of `{operator[0]}`"
        raise BadQuestion(sentence, line, start, max(start, end)) from None
    except (RecursionError, MemoryError):
        raise BadQuestion("it is too deep", line, indent, indent) from None
    except ValueError as error:  # such as a number of thousands of digits
        raise BadQuestion(f"this is not an expression: {error}", line, indent, indent) from None


def _check(syntax: Syntax, node: ast.AST, depth: int) -> None:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.operator):
            assert isinstance(node, ast.expr)
            _check_class(syntax, child, node)
    if not isinstance(node, ast.expr):
        return
    _check_class(syntax, node, node)
    if depth == DEEPEST:
        raise syntax.wrong(f"it has more than {DEEPEST} levels", node)
    match node:
        case ast.Call():
            _check_call(syntax, node)
        case ast.Attribute():
            raise syntax.wrong(_NO_MEMBERS, node)
        case ast.Compare():
            _check_comparison(syntax, node)
        case ast.Tuple():
            raise syntax.wrong("values in brackets stand behind `in` only", node)
        case ast.Constant(value=value) if not isinstance(value, (bool, int, float, str, bytes)):
            if value is None:
                raise syntax.wrong("None stands behind `is` only", node)
            raise syntax.wrong(f"there is no {type(value).__name__}", node)
        case ast.Subscript(value=inner, slice=ast.Slice() as part):
            for bound in (part.lower, part.upper):
                whole = isinstance(bound, ast.Constant) and type(bound.value) is int
                if bound is not None and not whole:
                    raise syntax.wrong("the ends of a part are numbers from 0 on: s[:8]", bound)
            if part.step is not None:
                raise syntax.wrong("a part has no step", part.step)
            _check(syntax, inner, depth + 1)
        case ast.Subscript():
            raise syntax.wrong("a part of a text is written s[:8] or s[2:4]", node)
        case _:
            for child in ast.iter_child_nodes(node):
                _check(syntax, child, depth + 1)
            return
    for operand in _operands(node):
        _check(syntax, operand, depth + 1)


def _operands(node: ast.expr) -> Iterator[ast.expr]:
    """The operands of calls and comparisons."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Attribute):
            yield node.func.value
        if field_name(node) is None:
            yield from node.args
    elif isinstance(node, ast.Compare):
        yield node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(right, ast.Tuple):
                yield from right.elts
            elif not isinstance(operator, (ast.Is, ast.IsNot)):
                yield right


def _check_class(syntax: Syntax, node: ast.AST, place: ast.expr) -> None:
    if not isinstance(node, _NODES):
        name = type(node).__name__
        sentence = _REASONS.get(type(node), f"this is not in the language ({name})")
        raise syntax.wrong(sentence, place)


def _check_call(syntax: Syntax, call: ast.Call) -> None:
    match call.func:
        case ast.Name(id=name):
            if name not in FUNCTIONS:
                raise _no_function(syntax, name, call.func)
        case ast.Attribute(attr="startswith"):
            name = "startswith"
        case ast.Attribute():
            raise syntax.wrong("a text has only .startswith(…)", call)
        case _:
            raise syntax.wrong("this cannot be called", call)
    starred = any(isinstance(argument, ast.Starred) for argument in call.args)
    if len(call.args) != 1 or call.keywords or starred:
        raise syntax.wrong(f"{name} takes one argument", call)
    if name == EVENT and event_name(call) not in OF_EVENT:
        known = ", ".join(f'"{each}"' for each in OF_EVENT)
        raise syntax.wrong(f"event takes one of {known}", call)
    if name == FIELD and field_name(call) is None:
        raise syntax.wrong('field takes a name as a text: field("from")', call)
    if name == HAS and name_asked_for(call) is None:
        raise syntax.wrong('has takes a name as a text: has("ret")', call)


def _no_function(syntax: Syntax, name: str, node: ast.expr) -> BadQuestion:
    import difflib

    nearest = difflib.get_close_matches(name, FUNCTIONS)
    hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
    known = ", ".join(FUNCTIONS)
    return syntax.wrong(f"there is no function {name}{hint}; there are {known}", node)


def _check_comparison(syntax: Syntax, node: ast.Compare) -> None:
    for operator, right in zip(node.ops, node.comparators, strict=True):
        if isinstance(operator, (ast.Is, ast.IsNot)):
            if not isinstance(right, ast.Constant) or right.value is not None:
                raise syntax.wrong("`is` and `is not` have None behind them; use == or !=", right)
        elif isinstance(right, ast.Tuple) and not isinstance(operator, (ast.In, ast.NotIn)):
            raise syntax.wrong("values in brackets stand behind `in` only", right)
        elif isinstance(right, ast.Tuple) and not right.elts:
            raise syntax.wrong("there is nothing in the brackets", right)
