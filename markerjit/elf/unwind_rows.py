"""The unwind rows of a function: how the frame of its caller is found at each of its addresses.

A row says where the frame begins (the canonical frame address, CFA: the value of the stack pointer
before the call), and where the frame pointer and the return address of the caller are. What rows
say of other registers is passed over.

Authority: DWARF 5, 6.4.2; the numbers of registers, System V psABI for x86-64, figure 3.36.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from functools import lru_cache
from typing import Final

from markerjit.elf.functions import Cie, Functions, uleb
from markerjit.model import new
from markerjit.tuples import NamedTuple

RSP, RBP, RIP = 7, 6, 16

UNDEFINED: Final = "undefined"
"""The rule of a register that the caller does not get back; of the return address: no caller."""
OTHER: Final = "other"
"""A rule that is none of those that Row has."""

Saved = int | bytes | str | None
"""Where a register of the caller is: so far from the CFA; at the address that an expression
computes; UNDEFINED or OTHER; or None for where it was, in the register."""

_ADVANCE, _OFFSET, _RESTORE = 1, 2, 3  # the two high bits
_ADVANCES = {0x02: 1, 0x03: 2, 0x04: 4}  # advance_loc1, 2, 4: bytes of operand
_NOP, _OFFSET_EXTENDED, _RESTORE_EXTENDED, _UNDEFINED, _SAME_VALUE = 0x00, 0x05, 0x06, 0x07, 0x08
_REMEMBER, _RESTORE_STATE = 0x0A, 0x0B
_DEF_CFA, _DEF_CFA_REGISTER, _DEF_CFA_OFFSET, _DEF_CFA_EXPRESSION = 0x0C, 0x0D, 0x0E, 0x0F
_EXPRESSION, _VAL_EXPRESSION = 0x10, 0x16
_OTHERS = {0x09: 2, 0x11: 2, 0x14: 2}
"""How many LEB128 numbers follow the opcodes whose rule is OTHER; the first is the register."""
_ARGUMENTS_SIZE = 0x2E
_WORD = 8
"""Distances are stored as multiples of this, downwards, where a CIE is of a usual kind."""

_ENTRY = (RSP, 8)
_ALIKE = 1 << 12
"""Functions whose rows differ: many begin and end with the same pushes and pops."""


class Row(NamedTuple):
    """What is known from an address on, up to that of the next row.

    offset  the address, counted from the function's start
    cfa     a register and a distance from its value, or an expression
    rbp     where the caller's frame pointer is
    rip     where the return address is
    """

    offset: int
    cfa: tuple[int, int] | bytes
    rbp: Saved
    rip: Saved


class _State(NamedTuple):
    cfa: tuple[int, int] | bytes
    rbp: Saved
    rip: Saved


_UNTOLD = _State(b"", None, None)


def rows_of(functions: Functions, index: int) -> Iterator[Row]:
    """The rows of an entry of `.eh_frame`, by address. Rows at the address of the next one count
    for nothing, and are there all the same.

    Raises IndexError and ValueError, behind the rows that could be read.
    """
    return _rows_of(*functions.rules(index))


def _rows_of(cie: Cie, instructions: bytes) -> Iterator[Row]:
    if not cie.is_usual:
        raise ValueError("distances of another unit")
    state = _first(cie.rows)
    return _rows(instructions, state, state)


def is_entry_row(functions: Functions, address: int) -> bool:
    """Whether the stack pointer is there what it was at the function's entry.

    That tells a jump that leaves the function, as its last call, from one that stays in it. False
    where that is not known: outside of all functions, or in rows that cannot be read.
    """
    index = functions.index(address)
    if index is None:
        return False
    return entry_rows(functions, index).is_entry(address - int(functions.starts[index]))


class EntryRows(NamedTuple):
    """Of the rows of a function, where each begins, and whether the stack pointer is there what it
    was at the entry; and whether there are rows behind these that cannot be read."""

    offsets: tuple[int, ...]
    as_entered: tuple[bool, ...]
    is_cut: bool

    def is_entry(self, offset: int) -> bool:
        """Whether it is that at an offset from the function's start."""
        row = bisect_right(self.offsets, offset)
        if self.is_cut and row == len(self.offsets):
            return False
        return row > 0 and self.as_entered[row - 1]


def entry_rows(functions: Functions, index: int) -> EntryRows:
    """Those of an entry of `.eh_frame`."""
    try:
        cie, instructions = functions.rules(index)
    except (IndexError, ValueError):
        return EntryRows((), (), is_cut=True)
    return _entry_rows(cie, instructions)


@lru_cache(_ALIKE)
def _entry_rows(cie: Cie, instructions: bytes) -> EntryRows:
    offsets: list[int] = []
    as_entered: list[bool] = []
    is_cut = False
    try:
        if not cie.is_usual:
            raise ValueError("distances of another unit")
        for offset, is_entry in _entry_bounds(instructions, _first(cie.rows).cfa):
            offsets.append(offset)
            as_entered.append(is_entry)
    except (IndexError, ValueError):
        is_cut = True
    return EntryRows(tuple(offsets), tuple(as_entered), is_cut)


