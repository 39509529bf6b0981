"""Moving whole instructions to another address, where they do what they did.

`relocate` takes a run of instructions that is to be overwritten, and returns code for another
address. Operands relative to rip are repaired, and branches lead to the targets that they had:

    jmp, jcc           of 8 or 32 bits become those of 32 bits
    loop, jrcxz        have no form of 32 bits: they step over a short jump, to a near one
    call               pushes the ORIGINAL return address and jumps. So unwinders and the callee see
                       a caller that they know, and the return goes behind the run
    all others         are copied

The copy of a run that falls through ends where the run ended; the caller adds the jump back. A call
has to be the last instruction, because its return address is the end of the run.

Every instruction that was made is decoded again by capstone and compared with what was meant. What
cannot be moved is refused, with an obstacle that can be counted. Flags, the red zone and registers
are left alone. Compilers make no code to which these differences matter:

- the x87 unit stores the address of its last instruction, which is that of the copy;
- a displaced call through memory reads its target after its push. So a fault finds another stack
  pointer, and a target that stands just below the stack is overwritten.

This module does not know where other code jumps into the run, and writes nothing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from functools import lru_cache
from types import MappingProxyType

import capstone
from capstone import x86_const as x86

from markerjit.tuples import NamedTuple
from markerjit.x86.decode import decoder, plain_decoder
from markerjit.x86.forms import (
    JMP_NEAR,
    JMP_SHORT,
    NEAR_LENGTH,
    REACH,
    displacement_of,
    is_near_condition,
)

_RIP_OPERAND = re.compile(r"\[rip[^\]]*\]")
_PREFIXES = frozenset(b"\x26\x2e\x36\x3e\x64\x65\x66\x67\xf0\xf2\xf3")
_HINTS = frozenset(b"\x2e\x3e\xf2")
"""Prefixes of branches without effect today: the hints, notrack's byte, and bnd of MPX."""
_ADDRESS_SIZE = 0x67
_REPEATS = frozenset(b"\xf2\xf3")
_REX = range(0x40, 0x50)
_REX_W = 8

_ENDBR = (x86.X86_INS_ENDBR64, x86.X86_INS_ENDBR32)
_KERNEL = (x86.X86_INS_SYSCALL, x86.X86_INS_SYSENTER, x86.X86_INS_INT)
_TRAPS = (
    *(x86.X86_INS_INT3, x86.X86_INS_INT1, x86.X86_INS_INTO, x86.X86_INS_HLT),
    *(x86.X86_INS_UD0, x86.X86_INS_UD1, x86.X86_INS_UD2),
)
_FAR = (
    *(x86.X86_INS_LCALL, x86.X86_INS_LJMP, x86.X86_INS_RETF, x86.X86_INS_RETFQ),
    *(x86.X86_INS_IRET, x86.X86_INS_IRETD, x86.X86_INS_IRETQ, x86.X86_INS_SYSEXIT),
)
_FAR_POINTER = (3, 5)
"""The far forms of opcode ff, /3 and /5: capstone calls them call and jmp."""
_LOOPS = (
    *(x86.X86_INS_LOOP, x86.X86_INS_LOOPE, x86.X86_INS_LOOPNE),
    *(x86.X86_INS_JRCXZ, x86.X86_INS_JECXZ),
)
_STRINGS = re.compile(r"rep\w* (movs|stos|lods|cmps|scas|ins|outs)[bwdq]?$")

_INDIRECT = 0xFF
_TO_CALL, _TO_JUMP = 2, 4
"""The operations of opcode ff, in the reg field of its ModRM byte."""
_RUNS = 1 << 14
_NOWHERE = 1 << 40
"""Where an opcode is tried."""
_PUSH_NEXT = b"\xff\x35"  # push qword ptr [rip + disp32]


class Obstacle(Enum):
    """Why a run cannot be moved, as a class that can be counted."""

    UNDECODED = "an instruction that cannot be decoded"
    SYSTEM_CALL = "a system call, whose return address the kernel and others know"
    TRAP = "an instruction that traps"
    FAR = "a far transfer"
    ENDBR = "endbr64, where indirect branches land"
    TRANSACTION = "the beginning of a transaction"
    PREFIX = "a prefix that does not belong to the instruction"
    INTO_SPAN = "a branch or an operand that leads into the run"
    CALL_INSIDE = "a call that returns into the run"
    CALL_BY_STACK = "a call through the stack pointer"
    BEHIND_END = "an instruction that the run does not reach"
    OUT_OF_REACH = "a target that 32 bits do not reach from the new place"
    DISAGREEMENT = "a copy that capstone reads otherwise"

    def __str__(self) -> str:
        return self.value


