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
from collections.abc import Callable, Collection, Iterable, Iterator

import numpy as np

from markerjit.abi import PAGE
from markerjit.elf.function_names import FunctionNames
from markerjit.elf.functions import Functions
from markerjit.spans.code import Code
from markerjit.spans.exits import Exits
from markerjit.spans.openings import Closed, HolePlace, Opening, Way, best_opening
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


def shares_of_functions(exits: Collection[Exits]) -> tuple[Share, Share]:
    """The shares of the entries of functions, and of their exits."""
    return _share("entries", (each.entry for each in exits)), _exits(exits)


def share_of_instructions(code: Code, instructions: int | None, progress: Progress) -> Share:
    """The share of so many instructions; None is all."""
    code.expect(len(code.functions) if instructions is None else instructions)
    places = _reported("instructions", _chosen(code, instructions), progress)
    return _share("instructions", (best_opening(code, at) for at in places))


def entries_of(functions: Functions, names: FunctionNames) -> list[int]:
    """Where functions are entered."""
    starts: list[int] = functions.starts[~functions.parts].tolist()
    return [start for start in starts if not names.is_linkage(start)]


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


def _exits(functions: Iterable[Exits]) -> Share:
    unknown: Counter[str] = Counter()
    displaced = 0
    openings: list[Opening | Closed] = []
    for exits in functions:
        if exits.unbounded:
            unknown[str(exits.unbounded)] += 1
        own = [each.opening for each in exits.exits if each.opening != exits.entry]
        displaced += len(exits.exits) - len(own)
        openings += own
    share = _share("exits", openings)
    ways = {BY_ENTRY: displaced, **share.ways} if displaced else share.ways
    return share._replace(places=share.places + displaced, ways=ways, unknown=dict(unknown))


def _share(what: str, openings: Iterable[Opening | Closed]) -> Share:
    ways: Counter[Way] = Counter()
    reasons: Counter[str] = Counter()
    given: set[int] = set()
    places = 0
    for opening in openings:
        places += 1
        way, reason = _as_switched(opening, given)
        if way:
            ways[way] += 1
        if reason:
            reasons[reason] += 1
    ordered = {str(way): ways[way] for way in Way if ways[way]}
    return Share(what, places, ordered, dict(reasons.most_common()), {})


def _as_switched(opening: Opening | Closed, given: set[int]) -> tuple[Way | None, str]:
    """The way, and why it is no jump; "" where it is one."""
    if isinstance(opening, Closed):
        return None, str(opening.turned_down[-1].reason)
    if opening.way is Way.INT3:
        first = next(iter(opening.turned_down), None)
        return Way.INT3, str(first.reason) if first else NO_ROOM
    if opening.address // PAGE != (opening.address + opening.size - 1) // PAGE:
        return Way.INT3, TWO_PAGES
    if opening.holes:
        hole = next((each for each in opening.holes if not given & _bytes_of(each)), None)
        if hole is None:
            return Way.INT3, NO_HOLE_LEFT
        given |= _bytes_of(hole)
        return (Way.MADE if hole.made else Way.HOLE), ""
    return opening.way, ""


def _bytes_of(hole: HolePlace) -> set[int]:
    return set(range(hole.address, hole.address + len(hole.code)))
