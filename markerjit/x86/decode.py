"""Capstone's view of code: a second opinion before anything is patched, and text for people.

Importing capstone takes some 40 ms, so this module is imported only where code is really decoded:
for an object that is met for the first time, and for `explain`.
"""

from __future__ import annotations

from functools import cache

import capstone
from capstone import x86_const

from markerjit.model import Form
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
    """The same without details, which take more than half of the time: for lengths and texts."""
    return capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)


def disassemble(code: bytes, address: int) -> list[Instruction]:
    """Decode from the first byte on; what cannot be decoded ends the list."""
    return [
        Instruction(insn.address, bytes(insn.bytes), f"{insn.mnemonic} {insn.op_str}".strip())
        for insn in decoder().disasm(code, address)
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
    return promised(list(decoder().disasm(code, address)), address, body, end)


def _jump(insns: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return (
        _branch(insns, 0, "jmp", end)
        or _branch(insns, 1, "jmp", body)
        or _length(insns, 2, start, end)
    )


def _nop(insns: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return _test(insns, body, end) or _length(insns, 1, start, end)


def _symbol(insns: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return _is(insns, 0, "nop") or _length(insns, 1, start, end)


def _immediate(insns: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return _move_of_zero(insns) or _length(insns, 1, start, end)


def _pointer(insns: list[capstone.CsInsn], start: int, body: int, end: int) -> str | None:
    return (
        _compare_with_zero(insns) or _branch(insns, 1, "jne", body) or _length(insns, 2, start, end)
    )


_PROMISES = {
    "jump": _jump,
    "nop": _nop,
    "symbol": _symbol,
    "immediate": _immediate,
    "pointer": _pointer,
}
"""By the names of forms. Of the others, whose code a compiler wrote, nothing is promised."""


def _is(insns: list[capstone.CsInsn], index: int, mnemonic: str) -> str | None:
    if len(insns) <= index:
        return f"instruction {index + 1} cannot be decoded"
    if insns[index].mnemonic != mnemonic:
        return f"{insns[index].mnemonic} {insns[index].op_str} where {mnemonic} should be"
    return None


def _branch(insns: list[capstone.CsInsn], index: int, mnemonic: str, target: int) -> str | None:
    wrong = _is(insns, index, mnemonic)
    if wrong:
        return wrong
    operand = insns[index].operands[0]
    if operand.type != x86_const.X86_OP_IMM or operand.imm != target:
        return f"{mnemonic} {insns[index].op_str} does not reach {target:#x}"
    return None


def _compare_with_zero(insns: list[capstone.CsInsn]) -> str | None:
    wrong = _is(insns, 0, "cmp")
    if wrong:
        return wrong
    slot, immediate = insns[0].operands
    relative = slot.type == x86_const.X86_OP_MEM and slot.mem.base == x86_const.X86_REG_RIP
    if not relative or slot.size != 8 or immediate.imm != 0:
        return f"cmp {insns[0].op_str} does not compare the slot with 0"
    return None


def _test(insns: list[capstone.CsInsn], body: int, end: int) -> str | None:
    wrong = _is(insns, 0, "test")
    if wrong:
        return wrong
    register, immediate = insns[0].operands
    displacement = (body - end) & 0xFFFFFFFF
    if register.reg != x86_const.X86_REG_EAX or immediate.imm & 0xFFFFFFFF != displacement:
        return f"test {insns[0].op_str} does not hold the way to {body:#x}"
    return None


def _length(insns: list[capstone.CsInsn], count: int, start: int, end: int) -> str | None:
    length = sum(insn.size for insn in insns[:count])
    return None if start + length == end else f"{length} bytes long, the note says {end - start}"


def _move_of_zero(insns: list[capstone.CsInsn]) -> str | None:
    wrong = _is(insns, 0, "mov")
    if wrong:
        return wrong
    register, immediate = insns[0].operands
    if register.size != 1 or immediate.type != x86_const.X86_OP_IMM or immediate.imm != 0:
        return f"mov {insns[0].op_str} does not move 0 into a byte register"
    return None