def _entry_bounds(data: bytes, cfa: tuple[int, int] | bytes) -> Iterator[tuple[int, bool]]:
    """Of each row of `_rows` the offset, and whether the stack pointer is there what it was at the
    entry. Half of what a plan asks of a program is this, and the rules of registers say nothing of
    it."""
    saved: list[tuple[int, int] | bytes] = []
    at = offset = 0
    end = len(data)
    while at < end:
        opcode = data[at]
        at += 1
        kind = opcode >> 6
        if kind == _ADVANCE:
            yield offset, cfa == _ENTRY
            offset += opcode & 0x3F
        elif kind == _OFFSET:
            if data[at] < 0x80:
                at += 1
            else:
                _, at = uleb(data, at)
        elif kind == _RESTORE or opcode == _NOP:
            continue
        elif opcode == _DEF_CFA_OFFSET:
            distance, at = uleb(data, at)
            cfa = _register(cfa), distance
        elif opcode == _REMEMBER:
            saved.append(cfa)
        elif opcode == _RESTORE_STATE:
            cfa = saved.pop()
        elif opcode in _ADVANCES:
            yield offset, cfa == _ENTRY
            size = _ADVANCES[opcode]
            offset += int.from_bytes(data[at : at + size], "little")
            at += size
        else:
            cfa, at = _seldom(opcode, data, at, cfa)
    yield offset, cfa == _ENTRY


def _seldom(
    opcode: int, data: bytes, at: int, cfa: tuple[int, int] | bytes
) -> tuple[tuple[int, int] | bytes, int]:
    """The CFA behind one of the other opcodes, and the offset behind that."""
    if opcode == _DEF_CFA:
        register, at = uleb(data, at)
        distance, at = uleb(data, at)
        return (register, distance), at
    if opcode == _DEF_CFA_REGISTER:
        register, at = uleb(data, at)
        if isinstance(cfa, bytes):
            raise ValueError("a register for an expression")
        return (register, cfa[1]), at
    if opcode == _DEF_CFA_EXPRESSION:
        return _block(data, at)
    if opcode == _ARGUMENTS_SIZE:
        return cfa, uleb(data, at)[1]
    return cfa, _rule(opcode, data, at)[2]


@lru_cache(maxsize=256)
def _first(rows: bytes) -> _State:
    """What the instructions of a CIE say, which the entries of an object share."""
    *_, last = _rows(rows, _UNTOLD, _UNTOLD)
    return _State(*last[1:])


def _rows(data: bytes, state: _State, initial: _State) -> Iterator[Row]:
    """The rows that instructions make of a state; `initial` is what they restore."""
    cfa, rbp, rip = state
    saved: list[_State] = []
    at = offset = 0
    end = len(data)
    while at < end:
        opcode = data[at]
        at += 1
        kind = opcode >> 6
        if kind == _ADVANCE:
            yield new(Row, (offset, cfa, rbp, rip))
            offset += opcode & 0x3F
        elif kind == _OFFSET:
            distance, at = uleb(data, at)
            if opcode & 0x3F == RBP:
                rbp = -_WORD * distance
            elif opcode & 0x3F == RIP:
                rip = -_WORD * distance
        elif kind == _RESTORE:
            if opcode & 0x3F == RBP:
                rbp = initial.rbp
            elif opcode & 0x3F == RIP:
                rip = initial.rip
        elif opcode == _DEF_CFA_OFFSET:
            distance, at = uleb(data, at)
            cfa = _register(cfa), distance
        elif opcode == _NOP:
            continue
        elif opcode == _REMEMBER:
            saved.append(_State(cfa, rbp, rip))
        elif opcode == _RESTORE_STATE:
            cfa, rbp, rip = saved.pop()
        elif opcode == _DEF_CFA:
            register, at = uleb(data, at)
            distance, at = uleb(data, at)
            cfa = register, distance
        elif opcode == _DEF_CFA_REGISTER:
            register, at = uleb(data, at)
            if isinstance(cfa, bytes):
                raise ValueError("a register for an expression")
            cfa = register, cfa[1]
        elif opcode in _ADVANCES:
            yield Row(offset, cfa, rbp, rip)
            size = _ADVANCES[opcode]
            offset += int.from_bytes(data[at : at + size], "little")
            at += size
        elif opcode == _DEF_CFA_EXPRESSION:
            cfa, at = _block(data, at)
        elif opcode == _ARGUMENTS_SIZE:
            _, at = uleb(data, at)
        else:
            register, rule, at = _rule(opcode, data, at)
            if opcode == _RESTORE_EXTENDED:
                rule = {RBP: initial.rbp, RIP: initial.rip}.get(register)
            if register == RBP:
                rbp = rule
            elif register == RIP:
                rip = rule
    yield Row(offset, cfa, rbp, rip)


def _rule(opcode: int, data: bytes, at: int) -> tuple[int, Saved, int]:
    """The register of one of the seldom opcodes, its rule, and the offset behind it."""
    register, at = uleb(data, at)
    if opcode == _OFFSET_EXTENDED:
        distance, at = uleb(data, at)
        return register, -_WORD * distance, at
    if opcode in (_RESTORE_EXTENDED, _SAME_VALUE):
        return register, None, at
    if opcode == _UNDEFINED:
        return register, UNDEFINED, at
    if opcode in (_EXPRESSION, _VAL_EXPRESSION):
        expression, at = _block(data, at)
        return register, expression if opcode == _EXPRESSION else OTHER, at
    if opcode not in _OTHERS:
        raise ValueError(opcode)
    for _ in range(_OTHERS[opcode] - 1):
        _, at = uleb(data, at)
    return register, OTHER, at


def _register(cfa: tuple[int, int] | bytes) -> int:
    if isinstance(cfa, bytes):
        raise ValueError("a distance for an expression")
    return cfa[0]


def _block(data: bytes, at: int) -> tuple[bytes, int]:
    size, at = uleb(data, at)
    if at + size > len(data):
        raise IndexError(at)
    return data[at : at + size], at + size
