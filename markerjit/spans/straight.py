"""Openings of the usual shape, found for all functions of an object at once, as columns.

Most functions begin with instructions that can be moved anywhere near, and most exits stand behind
such ones or before padding. What a jump displaces there is known without asking one place after the
other (x86/moves.py). Here only what is certain counts; of all others there is no word, and the
answer is that of openings.py and exits.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from markerjit.abi import PAGE
from markerjit.elf.functions import Functions
from markerjit.tuples import NamedTuple
from markerjit.x86.flow import CALL, RET, Addresses, Flows, are_no_ops, padding_ends
from markerjit.x86.forms import HOLE_SIZES, JMP_NEAR, JMP_SHORT, NEAR_LENGTH, SHORT_LENGTH
from markerjit.x86.moves import ENDS, GOES_ON, NEAR, UNKNOWN, Kinds, Moves

_PADDING = 16
"""Bytes of padding that are looked at, behind those that a jump needs."""

_ROOM = HOLE_SIZES[True]
"""Bytes of instructions that give room for a hole."""
_REACH = 0xA0
"""More than lies between an exit and any place to which a short jump leads from there, or from the
instruction before."""

Mask = NDArray[np.bool_]


class Straight(NamedTuple):
    """What is certain of an object.

    entries  how many bytes a jump displaces, by the address where a function is entered, or behind
             the endbr64 there
    exits    which bytes a jump displaces, by the address of a return or a short jump out of a
             function: from where, and their end. From the exit itself where padding is behind it
    tails    the addresses of jumps that can get another target
    rooms    the ends of whole instructions that can give room for a hole, by the address of the
             first one; 0 where they cannot, because a block ends before. Near those exits that are
             not in `exits`
    """

    entries: dict[int, int]
    exits: dict[int, tuple[int, int]]
    tails: frozenset[int]
    rooms: dict[int, int]


NOTHING = Straight({}, {}, frozenset(), {})


def straight(
    functions: Functions,
    flows: Flows,
    texts: Iterable[tuple[int, bytes]],
    arrivals: tuple[Addresses, Addresses],
    explained: Mask,
    restartable: Sequence[range],
) -> Straight:
    """What is certain of an object whose functions are all decoded.

    `arrivals` are the addresses that something may lead to, and those of them that something does
    lead to, both sorted; `explained` says of which functions it is known where their indirect jumps
    lead.
    """
    entries: dict[int, int] = {}
    exits: dict[int, tuple[int, int]] = {}
    tails: set[int] = set()
    rooms: dict[int, int] = {}
    for base, code in texts:
        text = _Text(functions, flows, base, code, arrivals, restartable)
        entries |= text.entries(explained)
        of_text, others = text.exits()
        exits |= of_text
        tails |= text.tails()
        rooms |= text.rooms(others)
    return Straight(entries, exits, frozenset(tails), rooms)


class _Text:
    """The decoded functions of an executable segment."""

    def __init__(
        self,
        functions: Functions,
        flows: Flows,
        base: int,
        code: bytes,
        arrivals: tuple[Addresses, Addresses],
        restartable: Sequence[range],
    ) -> None:
        self._functions = functions
        self._flows = flows
        self._base = base
        self._code = code
        self._arrivals, self._certain = arrivals
        self._restartable = restartable
        self._starts = flows.insns.starts
        self._sizes = flows.insns.sizes
        self._moves = Moves(flows, base, code)

    def _kinds(self, rows: Addresses, asked: Mask) -> Kinds:
        """What is known of the instructions that are asked for; nothing of the others."""
        kinds = np.full(len(rows), UNKNOWN, np.uint8)
        kinds[asked] = self._moves.kinds(rows[asked])
        return kinds

    def entries(self, explained: Mask) -> dict[int, int]:
        """The bytes that are displaced where functions are entered."""
        marks = self._flows.behind_endbr()
        rows, behind = self._flows.rows[:-1] + (marks > 0), self._flows.rows[1:]
        starts = self._functions.starts
        alive = self._functions.indices(starts) == np.arange(len(starts))
        alive &= explained
        starts = starts + marks
        sizes = np.zeros(len(starts), np.int64)
        for further in range(NEAR_LENGTH):
            at = rows + further
            alive &= at < behind
            at = np.where(alive, at, 0)
            kinds = self._kinds(at, alive)
            alive &= kinds != UNKNOWN
            reach = self._starts[at] + self._sizes[at] - starts
            done = alive & (reach >= NEAR_LENGTH)
            sizes[done] = reach[done]
            alive &= ~done & (kinds == GOES_ON)
        chosen = (sizes > 0) & self._is_closed(starts, starts + sizes)
        return dict(zip(starts[chosen].tolist(), sizes[chosen].tolist(), strict=True))

    def exits(self) -> tuple[dict[int, tuple[int, int]], Addresses]:
        """What the jumps over returns, and over short jumps out of functions, displace; and where
        those are of which that is not certain."""
        rows = self._returns_and_jumps()
        ends = self._starts[rows] + self._sizes[rows]
        free = self._padding_behind(rows)
        first = self._flows.rows[self._flows.functions_of(rows)]
        begins = np.zeros(len(rows), np.int64)
        alive = (free >= 0) & (self._kinds(rows, free >= 0) == ENDS)
        for before in range(NEAR_LENGTH):
            row = np.maximum(rows - before, first)
            alive &= row == rows - before
            if before:
                alive &= self._kinds(row, alive) == GOES_ON
            starts = self._starts[row]
            fits = alive & (ends - starts + free >= NEAR_LENGTH)
            alive &= ~fits
            fits &= self._is_closed(starts, np.maximum(ends, starts + NEAR_LENGTH))
            begins[fits] = starts[fits]
        chosen = (begins > 0) & (begins // PAGE == (begins + NEAR_LENGTH - 1) // PAGE)
        spans = zip(begins[chosen].tolist(), ends[chosen].tolist(), strict=True)
        others = self._starts[rows[~chosen]]
        return dict(zip(self._starts[rows[chosen]].tolist(), spans, strict=True)), others

    def rooms(self, exits: Addresses) -> dict[int, int]:
        """The ends of what can give room for a hole near these exits, as `Straight.rooms`."""
        if not len(exits):
            return {}
        places = np.sort(exits).astype(np.int64)
        behind = np.searchsorted(places, self._starts - _REACH)
        near = places[np.minimum(behind, len(places) - 1)]
        (rows,) = (np.abs(near - self._starts) <= _REACH).nonzero()
        kinds = np.full(len(self._starts), UNKNOWN, np.uint8)
        kinds[rows] = self._moves.kinds(rows)
        starts = self._starts[rows]
        reach = starts.copy()
        alive, go_on = np.ones(len(rows), bool), np.ones(len(rows), bool)
        fits, none = np.zeros(len(rows), bool), np.zeros(len(rows), bool)
        for further in range(_ROOM):
            row = np.minimum(rows + further, len(self._starts) - 1)
            alive &= self._starts[row] == reach
            reach[alive] = (self._starts[row] + self._sizes[row])[alive]
            kind = kinds[row]
            done = alive & (reach - starts >= _ROOM)
            go_on[alive] &= ((kind == GOES_ON) | (done & (kind == ENDS)))[alive]
            # A block may end with the room. A call may not: it comes back to where it was.
            calls = self._flows.insns.numbers[row] == CALL
            none |= alive & (calls | ((kind == ENDS) & ~done))
            fits |= done
            alive &= ~done
        none |= fits & self._are_between(self._certain, starts, reach)
        chosen = fits & go_on & ~none & self._is_closed(starts, reach)
        of = self._flows.functions_of(rows)  # a function may lie inside another one
        for at in (starts + 1, reach - 1):
            chosen &= self._functions.indices(at) == of
        ends = np.where(chosen, reach, 0)
        known = none | chosen
        return dict(zip(starts[known].tolist(), ends[known].tolist(), strict=True))

    def _returns_and_jumps(self) -> Addresses:
        """The rows of plain returns, and of jumps with 8 bits that leave their function."""
        insns = self._flows.insns
        of, rows, starts, ends, targets = self._flows.leaps()
        chosen = (targets < self._functions.starts[of]) | (targets >= self._functions.ends[of])
        chosen &= ends - starts == SHORT_LENGTH
        chosen &= (starts >= self._base) & (ends <= self._base + len(self._code))
        opcodes = np.frombuffer(self._code, np.uint8)[starts[chosen] - self._base]
        (returns,) = ((insns.numbers == RET) & (insns.sizes == 1)).nonzero()
        return np.concatenate([returns, rows[chosen][opcodes == JMP_SHORT]])

    def tails(self) -> set[int]:
        """The direct jumps with 32 bits that can get another target, and are moved to a place
        nearby."""
        _, _, starts, ends, targets = self._flows.leaps()
        chosen = (starts >= self._base) & (ends <= self._base + len(self._code))
        chosen &= (ends - starts == NEAR_LENGTH) & (np.abs(targets - starts) < NEAR)
        chosen &= ((targets <= starts) | (targets >= ends)) & self._is_closed(starts, ends)
        chosen &= starts // PAGE == (ends - 1) // PAGE
        starts = starts[chosen]
        opcodes = np.frombuffer(self._code, np.uint8)[starts - self._base]
        return set(starts[opcodes == JMP_NEAR].tolist())

    def _padding_behind(self, rows: Addresses) -> Addresses:
        """How many bytes of padding are behind these instructions, of as many as a jump may need;
        -1 where that is not certain."""
        numbers = self._flows.insns.numbers
        ends = self._starts[rows] + self._sizes[rows]
        free = np.full(len(rows), -1)
        reach = ends.copy()
        alive = np.ones(len(rows), bool)
        for behind in range(1, NEAR_LENGTH):
            row = np.minimum(rows + behind, len(self._starts) - 1)
            alive &= self._starts[row] == reach
            goes_on = are_no_ops(numbers[row])
            free[alive & ~goes_on] = (reach - ends)[alive & ~goes_on]
            alive &= goes_on
            reach[alive] = (self._starts[row] + self._sizes[row])[alive]
        free[alive] = NEAR_LENGTH
        self._add_gaps(rows, free)
        return free

    def _add_gaps(self, rows: Addresses, free: Addresses) -> None:
        """Of what is not certain, the padding between functions, as far as a jump needs it. A
        shorter gap is all that there is, where the next function begins with no padding."""
        functions = self._functions
        of = self._flows.functions_of(rows)
        ends = self._starts[rows] + self._sizes[rows]
        beyond = functions.starts[np.minimum(of + 1, len(functions) - 1)]
        room = (free < 0) & (ends == functions.ends[of]) & (beyond > ends)
        room &= (ends >= self._base) & (ends < self._base + len(self._code))
        next_row = np.minimum(rows + 1, len(self._starts) - 1)
        ends_there = self._starts[next_row] == beyond
        ends_there &= ~are_no_ops(self._flows.insns.numbers[next_row])
        for row in np.flatnonzero(room).tolist():
            start = int(ends[row]) - self._base
            gap = int(beyond[row] - ends[row])
            padding = padding_ends(self._code[start : start + min(gap, NEAR_LENGTH - 1 + _PADDING)])
            if padding[-1:] >= (NEAR_LENGTH - 1,):
                free[row] = NEAR_LENGTH - 1
            elif padding[-1:] == (gap,) and ends_there[row]:
                free[row] = gap

    def _is_closed(self, low: Addresses, high: Addresses) -> Mask:
        """Whether nothing leads between these addresses, and all may be executed elsewhere."""
        closed = ~self._are_between(self._arrivals, low, high)
        for each in self._restartable:
            closed &= (low >= each.stop) | (high <= each.start)
        return closed

    @staticmethod
    def _are_between(places: Addresses, low: Addresses, high: Addresses) -> Mask:
        """Whether any of these places is between two addresses."""
        between: Mask = np.searchsorted(places, low + 1) != np.searchsorted(places, high)
        return between
