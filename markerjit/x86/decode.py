"""Capstone's view of code: a second opinion before anything is patched, and text for people.

Importing capstone takes some 40 ms, so this module is imported only where code is really decoded:
for an object that is met for the first time, and for `explain`.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

import capstone
from capstone import x86_const

from markerjit.model import Form


class Instruction(NamedTuple):
    """One decoded instruction."""

    address: int
    code: bytes
    text: str


@cache
def _decoder() -> capstone.Cs:
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    return decoder


def disassemble(code: bytes, address: int) -> list[Instruction]:
    """Decode from the first byte on; what cannot be decoded ends the list."""
    return [
        Instruction(found.address, bytes(found.bytes), f"{found.mnemonic} {found.op_str}".strip())
        for found in _decoder().disasm(code, address)
    ]


def disagreement(form: Form, code: bytes, address: int, body: int, end: int) -> str | None:
    """Why these bytes are not a dormant site of this form, or None when they are.

    `code` starts at `address`, with the `lead` of the form, and reaches to `end`. Independent of
    the bytes of the form: it asks capstone what the processor would do, and compares that with what
    a form of this name promises.
    """
    promised = _PROMISES.get(form.name)
    if promised is None:
        return None
    return promised(list(_decoder().disasm(code, address)), address, body, end)


def _jump(found: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return (
        _branch(found, 0, "jmp", end)
        or _branch(found, 1, "jmp", body)
        or _length(found, 2, start, end)
    )


def _nop(found: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return _test(found, body, end) or _length(found, 1, start, end)


def _symbol(found: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return _is(found, 0, "nop") or _length(found, 1, start, end)


def _immediate(found: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return _move_of_zero(found) or _length(found, 1, start, end)


def _pointer(found: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return (
        _compare_with_zero(found) or _branch(found, 1, "jne", body) or _length(found, 2, start, end)
    )


_PROMISES = {
    "jump": _jump,
    "nop": _nop,
    "symbol": _symbol,
    "immediate": _immediate,
    "pointer": _pointer,
}
"""By the names of forms. Of the others, whose code a compiler wrote, nothing is promised."""


def _is(found: list[capstone.CsInsn], index: int, mnemonic: str) -> str | None:
    if len(found) <= index:
        return f"instruction {index + 1} cannot be decoded"
    if found[index].mnemonic != mnemonic:
        return f"{found[index].mnemonic} {found[index].op_str} where {mnemonic} should be"
    return None


def _branch(found: list[capstone.CsInsn], index: int, mnemonic: str, target: int) -> str | None:
    wrong = _is(found, index, mnemonic)
    if wrong:
        return wrong
    operand = found[index].operands[0]
    if operand.type != x86_const.X86_OP_IMM or operand.imm != target:
        return f"{mnemonic} {found[index].op_str} does not reach {target:#x}"
    return None


def _compare_with_zero(found: list[capstone.CsInsn]) -> str | None:
    wrong = _is(found, 0, "cmp")
    if wrong:
        return wrong
    slot, immediate = found[0].operands
    relative = slot.type == x86_const.X86_OP_MEM and slot.mem.base == x86_const.X86_REG_RIP
    if not relative or slot.size != 8 or immediate.imm != 0:
        return f"cmp {found[0].op_str} does not compare the slot with 0"
    return None


def _test(found: list[capstone.CsInsn], body: int, end: int) -> str | None:
    wrong = _is(found, 0, "test")
    if wrong:
        return wrong
    register, immediate = found[0].operands
    displacement = (body - end) & 0xFFFFFFFF
    if register.reg != x86_const.X86_REG_EAX or immediate.imm & 0xFFFFFFFF != displacement:
        return f"test {found[0].op_str} does not hold the way to {body:#x}"
    return None


def _length(found: list[capstone.CsInsn], count: int, start: int, end: int) -> str | None:
    length = sum(instruction.size for instruction in found[:count])
    return None if start + length == end else f"{length} bytes long, the note says {end - start}"


def _move_of_zero(found: list[capstone.CsInsn]) -> str | None:
    wrong = _is(found, 0, "mov")
    if wrong:
        return wrong
    register, immediate = found[0].operands
    if register.size != 1 or immediate.type != x86_const.X86_OP_IMM or immediate.imm != 0:
        return f"mov {found[0].op_str} does not move 0 into a byte register"
    return None
