"""How many places of an object's code can be opened, in which ways, and why the others cannot.

    entries       of functions; not of parts that a compiler has split off
    exits         of functions. One that the entry displaces needs no opening of its own
    instructions  any; all of them, or some that are chosen at random, the same each time

Holes are given away as a switch of all these places would do it, so a place whose holes others have
counts as a breakpoint. So does a jump whose write could be interrupted between two pages.

What this does not do: read a process, in which another site may have the bytes.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Collection, Iterator

import numpy as np

from markerjit.abi import PAGE
from markerjit.elf.function_names import FunctionNames
from markerjit.elf.functions import Functions
from markerjit.spans.code import Code
from markerjit.spans.columns import (
    CLOSED,
    NUMBERS,
    UNBOUNDED,
    WAYS,
    KeptExits,
    Left,
    Openings,
    columns_of,
)
from markerjit.spans.numbers import Column
from markerjit.spans.openings import HolePlace, Way, best_opening
from markerjit.tuples import NamedTuple, brief

BY_ENTRY = "inside what the entry displaces"
NO_HOLE_LEFT = "other places have the holes in reach"
NO_ROOM = "nothing beside it has room for a jump, and no hole is in reach"
TWO_PAGES = "the jump would lie in two pages"
_TURN = 64
"""The number of functions between two reports of progress."""

Progress = Callable[[str, float], None]
"""Called with what is looked at, and how much of it is done, from 0 to 1."""


class Share(NamedTuple):
    """The places of one kind.

    what     "entries", "exits" or "instructions"
    places   how many there are; of those that were looked at
    ways     how many are opened by each way, by its name, the best first
    reasons  why a place is opened by a breakpoint, or not at all, and how many places
    unknown  how many functions have exits that are not known, by the reason
    """

    what: str
    places: int
    ways: dict[str, int]
    reasons: dict[str, int]
    unknown: dict[str, int]

    def __repr__(self) -> str:
        return brief(self)

    @property
    def by_jump(self) -> int:
        """The number of places that a jump opens, be it the jump at the entry."""
        return sum(count for way, count in self.ways.items() if way != str(Way.INT3))

    @property
    def closed(self) -> int:
        """How many cannot be opened."""
        return self.places - sum(self.ways.values())


def shares_of_functions(kept: KeptExits, entries: Collection[int]) -> tuple[Share, Share]:
    """The shares of the entries of functions, and of their exits."""
    left = kept.left(entries)
    return _share("entries", kept.openings, left.entries), _exits(kept, left)


def share_of_instructions(code: Code, instructions: int | None, progress: Progress) -> Share:
    """The share of so many instructions; None is all."""
    code.expect(len(code.functions) if instructions is None else instructions)
    places = _reported("instructions", _chosen(code, instructions), progress)
    openings = Openings(columns_of(best_opening(code, at) for at in places))
    return _share("instructions", openings, np.arange(len(openings)))


def entries_of(functions: Functions, names: FunctionNames) -> list[int]:
    """Where functions are entered."""
    entries: list[int] = names.outside_linkage(functions.starts[~functions.parts]).tolist()
    return entries


def _reported(what: str, places: list[int], progress: Progress) -> Iterator[int]:
    for number, place in enumerate(places):
        if number % _TURN == 0:
            progress(what, number / len(places))
        yield place


def _chosen(code: Code, count: int | None) -> list[int]:
    """Starts of instructions. Functions are drawn by their sizes, so that each byte counts."""
    functions = code.functions
    if count is None:
        return [at for index in range(len(functions)) for at in code.flow(index).starts]
    draw = random.Random(count)
    weights = (functions.ends - functions.starts).clip(1)
    indexes = draw.choices(range(len(functions)), np.cumsum(weights).tolist(), k=count)
    places = (list(code.flow(index).starts) for index in sorted(indexes))
    return [draw.choice(starts) for starts in places if starts]


def _exits(kept: KeptExits, left: Left) -> Share:
    unknown = Counter(str(UNBOUNDED[each]) for each in left.unbounded.tolist() if UNBOUNDED[each])
    displaced = kept.displaces(left)
    share = _share("exits", kept.openings, left.exits[~displaced])
    by_entry = int(displaced.sum())
    ways = {BY_ENTRY: by_entry, **share.ways} if by_entry else share.ways
    return share._replace(places=share.places + by_entry, ways=ways, unknown=dict(unknown))


def _share(what: str, openings: Openings, places: Column) -> Share:
    ways, reasons = _as_switched(openings, places)
    counts = np.bincount(ways, minlength=len(WAYS)).tolist()
    ordered = {str(way): count for way, count in zip(WAYS, counts, strict=False) if count}
    return Share(what, len(places), ordered, dict(Counter(reasons).most_common()), {})


def _as_switched(openings: Openings, places: Column) -> tuple[Column, list[str]]:
    """The numbers of the ways, and why some are no jump."""
    ways = openings.ways[places]
    first, last = openings.addresses[places], (openings.addresses + openings.sizes)[places] - 1
    trap = NUMBERS[Way.INT3]
    closed, trapped = ways == CLOSED, ways == trap
    reasons = np.full(len(places), "", object)
    reasons[closed] = openings.reasons(places[closed], last=True)
    reasons[trapped] = [reason or NO_ROOM for reason in openings.reasons(places[trapped])]
    in_two_pages = ~closed & ~trapped & (first // PAGE != last // PAGE)
    ways[in_two_pages], reasons[in_two_pages] = trap, TWO_PAGES
    given: set[int] = set()
    choosing = ~closed & ~trapped & ~in_two_pages & openings.have_holes[places]
    for index in np.flatnonzero(choosing).tolist():
        holes = openings.holes(int(places[index]))
        hole = next((each for each in holes if not given & _bytes_of(each)), None)
        if hole is None:
            ways[index], reasons[index] = trap, NO_HOLE_LEFT
        else:
            given |= _bytes_of(hole)
            ways[index] = NUMBERS[Way.MADE if hole.made else Way.HOLE]
    return ways, reasons[reasons != ""].tolist()


def _bytes_of(hole: HolePlace) -> set[int]:
    return set(range(hole.address, hole.address + len(hole.code)))
