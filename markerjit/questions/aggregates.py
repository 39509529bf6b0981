"""An aggregate as a question: the value that is added up, its key, and its condition.

    count()    hist(size)    quantiles(us * 1000)    stat(size)    sum(x) min(x) max(x) avg(x)

A key is a tuple of integers and texts. All markers that add to an aggregate have keys and values of
the same types, so that what they add can be added.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache

from markerjit.errors import BadQuestion
from markerjit.questions.arrows import prepare
from markerjit.questions.ask import Lack, check_hidden, check_names
from markerjit.questions.buckets import Scale
from markerjit.questions.ir import Constant, Node, Slice, TextAt, Value, whole_text
from markerjit.questions.scope import OF_EVENT, Scope
from markerjit.questions.syntax import Syntax, asks_for_name, parse
from markerjit.questions.typed import LacksName, as_float, condition, expression
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple

DEFAULT_TEXT = 64
"""Bytes of a text in a key, unless it is told otherwise."""
MOST_TEXT = 248
"""The runtime looks at 256 bytes of a text, and must be able to see that a text is longer."""
MOST_PARTS = 6
MOST_WORDS = 64
_WORD = 8
_TEXTS = 64
_CALL = re.compile(r"\s*(\w+)\s*\((.*)\)\s*", re.DOTALL)


class Does(Enum):
    """The way in which the values of a key are combined. `STAT` is all of count, sum, min, max and
    avg."""

    COUNT = "count"
    SUM = "sum"
    MIN = "min"
    MAX = "max"
    AVG = "avg"
    STAT = "stat"
    HIST = "hist"
    QUANTILES = "quantiles"

    def __str__(self) -> str:
        return self.value


class Asked(NamedTuple):
    """An aggregate, as its texts say it. `value` is "" for a count; `text` is how many bytes of a
    text in a key there may be."""

    does: Does
    value: str
    by: str | None = None
    where: str | None = None
    text: int = DEFAULT_TEXT

    def __str__(self) -> str:
        parts = [f"{self.does}({self.value})"]
        parts += [f"by {self.by}"] if self.by else []
        parts += [f"where {self.where}"] if self.where else []
        return " ".join(parts)


class KeyPart(NamedTuple):
    """A part of a key. `type` is I64, U64, BOOL, CHAR, POINTER, STACK or TEXT; `size` the most
    bytes of a text. `is_name`: it is the name of the marker."""

    type: Type
    size: int = 0
    is_name: bool = False

    @property
    def words(self) -> int:
        """Words of 64 bits: those of a text are its length and its bytes."""
        return 1 + -(-self.size // _WORD) if self.type is Type.TEXT else 1


class Shape(NamedTuple):
    """The properties that all markers of an aggregate share. `value` is I64, U64 or F64; None
    without a value."""

    does: Does
    key: tuple[KeyPart, ...]
    value: Type | None

    @property
    def key_words(self) -> int:
        """Words of 64 bits of a key."""
        return sum(part.words for part in self.key)

    @property
    def scale(self) -> Scale | None:
        """The buckets, where there are some."""
        if self.value is None or self.does not in (Does.HIST, Does.QUANTILES):
            return None
        return Scale(self.value, self.does is Does.QUANTILES)


class Gathered(NamedTuple):
    """The values that the code of one marker computes: whether the condition is met (None: it
    always is), the key, and the value."""

    condition: Node | None
    key: tuple[Node, ...]
    value: Node | None


class Aggregated(NamedTuple):
    """The aggregate of some markers, and for each marker its part or the name that it lacks."""

    shape: Shape
    markers: Sequence[Gathered | Lack]


def parse_aggregate(
    text: str, *, by: str | None = None, where: str | None = None, bytes_of_text: int = DEFAULT_TEXT
) -> Asked:
    """The aggregate that is meant by `hist(size)`, and so on. Raises BadQuestion."""
    match = _CALL.fullmatch(text)
    names = [str(does) for does in Does]
    if not match or match[1] not in names:
        known = ", ".join("count()" if name == "count" else f"{name}(x)" for name in names)
        raise BadQuestion(f"this is not an aggregate; there are {known}", text, 0, len(text))
    does, value = Does(match[1]), match[2].strip()
    if does is Does.COUNT and value:
        raise BadQuestion("count() takes no value", text, match.start(2), match.end(2))
    if does is not Does.COUNT and not value:
        raise BadQuestion(f"{does}(…) takes a value, such as {does}(size)", text, 0, len(text))
    return Asked(does, value, by, where, bytes_of_text)


def ask_aggregate(asked: Asked, scopes: Sequence[Scope]) -> Aggregated:
    """The aggregate for each scope. Raises BadQuestion, also where two markers have keys or values
    that cannot be added up together."""
    value = parse(asked.value) if asked.value else None
    key = [parse(text) for text in keys_of(asked.by)] if asked.by is not None else []
    where = parse(asked.where) if asked.where is not None else None
    if len(key) > MOST_PARTS:
        raise BadQuestion(f"a key has at most {MOST_PARTS} parts", asked.by or "", 0, 0)
    for syntax in filter(None, (value, *key, where)):
        if scopes:
            check_names(syntax, scopes)
    for syntax in filter(None, (value, *key)):
        check_hidden(syntax, scopes)
    markers = [_gathered(scope, where, key, value) for scope in scopes]
    known = [marker for marker in markers if isinstance(marker, Gathered)]
    parts = tuple(
        key_part(syntax, [marker.key[at] for marker in known], asked.text)
        for at, syntax in enumerate(key)
    )
    values = [marker.value for marker in known if marker.value is not None]
    type_ = _value_type(value, values) if value is not None and values else None
    shape = Shape(asked.does, parts, type_)
    if shape.key_words > MOST_WORDS:
        size = sum(part.size for part in parts)
        raise BadQuestion(
            f"the texts of a key have {size} bytes, which is more than a key has; cut them, as in "
            "s[:32]", asked.by or "", 0, 0,
        )  # fmt: skip
    return Aggregated(shape, [_with_type(marker, type_) for marker in markers])


def gathered_again(asked: Asked, scope: Scope, shape: Shape) -> Gathered | Lack:
    """The aggregate for one of several scopes, which `ask_aggregate` has checked."""
    value = parse(asked.value) if asked.value else None
    key = [parse(text) for text in keys_of(asked.by)] if asked.by is not None else []
    where = parse(asked.where) if asked.where is not None else None
    return _with_type(_gathered(scope, where, key, value), shape.value)


@lru_cache(_TEXTS)
def keys_of(by: str) -> tuple[str, ...]:
    """The parts of a key, each as a text. Raises BadQuestion."""
    line = by.replace("\n", " ")
    try:
        tree = ast.parse(prepare(line.strip()).line, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        parse(line)  # says what is wrong with it
        raise BadQuestion("this is not a key, such as tid, key[:4]", by, 0, len(by)) from None
    if not isinstance(tree, ast.Tuple):
        return (line,)
    if not tree.elts:
        raise BadQuestion("there is nothing in the brackets", by, 0, len(by))
    return tuple(ast.get_source_segment(line.strip(), part) or "" for part in tree.elts)


def _gathered(
    scope: Scope, where: Syntax | None, key: Sequence[Syntax], value: Syntax | None
) -> Gathered | Lack:
    try:
        return Gathered(
            condition(where, scope) if where else None,
            tuple(key_node(syntax, scope) for syntax in key),
            _value(value, scope) if value else None,
        )
    except LacksName as lack:
        return Lack(scope.marker, lack.name)


def key_node(syntax: Syntax, scope: Scope) -> Node:
    """A part of a key, in one scope. Raises BadQuestion, and LacksName."""
    node = expression(syntax, scope)
    if node.type is Type.F64:
        raise syntax.wrong("a float cannot be a key; int(x) can", node.span)
    if node.type is Type.TEXT and not isinstance(whole_text(node), Value | Constant | TextAt):
        raise syntax.wrong("a text in a key is a field, one in memory, or a part of one", node.span)
    return node


def _value(syntax: Syntax, scope: Scope) -> Node:
    node = expression(syntax, scope)
    if node.type is Type.TEXT:
        raise syntax.wrong("this is a text, and a value is a number; see len(s)", node.span)
    return node


def key_part(syntax: Syntax, nodes: Sequence[Node], most: int) -> KeyPart:
    """The common part of the key for these parts of several markers. Raises BadQuestion where there
    is none."""
    types = {key_type(node.type) for node in nodes}
    if Type.TEXT in types and len(types) == 1:
        is_name = asks_for_name(syntax) and all(isinstance(node, Constant) for node in nodes)
        return KeyPart(Type.TEXT, max(_size(node, most, syntax) for node in nodes), is_name)
    if types == {Type.I64, Type.U64} and all(_fits_i64(node.type) for node in nodes):
        types = {Type.I64}
    if len(types) > 1:
        raise _unlike(syntax, nodes, "key")
    return KeyPart(types.pop() if types else Type.I64)


def key_type(type_: Type) -> Type:
    """The type of a part of a key: integers have 64 bits there."""
    if type_ in (Type.TEXT, Type.BOOL, Type.CHAR, Type.POINTER, Type.STACK):
        return type_
    return Type.I64 if type_.signed else Type.U64


def _fits_i64(type_: Type) -> bool:
    return type_.signed or (type_ not in (Type.POINTER, Type.STACK) and type_.bits < 64)


def _size(node: Node, most: int, syntax: Syntax) -> int:
    """The most bytes of a text in a key."""
    if isinstance(node, Constant):
        assert isinstance(node.value, bytes)
        return len(node.value)
    if isinstance(node, Slice):
        if node.low + (most if node.high is None else node.high - node.low) > MOST_TEXT:
            raise syntax.wrong(
                f"a key has bytes of the first {MOST_TEXT} of a text; cut it, as in s[:32]",
                node.span,
            )
        if node.high is not None:
            return max(node.high - node.low, 0)
    return most


def _value_type(syntax: Syntax, nodes: Sequence[Node]) -> Type:
    types = {node.type for node in nodes}
    if Type.F64 in types:
        return Type.F64
    if not any(type_.signed for type_ in types):
        return Type.U64
    if all(_fits_i64(type_) for type_ in types):
        return Type.I64
    raise _unlike(syntax, nodes, "value")


def _unlike(syntax: Syntax, nodes: Sequence[Node], what: str) -> BadQuestion:
    types = ", ".join(sorted({str(node.type) for node in nodes}))
    name = next((name for name, _, is_field in syntax.names() if not is_field), "")
    hint = f', or write event("{name}")' if name in OF_EVENT else ""
    return syntax.wrong(
        f"the markers have types of this {what} that cannot be added up together: {types}; name "
        f"fewer markers{hint}",
        nodes[0].span,
    )


def _with_type(marker: Gathered | Lack, type_: Type | None) -> Gathered | Lack:
    """The gathered values with the value in the common type."""
    if isinstance(marker, Lack) or marker.value is None or type_ is None:
        return marker
    return marker._replace(value=as_float(marker.value)) if type_ is Type.F64 else marker
