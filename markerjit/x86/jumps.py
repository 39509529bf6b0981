"""The target of a jump as an operand, at the moment before the jump is executed."""

from __future__ import annotations

from capstone import x86_const as x86

from markerjit.model import Constant, General, Memory, Operand, RemoteAddress, Static
from markerjit.x86.decode import decoder
from markerjit.x86.forms import displacement_of, is_near_jump

_NUMBERED = range(8, 16)
_WORD = 8


def jump_target(code: bytes, address: int) -> Operand | None:
    """The target of a jump, on a condition or not, that stands at an address; None where no operand
    says it: in a segment of its own, at an address of 32 bits, or at a register that is no general
    one."""
    if is_near_jump(code):
        return Constant(address + len(code) + displacement_of(code))
    insn = next(iter(decoder().disasm(code, address, 1)), None)
    if insn is None or len(insn.operands) != 1:
        return None
    operand = insn.operands[0]
    if operand.type == x86.X86_OP_IMM:
        return Constant(operand.imm)
    if operand.type == x86.X86_OP_REG:
        return _general(insn.reg_name(operand.reg))
    memory = operand.mem
    if memory.segment != x86.X86_REG_INVALID or insn.addr_size != _WORD:
        return None
    if memory.base == x86.X86_REG_RIP:
        return Static(RemoteAddress(address + insn.size + memory.disp), "")
    base, scaled = (
        insn.reg_name(register) if register != x86.X86_REG_INVALID else ""
        for register in (memory.base, memory.index)
    )
    if not base and not scaled:
        return Static(RemoteAddress(memory.disp), "")
    return Memory(base, memory.disp, scaled, memory.scale)


def _general(name: str) -> General | None:
    """A register of 64 bits."""
    letters = name[1:]
    if name in (f"r{number}" for number in _NUMBERED):
        return General((f"{name}b", f"{name}w", f"{name}d", name))
    if letters in ("ax", "bx", "cx", "dx"):
        return General((f"{letters[0]}l", letters, f"e{letters}", name))
    if letters in ("si", "di", "bp", "sp"):
        return General((f"{letters}l", letters, f"e{letters}", name))
    return None
