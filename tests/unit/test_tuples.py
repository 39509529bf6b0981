"""Named tuples of ours are those of typing, but for how they are made."""

from __future__ import annotations

import copy
import inspect
import pickle
import typing
from collections import namedtuple
from collections.abc import Callable
from typing import Any, Generic, TypeVar, get_type_hints

import pytest

from markerjit import tuples
from markerjit.tuples import NamedTuple

pytestmark = pytest.mark.pythons

T = TypeVar("T")


class Point(NamedTuple):
    """A point."""

    x: int
    y: int = 2
    name: str | None = None

    @property
    def sum(self) -> int:
        return self.x + self.y

    @classmethod
    def origin(cls) -> Point:
        return cls(0, 0)


class Plain(typing.NamedTuple):
    """The same by typing."""

    x: int
    y: int = 2
    name: str | None = None


class Box(NamedTuple, Generic[T]):
    content: T


@pytest.mark.parametrize(
    "use",
    [
        lambda kind: kind(1),
        lambda kind: kind(1, 3, "a"),
        lambda kind: kind(y=3, x=1),
        lambda kind: kind(1)._replace(y=5),
        lambda kind: kind._make([1, 2, "b"]),
        lambda kind: kind(1)._asdict(),
        lambda kind: hash(kind(1)),
        lambda kind: kind(1) == (1, 2, None),
        lambda kind: kind._fields,
        lambda kind: kind._field_defaults,
        lambda kind: kind.__match_args__,
        lambda kind: repr(kind(1)).partition("(")[2],
        lambda kind: tuple(inspect.signature(kind).parameters.values())[1].default,
        lambda kind: list(inspect.signature(kind).parameters),
        lambda kind: get_type_hints(kind),
        lambda kind: kind.x.__doc__,
        lambda kind: pickle.loads(pickle.dumps(kind(1, 2))),
        lambda kind: copy.deepcopy(kind(1, 2)),
        lambda kind: tuple.__new__(kind, (1, 2, 3)).name,
    ],
)
def test_does_as_that_of_typing_does(use: Callable[[Any], object]) -> None:
    assert use(Point) == use(Plain)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda kind: kind(),
        lambda kind: kind(1, 2, 3, 4),
        lambda kind: kind(1, z=2),
        lambda kind: kind._make([1]),
        lambda kind: kind(1)._replace(z=2),
        lambda kind: setattr(kind(1), "x", 2),
        lambda kind: setattr(kind(1), "z", 2),
    ],
)
def test_refuses_what_that_of_typing_refuses(misuse: Callable[[Any], object]) -> None:
    with pytest.raises(Exception) as by_typing:
        misuse(Plain)

    with pytest.raises(by_typing.type):
        misuse(Point)


def test_the_first_value_is_made_as_the_others_are() -> None:
    class Pair(NamedTuple):
        first: int
        second: str = ""

    class Kept(Pair):
        pass

    made = Kept(1), Kept(second="b", first=2), Pair(3)

    assert [type(value) for value in made] == [Kept, Kept, Pair]
    assert made == ((1, ""), (2, "b"), (3, ""))


def test_methods_properties_and_class_methods_stay() -> None:
    assert Point(1).sum == 3
    assert Point.origin() == (0, 0, None)
    assert Point.__doc__ == "A point."
    assert Box.__doc__ == "Box(content)"


def test_a_generic_one_takes_parameters() -> None:
    assert Box[int](3).content == 3
    assert typing.get_args(Box[int]) == (int,)


def test_patterns_match_fields_in_their_order() -> None:
    match Point(1, 5):
        case Point(x, y):
            assert (x, y) == (1, 5)


def test_a_definition_that_cannot_be_is_refused() -> None:
    with pytest.raises(TypeError, match="without a default"):

        class _Order(NamedTuple):
            x: int = 1
            y: int  # type: ignore[misc]

    with pytest.raises(ValueError, match="underscore"):

        class _Hidden(NamedTuple):
            _x: int  # type: ignore[misc]

    with pytest.raises(AttributeError, match="__new__"):

        class _Own(NamedTuple):
            x: int

            def __new__(cls) -> _Own:  # type: ignore[misc]
                raise NotImplementedError

    with pytest.raises(TypeError, match="no other base"):

        class _Two(NamedTuple, dict):  # type: ignore[misc, type-arg]
            x: int


def test_one_constructor_is_compiled_for_all_of_so_many_fields(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compiled: list[int] = []

    def counted(name: str, fields: list[str]) -> Any:
        compiled.append(len(fields))
        return namedtuple(name, fields)  # type: ignore[misc]

    class First(NamedTuple):
        one: int
        two: int = 2

    class Second(NamedTuple):
        three: int
        four: int

    class Third(NamedTuple):
        five: int

    monkeypatch.setattr(tuples, "namedtuple", counted)
    tuples._like.cache_clear()

    assert (First(1), Second(four=4, three=3), Third(five=5)) == ((1, 2), (3, 4), (5,))
    assert compiled == [2, 1]
    with pytest.raises(TypeError, match=r"Second\.__new__\(\) missing .* 'four'"):
        Second(3)  # type: ignore[call-arg]