class Unmovable(NamedTuple):
    """Why a run cannot be moved: the obstacle, and the instruction that is it."""

    obstacle: Obstacle
    address: int

    def __str__(self) -> str:
        return f"{self.address:#x}: {self.obstacle}"


class Relocated(NamedTuple):
    """A run of instructions for its new place.

    address        where the run is
    target         where `code` has to stand
    code           the new bytes; a displaced call has its return address among them, as data
    places         the new address of each instruction, by its old one: a thread that is stopped in
                   the run can be moved there
    falls_through  the copy's end is reached, and has to lead to the end of the run
    calls          a call is displaced, which a shadow stack does not allow
    """

    address: int
    target: int
    code: bytes
    places: Mapping[int, int]
    falls_through: bool
    calls: bool


class _Move(NamedTuple):
    """An instruction, where it is going, and the bounds of its run."""

    insn: capstone.CsInsn
    target: int
    start: int
    end: int


class _Bounds(NamedTuple):
    """Where an instruction is, where it is going, and the bounds of its run."""

    address: int
    target: int
    start: int
    end: int


_Copy = bytes | Obstacle


def relocate(code: bytes, address: int, target: int) -> Relocated | Unmovable:
    """The whole instructions of `code`, which stand at `address`, for `target`.

    Returns Unmovable where one of them cannot be moved.
    """
    run = _split(code)
    if run.is_verbatim:
        places = {address + at: target + at for at, *_ in run.pieces}
        return Relocated(
            address, target, code, MappingProxyType(places), run.falls_through, calls=False
        )
    end = address + len(code)
    copy = bytearray()
    places = {}
    falls_through, calls = True, False
    for offset, piece, goes_on in run.pieces:
        at = address + offset
        if not falls_through:
            return Unmovable(Obstacle.BEHIND_END, at)
        places[at] = target + len(copy)
        moved: _Copy
        if goes_on is not None:
            moved, falls_through, calls = piece, goes_on, False
        elif opcode := _jump_of(piece):
            moved = _plain_jump(piece, opcode, _Bounds(at, places[at], address, end))
            falls_through, calls = len(opcode) > 1, False
        else:
            (insn,) = decoder().disasm(piece, at)
            move = _Move(insn, places[at], address, end)
            moved = _forbidden(move) or _copy(move)
            falls_through, calls = not ends_block(insn), bool(insn.group(x86.X86_GRP_CALL))
        if isinstance(moved, Obstacle):
            return Unmovable(moved, at)
        copy += moved
    if run.size != len(code):
        return Unmovable(Obstacle.UNDECODED, address + run.size)
    return Relocated(
        address, target, bytes(copy), MappingProxyType(places), falls_through and not calls, calls
    )


def copied_as_is(code: bytes) -> bool | None:
    """Of a run that `relocate` copies as it is, to any address, whether it falls through; None of
    any other."""
    run = _split(code)
    return run.falls_through if run.is_verbatim else None


def obstacle_to(code: bytes, address: int, target: int) -> Unmovable | None:
    """Why `relocate` would return Unmovable, or None."""
    if _split(code).is_verbatim:
        return None
    moved = relocate(code, address, target)
    return moved if isinstance(moved, Unmovable) else None


class _Run(NamedTuple):
    """The instructions of a run: where each begins, its code, and of one that is copied as it is,
    to any address, whether the next one follows; None of all others. How many bytes they have;
    whether all are copied so; and then whether what stands behind them is executed next."""

    pieces: tuple[tuple[int, bytes, bool | None], ...]
    size: int
    is_verbatim: bool
    falls_through: bool


@lru_cache(_RUNS)
def _split(code: bytes) -> _Run:
    """The instructions of a run. Most are pushes and pops, and the same in thousands of
    functions."""
    pieces: list[tuple[int, bytes, bool | None]] = []
    at = 0
    for _, size, mnemonic, operands in plain_decoder().disasm_lite(code, 0):
        piece = code[at : at + size]
        pieces.append((at, piece, _goes_on(mnemonic, operands, piece)))
        at += size
    is_verbatim = at == len(code) and all(goes_on for *_, goes_on in pieces[:-1])
    falls_through = pieces[-1][-1] if pieces else True
    is_verbatim = is_verbatim and falls_through is not None
    return _Run(tuple(pieces), at, is_verbatim, bool(falls_through))


