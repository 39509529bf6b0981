"""Capstone's view of code, with all details of instructions, and text for people.

Importing capstone takes some 40 ms, so this module is imported only where that is needed: for
stubs, recorders and `explain`. Whether a marker's site is what its note says is asked of capstone's
library alone (opinion.py), and so is whether keystone's code is what was meant (encoding.py).
"""

from __future__ import annotations

import ctypes
from functools import cache

import capstone

from markerjit.tuples import NamedTuple


class Instruction(NamedTuple):
    """One decoded instruction."""

    address: int
    code: bytes
    text: str


@cache
def decoder() -> capstone.Cs:
    """Capstone for code of 64 bits, with the details of each instruction."""
    engine = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    engine.detail = True
    return engine


@cache
def plain_decoder() -> capstone.Cs:
    """Capstone without details, which take more than half of the time: for lengths and texts."""
    return capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)


def sizes(code: bytes, most: int = 0) -> list[tuple[int, int]]:
    """The size of each instruction from the first byte on, and capstone's number of what it is, of
    so many at most. Capstone's binding would make texts of them, which takes longer."""
    array = ctypes.POINTER(capstone._cs_insn)()
    count = capstone._cs.cs_disasm(
        plain_decoder().csh, code, len(code), 0, most, ctypes.byref(array)
    )  # fmt: skip
    if not count:
        return []
    try:
        return [(insn.size, insn.id) for insn in array[:count]]
    finally:
        capstone._cs.cs_free(array, count)


def disassemble(code: bytes, address: int) -> list[Instruction]:
    """Decode from the first byte on; what cannot be decoded ends the list."""
    return [
        Instruction(insn.address, bytes(insn.bytes), f"{insn.mnemonic} {insn.op_str}".strip())
        for insn in decoder().disasm(code, address)
    ]
