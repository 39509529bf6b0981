"""Openings, and exits of functions, as columns: an array of numbers for each of their properties.
What is asked about all of them is answered from the arrays. A value is made when it is asked for,
and not before.

    asked       the addresses that were asked for
    openings    of each: address, way, size, and where its code, its holes and its reasons end.
                They begin where those of the one before end
    holes       of each: address, where its code ends, and whether it is made
    reasons     of each better way: the way, why it is not possible, and its address
    code        of all openings, one after the other; `hole_code` of all holes
    functions   where exits are kept, of each address: where its exits end, why they are not known,
                the address of that, and whether the function begins again
    exits       of each: address and kind. The opening of a function's entry stands before those of
                its exits

What this does not do: know an object. `has_code` says whether the bytes are those of one.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from markerjit.model import new
from markerjit.spans.code import TargetKind
from markerjit.spans.exits import Exit, ExitKind, Exits, Unbounded
from markerjit.spans.numbers import (
    Column,
    check_below,
    check_ends,
    from_each,
    numbers_of,
    starts_of,
    table_of,
    text_of,
    texts_of,
)
from markerjit.spans.openings import Closed, HolePlace, Opening, TurnedDown, Way, Why
from markerjit.tuples import NamedTuple
from markerjit.x86.relocate import Obstacle

WAYS = tuple(Way)
"""What the numbers of ways are; `CLOSED` is that of no way."""
CLOSED = len(WAYS)
_REASONS: tuple[Obstacle | TargetKind | Why, ...] = (*Obstacle, *TargetKind, *Why)
_KINDS = tuple(ExitKind)
UNBOUNDED: tuple[Unbounded | None, ...] = (*Unbounded, None)
"""What the numbers of reasons are for which the exits of a function are not known."""
NUMBERS = {
    each: number
    for column in (WAYS, _REASONS, _KINDS, UNBOUNDED)
    for number, each in enumerate(column)
}
_OPENING, _HOLE, _REASON, _FUNCTION, _EXIT = 6, 3, 3, 4, 2
"""How many numbers each has."""

A = TypeVar("A", Opening | Closed, Exits)
Plain = dict[str, Any]
"""What JSON has of columns."""
Mask = NDArray[np.bool_]


class Openings:
    """Openings by their places in the columns. Raises ValueError, TypeError, IndexError and
    KeyError for what are no columns.

    addresses, ways, sizes  of each; the ways as numbers
    """

    def __init__(self, plain: Plain) -> None:
        columns = table_of(plain["openings"], _OPENING)
        self.addresses, self.ways, self.sizes, *self._ends = columns
        self._holes = table_of(plain["holes"], _HOLE)
        self._reasons = table_of(plain["reasons"], _REASON)
        self._code = bytes.fromhex(plain["code"])
        self._hole_code = bytes.fromhex(plain["hole_code"])
        parts = len(self._code), len(self._holes[0]), len(self._reasons[0])
        for ends, last in zip(self._ends, parts, strict=True):
            check_ends(ends, last)
        check_ends(self._holes[1], len(self._hole_code))
        check_below(self.ways, CLOSED + 1)
        check_below(self._reasons[0], CLOSED)
        check_below(self._reasons[1], len(_REASONS))

    def __len__(self) -> int:
        return len(self.addresses)

    @property
    def displaced(self) -> Column:
        """How many bytes each changes or displaces."""
        return np.maximum(self.sizes, np.diff(self._ends[0], prepend=0))

    @property
    def have_holes(self) -> Mask:
        """Whether each needs one of its holes."""
        return np.diff(self._ends[1], prepend=0) > 0

    def reasons(self, places: Column, *, last: bool = False) -> list[str]:
        """The first reason against a better way, or the last one, of those at these places; "" of
        one that has none."""
        texts = np.array([*map(str, _REASONS), ""], object)
        numbers = np.append(self._reasons[1], len(_REASONS))
        ends = self._ends[2]
        at = (ends - 1 if last else starts_of(ends))[places]
        has_one = np.diff(ends, prepend=0)[places] > 0
        chosen: list[str] = texts[numbers[np.where(has_one, at, -1)]].tolist()
        return chosen

    def holes(self, place: int) -> list[HolePlace]:
        """The holes of the one at a place."""
        ends = self._ends[1]
        return [self._hole(hole) for hole in range(int(starts_of(ends)[place]), int(ends[place]))]

    def at(self, place: int) -> Opening | Closed:
        """The one at a place."""
        address, way, size, code, code_end, hole, holes_end, reason, reasons_end = self._rows[place]
        turned_down: tuple[TurnedDown, ...] = ()
        if reason < reasons_end:
            turned_down = tuple(map(self._turned_down, range(reason, reasons_end)))
        if way == CLOSED:
            return Closed(address, turned_down)
        holes = tuple(map(self._hole, range(hole, holes_end))) if hole < holes_end else ()
        fields = WAYS[way], address, self._code[code:code_end], size, holes, turned_down
        return new(Opening, fields)

    @cached_property
    def _rows(self) -> list[tuple[int, ...]]:
        """The numbers of each, with where its parts begin and end."""
        parts = [each for ends in self._ends for each in (starts_of(ends), ends)]
        columns = self.addresses, self.ways, self.sizes, *parts
        return list(zip(*(column.tolist() for column in columns), strict=True))

    def _turned_down(self, place: int) -> TurnedDown:
        way, reason, address = (int(column[place]) for column in self._reasons)
        return TurnedDown(WAYS[way], _REASONS[reason], address)

    def _hole(self, place: int) -> HolePlace:
        address, end, made = (int(column[place]) for column in self._holes)
        start = int(self._holes[1][place - 1]) if place else 0
        return HolePlace(address, self._hole_code[start:end], bool(made))

    def have_code(self, texts: Sequence[tuple[int, bytes]]) -> bool:
        """Whether their bytes are in this code, of which each piece stands at an address."""
        holes, hole_ends, _ = self._holes
        return _stands(self._code, self.addresses, self._ends[0], texts) and _stands(
            self._hole_code, holes, hole_ends, texts
        )


class Kept(Mapping[int, A], Generic[A]):
    """Answers by the addresses that they were asked for."""

    def __init__(self, plain: Plain) -> None:
        """Raises as `Openings`."""
        self.openings = Openings(plain["openings"])
        asked = numbers_of(plain["asked"]).tolist()
        self._places = {address: place for place, address in enumerate(asked)}
        self._made: dict[int, A] = {}

    def __getitem__(self, address: int) -> A:
        answer = self._made.get(address)
        if answer is None:
            answer = self._made[address] = self._answer(self._places[address])
        return answer

    @abstractmethod
    def _answer(self, place: int) -> A:
        """The one at a place."""

    def __contains__(self, address: object) -> bool:
        return address in self._places  # and no answer is made

    def keys(self) -> KeysView[int]:
        """The addresses."""
        return self._places.keys()

    def __iter__(self) -> Iterator[int]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class KeptOpenings(Kept[Opening | Closed]):
    """An opening for each address."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain)
        if len(self) != len(self.openings):
            raise ValueError("openings of other addresses")

    def _answer(self, place: int) -> Opening | Closed:
        return self.openings.at(place)


