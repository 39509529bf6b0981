"""Openings of functions of the usual shape, found for all of an object at once, as columns.

Most functions begin with plain instructions, and most returns stand behind plain ones or before
padding. What a jump displaces there is known without asking one place after the other: an
instruction is plain if it is copied as it is to any address, and the next one follows. Here only
what is certain counts; of all others there is no word, and the answer is that of openings.py and
exits.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from markerjit.abi import PAGE
from markerjit.elf.functions import Functions
from markerjit.tuples import NamedTuple
from markerjit.x86.flow import RET, Addresses, Flows, are_no_ops, padding_ends
from markerjit.x86.forms import JMP_NEAR, NEAR_LENGTH
from markerjit.x86.relocate import is_plain

_PREFIXES = np.isin(np.arange(256), list(b"\x26\x2e\x36\x3e\x64\x65\x67\xf0\xf2\xf3"))
_RELATIVE, _MODE_AND_BASE = 0x05, 0xC7
"""A ModRM byte with these bits says that a displacement from rip follows."""

_NEAR = 1 << 30
"""The distance of a target that a jump reaches from anywhere near, too."""
_PADDING = 16
"""Bytes of padding that are looked at, behind those that a jump needs."""

Mask = NDArray[np.bool_]


class Alone(NamedTuple):
    """A function that is left by returns only, has no parts, and jumps nowhere else.

    returns  the addresses of these; of those where the stack pointer is not what it was, too
    again    a jump leads to its start
    """

    returns: tuple[int, ...]
    again: bool


class Straight(NamedTuple):
    """What is certain of an object.

    entries  how many bytes a jump displaces, by the address where a function is entered
    returns  from where a jump displaces them, by the address of a return: from the return itself
             where padding is behind it
    tails    the addresses of jumps that can get another target
    alone    functions that are left by returns only, by their starts
    """

    entries: dict[int, int]
    returns: dict[int, int]
    tails: frozenset[int]
    alone: dict[int, Alone]


NOTHING = Straight({}, {}, frozenset(), {})


def straight(
    functions: Functions,
    flows: Flows,
    texts: Iterable[tuple[int, bytes]],
    arrivals: Addresses,
    from_parts: Iterable[Addresses],
    restartable: Sequence[range],
) -> Straight:
    """What is certain of an object whose functions are all decoded.

    `arrivals` are the addresses that something may lead to, and `from_parts` those that parts of
    functions may jump to; both are sorted.
    """
    entries: dict[int, int] = {}
    returns: dict[int, int] = {}
    tails: set[int] = set()
    for base, code in texts:
        text = _Text(functions, flows, base, code, arrivals, restartable)
        entries |= text.entries()
        returns |= text.returns()
        tails |= text.tails()
    return Straight(entries, returns, frozenset(tails), _alone(functions, flows, from_parts))


def _alone(functions: Functions, flows: Flows, from_parts: Iterable[Addresses]) -> dict[int, Alone]:
    starts, ends = functions.starts, functions.ends
    chosen = (functions.indices(starts) == np.arange(len(starts))) & (flows.ends == ends)
    chosen &= ~flows.have_jumps(through_slots=True)
    of, _, _, targets = flows.leaps()
    chosen[of[(targets < starts[of]) | (targets >= ends[of])]] = False
    chosen[:-1] &= starts[1:] >= ends[:-1]  # no other one begins in it
    for arrivals in from_parts:
        first, behind = np.searchsorted(arrivals, starts + 1), np.searchsorted(arrivals, ends)
        chosen &= first >= behind
    again = np.zeros(len(starts), bool)
    again[of[targets == starts[of]]] = True
    returns = flows.returns()
    bounds = np.searchsorted(returns.functions, np.arange(len(starts) + 1)).tolist()
    places = returns.starts.tolist()
    return {
        start: Alone(tuple(places[bounds[function] : bounds[function + 1]]), begins_again)
        for function, start, begins_again in zip(
            np.flatnonzero(chosen).tolist(), starts[chosen].tolist(), again[chosen].tolist(),
            strict=True,
        )
    }  # fmt: skip


class _Text:
    """The decoded functions of an executable segment."""

    def __init__(
        self,
        functions: Functions,
        flows: Flows,
        base: int,
        code: bytes,
        arrivals: Addresses,
        restartable: Sequence[range],
    ) -> None:
        self._functions = functions
        self._flows = flows
        self._base = base
        self._code = code
        self._arrivals = arrivals
        self._restartable = restartable
        self._starts = flows.insns.starts
        self._ends = self._starts + flows.insns.sizes
        self._plain = self._plain_ones()

    def entries(self) -> dict[int, int]:
        """The bytes that are displaced where functions are entered."""
        rows, behind = self._flows.rows[:-1], self._flows.rows[1:]
        starts = self._functions.starts
        numbers = np.arange(len(starts))
        alive = self._functions.indices(starts) == numbers
        alive &= ~self._flows.have_jumps(through_slots=False)
        sizes = np.zeros(len(starts), np.int64)
        for further in range(NEAR_LENGTH):
            at = rows + further
            alive &= at < behind
            at = np.where(alive, at, 0)
            alive &= self._plain[at]
            reach = self._ends[at] - starts
            done = alive & (reach >= NEAR_LENGTH)
            sizes[done] = reach[done]
            alive &= ~done
        chosen = (sizes > 0) & self._is_closed(starts, starts + sizes)
        return dict(zip(starts[chosen].tolist(), sizes[chosen].tolist(), strict=True))

    def returns(self) -> dict[int, int]:
        """Where the jumps over returns begin."""
        insns = self._flows.insns
        (rows,) = ((insns.numbers == RET) & (insns.sizes == 1)).nonzero()
        at, ends = self._starts[rows], self._ends[rows]
        free = self._padding_behind(rows)
        first = self._flows.rows[self._flows.functions_of(rows)]
        begins = np.zeros(len(rows), np.int64)
        alive = free >= 0
        for before in range(NEAR_LENGTH):
            row = np.maximum(rows - before, first)
            alive &= (row == rows - before) & (self._plain[row] | (before == 0))
            starts = self._starts[row]
            fits = alive & (ends - starts + free >= NEAR_LENGTH)
            alive &= ~fits
            fits &= self._is_closed(starts, np.maximum(ends, starts + NEAR_LENGTH))
            begins[fits] = starts[fits]
        chosen = (begins > 0) & (begins // PAGE == (begins + NEAR_LENGTH - 1) // PAGE)
        return dict(zip(at[chosen].tolist(), begins[chosen].tolist(), strict=True))

    def tails(self) -> set[int]:
        """The direct jumps with 32 bits that can get another target, and are moved to a place
        nearby."""
        _, starts, ends, targets = self._flows.leaps()
        chosen = (starts >= self._base) & (ends <= self._base + len(self._code))
        chosen &= (ends - starts == NEAR_LENGTH) & (np.abs(targets - starts) < _NEAR)
        chosen &= ((targets <= starts) | (targets >= ends)) & self._is_closed(starts, ends)
        chosen &= starts // PAGE == (ends - 1) // PAGE
        starts = starts[chosen]
        opcodes = np.frombuffer(self._code, np.uint8)[starts - self._base]
        return set(starts[opcodes == JMP_NEAR].tolist())

    def _padding_behind(self, rows: Addresses) -> Addresses:
        """How many bytes of padding are behind these instructions, of as many as a jump may need;
        -1 where that is not certain."""
        ends = self._ends[rows]
        free = np.full(len(rows), -1)
        reach = ends.copy()
        alive = np.ones(len(rows), bool)
        for behind in range(1, NEAR_LENGTH):
            row = np.minimum(rows + behind, len(self._starts) - 1)
            alive &= self._starts[row] == reach
            goes_on = are_no_ops(self._flows.insns.numbers[row])
            free[alive & ~goes_on] = (reach - ends)[alive & ~goes_on]
            alive &= goes_on
            reach[alive] = self._ends[row][alive]
        free[alive] = NEAR_LENGTH
        self._add_gaps(rows, free)
        return free

    def _add_gaps(self, rows: Addresses, free: Addresses) -> None:
        """Of what is not certain, the padding between functions, as far as a jump needs it."""
        functions = self._functions
        of = self._flows.functions_of(rows)
        ends = self._ends[rows]
        beyond = functions.starts[np.minimum(of + 1, len(functions) - 1)]
        room = (free < 0) & (ends == functions.ends[of]) & (beyond - ends >= NEAR_LENGTH - 1)
        room &= (ends >= self._base) & (ends < self._base + len(self._code))
        for row in np.flatnonzero(room).tolist():
            start = int(ends[row]) - self._base
            size = min(int(beyond[row] - ends[row]), NEAR_LENGTH - 1 + _PADDING)
            padding = padding_ends(self._code[start : start + size])
            if padding[-1:] >= (NEAR_LENGTH - 1,):
                free[row] = NEAR_LENGTH - 1

    def _is_closed(self, low: Addresses, high: Addresses) -> Mask:
        """Whether nothing leads between these addresses, and all may be executed elsewhere."""
        closed: Mask = np.searchsorted(self._arrivals, low + 1) == np.searchsorted(
            self._arrivals, high
        )
        for each in self._restartable:
            closed &= (low >= each.stop) | (high <= each.start)
        return closed

    def _plain_ones(self) -> Mask:
        """Which instructions are plain, without prefixes and operands relative to rip."""
        insns = self._flows.insns
        data = np.frombuffer(self._code, np.uint8)
        at = self._starts - self._base
        plain = (at >= 0) & (at + insns.sizes <= len(data))
        at = np.where(plain, at, 0)
        plain &= ~_PREFIXES[data[at]]
        before = np.concatenate([[0], np.cumsum(data & _MODE_AND_BASE == _RELATIVE)])
        plain &= before[at + np.where(plain, insns.sizes, 1)] == before[at + 1]
        (rows,) = plain.nonzero()
        examples = np.full(1 << 16, -1)
        examples[insns.numbers[rows]] = rows
        are_plain = np.zeros(len(examples), bool)
        for row in examples[examples >= 0].tolist():
            start = int(at[row])
            code = self._code[start : start + int(insns.sizes[row])]
            are_plain[insns.numbers[row]] = is_plain(code)
        return plain & are_plain[insns.numbers]
