"""The names that an expression may use, which differ from one sort of event to the other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from markerjit.model import Field
from markerjit.questions.types import Type, type_of
from markerjit.tuples import NamedTuple

TIME, TID, CPU, NAME, CALLER, STACK = "time", "tid", "cpu", "name", "caller", "stack"
ALWAYS = {TIME: Type.I64, TID: Type.U32, CPU: Type.U32}
"""The names that every event has. `time` is nanoseconds of CLOCK_MONOTONIC. A field of the same
name hides such a name."""


OF_EVENT = (NAME, TIME, TID, CPU, CALLER, STACK)
"""The names that are not fields. `event("tid")` is such a value also where a field hides it."""

DEPTH, MOST_DEPTH = 64, 256
"""The frames of `stack`, and the most frames of `stack(n)`."""

_NOTHING: Mapping[str, Type] = {}


def hidden(name: str) -> str:
    """What a value of the event is called in a typed expression where a field hides its name."""
    return f'event("{name}")'


class Scope(NamedTuple):
    """The names of one sort of event.

    marker   its name, which is the value of `name`
    types    the types of names; that of `name` is TEXT unless a field has this name
    fields   the names of types that are fields
    unknown  why other names are not known, by name: a clause
    memory   why memory cannot be read, as a clause; "" where it can
    event    the types of the values that are not fields, by name, also where a field hides it
    """

    marker: str
    types: Mapping[str, Type]
    fields: frozenset[str]
    unknown: Mapping[str, str]
    memory: str = ""
    event: Mapping[str, Type] = _NOTHING


def scope_of(
    marker: str,
    fields: Iterable[Field],
    unknown: Mapping[str, str],
    memory: str = "",
    more: Mapping[str, Type] = _NOTHING,
) -> Scope:
    """The scope of a marker's events. Names that are not known hide no fields, and neither do
    `more`, which its events have besides."""
    own = {field.name: type_of(field) for field in fields}
    always = {name: type_ for name, type_ in {**ALWAYS, **more}.items() if name not in unknown}
    types = {**own, **{name: type_ for name, type_ in always.items() if name not in own}}
    types.setdefault(NAME, Type.TEXT)
    event = {**always, NAME: Type.TEXT}
    return Scope(marker, types, frozenset(own), unknown, memory, event)
