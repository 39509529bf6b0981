"""Openings, and exits of functions, as columns: flat lists of numbers, which JSON reads at once. A
value is made of them when it is asked for, and not before.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from markerjit.model import new
from markerjit.spans.code import TargetKind
from markerjit.spans.exits import Exit, ExitKind, Exits, Unbounded
from markerjit.spans.openings import Closed, HolePlace, Opening, TurnedDown, Way, Why
from markerjit.x86.relocate import Obstacle

_WAYS = tuple(Way)
_REASONS: tuple[Obstacle | TargetKind | Why, ...] = (*Obstacle, *TargetKind, *Why)
_KINDS = tuple(ExitKind)
_UNBOUNDED: tuple[Unbounded | None, ...] = (*Unbounded, None)
_NUMBERS = {
    each: number
    for column in (_WAYS, _REASONS, _KINDS, _UNBOUNDED)
    for number, each in enumerate(column)
}
_CLOSED = len(_WAYS)
"""The number of no way."""
_OPENING, _HOLE, _REASON, _FUNCTION, _EXIT = 6, 3, 3, 4, 2
"""How many numbers each has."""
_BEFORE = (0,) * _OPENING
"""What stands before the first opening: ends that are 0."""

A = TypeVar("A", Opening | Closed, Exits)
Plain = dict[str, Any]
"""What JSON has of columns."""


class Openings:
    """Openings by their places in the columns. Raises ValueError, TypeError and KeyError for what
    are no columns."""

    def __init__(self, plain: Plain) -> None:
        self._openings: list[int] = [*_BEFORE, *plain["openings"]]
        self._holes: list[int] = plain["holes"]
        self._reasons: list[int] = plain["reasons"]
        self._code = bytes.fromhex(plain["code"])
        self._hole_code = bytes.fromhex(plain["hole_code"])
        openings, holes, reasons = self._rows()
        _check(openings[:, 3:], [len(self._code), len(holes), len(reasons)])
        _check(holes[:, 1:2], [len(self._hole_code)])
        _check_below(openings[:, 1], _CLOSED + 1)
        _check_below(reasons[:, 0], _CLOSED)
        _check_below(reasons[:, 1], len(_REASONS))

    def __len__(self) -> int:
        return len(self._openings) // _OPENING - 1

    def at(self, place: int) -> Opening | Closed:
        """The one at a place."""
        row = _OPENING * (place + 1)
        code, hole, reason, address, way, size, code_end, holes_end, reasons_end = self._openings[
            row - 3 : row + _OPENING
        ]
        turned_down: tuple[TurnedDown, ...] = ()
        if reason < reasons_end:
            turned_down = tuple(map(self._turned_down, range(reason, reasons_end)))
        if way == _CLOSED:
            return Closed(address, turned_down)
        holes: tuple[HolePlace, ...] = ()
        if hole < holes_end:
            holes = tuple(map(self._hole, range(hole, holes_end)))
        fields = _WAYS[way], address, self._code[code:code_end], size, holes, turned_down
        return new(Opening, fields)

    def _turned_down(self, place: int) -> TurnedDown:
        way, reason, address = self._reasons[_REASON * place : _REASON * (place + 1)]
        return TurnedDown(_WAYS[way], _REASONS[reason], address)

    def _hole(self, place: int) -> HolePlace:
        row = _HOLE * place
        address, end, made = self._holes[row : row + _HOLE]
        start = self._holes[row - 2] if row else 0
        return HolePlace(address, self._hole_code[start:end], bool(made))

    def have_code(self, texts: Sequence[tuple[int, bytes]]) -> bool:
        """Whether their bytes are in this code, of which each piece stands at an address."""
        openings, holes, _ = self._rows()
        return _stands(self._code, openings[:, 0], openings[:, 3], texts) and _stands(
            self._hole_code, holes[:, 0], holes[:, 1], texts
        )

    def _rows(self) -> tuple[NDArray[np.int64], ...]:
        return (
            _rows(self._openings[_OPENING:], _OPENING),
            _rows(self._holes, _HOLE),
            _rows(self._reasons, _REASON),
        )


class Kept(Mapping[int, A], Generic[A]):
    """Answers by the addresses that they were asked for."""

    def __init__(self, plain: Plain) -> None:
        """Raises as `Openings`."""
        self.openings = Openings(plain["openings"])
        self._places = {address: place for place, address in enumerate(plain["asked"])}
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


class KeptExits(Kept[Exits]):
    """The exits of the function that is entered at each address."""

    def __init__(self, plain: Plain) -> None:
        super().__init__(plain)
        self._functions: list[int] = plain["functions"]
        functions, exits = _rows(self._functions, _FUNCTION), _rows(plain["exits"], _EXIT)
        self._exits: list[list[int]] = exits.tolist()
        if len(self) != len(functions) or len(self) + len(exits) != len(self.openings):
            raise ValueError("exits of other functions")
        _check(functions[:, :1], [len(exits)])
        _check_below(functions[:, 1], len(_UNBOUNDED))
        _check_below(exits[:, 1], len(_KINDS))

    def _answer(self, place: int) -> Exits:
        row = _FUNCTION * place
        end, unbounded, at, again = self._functions[row : row + _FUNCTION]
        start = self._functions[row - _FUNCTION] if row else 0
        opening_at = self.openings.at
        exits = tuple(
            new(Exit, (address, _KINDS[kind], opening_at(opening)))
            for opening, (address, kind) in enumerate(self._exits[start:end], start + place + 1)
        )
        entry = opening_at(start + place)
        return new(Exits, (entry, exits, _UNBOUNDED[unbounded], at, bool(again)))


# ---- columns of values ---------------------------------------------------------------------------


def columns_of_openings(answers: Mapping[int, Opening | Closed]) -> Plain:
    """The columns of `KeptOpenings`."""
    return {"asked": list(answers), "openings": _columns(answers.values())}


def columns_of_exits(answers: Mapping[int, Exits]) -> Plain:
    """The columns of `KeptExits`. Of what is opened by a jump they lack the better ways: nobody
    asks for them, and they are most."""
    openings: list[Opening | Closed] = []
    functions: list[int] = []
    exits: list[int] = []
    for entry, leaving, unbounded, at, again in answers.values():
        openings += (_brief(entry), *(_brief(each.opening) for each in leaving))
        for each in leaving:
            exits += each.address, _NUMBERS[each.kind]
        functions += len(exits) // _EXIT, _NUMBERS[unbounded], at, int(again)
    plain = {"functions": functions, "exits": exits}
    return {"asked": list(answers), "openings": _columns(openings), **plain}


def _brief(opening: Opening | Closed) -> Opening | Closed:
    is_by_jump = isinstance(opening, Opening) and opening.way is not Way.INT3
    return opening._replace(turned_down=()) if is_by_jump else opening


def _columns(openings: Iterable[Opening | Closed]) -> Plain:
    rows: list[int] = []
    holes: list[int] = []
    reasons: list[int] = []
    code, hole_code = bytearray(), bytearray()
    for opening in openings:
        way, size = _CLOSED, 0
        if isinstance(opening, Opening):
            way, size = _NUMBERS[opening.way], opening.size
            code += opening.code
            for address, content, made in opening.holes:
                hole_code += content
                holes += address, len(hole_code), int(made)
        for worse, reason, at in opening.turned_down:
            reasons += _NUMBERS[worse], _NUMBERS[reason], at
        ends = len(code), len(holes) // _HOLE, len(reasons) // _REASON
        rows += opening.address, way, size, *ends
    return {
        "openings": rows, "holes": holes, "reasons": reasons,
        "code": code.hex(), "hole_code": hole_code.hex(),
    }  # fmt: skip


def _rows(column: list[int], size: int) -> NDArray[np.int64]:
    return np.array(column, np.int64).reshape(-1, size)


def _check(ends: NDArray[np.int64], last: Sequence[int]) -> None:
    """Raise ValueError unless each of these columns is in order, from 0 to the last one."""
    steps = np.diff(ends, axis=0, prepend=0, append=[last])
    if (steps < 0).any() or steps[-1].any():
        raise ValueError("columns that are no ends")


def _check_below(numbers: NDArray[np.int64], end: int) -> None:
    if ((numbers < 0) | (numbers >= end)).any():
        raise ValueError("a number of nothing")


def _stands(
    content: bytes,
    addresses: NDArray[np.int64],
    ends: NDArray[np.int64],
    texts: Sequence[tuple[int, bytes]],
) -> bool:
    """Whether each part of the content, which ends at one of these ends, stands at its address."""
    sizes = np.diff(ends, prepend=0)
    at = np.repeat(addresses - (ends - sizes), sizes) + np.arange(len(content))
    expected = np.frombuffer(content, np.uint8)
    stands = np.zeros(len(content), bool)
    for start, text in texts:
        inside = (at >= start) & (at < start + len(text))
        stands[inside] = np.frombuffer(text, np.uint8)[at[inside] - start] == expected[inside]
    return bool(stands.all())
