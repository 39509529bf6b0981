"""Instructions that a probe may not have, as capstone sees them.

A probe is called as any function is, so it may use all registers that a function may, AVX and
AVX-512 too. Where it uses any besides the general ones, its adapter saves them for the program. The
tiles of AMX it must not use, because nobody saves those. Refused are instructions that leave the
process (system calls, breakpoints), that only the kernel may execute, or that change state that the
program keeps over calls: rounding modes, flags such as the direction, segments, protection keys,
the x87 stack. Reading the program's thread control block is allowed, writing to it is not.

Large frames are refused too: a marker may stand in a signal handler, on a stack of 8 KiB or less.

What this does not see: where an indirect call leads, whether a loop ends, how deep calls go.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import capstone
from capstone import x86_const as x86

from markerjit.tuples import NamedTuple
from markerjit.x86.decode import decoder

MAX_FRAME = 1024
"""Bytes of stack that a function may take at once."""

_LEAVES = "a probe may not leave the program, for the kernel or for a handler"
_KERNEL = "only the kernel may do that"
_STATE = "the program relies on that state, so a probe may not change it"
_TRAP = "that would kill the program: a __builtin_trap, or what the compiler takes for impossible"
_THREAD = "that writes to the program's thread-local variables"

_WHY = {
    **dict.fromkeys(("syscall", "sysenter", "int", "int1", "int3", "into"), _LEAVES),
    **dict.fromkeys(("sysexit", "sysret", "iret", "iretd", "iretq"), _KERNEL),
    **dict.fromkeys(("lcall", "ljmp", "retf", "retfq", "vmcall", "vmmcall", "vmfunc"), _LEAVES),
    **dict.fromkeys(("in", "out", "insb", "insw", "insd", "outsb", "outsw", "outsd"), _KERNEL),
    **dict.fromkeys(("hlt", "cli", "sti", "swapgs", "monitor", "mwait", "xsetbv"), _KERNEL),
    **dict.fromkeys(("ud0", "ud1", "ud2", "ud2b"), _TRAP),
    **dict.fromkeys(("std", "popf", "popfd", "popfq", "ldmxcsr", "vldmxcsr", "fldcw"), _STATE),
    **dict.fromkeys(("fldenv", "frstor", "fninit", "finit", "fxrstor", "fxrstor64"), _STATE),
    **dict.fromkeys(("xrstor", "xrstor64", "wrpkru", "wrfsbase", "wrgsbase"), _STATE),
    **dict.fromkeys(("lds", "les", "lfs", "lgs", "lss", "ldtilecfg", "tilerelease"), _STATE),
}
_SEGMENTS = (
    x86.X86_REG_CS, x86.X86_REG_DS, x86.X86_REG_ES, x86.X86_REG_FS, x86.X86_REG_GS, x86.X86_REG_SS
)  # fmt: skip
_GENERAL = re.compile(r"[re]?(ax|bx|cx|dx|si|di|bp|sp|ip)|[abcd][lh]|(si|di|bp|sp)l|r\d+[bwd]?")
_GROUP_5 = 0xFF  # inc, dec, call, jmp and push, told apart by a field of the next byte
_NO_VECTORS = ("rflags", "cs", "ds", "es", "fs", "gs", "ss", "eiz", "riz")
_MMX = range(x86.X86_REG_MM0, x86.X86_REG_MM7 + 1)


class Objection(NamedTuple):
    """An instruction, and what is wrong with it."""

    address: int
    text: str
    why: str


def objections(code: bytes, address: int) -> Iterator[Objection]:
    """The objections to code at this address."""
    end = address
    for instruction in decoder().disasm(code, address):
        end = instruction.address + instruction.size
        why = _why_not(instruction)
        if why:
            yield Objection(
                instruction.address, f"{instruction.mnemonic} {instruction.op_str}".strip(), why
            )
    if end < address + len(code):
        byte = code[end - address]
        yield Objection(end, f".byte {byte:#04x}", "it cannot be decoded or checked")


def can_return(code: bytes, address: int) -> bool:
    """Whether a function with this code has a way out: a return, or a jump to somewhere else."""
    inside = range(address, address + len(code))
    for instruction in decoder().disasm(code, address):
        if instruction.group(capstone.CS_GRP_RET):
            return True
        if instruction.group(capstone.CS_GRP_JUMP):
            operand = instruction.operands[0]
            if operand.type != x86.X86_OP_IMM or operand.imm not in inside:
                return True
    return False


def uses_vectors(code: bytes, address: int) -> bool:
    """Whether code at this address changes or reads registers besides the general ones: vectors,
    masks, the x87 stack. What cannot be decoded might."""
    end = address
    for instruction in decoder().disasm(code, address):
        end = instruction.address + instruction.size
        numbers = {number for access in instruction.regs_access() for number in access}
        numbers |= {
            operand.reg for operand in instruction.operands if operand.type == x86.X86_OP_REG
        }
        registers = {instruction.reg_name(number) for number in numbers}
        if any(not _is_general(name) for name in registers):
            return True
    return end < address + len(code)


def _is_general(register: str) -> bool:
    return register in _NO_VECTORS or _GENERAL.fullmatch(register) is not None


def _why_not(instruction: capstone.CsInsn) -> str | None:
    # A prefix stands before the name: "rep insb".
    known = _WHY.get(instruction.mnemonic.split()[-1])
    if known:
        return known
    if instruction.group(capstone.CS_GRP_INT) or _is_far(instruction):
        return _LEAVES
    if _stack_taken(instruction) > MAX_FRAME:
        return (
            f"a function may take {MAX_FRAME} bytes of stack at most; is a local array too large?"
        )
    for operand in instruction.operands:
        writes = operand.access & capstone.CS_AC_WRITE
        if operand.type == x86.X86_OP_MEM and operand.mem.segment in (
            x86.X86_REG_FS,
            x86.X86_REG_GS,
        ):
            if writes:
                return _THREAD
        elif operand.type == x86.X86_OP_REG:
            if operand.reg in _SEGMENTS and writes:
                return _STATE
            if operand.reg in _MMX:
                return _STATE
    # capstone 5 takes rdtscp for privileged, as it may be made.
    if instruction.group(capstone.CS_GRP_PRIVILEGE) and instruction.id != x86.X86_INS_RDTSCP:
        return _KERNEL
    return None


def _is_far(instruction: capstone.CsInsn) -> bool:
    """A call or jump that loads a code segment; capstone 5 gives it the name of a near one."""
    return instruction.opcode[0] == _GROUP_5 and instruction.modrm >> 3 & 7 in (3, 5)


def _stack_taken(instruction: capstone.CsInsn) -> int:
    """The bytes that `sub rsp, …` takes from the stack."""
    if instruction.id not in (x86.X86_INS_SUB, x86.X86_INS_ADD):
        return 0
    to, by = instruction.operands
    if to.type != x86.X86_OP_REG or to.reg != x86.X86_REG_RSP or by.type != x86.X86_OP_IMM:
        return 0
    return int(by.imm if instruction.id == x86.X86_INS_SUB else -by.imm)
