"""One text asked of several sorts of events."""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.errors import BadQuestion
from markerjit.questions.ir import Node
from markerjit.questions.scope import OF_EVENT, Scope
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


def check_hidden(syntax: Syntax, scopes: Sequence[Scope]) -> None:
    """Raises BadQuestion for a name that is a field in some of the scopes, and in others a value of
    the event: what they mean cannot be added up together."""
    for name, span, is_field in syntax.names():
        having = [scope.marker for scope in scopes if name in scope.fields]
        others = [scope.marker for scope in scopes if name in scope.event]
        others = [marker for marker in others if marker not in having]
        if name in OF_EVENT and having and others and not is_field:
            raise syntax.wrong(
                f'{name} is a field of {having[0]}, and not of {others[0]}; write event("{name}") '
                f'for that of the event, or field("{name}") for the field alone', span,
            )  # fmt: skip


def check_names(syntax: Syntax, scopes: Sequence[Scope]) -> None:
    """Raises BadQuestion for a name that no scope has."""
    fields = {name: None for scope in scopes for name in scope.fields}
    every = {name: None for scope in scopes for name in (*scope.fields, *scope.types)}
    unknown = {name for scope in scopes for name in scope.unknown}
    for name, span, is_field in syntax.names():
        known = fields if is_field else every
        if name not in known and (is_field or name not in unknown):
            import difflib

            nearest = difflib.get_close_matches(name, known)
            hint = f"; did you mean {' or '.join(nearest)}?" if nearest else ""
            names = tuple(sorted(known))
            what = "field" if is_field else "name"
            raise BadQuestion(f"there is no {what} {name}{hint}", syntax.text, *span, names)