class Left(NamedTuple):
    """Columns of some functions, in the order that they are asked for in.

    entries    the places of the openings of their entries
    unbounded  the numbers of the reasons why their exits are not known
    again      whether they begin again
    exits      the places of the openings of their exits, one function after the other
    functions  which of the functions each exit leaves
    """

    entries: Column
    unbounded: Column
    again: Mask
    exits: Column
    functions: Column


class KeptExits(Kept[Exits]):
    """The exits of the function that is entered at each address."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain)
        functions = table_of(plain["functions"], _FUNCTION)
        self._ends, self._unbounded, self._at, self._again = functions
        addresses, kinds = table_of(plain["exits"], _EXIT)
        if len(self) != len(self._ends) or len(self) + len(kinds) != len(self.openings):
            raise ValueError("exits of other functions")
        check_ends(self._ends, len(kinds))
        check_below(self._unbounded, len(UNBOUNDED))
        check_below(kinds, len(_KINDS))
        self._exits = addresses, kinds

    def left(self, addresses: Iterable[int]) -> Left:
        """The columns of the functions that are entered at these addresses."""
        places = np.array([self._places[address] for address in addresses], np.int64)
        starts, ends = starts_of(self._ends)[places], self._ends[places]
        functions = np.repeat(np.arange(len(places)), ends - starts)
        exits = from_each(starts, ends - starts) + places[functions] + 1
        again = self._again[places] != 0
        return Left(starts + places, self._unbounded[places], again, exits, functions)

    def displaces(self, left: Left) -> Mask:
        """Whether each exit is nothing but the instruction that its entry displaces."""
        ways, addresses = self.openings.ways, self.openings.addresses
        entries = left.entries[left.functions]
        same = (addresses[entries] == addresses[left.exits]) & (ways[entries] == ways[left.exits])
        open_alike: Mask = same & (ways[entries] != CLOSED)
        return open_alike

    def overlap(self, left: Left) -> Mask:
        """Whether each exit and its entry need the same bytes, and so are not open together."""
        openings, exits, entries = self.openings, left.exits, left.entries[left.functions]
        starts, ends = openings.addresses, openings.addresses + openings.displaced
        are_open: Mask = (openings.ways[exits] != CLOSED) & (openings.ways[entries] != CLOSED)
        return are_open & (starts[entries] < ends[exits]) & (starts[exits] < ends[entries])

    def _answer(self, place: int) -> Exits:
        start, end, unbounded, at, again = self._rows[place]
        opening_at = self.openings.at
        addresses, kinds = self._lists
        exits = tuple(
            new(Exit, (addresses[exit], _KINDS[kinds[exit]], opening_at(exit + place + 1)))
            for exit in range(start, end)
        )
        entry = opening_at(start + place)
        return new(Exits, (entry, exits, UNBOUNDED[unbounded], at, bool(again)))

    @cached_property
    def _rows(self) -> list[tuple[int, ...]]:
        columns = starts_of(self._ends), self._ends, self._unbounded, self._at, self._again
        return list(zip(*(column.tolist() for column in columns), strict=True))

    @cached_property
    def _lists(self) -> tuple[list[int], list[int]]:
        addresses, kinds = self._exits
        return addresses.tolist(), kinds.tolist()


# ---- columns of values ---------------------------------------------------------------------------


def columns_of_openings(answers: Mapping[int, Opening | Closed]) -> Plain:
    """The columns of `KeptOpenings`."""
    return {"asked": text_of(answers), "openings": columns_of(answers.values())}


def columns_of_exits(answers: Mapping[int, Exits]) -> Plain:
    """The columns of `KeptExits`. Of what is opened by a jump they lack the better ways: nobody
    asks for them, and they are most."""
    openings: list[Opening | Closed] = []
    functions: list[tuple[int, ...]] = []
    exits: list[tuple[int, ...]] = []
    for entry, leaving, unbounded, at, again in answers.values():
        openings += (_brief(entry), *(_brief(each.opening) for each in leaving))
        exits += ((each.address, NUMBERS[each.kind]) for each in leaving)
        functions.append((len(exits), NUMBERS[unbounded], at, int(again)))
    return {
        "asked": text_of(answers), "openings": columns_of(openings),
        "functions": texts_of(functions, _FUNCTION), "exits": texts_of(exits, _EXIT),
    }  # fmt: skip


def _brief(opening: Opening | Closed) -> Opening | Closed:
    is_by_jump = isinstance(opening, Opening) and opening.way is not Way.INT3
    return opening._replace(turned_down=()) if is_by_jump else opening


def columns_of(openings: Iterable[Opening | Closed]) -> Plain:
    """The columns of `Openings`."""
    rows: list[tuple[int, ...]] = []
    holes: list[tuple[int, ...]] = []
    reasons: list[tuple[int, ...]] = []
    code, hole_code = bytearray(), bytearray()
    for opening in openings:
        way, size = CLOSED, 0
        if isinstance(opening, Opening):
            way, size = NUMBERS[opening.way], opening.size
            code += opening.code
            for address, content, made in opening.holes:
                hole_code += content
                holes.append((address, len(hole_code), int(made)))
        for worse, reason, at in opening.turned_down:
            reasons.append((NUMBERS[worse], NUMBERS[reason], at))
        rows.append((opening.address, way, size, len(code), len(holes), len(reasons)))
    return {
        "openings": texts_of(rows, _OPENING), "holes": texts_of(holes, _HOLE),
        "reasons": texts_of(reasons, _REASON),
        "code": code.hex(), "hole_code": hole_code.hex(),
    }  # fmt: skip


def _stands(
    content: bytes, addresses: Column, ends: Column, texts: Sequence[tuple[int, bytes]]
) -> bool:
    """Whether each part of the content, which ends at one of these ends, stands at its address."""
    at = from_each(addresses, np.diff(ends, prepend=0))
    expected = np.frombuffer(content, np.uint8)
    stands = np.zeros(len(content), bool)
    for start, text in texts:
        inside = (at >= start) & (at < start + len(text))
        stands[inside] = np.frombuffer(text, np.uint8)[at[inside] - start] == expected[inside]
    return bool(stands.all())
