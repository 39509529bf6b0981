"""The unwind rows of a function: whether its frame is empty at an address.

Only the rule for the frame's address (CFA) is read, and of it only whether it is what it is at a
function's entry: the stack pointer and the return address's 8 bytes. That tells a jump that leaves
the function, as its last call, from one that stays in it.

Authority: DWARF 5, 6.4.2.
"""

from __future__ import annotations

from markerjit.elf.functions import Functions, uleb

_RSP = 7
_ENTRY = (_RSP, 8)

_ADVANCE, _OFFSET, _RESTORE = 1, 2, 3  # the two high bits
_ADVANCES = {0x02: 1, 0x03: 2, 0x04: 4}  # advance_loc1, 2, 4: bytes of operand
_REMEMBER, _RESTORE_STATE = 0x0A, 0x0B
_DEF_CFA, _DEF_CFA_REGISTER, _DEF_CFA_OFFSET, _DEF_CFA_EXPRESSION = 0x0C, 0x0D, 0x0E, 0x0F
_EXPRESSIONS = (0x10, 0x16)
_OPERANDS = {0x00: 0, 0x05: 2, 0x06: 1, 0x07: 1, 0x08: 1, 0x09: 2, 0x11: 2, 0x14: 2, 0x2E: 1}
"""How many LEB128 numbers follow the opcodes that say nothing of the CFA."""


def is_entry_row(functions: Functions, address: int) -> bool:
    """Whether the stack pointer is there what it was at the function's entry.

    False where that is not known: outside of all functions, or in rows that cannot be read.
    """
    index = functions.index(address)
    rows = None if index is None else functions.rows(index)
    if index is None or rows is None:
        return False
    try:
        return _cfa(rows, address - int(functions.starts[index])) == _ENTRY
    except (IndexError, ValueError):
        return False


def _cfa(rows: bytes, offset: int) -> tuple[int, int] | None:
    """Register and offset at an offset into the function; None for an expression."""
    cfa: tuple[int, int] | None = _ENTRY
    saved: list[tuple[int, int] | None] = []
    at = here = 0
    while at < len(rows):
        opcode, at = rows[at], at + 1
        kind = opcode >> 6
        if kind == _ADVANCE or opcode in _ADVANCES:
            size = 0 if kind else _ADVANCES[opcode]
            here += opcode & 0x3F if kind else int.from_bytes(rows[at : at + size], "little")
            at += size
            if here > offset:
                break
        elif kind == _OFFSET or opcode in _OPERANDS:
            for _ in range(1 if kind else _OPERANDS[opcode]):
                _, at = uleb(rows, at)
        elif kind == _RESTORE:
            continue
        elif opcode == _REMEMBER:
            saved.append(cfa)
        elif opcode == _RESTORE_STATE:
            cfa = saved.pop()
        elif opcode == _DEF_CFA:
            register, at = uleb(rows, at)
            distance, at = uleb(rows, at)
            cfa = (register, distance)
        elif opcode == _DEF_CFA_REGISTER:
            register, at = uleb(rows, at)
            cfa = (register, cfa[1] if cfa else 0)
        elif opcode == _DEF_CFA_OFFSET:
            distance, at = uleb(rows, at)
            cfa = (cfa[0] if cfa else _RSP, distance)
        elif opcode == _DEF_CFA_EXPRESSION or opcode in _EXPRESSIONS:
            if opcode != _DEF_CFA_EXPRESSION:
                _, at = uleb(rows, at)
            else:
                cfa = None
            size, at = uleb(rows, at)
            at += size
        else:
            raise ValueError(opcode)
    return cfa
