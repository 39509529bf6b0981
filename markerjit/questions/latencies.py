"""A latency as a question: the time from one marker to the next that has the same key.

The key of a begin and that of its end are expressions of their own markers, and have the same
types. A pair that takes long is shown with the fields of both ends.

A begin may have a group, which divides the times of the pairs. An end is in the group of its begin,
whatever its own values.

The return of a function knows how long the call took, so a latency may have ends alone. Their times
are then added up by the key.

What this does not do: pair anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.errors import BadQuestion
from markerjit.questions.aggregates import (
    DEFAULT_TEXT,
    MOST_PARTS,
    MOST_WORDS,
    KeyPart,
    key_node,
    key_part,
    key_type,
    keys_of,
)
from markerjit.questions.ask import Lack, check_hidden, check_names
from markerjit.questions.buckets import Scale
from markerjit.questions.ir import Node, Span, Value
from markerjit.questions.scope import Scope
from markerjit.questions.syntax import parse
from markerjit.questions.typed import LacksName, condition, expression
from markerjit.questions.types import Type
from markerjit.tuples import NamedTuple

MOST_FIELDS = 12
MOST_FIELD_WORDS = 128
"""The most fields of one end, and the most words of these fields."""
SCALE = Scale(Type.U64, fine=True)
"""The buckets of durations, nanoseconds."""
WORDS = SCALE.size + 2
"""The buckets, the sum of all durations, and the longest."""


class Timed(NamedTuple):
    """A latency, as its texts say it. `begins` and `ends` are patterns, for people; `by` and
    `ends_by` the key at each end; `where` a condition for a begin. `slower_ns`: pairs that take as
    long are kept with their fields; None: none are. `text` is how many bytes of a text there may
    be. `per` is the key of a group at the begin, which divides the pairs and pairs nothing. `took`
    is the field of an end that says how long it took, in nanoseconds: then there are no
    begins, the condition is one for an end, and the key may be empty."""

    begins: str
    ends: str
    by: str = "tid"
    ends_by: str | None = None
    where: str | None = None
    slower_ns: int | None = None
    text: int = DEFAULT_TEXT
    took: str = ""
    per: str | None = None

    def __str__(self) -> str:
        if self.took:
            by = f" by {self.by}" if self.by else ""
            return f"latency of {self.begins}{by}{f' where {self.where}' if self.where else ''}"
        by = self.by if self.ends_by in (None, self.by) else f"{self.by} = {self.ends_by}"
        per = f" per {self.per}" if self.per else ""
        where = f" where {self.where}" if self.where else ""
        return f"latency from {self.begins} to {self.ends} by {by}{per}{where}"


class KeptField(NamedTuple):
    """A field of an end that is kept for slow pairs: its name, and its value as words."""

    name: str
    part: KeyPart


class Side(NamedTuple):
    """What the code of a marker computes: whether the condition is met (None: it always is), the
    key, the values of the fields that are kept, and how long it took, where an end says so. Of the
    fields of such an end `results` are its own, and those behind them are of its begin. `group` is
    the key of the group of a begin."""

    condition: Node | None
    key: tuple[Node, ...]
    values: tuple[Node, ...]
    fields: tuple[KeptField, ...]
    took: Node | None = None
    results: int = 0
    group: tuple[Node, ...] = ()

    @property
    def field_words(self) -> int:
        """Words of the fields."""
        return sum(field.part.words for field in self.fields)


class Pairing(NamedTuple):
    """A latency of some markers: the key that they have in common, and the side of each begin and
    each end, or the name that it lacks. `group` is the key of a group."""

    key: tuple[KeyPart, ...]
    begins: Sequence[Side | Lack]
    ends: Sequence[Side | Lack]
    group: tuple[KeyPart, ...] = ()

    @property
    def key_words(self) -> int:
        """Words of a key."""
        return sum(part.words for part in self.key)

    @property
    def group_words(self) -> int:
        """Words of the key of a group."""
        return sum(part.words for part in self.group)


def ask_latency(timed: Timed, begins: Sequence[Scope], ends: Sequence[Scope]) -> Pairing:
    """The latency for the markers where it begins and those where it ends. Raises BadQuestion."""
    keys = _keys_of(timed, ends=False)
    others = _keys_of(timed, ends=True)
    if len(keys) != len(others):
        raise BadQuestion(
            f"the key of a begin has {len(keys)} parts, and that of an end {len(others)}",
            timed.ends_by or "", 0, 0,
        )  # fmt: skip
    groups = _groups_of(timed)
    if len(keys) > MOST_PARTS:
        raise BadQuestion(f"a key has at most {MOST_PARTS} parts", timed.by, 0, 0)
    if len(keys) + len(groups) > MOST_PARTS:
        raise BadQuestion(
            f"the key and what divides the pairs have at most {MOST_PARTS} parts together",
            timed.per or "", 0, 0,
        )  # fmt: skip
    _check([*keys, *groups], begins)
    _check(others, ends)
    for text in (*keys, *groups):
        check_hidden(parse(text), begins)
    for text in others:
        check_hidden(parse(text), ends)
    _check([] if timed.where is None else [timed.where], ends if timed.took else begins)
    first = [side_of(timed, scope, ends=False) for scope in begins]
    last = [side_of(timed, scope, ends=True) for scope in ends]
    known = [side for side in (*first, *last) if isinstance(side, Side)]
    parts = tuple(
        key_part(parse(text), [side.key[at] for side in known], timed.text)
        for at, text in enumerate(keys)
    )
    divided = [side for side in first if isinstance(side, Side)]
    group = tuple(
        key_part(parse(text), [side.group[at] for side in divided], timed.text)
        for at, text in enumerate(groups)
    )
    if not timed.took and any(part.type is Type.STACK for part in parts):
        sentence = (
            "a latency from one marker to another has no stack in its key: the stack of a begin is "
            "not that of its end; --per stack (per=) divides the times by the stack of the begin"
        )
        raise BadQuestion(sentence, timed.by, 0, len(timed.by))
    pairing = Pairing(parts, first, last, group)
    if max(pairing.key_words, pairing.group_words) > MOST_WORDS:
        raise BadQuestion(
            "the texts of the key have more bytes than a key has; cut them, as in s[:32]",
            timed.by if pairing.key_words > MOST_WORDS else timed.per or "", 0, 0,
        )  # fmt: skip
    return pairing


def side_of(timed: Timed, scope: Scope, *, ends: bool) -> Side | Lack:
    """The side of one marker. Raises BadQuestion."""
    where = None if ends and not timed.took else timed.where
    try:
        asked = condition(parse(where), scope) if where is not None else None
        key = tuple(key_node(parse(text), scope) for text in _keys_of(timed, ends=ends))
        groups = () if ends else _groups_of(timed)
        group = tuple(key_node(parse(text), scope) for text in groups)
        took = expression(parse(timed.took), scope) if timed.took else None
    except LacksName as lack:
        return Lack(scope.marker, lack.name)
    fields = _fields(scope, timed) if timed.slower_ns is not None else ()
    values = tuple(Value(scope.types[field.name], field.name, Span(0, 0)) for field in fields)
    names = [*scope.types]
    before = names[: names.index(timed.took)] if timed.took else names
    results = sum(field.name in before for field in fields)
    return Side(asked, key, values, fields, took, results, group)


def _keys_of(timed: Timed, *, ends: bool) -> Sequence[str]:
    """The parts of the key at one end."""
    by = timed.ends_by if ends and timed.ends_by is not None else timed.by
    return keys_of(by) if by or not timed.took else ()


def _groups_of(timed: Timed) -> Sequence[str]:
    """The parts of the key of a group."""
    return keys_of(timed.per) if timed.per else ()


def _check(texts: Sequence[str], scopes: Sequence[Scope]) -> None:
    for text in texts if scopes else ():
        check_names(parse(text), scopes)


def _fields(scope: Scope, timed: Timed) -> tuple[KeptField, ...]:
    """The first fields of a marker, as many as there is room for."""
    fields: list[KeptField] = []
    words = 0
    for name, type_ in scope.types.items():  # in the order of the marker
        if name not in scope.fields or name == timed.took:
            continue
        part = KeyPart(_word_type(type_), timed.text if type_ is Type.TEXT else 0)
        words += part.words
        if words > MOST_FIELD_WORDS or len(fields) == MOST_FIELDS:
            break
        fields.append(KeptField(name, part))
    return tuple(fields)


def _word_type(type_: Type) -> Type:
    return type_ if type_ is Type.F64 else key_type(type_)
