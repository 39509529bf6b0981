"""The body of a site that no compiler prepared: a stub, made from the site's recipe.

A thread comes to it from the jump or the breakpoint at the site. In this order the stub

     1  steps over the red zone, and saves %rax and the flags
     2  looks whether the slot has a probe, and goes to 6 where it has none: an operand is loaded
        only for a probe
     3  pushes the operands as words of 64 bits, the last one first, then the slot and the shape
        (abi.h, struct mj_slot)
     4  calls the probe, or the adapter of a probe that is a C function. Both change no register
     5  takes the words off the stack
     6  restores %rax, the flags and the stack
     7  executes copies of the instructions that the site lost, and jumps behind them

An operand in memory is loaded as the program itself would load it: the compiler has written it for
an expression that the program evaluates there. A float becomes a double, as in every record, with
the rounding and the masks of a fresh MXCSR, which is put back.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from markerjit.abi import RED_ZONE, SHAPE_FLOATS
from markerjit.model import (
    Constant,
    CType,
    General,
    HighByte,
    Memory,
    Operand,
    RemoteAddress,
    Signature,
    Static,
    TypeClass,
    Vector,
)
from markerjit.patch.plan import SLOT_ADAPTER
from markerjit.probes.parts import Name, part
from markerjit.x86.assemble import Assembled, Part, WronglyAssembled, assemble, number, plus
from markerjit.x86.forms import JMP_NEAR, NEAR_LENGTH, relative
from markerjit.x86.relocate import Unmovable, relocate

LARGEST = 1024
"""More bytes than any stub takes."""

_WORD = 8
_SAVED = 2 * _WORD
"""%rax, and below it the flags."""
_RAX = ("al", "ax", "eax", "rax")
_POINTERS = ("byte", "word", "dword", "qword")
_FRESH_MXCSR = 0x1F80
_ANY_SLOT = 0x5AFE_5107_5AFE_5107
"""Not the address of any slot, nor of anything else: the processor takes it for none."""
_HEADS = 64
_REACH = range(-(1 << 31), 1 << 31)


class Displaced(NamedTuple):
    """The instructions that a site loses: their address, and their code."""

    address: RemoteAddress
    code: bytes


class Stub(NamedTuple):
    """The code of a stub. Each byte belongs to one of the parts, which are in its order."""

    code: bytes
    parts: tuple[Part, ...]


def make_stub(
    signature: Signature,
    operands: Sequence[Operand],
    slot: RemoteAddress,
    displaced: Displaced,
    address: RemoteAddress,
) -> Stub | Unmovable:
    """The stub for `address`. Returns Unmovable where an instruction of the site cannot be moved
    there.

    Raises WronglyAssembled, also for an operand whose displacement is too large.
    """
    head = _head(signature.args, tuple(operands))
    copies = address + len(head.code)
    moved = relocate(displaced.code, displaced.address, copies)
    if isinstance(moved, Unmovable):
        return moved
    end = copies + len(moved.code)
    code = _of_slot(head.code, slot) + moved.code
    parts = (
        *(Part(name, address + start, address + stop) for name, start, stop in head.parts),
        Part(Name.MOVED, copies, end),
    )
    if not moved.falls_through:
        return Stub(code, parts)
    back = end + NEAR_LENGTH
    displacement = relative(displaced.address + len(displaced.code), back)
    jump = Part(Name.INTO_PROGRAM, end, back)
    return Stub(code + bytes([JMP_NEAR]) + displacement, (*parts, jump))


@lru_cache(_HEADS)
def _head(args: tuple[CType, ...], operands: tuple[Operand, ...]) -> Assembled:
    """The code of all stubs with these operands, up to the instructions that the site lost: at
    address 0, of the slot _ANY_SLOT. It is the same at every address."""
    head = assemble(list(_source(args, operands)), 0, {})
    if [head.code.count(word) for word in _SLOT_WORDS] != [2, 1]:
        raise WronglyAssembled("the slot is not where it should be")
    return head


def _of_slot(code: bytes, slot: RemoteAddress) -> bytes:
    """The code with the address of this slot in place of _ANY_SLOT."""
    words = _slot_words(slot)
    for any_word, word in zip(_SLOT_WORDS, words, strict=True):
        code = code.replace(any_word, word)
    return code


def _slot_words(slot: int) -> tuple[bytes, bytes]:
    """The addresses of a slot and of its adapter, as movabs has them."""
    return slot.to_bytes(_WORD, "little"), (slot + SLOT_ADAPTER).to_bytes(_WORD, "little")


_SLOT_WORDS = _slot_words(_ANY_SLOT)


def _source(args: Sequence[CType], operands: Sequence[Operand]) -> Iterator[str]:
    slot = _ANY_SLOT
    count = len(operands)
    floats = sum(
        1 << index for index, ctype in enumerate(args) if ctype.type_class is TypeClass.FLOAT
    )
    yield part(Name.RED_ZONE)
    yield f"lea rsp, [rsp - {number(RED_ZONE)}]"  # 1
    yield "push rax"
    yield "lahf"
    yield "seto al"
    yield "push rax"
    yield part(Name.ASKED)
    yield f"movabs rax, {number(slot)}"  # 2
    yield "cmp qword ptr [rax], 0"
    yield "je none"
    yield part(Name.OPERANDS)
    for pushed, (operand, ctype) in enumerate(zip(reversed(operands), reversed(args), strict=True)):
        yield from _word(operand, ctype, _WORD * pushed)  # 3
        yield "push rax"
    yield part(Name.SHAPE)
    yield f"movabs rax, {number(slot)}"
    yield "push rax"
    yield f"push {number(count | floats << SHAPE_FLOATS)}"
    yield part(Name.CALL)
    yield "mov rax, qword ptr [rax]"  # 4
    yield "test al, 1"
    yield "je call_it"
    yield f"movabs rax, {number(slot + SLOT_ADAPTER)}"
    yield "mov rax, qword ptr [rax]"
    yield "call_it:"
    yield "test rax, rax"  # it may have gone since
    yield "je gone"
    yield "call rax"
    yield part(Name.DROPPED)
    yield "gone:"
    yield f"lea rsp, [rsp + {number(_WORD * (count + 2))}]"  # 5
    yield part(Name.RESTORED)
    yield "none:"
    yield "pop rax"  # 6
    yield "add al, 0x7f"
    yield "sahf"
    yield "pop rax"
    yield f"lea rsp, [rsp + {number(RED_ZONE)}]"


def _word(operand: Operand, ctype: CType, pushed: int) -> Iterator[str]:
    """The value of an operand in rax, extended to 64 bits. `pushed` bytes stand below what is
    saved."""
    if ctype.type_class is TypeClass.FLOAT:
        yield from _double(operand, ctype, pushed)
        return
    match operand:
        case Constant(value):
            yield _load_number(_extended(value, ctype))
        case Static(address):
            yield _load_number(address)
            yield _loaded("[rax]", ctype)
        case Memory():
            yield from _program_rax(operand, pushed)
            yield _loaded(_place(operand, pushed), ctype)
        case HighByte("ah"):
            yield _loaded(f"[rsp + {number(_WORD + pushed + 1)}]", ctype)
        case HighByte(name):
            yield f"{'movsx' if _is_signed(ctype) else 'movzx'} eax, {name}"
            if _is_signed(ctype):
                yield "cdqe"
        case General(names) if names == _RAX:
            yield _loaded(f"[rsp + {number(_WORD + pushed)}]", ctype)
        case General(names) if names[-1] == "rsp":
            yield f"lea rax, [rsp + {number(_depth(pushed))}]"
            yield from _register(_RAX, ctype)
        case General(names):
            yield from _register(names, ctype)
        case Vector(register):
            yield f"movq rax, xmm{register}"


def _double(operand: Operand, ctype: CType, pushed: int) -> Iterator[str]:
    """A double, or a float as one, in rax."""
    if ctype.size == _WORD:
        yield from _word(operand, CType(TypeClass.UNSIGNED, _WORD), pushed)
        return
    match operand:
        case Vector(register):
            yield f"movd eax, xmm{register}"
        case _:
            yield from _word(operand, CType(TypeClass.UNSIGNED, ctype.size), pushed)
    yield "sub rsp, 0x20"
    yield "movups xmmword ptr [rsp + 0x10], xmm0"
    yield "stmxcsr dword ptr [rsp + 8]"
    yield f"mov dword ptr [rsp], {number(_FRESH_MXCSR)}"
    yield "ldmxcsr dword ptr [rsp]"
    yield "movd xmm0, eax"
    yield "cvtss2sd xmm0, xmm0"
    yield "movq rax, xmm0"
    yield "ldmxcsr dword ptr [rsp + 8]"
    yield "movups xmm0, xmmword ptr [rsp + 0x10]"
    yield "add rsp, 0x20"


def _register(names: Sequence[str], ctype: CType) -> Iterator[str]:
    size_bits = ctype.size.bit_length() - 1
    name = names[size_bits]
    if ctype.size == _WORD:
        if names != _RAX:
            yield f"mov rax, {name}"
    elif _is_signed(ctype):
        yield f"{'movsxd' if ctype.size == 4 else 'movsx'} rax, {name}"
    elif ctype.size == 4:
        yield f"mov eax, {name}"  # clears the upper half
    else:
        yield f"movzx eax, {name}"


def _loaded(place: str, ctype: CType) -> str:
    """rax from memory."""
    pointer = _POINTERS[ctype.size.bit_length() - 1]
    if ctype.size == _WORD:
        return f"mov rax, {pointer} ptr {place}"
    if _is_signed(ctype):
        return f"{'movsxd' if ctype.size == 4 else 'movsx'} rax, {pointer} ptr {place}"
    return f"{'mov' if ctype.size == 4 else 'movzx'} eax, {pointer} ptr {place}"


def _program_rax(operand: Memory, pushed: int) -> Iterator[str]:
    """What the program has in rax, where the address needs it."""
    if "rax" in (operand.base, operand.scaled):
        yield f"mov rax, qword ptr [rsp + {number(_WORD + pushed)}]"


def _place(operand: Memory, pushed: int) -> str:
    offset = operand.offset + (_depth(pushed) if operand.base == "rsp" else 0)
    if offset not in _REACH:
        raise WronglyAssembled(f"{offset:#x} is too far from a register")
    parts = [operand.base] if operand.base else []
    if operand.scaled:
        scaled = f"{operand.scaled}*{operand.scale}" if operand.scale > 1 else operand.scaled
        parts.append(scaled)
    if not parts:
        raise WronglyAssembled("an address without a register")
    sign = f" - {number(-offset)}" if offset < 0 else plus(offset)
    return f"[{' + '.join(parts)}{sign}]"


def _depth(pushed: int) -> int:
    """From rsp to what it was at the site."""
    return RED_ZONE + _SAVED + pushed


def _load_number(value: int) -> str:
    """rax = a number of 64 bits."""
    word = value & (1 << 64) - 1
    if word < 1 << 31:
        return f"mov eax, {number(word)}"
    return f"movabs rax, {number(word)}"


def _extended(value: int, ctype: CType) -> int:
    bits = ctype.size * 8
    low = value & (1 << bits) - 1
    return low - (1 << bits) if _is_signed(ctype) and low >> bits - 1 else low


def _is_signed(ctype: CType) -> bool:
    return ctype.type_class is TypeClass.SIGNED
