"""Named tuples that are quick to define: `class Point(NamedTuple)`, as with typing.NamedTuple.

A command defines more than a hundred of them before it does anything. typing compiles the
annotation of each field, and a constructor for each class: that took a fifth of the whole time of
`markerjit status`. Here annotations stay the text that they are. The constructor is made when the
first value is, which most classes of a command never see, and only one of so many fields is ever
compiled: the others have its code with the names of their own fields. Checkers of types are shown
typing.NamedTuple itself (decision 0053).

What this does not do: the function form, NamedTuple("Point", …).
"""

from __future__ import annotations

import sys
from collections import namedtuple
from functools import cache
from operator import itemgetter
from types import FunctionType
from typing import TYPE_CHECKING, Any, Generic, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from inspect import Signature
    from typing import NamedTuple, Self

try:  # as the module collections does
    from _collections import _tuplegetter as _getter  # type: ignore[import-not-found]
except ImportError:

    def _getter(index: int, doc: str) -> Any:
        return property(itemgetter(index), doc=doc)


__all__ = ["MOST_SHOWN", "NamedTuple", "brief"]

MOST_SHOWN, _OF_A_FIELD = 200, 60
"""Characters that a value with a brief repr shows of itself, and of one of its fields."""
_RESERVED = ("__new__", "__init__", "__slots__", "__getnewargs__")
_UNEXPECTED = TypeError if sys.version_info >= (3, 13) else ValueError
_new = tuple.__new__


@cache
def _like(count: int) -> FunctionType:
    """The constructor of a named tuple with so many fields, compiled by the module collections."""
    names = [f"field_{number}" for number in range(count)]
    plain: Any = namedtuple("_", names)  # type: ignore[misc]
    return cast(FunctionType, plain.__new__)


def _constructor(name: str, fields: tuple[str, ...], defaults: Iterable[object]) -> FunctionType:
    """The same for fields of these names; `defaults` are those of the last ones."""
    like = _like(len(fields))
    code = like.__code__.replace(co_varnames=("_cls", *fields))
    made = FunctionType(code, like.__globals__, "__new__", tuple(defaults))
    made.__qualname__ = f"{name}.__new__"  # as messages have it
    return made


class _LazySignature:
    """The signature of a class for `inspect`, which would see that of the first constructor."""

    def __get__(self, value: object, kind: type) -> Signature:
        from inspect import Parameter, Signature

        names, defaults = kind._fields, kind._field_defaults  # type: ignore[attr-defined]
        empty = Parameter.empty
        return Signature(
            [
                Parameter(
                    name,
                    Parameter.POSITIONAL_OR_KEYWORD,
                    default=defaults.get(name, empty),
                    annotation=kind.__annotations__.get(name, empty),
                )
                for name in names
            ]
        )


class _Named(tuple[Any, ...]):
    """What all of them can do; the names are those of collections.namedtuple."""

    __slots__ = ()
    if TYPE_CHECKING:  # each class has its own
        _fields: tuple[str, ...]
        _field_defaults: Mapping[str, object]
    __signature__ = _LazySignature()

    @classmethod
    def _make(cls, values: Iterable[object]) -> Self:
        """A value of the class from any iterable of its fields. Raises TypeError for too few or too
        many."""
        made = _new(cls, values)
        if len(made) != len(cls._fields):
            raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
        return made

    def _replace(self, /, **fields: object) -> Self:
        """The same with other values in these fields. For names that are none it raises ValueError,
        and from Python 3.13 on TypeError, as collections does."""
        made = _new(type(self), map(fields.pop, self._fields, self))
        if fields:
            raise _UNEXPECTED(f"Got unexpected field names: {list(fields)!r}")
        return made

    __replace__ = _replace

    def _asdict(self) -> dict[str, object]:
        """The fields by their names."""
        return dict(zip(self._fields, self, strict=True))

    def __repr__(self) -> str:
        fields = zip(self._fields, self, strict=True)
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in fields)})"

    def __getnewargs__(self) -> tuple[object, ...]:
        """For copies and pickles."""
        return tuple(self)


def brief(value: Any) -> str:
    """The `__repr__` of a value that may have much in it: of what would take several lines it has
    the beginnings. It is not for what is told apart by its repr."""
    text = _Named.__repr__(value)
    if len(text) <= MOST_SHOWN:
        return text
    fields = ((name, repr(field)) for name, field in zip(value._fields, value, strict=True))
    parts = (
        f"{name}={text if len(text) <= _OF_A_FIELD else f'{text[:_OF_A_FIELD]}…'}"
        for name, text in fields
    )
    text = f"{type(value).__name__}({', '.join(parts)})"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 2]}…)"


class _Maker(type):
    """Makes the class from what stands in the body of one that is derived from NamedTuple."""

    def __new__(cls, name: str, bases: tuple[type, ...], body: dict[str, Any]) -> type:
        if not bases:
            return super().__new__(cls, name, bases, body)
        others = [base for base in bases if not isinstance(base, _Maker)]
        if others not in ([], [Generic]):
            raise TypeError(f"{name}: a NamedTuple has no other base than Generic")
        fields = tuple(body.get("__annotations__", ()))
        defaults = {field: body.pop(field) for field in fields if field in body}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default follows one with a default")
        for field in fields:
            if field.startswith("_"):
                raise ValueError(f"{name}: the name of a field begins with an underscore: {field}")
        for reserved in _RESERVED:
            if reserved in body:
                raise AttributeError(f"{name}: a NamedTuple has its own {reserved}")
        body |= {
            "__slots__": (), "__match_args__": fields, "_fields": fields,
            "_field_defaults": defaults, "__orig_bases__": body.get("__orig_bases__", bases),
        }  # fmt: skip
        body.setdefault("__doc__", f"{name}({', '.join(fields)})")
        for index, field in enumerate(fields):
            body[field] = _getter(index, f"Alias for field number {index}")
        if others:  # that of tuple would come first
            body["__class_getitem__"] = Generic.__dict__["__class_getitem__"]

        def first(kind: type[tuple[Any, ...]], /, *values: object, **named: object) -> Any:
            """Makes the constructor, and takes its place from then on."""
            constructor = _constructor(name, fields, defaults.values())
            made.__new__ = constructor  # type: ignore[method-assign]
            return constructor(kind, *values, **named)

        body["__new__"] = first
        made = type(name, (_Named, *others), body)
        return made


if not TYPE_CHECKING:

    class NamedTuple(metaclass=_Maker):
        """The base of a class of named tuples; see the module."""