def _goes_on(mnemonic: str, operands: str, code: bytes) -> bool | None:
    """What `_goes_on_verbatim` says. Of instructions with a mnemonic that says all, and without
    operands relative to rip, it is remembered."""
    if mnemonic in _VERBATIM and "ip" not in operands:
        return True
    goes_on = _goes_on_verbatim(code)
    if goes_on and says_all(mnemonic):
        _VERBATIM.add(mnemonic)
    return goes_on


def is_plain(code: bytes) -> bool:
    """Whether an instruction is copied as it is, to any address, and the next one follows; and so
    are all others with its number, without prefixes and operands relative to rip."""
    (insn,) = decoder().disasm(code, 0)
    return bool(_goes_on_verbatim(code)) and says_all(insn.mnemonic)


def says_all(mnemonic: str) -> bool:
    """Whether instructions with this mnemonic go on alike, so that one example is enough. Those
    with a prefix have another mnemonic."""
    return mnemonic.isalnum() and not mnemonic.startswith(_TRANSFERS)


_TRANSFERS = ("j", "lcall", "ljmp", "loop", "call", "ret", "iret", "sys", "int", "ud", "hlt", "nop")
"""What mnemonics begin with that say too little of an instruction: it may go on elsewhere, or is a
no-op."""
_VERBATIM: set[str] = set()


@lru_cache(_RUNS)
def _goes_on_verbatim(code: bytes) -> bool | None:
    """Of an instruction that is copied as it is, to any address, whether the next one follows; None
    of all others, such as those with an operand relative to rip."""
    if _jump_of(code):
        return None
    (insn,) = decoder().disasm(code, 0)
    move = _Move(insn, 0, 0, insn.size)
    is_call = insn.group(x86.X86_GRP_CALL)
    if _forbidden(move) or is_call or insn.group(x86.X86_GRP_BRANCH_RELATIVE):
        return None
    if _relative_operand(insn) is not None or _verbatim(move, code) != code:
        return None
    return not ends_block(insn)


def ends_block(insn: capstone.CsInsn) -> bool:
    """Whether what stands behind the instruction is not executed next. A call comes back."""
    stops = insn.id in (x86.X86_INS_JMP, x86.X86_INS_UD2, x86.X86_INS_HLT, *_FAR)
    return bool(stops or insn.group(x86.X86_GRP_RET))


def _forbidden(move: _Move) -> Obstacle | None:
    insn = move.insn
    if insn.id in _ENDBR:
        return Obstacle.ENDBR
    if insn.id in _KERNEL:
        return Obstacle.SYSTEM_CALL
    if insn.id in _TRAPS:
        return Obstacle.TRAP
    if insn.id in _FAR or _is_far_pointer(insn):
        return Obstacle.FAR
    if insn.id == x86.X86_INS_XBEGIN:
        return Obstacle.TRANSACTION
    if insn.group(x86.X86_GRP_CALL) and insn.address + insn.size != move.end:
        return Obstacle.CALL_INSIDE
    return None


def _is_far_pointer(insn: capstone.CsInsn) -> bool:
    return insn.opcode[0] == _INDIRECT and _operation(insn) in _FAR_POINTER


def _operation(insn: capstone.CsInsn) -> int:
    """The reg field of the ModRM byte, which is a part of the opcode in some instructions."""
    return int(insn.modrm) >> 3 & 7


def _copy(move: _Move) -> _Copy:
    insn = move.insn
    if insn.group(x86.X86_GRP_BRANCH_RELATIVE):
        return _branch(move)
    if insn.group(x86.X86_GRP_CALL):
        return _indirect_call(move)
    return _verbatim(move, bytes(insn.bytes))


# ---- what is copied ----------------------------------------------------------------------------


def _verbatim(move: _Move, code: bytes) -> _Copy:
    """The instruction in its old encoding, with its operand relative to rip repaired."""
    insn = move.insn
    prefixes = _prefixes(code)
    if _REPEATS & set(prefixes) and insn.mnemonic.startswith("rep"):
        returns = insn.group(x86.X86_GRP_RET)
        if not returns and not _STRINGS.match(insn.mnemonic):
            return Obstacle.PREFIX
    operand = _relative_operand(insn)
    if operand is None:
        if move.target == insn.address and insn.size == len(code):
            return code  # it was decoded there
        copy = code
    else:
        if _ADDRESS_SIZE in prefixes:
            return Obstacle.PREFIX
        if _leads_into(move, operand):
            return Obstacle.INTO_SPAN
        at = insn.disp_offset
        old = operand.mem.disp.to_bytes(4, "little", signed=True)
        if at == 0 or code[at : at + 4] != old:
            return Obstacle.DISAGREEMENT
        new = _displacement(operand.mem.disp + insn.address - move.target)
        if new is None:
            return Obstacle.OUT_OF_REACH
        copy = code[:at] + new + code[at + 4 :]
    again = _decode(copy, move.target)
    if len(again) != 1 or again[0].size != len(copy) or _meaning(again[0]) != _meaning(insn):
        return Obstacle.DISAGREEMENT
    return copy


