"""Values that are alike, as one value and columns of what differs: a program may have a hundred
thousand places that are changed in the same way.

`Run` and `Runs` look like sequences of named tuples. A value is made when it is asked for, so that
what works on columns makes none for most of them.

What this does not do: find out which values are alike.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, repeat
from typing import TYPE_CHECKING, Any, TypeVar, overload

T = TypeVar("T", bound=tuple[Any, ...])
_new = tuple.__new__

__all__ = ["MANY", "Run", "Runs", "parts_of"]

MANY = 16
"""Of fewer values there is nothing to be gained by columns."""


class _Values(Sequence[T]):
    """What both have in common: they equal a tuple of the same values."""

    if not TYPE_CHECKING:
        __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, (tuple, _Values)) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


class Run(_Values[T]):
    """Values that are like `first`, but for the fields of which `columns` has one for each value,
    by the number of the field. One value at least; the columns are not changed afterwards."""

    __slots__ = ("_size", "columns", "first")

    def __init__(self, like: T, columns: Mapping[int, Sequence[Any]]) -> None:
        self.columns = columns
        self._size = len(next(iter(columns.values())))
        self.first = like
        self.first = self._at(0)

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[T]:
        fields = (
            self.columns.get(number, repeat(field, self._size))
            for number, field in enumerate(self.first)
        )
        return map(_new, repeat(type(self.first)), zip(*fields, strict=True))

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(map(self._at, range(self._size)[index]))
        return self._at(range(self._size)[index])

    def _at(self, index: int) -> T:
        fields = [*self.first]
        for number, column in self.columns.items():
            fields[number] = column[index]
        return _new(type(self.first), fields)


class Runs(_Values[T]):
    """The values of some sequences, one after the other: of runs, and of values that are single."""

    __slots__ = ("_ends", "parts")

    def __init__(self, parts: Iterable[Sequence[T]]) -> None:
        self.parts = tuple(part for part in parts if part)
        self._ends = [*accumulate(map(len, self.parts))]

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[T]:
        return chain.from_iterable(self.parts)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[T, ...]: ...
    def __getitem__(self, index: int | slice) -> T | tuple[T, ...]:
        if isinstance(index, slice):
            return tuple(self)[index]
        index = range(len(self))[index]
        number = bisect_right(self._ends, index)
        return self.parts[number][index - self._ends[number]]


def parts_of(values: Sequence[T]) -> Sequence[Sequence[T]]:
    """The runs among these values, and the others between them."""
    if isinstance(values, Runs):
        return values.parts
    return (values,)
