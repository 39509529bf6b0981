"""One text asked of several sorts of events."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.errors import BadQuestion
from markerjit.questions.ir import Node
from markerjit.questions.scope import Scope
from markerjit.questions.syntax import Syntax, parse
from markerjit.questions.typed import LacksName, condition
from markerjit.tuples import NamedTuple


class Question(NamedTuple):
    """The condition of one sort of events, a bool."""

    text: str
    condition: Node


class Lack(NamedTuple):
    """The events have no value of this name, so none of them meets the condition."""

    marker: str
    name: str


def ask(text: str, scopes: Sequence[Scope]) -> list[Question | Lack]:
    """The question for each scope.

    Raises BadQuestion where the text is wrong in itself, or in one of the scopes, and where it has
    a name that no scope has. Without scopes nothing is known of the names.
    """
    syntax = parse(text)
    if scopes:
        check_names(syntax, scopes)
    return [_of_scope(syntax, scope, is_only=len(scopes) == 1) for scope in scopes]


def ask_again(text: str, scope: Scope) -> Question | Lack:
    """The question for one of several scopes, which `ask` has checked. A name that only other
    scopes have is unknown here."""
    return _of_scope(parse(text), scope, is_only=False)


def _of_scope(syntax: Syntax, scope: Scope, *, is_only: bool) -> Question | Lack:
    try:
        return Question(syntax.text, condition(syntax, scope))
    except LacksName as lack:
        return Lack(scope.marker, lack.name)
    except BadQuestion as error:
        if is_only:
            raise
        sentence = f"{scope.marker}: {error}"
        raise BadQuestion(sentence, error.text, error.start, error.end, error.names) from None


def check_names(syntax: Syntax, scopes: Sequence[Scope]) -> None:
    """Raises BadQuestion for a name that no scope has."""
    import difflib

    known = {name: None for scope in scopes for name in (*scope.fields, *scope.types)}
    unknown = {name for scope in scopes for name in scope.unknown}
    for name, span in syntax.names():
        if name not in known and name not in unknown:
            nearest = difflib.get_close_matches(name, known)
            hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
            names = tuple(sorted(known))
            raise BadQuestion(f"there is no name {name}{hint}", syntax.text, *span, names)