def _prefixes(code: bytes) -> bytes:
    """The legacy prefixes before the opcode and its REX prefix."""
    count = next((n for n, byte in enumerate(code) if byte not in _PREFIXES), len(code))
    return code[:count]


def _relative_operand(insn: capstone.CsInsn) -> capstone.x86.X86Op | None:
    for operand in insn.operands:
        if operand.type == x86.X86_OP_MEM and operand.mem.base in (
            x86.X86_REG_RIP,
            x86.X86_REG_EIP,
        ):
            return operand
    return None


def _leads_into(move: _Move, operand: capstone.x86.X86Op) -> bool:
    """Whether the operand is code of the run. Its address may be taken where the run begins."""
    address = move.insn.address + move.insn.size + operand.mem.disp
    if move.insn.id == x86.X86_INS_LEA:
        return bool(move.start < address < move.end)
    return bool(address < move.end and address + max(operand.size, 1) > move.start)


def _displacement(distance: int) -> bytes | None:
    if distance not in REACH:
        return None
    return distance.to_bytes(4, "little", signed=True)


def _meaning(insn: capstone.CsInsn) -> str:
    """The instruction as text, with absolute addresses in place of those relative to rip."""
    text = f"{insn.mnemonic} {insn.op_str}"
    operand = _relative_operand(insn)
    if operand is None:
        return text
    return _RIP_OPERAND.sub(f"[{insn.address + insn.size + operand.mem.disp:#x}]", text)


def _decode(code: bytes, address: int) -> list[capstone.CsInsn]:
    return list(decoder().disasm(code, address))


# ---- what is made anew -------------------------------------------------------------------------


def _branch(move: _Move) -> _Copy:
    """A branch with a displacement: jmp, jcc, call, loop or jrcxz."""
    insn = move.insn
    branch_target: int = insn.operands[0].imm
    if move.start < branch_target < move.end:
        return Obstacle.INTO_SPAN
    prefixes = _prefixes(bytes(insn.bytes))
    make: Callable[[_Move, int, bytes], _Copy]
    if insn.id == x86.X86_INS_CALL:
        make = _near_call
    elif insn.id in _LOOPS:
        make = _loop
    else:
        make = _near_jump
    return make(move, branch_target, prefixes)


def _jump_of(code: bytes) -> bytes:
    """The opcode with 32 bits of a direct jump without prefixes; b"" of all others."""
    first = code[0]
    if (first == JMP_NEAR and len(code) == NEAR_LENGTH) or (first == JMP_SHORT and len(code) == 2):
        return bytes([JMP_NEAR])
    if is_near_condition(code):
        return code[:2]
    if first & 0xF0 == 0x70 and len(code) == 2:
        return bytes([0x0F, 0x80 | first & 0xF])
    return b""


def _plain_jump(code: bytes, opcode: bytes, bounds: _Bounds) -> _Copy:
    """A direct jump, whose opcode with 32 bits this is."""
    branch_target = bounds.address + len(code) + displacement_of(code)
    if bounds.start < branch_target < bounds.end:
        return Obstacle.INTO_SPAN
    distance = _displacement(branch_target - bounds.target - len(opcode) - 4)
    if distance is None:
        return Obstacle.OUT_OF_REACH
    size = 4 if len(code) > 2 else 1
    if not _is_same_jump(code[:-size], size, opcode):
        return Obstacle.DISAGREEMENT
    return opcode + distance


@lru_cache
def _is_same_jump(old: bytes, size: int, new: bytes) -> bool:
    """Whether jumps with these opcodes mean the same, the old one with a displacement of so many
    bytes."""
    for distance in (0x55, -0x66):
        before = old + distance.to_bytes(size, "little", signed=True)
        end = len(before) + distance - len(new) - 4
        after = new + end.to_bytes(4, "little", signed=True)
        decoded = [*_decode(before, _NOWHERE), *_decode(after, _NOWHERE)]
        if len(decoded) != 2 or decoded[0].size != len(before) or decoded[1].size != len(after):
            return False
        if _meaning(decoded[0]) != _meaning(decoded[1]):
            return False
    return True


