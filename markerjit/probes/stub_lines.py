"""The lines of a stub that calls its probe (stub.py says in which order), for any slot and site."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markerjit.abi import RED_ZONE, SHAPE_FLOATS, SINCE_TICKS, STASH_ARGS, TAKES_TIME, Stash
from markerjit.abi import Kept as Place
from markerjit.model import (
    Constant,
    CType,
    Duration,
    General,
    HighByte,
    Kept,
    Memory,
    Operand,
    Static,
    TypeClass,
    Vector,
)
from markerjit.patch.slots import SLOT_ADAPTER, SLOT_TAKES, SLOT_TOKEN, SLOT_UNMATCHED
from markerjit.probes.parts import Name, part
from markerjit.probes.record import WORDS_FOR_KEPT
from markerjit.x86.assemble import number, plus
from markerjit.x86.encoding import WronglyAssembled
from markerjit.x86.forms import REACH

_WORD = 8
_SAVED = 2 * _WORD
"""%rax, and below it the flags."""
_RAX = ("al", "ax", "eax", "rax")
_POINTERS = ("byte", "word", "dword", "qword")
_FRESH_MXCSR = 0x1F80
ANY_SLOT = 0x5AFE_5107_5AFE_5107
ANY_ENTRY = 0x5AFE_5107_5AFE_6007
ANY_SITE = 0x5AFE_5107_5AFE_7007
"""Not the addresses of any slots, nor of anything else: the processor takes them for none."""

BEGIN = (
    part(Name.RED_ZONE),
    f"lea rsp, [rsp - {number(RED_ZONE)}]",  # 1
    "push rax",
    "lahf",
    "seto al",
    "push rax",
)
END = (
    part(Name.RESTORED),
    "none:",
    "pop rax",  # 6
    "add al, 0x7f",
    "sahf",
    "pop rax",
    f"lea rsp, [rsp + {number(RED_ZONE)}]",
)


def calling_lines(
    args: Sequence[CType], operands: Sequence[Operand], *, keeps: bool
) -> Iterator[str]:
    """2 to 5 of stub.py."""
    slot = ANY_SLOT
    kept = [operand for operand in operands if isinstance(operand, Duration | Kept)]
    own = operands[: len(operands) - len(kept)]
    pushed_below = below(operands)
    count = len(operands)
    floats = sum(
        1 << index for index, ctype in enumerate(args) if ctype.type_class is TypeClass.FLOAT
    )
    yield part(Name.ASKED)
    yield f"movabs rax, {number(slot)}"  # 2
    if kept:
        yield "mov rax, qword ptr [rax]"
        yield "test rax, rax"
    else:
        yield "cmp qword ptr [rax], 0"
    if keeps:
        yield "jne asked"
        yield f"cmp qword ptr [rax + {number(SLOT_TOKEN)}], 0"
    yield "je none"
    if kept:
        yield part(Name.KEPT)
        yield from _push_kept(len(kept) - 1)  # a, b
    yield part(Name.OPERANDS)
    if keeps:
        yield "asked:"
    pushed = pushed_below + _WORD * len(kept)
    for operand, ctype in zip(reversed(own), reversed(args[: len(own)]), strict=True):
        yield from load(operand, ctype, pushed)  # 3
        yield "push rax"
        pushed += _WORD
    yield part(Name.SHAPE)
    yield f"movabs rax, {number(slot)}"
    yield "push rax"
    yield f"push {number(count | floats << SHAPE_FLOATS)}"
    yield part(Name.CALL)
    if kept:
        probe_at = (count + 2) * _WORD + pushed_below - _WORD
        yield f"mov rax, qword ptr [rsp + {number(probe_at)}]"  # 4
    else:
        yield "mov rax, qword ptr [rax]"  # 4
    yield "test al, 1"
    yield "je call_it"
    yield f"movabs rax, {number(slot + SLOT_ADAPTER)}"
    yield "mov rax, qword ptr [rax]"
    yield "call_it:"
    if not kept:
        yield "test rax, rax"  # it may have gone since
        yield "je gone"
    yield "call rax"
    if not kept:
        yield "gone:"
    yield f"movabs rax, {number(ANY_SITE)}"
    if keeps:
        yield part(Name.KEEPS)
        yield from _keep(count)
    yield part(Name.DROPPED)
    yield f"lea rsp, [rsp + {number(_WORD * (count + 2) + pushed_below)}]"  # 5


_USED = ("rcx", "rdx", "r11")
"""Registers that keeping and finding needs, besides rax."""
_PUSHED = ("rax", *_USED)
"""What an exit pushes before the operands: the probe, and those."""
assert len(_PUSHED) == WORDS_FOR_KEPT


def _keep(count: int) -> Iterator[str]:
    """Keep the first of the words, which stand above the slot and the shape."""
    above = len(_USED) * _WORD
    words = above + 2 * _WORD
    yield f"movabs rax, {number(ANY_SLOT + SLOT_TOKEN)}"
    yield "cmp qword ptr [rax], 0"
    yield "je forgotten"
    yield from (f"push {name}" for name in _USED)
    yield "mov r11, qword ptr [rax]"
    yield "mov rdx, qword ptr [rax + 8]"  # SLOT_STASH
    # 0 in a child that a signal handler has forked since: its slots are empty.
    yield "test rdx, rdx"
    yield "je lost"
    yield f"lea rax, [rsp + {number(depth(words + _WORD * count))}]"
    yield f"call qword ptr [rdx{plus(Stash.claim.offset)}]"
    yield "test rax, rax"
    yield "je lost"
    yield f"mov qword ptr [rax{plus(Place.token.offset)}], 0"
    for index in range(min(count, STASH_ARGS)):
        yield f"mov rcx, qword ptr [rsp + {number(words + _WORD * index)}]"
        yield f"mov qword ptr [rax{plus(Place.args.offset + _WORD * index)}], rcx"
    yield "mov rcx, rax"
    yield "rdtsc"
    yield "shl rdx, 0x20"
    yield "or rax, rdx"
    yield f"mov qword ptr [rcx{plus(Place.time.offset)}], rax"
    yield f"mov qword ptr [rcx{plus(Place.token.offset)}], r11"
    yield "lost:"
    yield from (f"pop {name}" for name in reversed(_USED))
    yield "forgotten:"


def _push_kept(args: int) -> Iterator[str]:
    """Push so many arguments of the entry, and how long ago it was. The registers that were used
    are then as before."""
    above = len(_PUSHED) * _WORD
    probe = f"qword ptr [rsp + {number(above - _WORD)}]"
    yield from (f"push {name}" for name in _PUSHED)
    yield f"movabs rcx, {number(ANY_SLOT + SLOT_TAKES)}"
    yield "cmp rax, qword ptr [rcx]"
    yield "je unneeded"
    yield f"movabs rax, {number(ANY_ENTRY + SLOT_TOKEN)}"
    yield "mov r11, qword ptr [rax]"
    yield "test r11, r11"
    yield "je unmatched"
    yield "mov rdx, qword ptr [rax + 8]"  # SLOT_STASH, 0 in a child as above
    yield "test rdx, rdx"
    yield "je unmatched"
    yield f"lea rax, [rsp + {number(depth(above))}]"
    yield f"call qword ptr [rdx{plus(Stash.find.offset)}]"  # a
    yield "test rax, rax"
    yield "je unmatched"
    yield f"cmp qword ptr [rax{plus(Place.token.offset)}], r11"
    yield "jne unmatched"
    yield f"mov qword ptr [rax{plus(Place.token.offset)}], 0"  # b
    yield "mov r11, rax"
    yield f"movabs rax, {number(ANY_SLOT + SLOT_TAKES)}"
    yield "mov rcx, qword ptr [rax]"
    yield f"sub rcx, {number(TAKES_TIME)}"
    yield f"mov rax, qword ptr [r11{plus(Place.time.offset)}]"
    yield f"cmp rcx, {probe}"
    yield "je takes_time"
    yield f"mov rcx, qword ptr [rdx{plus(Stash.ns_per_tick.offset)}]"
    yield "rdtsc"
    yield "shl rdx, 0x20"
    yield "or rax, rdx"
    yield f"sub rax, qword ptr [r11{plus(Place.time.offset)}]"
    yield "jae later"
    yield "xor eax, eax"  # another CPU's counter is some ticks behind
    yield "later:"
    yield "mul rcx"
    yield "shrd rax, rdx, 0x20"
    yield "jmp lasted"
    yield "takes_time:"
    yield f"bts rax, {number(SINCE_TICKS)}"
    yield "lasted:"
    for index in reversed(range(args)):
        yield f"push qword ptr [r11{plus(Place.args.offset + _WORD * index)}]"
    yield "push rax"
    yield "jmp ready"
    yield "unmatched:"
    yield f"movabs rax, {number(ANY_SLOT + SLOT_UNMATCHED)}"
    yield "lock inc qword ptr [rax]"
    yield from (f"pop {name}" for name in reversed(_PUSHED))
    yield "jmp none"
    yield "unneeded:"
    for _ in range(args + 1):
        yield "push 0"
    yield "ready:"
    for index, name in enumerate(reversed(_USED)):
        yield f"mov {name}, qword ptr [rsp{plus(_WORD * (args + 1 + index))}]"


def load(operand: Operand, ctype: CType, pushed: int) -> Iterator[str]:
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
            yield f"lea rax, [rsp + {number(depth(pushed))}]"
            yield from _register(_RAX, ctype)
        case General(names):
            yield from _register(names, ctype)
        case Vector(register):
            yield f"movq rax, xmm{register}"
        case Kept() | Duration():
            raise AssertionError("what an entry has kept is pushed by `_push_kept`")


def _double(operand: Operand, ctype: CType, pushed: int) -> Iterator[str]:
    """A double, or a float as one, in rax."""
    if ctype.size == _WORD:
        yield from load(operand, CType(TypeClass.UNSIGNED, _WORD), pushed)
        return
    match operand:
        case Vector(register):
            yield f"movd eax, xmm{register}"
        case _:
            yield from load(operand, CType(TypeClass.UNSIGNED, ctype.size), pushed)
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
    offset = operand.offset + (depth(pushed) if operand.base == "rsp" else 0)
    if offset not in REACH:
        raise WronglyAssembled(f"{offset:#x} is too far from a register")
    parts = [operand.base] if operand.base else []
    if operand.scaled:
        scaled = f"{operand.scaled}*{operand.scale}" if operand.scale > 1 else operand.scaled
        parts.append(scaled)
    if not parts:
        raise WronglyAssembled("an address without a register")
    sign = f" - {number(-offset)}" if offset < 0 else plus(offset)
    return f"[{' + '.join(parts)}{sign}]"


def depth(pushed: int) -> int:
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


def below(operands: Sequence[Operand]) -> int:
    """Bytes that are pushed before the operands."""
    has_kept = any(isinstance(operand, Duration | Kept) for operand in operands)
    return len(_PUSHED) * _WORD if has_kept else 0
