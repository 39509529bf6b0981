"""A selection: named expressions, such as `ms=dur/1e6, key[:8]`, that are recorded in place of the
fields.

An expression that is a field, or the beginning of one, has the name of that. The others are named
in the selection. What this does not do: compute anything.
"""

from __future__ import annotations

import ast
import io
from collections.abc import Iterator, Sequence

from markerjit.errors import BadQuestion
from markerjit.questions.ask import Lack, check_names
from markerjit.questions.ir import Constant, Node, Slice, Span, TextAt, Value, whole_text
from markerjit.questions.scope import STACK, Scope
from markerjit.questions.syntax import Syntax, event_name, field_name, parse
from markerjit.questions.typed import LacksName, expression
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple

MOST = 12
"""The most expressions of a selection: as many as a marker has arguments."""
ALL = "*"
"""Stands for all fields of the event, each as it is."""


class Part(NamedTuple):
    """An expression and its name, of which nothing is typed, and where it stands. None for ALL."""

    name: str
    syntax: Syntax | None
    span: Span


class Selected(NamedTuple):
    """An expression of one sort of events, and the name of its value. `as_is`: a field that is not
    chosen by its name, and is recorded and shown as in an event of all fields."""

    name: str
    node: Node
    as_is: bool = False


Selection = tuple[Selected, ...]


def select(text: str, scopes: Sequence[Scope]) -> list[Selection | Lack]:
    """The selection for each scope. Raises BadQuestion where the text is wrong in itself, or in one
    of the scopes, and where it has a name that no scope has."""
    parts = list(parts_of(text))
    if scopes:
        for part in parts:
            if part.syntax:
                check_names(part.syntax, scopes)
    return [_of_scope(parts, scope, is_only=len(scopes) == 1) for scope in scopes]


def select_again(text: str, scope: Scope) -> Selection | Lack:
    """The selection for one of several scopes, which `select` has checked. A name that only other
    scopes have is unknown here."""
    return _of_scope(list(parts_of(text)), scope, is_only=False)


def parts_of(text: str) -> Iterator[Part]:
    """The expressions of a selection. Raises BadQuestion."""
    line = text.replace("\n", " ")
    known: dict[str, Span] = {}
    for place in pieces_of(line):
        name, start = name_before(line, place)
        if not name and line[start : place.end].strip() == ALL:
            if ALL in known:
                raise BadQuestion("* can be given only once", line, *place)
            known[ALL] = place
            yield Part(ALL, None, place)
            continue
        # Blanks in place of what stands before, so that places are those in the whole text.
        try:
            syntax = parse(" " * start + line[start : place.end])._replace(text=line)
        except BadQuestion as error:
            raise BadQuestion(str(error), line, *_within(error, line), error.names) from None
        name = name or _own_name(syntax)
        if name in known:
            raise BadQuestion(f"two expressions are called {name}; rename one", line, *place)
        known[name] = place
        yield Part(name, syntax, place)
    if len(known) > MOST:
        raise BadQuestion(f"it has more than {MOST} expressions", line, 0, len(line))


def _of_scope(parts: Sequence[Part], scope: Scope, *, is_only: bool) -> Selection | Lack:
    try:
        return tuple(_selected(parts, scope))
    except LacksName as lack:
        return Lack(scope.marker, lack.name)
    except BadQuestion as error:
        if is_only:
            raise
        sentence = f"{scope.marker}: {error}"
        raise BadQuestion(sentence, error.text, error.start, error.end, error.names) from None


def _selected(parts: Sequence[Part], scope: Scope) -> Iterator[Selected]:
    has_all = any(part.syntax is None for part in parts)
    for part in parts:
        if part.syntax is None:
            names = [name for name in scope.types if name in scope.fields]
            yield from (
                Selected(name, Value(scope.types[name], name, part.span), as_is=True)
                for name in names
            )
            continue
        if has_all and part.name in scope.fields:
            raise part.syntax.wrong(
                f"{scope.marker} has a field {part.name}, which * has; name this one otherwise",
                part.syntax.tree,
            )
        yield Selected(part.name, _recordable(part.syntax, scope))


def _recordable(syntax: Syntax, scope: Scope) -> Node:
    node = expression(syntax, scope)
    if isinstance(node, Constant) and node.type is Type.TEXT:
        raise syntax.wrong("a text that is always the same is not recorded", node.span)
    if isinstance(node, Slice) and node.low:
        raise syntax.wrong("a selection takes the beginning of a text: s[:8]", node.span)
    assert node.type is not Type.TEXT or isinstance(whole_text(node), Value | TextAt)
    return node


def has_all_fields(text: str) -> bool:
    """Whether a selection has all fields of an event."""
    line = text.replace("\n", " ")
    return any(line[place.start : place.end].strip() == ALL for place in pieces_of(line))


def with_stack(select: str | None, fields: Sequence[str] | None, depth: int) -> str:
    """What is recorded of an event with its stack of at most `depth` frames: what is selected, or
    these fields, or all."""
    rest = select if select is not None else ALL if fields is None else ", ".join(fields)
    return ", ".join(filter(None, (rest, f"{STACK}={STACK}({depth})")))


def pieces_of(line: str) -> Iterator[Span]:
    """The places between commas that are outside of brackets."""
    import tokenize  # compiles large patterns, which takes 15 ms

    depth, start = 0, 0
    try:
        for token in tokenize.generate_tokens(io.StringIO(line.lstrip()).readline):
            column = token.start[1] + len(line) - len(line.lstrip())
            if token.type != tokenize.OP:
                continue
            depth += (token.string in "([{") - (token.string in ")]}")
            if token.string == "," and depth == 0:
                yield Span(start, column)
                start = column + 1
    except (tokenize.TokenError, SyntaxError, UnicodeError):
        pass  # the parser says what is wrong with the rest
    yield Span(start, len(line))


def name_before(line: str, place: Span) -> tuple[str, int]:
    """The name of an expression, and where that begins."""
    piece = line[place.start : place.end]
    name, equals, rest = piece.partition("=")
    if equals and name.strip().isidentifier() and not rest.startswith("="):
        return name.strip(), place.start + len(name) + 1
    return "", place.start


def _own_name(syntax: Syntax) -> str:
    """The name of an expression that is a field, or the beginning of one."""
    tree = syntax.tree
    while isinstance(tree, ast.Subscript):
        tree = tree.value
    if isinstance(tree, ast.Name):
        return tree.id
    if isinstance(tree, ast.Call):
        name = field_name(tree) or event_name(tree) or ""
        if name.isidentifier():
            return name
    raise syntax.wrong("this has no name; write one before it, as in ms=dur/1e6", syntax.tree)


def _within(error: BadQuestion, line: str) -> tuple[int, int]:
    return min(error.start, len(line)), min(error.end, len(line))