def _near_jump(move: _Move, branch_target: int, prefixes: bytes) -> _Copy:
    insn = move.insn
    if not set(prefixes) <= _HINTS:
        return Obstacle.PREFIX
    if insn.id == x86.X86_INS_JMP:
        opcode = bytes([JMP_NEAR])
    else:
        short = insn.opcode[0] != 0x0F
        condition = (insn.opcode[0] if short else insn.opcode[1]) & 0xF
        opcode = bytes([0x0F, 0x80 | condition])
    distance = _displacement(branch_target - move.target - len(opcode) - 4)
    if distance is None:
        return Obstacle.OUT_OF_REACH
    mnemonic = insn.mnemonic.removeprefix("bnd ")
    return _checked(opcode + distance, move.target, [f"{mnemonic} {branch_target:#x}"])


def _loop(move: _Move, branch_target: int, prefixes: bytes) -> _Copy:
    insn = move.insn
    if set(prefixes) - {_ADDRESS_SIZE}:
        return Obstacle.PREFIX
    head = prefixes + bytes([insn.opcode[0], 2])  # taken: over the short jump
    near = move.target + len(head) + 2
    end = near + NEAR_LENGTH
    distance = _displacement(branch_target - end)
    if distance is None:
        return Obstacle.OUT_OF_REACH
    copy = head + bytes([JMP_SHORT, NEAR_LENGTH, JMP_NEAR]) + distance
    meant = [f"{insn.mnemonic} {near:#x}", f"jmp {end:#x}", f"jmp {branch_target:#x}"]
    return _checked(copy, move.target, meant)


def _near_call(move: _Move, branch_target: int, prefixes: bytes) -> _Copy:
    insn = move.insn
    wide = insn.bytes[len(prefixes)] in _REX and insn.bytes[len(prefixes)] & _REX_W
    # The linker pads calls of __tls_get_addr with 66; AMD would cut rip without REX.W.
    # It makes a call by a word of the GOT a direct one, with 67 before it (psABI, B.2).
    allowed = _HINTS | {_ADDRESS_SIZE} | ({0x66} if wide else set())
    if not allowed >= set(prefixes):
        return Obstacle.PREFIX
    jump_at = move.target + len(_PUSH_NEXT) + 4
    distance = _displacement(branch_target - jump_at - NEAR_LENGTH)
    if distance is None:
        return Obstacle.OUT_OF_REACH
    jump = bytes([JMP_NEAR]) + distance
    return _call_by_jump(move, jump, f"jmp {branch_target:#x}")


def _indirect_call(move: _Move) -> _Copy:
    """`call reg` or `call [mem]`: the same operand of a jump."""
    insn = move.insn
    old = bytes(insn.bytes)
    prefixes = _prefixes(old)
    if insn.opcode[0] != _INDIRECT or _operation(insn) != _TO_CALL or 0x66 in prefixes:
        return Obstacle.PREFIX
    operand = insn.operands[0]
    registers = (operand.mem.base,) if operand.type == x86.X86_OP_MEM else (operand.reg,)
    if x86.X86_REG_RSP in registers:
        return Obstacle.CALL_BY_STACK
    at = len(prefixes) + (old[len(prefixes)] in _REX) + 1  # the ModRM byte
    jump = old[:at] + bytes([old[at] ^ (_TO_CALL ^ _TO_JUMP) << 3]) + old[at + 1 :]
    decoded = _decode(jump, insn.address)
    if len(decoded) != 1:
        return Obstacle.DISAGREEMENT
    moved = _verbatim(
        move._replace(insn=decoded[0], target=move.target + len(_PUSH_NEXT) + 4), jump
    )
    if isinstance(moved, Obstacle):
        return moved
    meant = _meaning(insn).replace("call ", "jmp ", 1)
    return _call_by_jump(move, moved, meant)


def _call_by_jump(move: _Move, jump: bytes, meant: str) -> _Copy:
    """Push the return address, which stands behind the jump, and jump."""
    push = _PUSH_NEXT + len(jump).to_bytes(4, "little")
    literal_at = move.target + len(push) + len(jump)
    code = _checked(push + jump, move.target, [f"push qword ptr [{literal_at:#x}]", meant])
    if isinstance(code, Obstacle):
        return code
    return code + move.end.to_bytes(8, "little")


def _checked(code: bytes, address: int, meant: list[str]) -> _Copy:
    """The code, if capstone reads it as it was meant."""
    decoded = _decode(code, address)
    if sum(insn.size for insn in decoded) != len(code) or [*map(_meaning, decoded)] != meant:
        return Obstacle.DISAGREEMENT
    return code
