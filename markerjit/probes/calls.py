"""The two ways in which a marker's body calls its probe, as a recorder sees them.

A preserving call has the arguments as words of 64 bits on the stack, and changes no register. The
recorder first pushes those that it uses. An ordinary C call has the arguments where the System V
ABI for x86-64 puts them (3.2.3; the first one is the slot), and may change most registers. But the
registers that hold arguments must not change until the record is written.

Operands are not bound to these calls: the code of a recorder is made from whatever registers and
memory hold the values.
"""

from __future__ import annotations

from collections.abc import Sequence

from markerjit.abi import CALL_WORDS, OP_FP, OP_SIZE_SHIFT, OP_SKIP_FP
from markerjit.model import General, Memory, Vector
from markerjit.tuples import NamedTuple
from markerjit.x86.assemble import number, plus

Operand = General | Vector | Memory
"""Where a call has an argument, in memory as a word of eight bytes."""


class Frame(NamedTuple):
    """The code around a recorder that is called in one of the two ways.

    operands     one for each argument
    words        bytes from rsp to the first argument, where all are in memory
    begin, end   saving and restoring what the caller keeps, and the return
    keep, back   keeping %rdx while the clock is read, and having it back
    make_room    have the runtime make room in the ring
    to_record    leave the event to the runtime, anywhere before the end
    to_count, to_lose  have it counted as recorded, as lost
    """

    operands: tuple[Operand, ...]
    words: int
    begin: tuple[str, ...]
    end: tuple[str, ...]
    keep: tuple[str, ...]
    back: tuple[str, ...]
    make_room: tuple[str, ...]
    to_record: tuple[str, ...]
    to_count: tuple[str, ...]
    to_lose: tuple[str, ...]


_GENERAL = (
    General(("sil", "si", "esi", "rsi")),
    General(("dl", "dx", "edx", "rdx")),
    General(("cl", "cx", "ecx", "rcx")),
    General(("r8b", "r8w", "r8d", "r8")),
    General(("r9b", "r9w", "r9d", "r9")),
)
_VECTORS = 8
_USED = ("rax", "rdi", "r10")
"""Registers that a recorder changes. A recorder that reads the clock also changes %rdx."""
_BY_FUNCTIONS = "r11"
"""Further registers, which the runtime's functions that it calls change."""
_OF_TEXTS = ("rbx", "r12", "r13", "r14", "r15")
"""What a recorder of texts changes besides, and the caller of a C function keeps; and these:"""
_VECTORS_OF_TEXTS = ("xmm14", "xmm15")
_ENTRY = "lea rdi, [rip + entry]"


def preserving_call(argc: int, *, clock: bool, texts: bool) -> Frame:
    """The frame of a recorder whose caller makes a preserving call, by whether it reads the clock,
    and texts."""
    pushed = (*_USED, *(("rdx",) if clock else ()), *((_BY_FUNCTIONS, *_OF_TEXTS) if texts else ()))
    vectors = [(f"xmmword ptr [rsp{plus(16 * at)}]", name)
               for at, name in enumerate(_VECTORS_OF_TEXTS if texts else ())]  # fmt: skip
    below = 16 * len(vectors)
    words = below + len(pushed) * 8 + CALL_WORDS
    # Each store of a usual execution counts, so r11 is kept only where a function is called.
    push, pop = ((), ()) if texts else ((f"push {_BY_FUNCTIONS}",), (f"pop {_BY_FUNCTIONS}",))
    deeper = words + 8 * len(push)
    end = (
        *(f"movups {name}, {place}" for place, name in vectors),
        *((f"add rsp, {number(below)}",) if below else ()),
        *(f"pop {register}" for register in reversed(pushed)),
        "ret",
    )
    return Frame(
        operands=tuple(Memory("rsp", words + 8 * index) for index in range(argc)),
        words=words,
        begin=(
            "endbr64",
            *(f"push {register}" for register in pushed),
            *((f"sub rsp, {number(below)}",) if below else ()),
            *(f"movups {place}, {name}" for place, name in vectors),
        ),
        end=end,
        keep=(),
        back=(),
        make_room=(*push, "call make_room", *pop),
        to_record=(
            *push,
            _ENTRY,
            f"lea r10, [rsp + {number(deeper)}]",
            "call gate_record",
            *pop,
            *end,
        ),
        to_count=(*push, _ENTRY, "call gate_pass", *pop, *end),
        to_lose=(*push, _ENTRY, "call gate_lose", *pop, *end),
    )


def c_call(ops: Sequence[int], *, texts: bool) -> Frame:
    """The frame of a recorder whose caller makes a C call, with arguments that are taken as `ops`
    says (MJ_OP_*)."""
    operands = _operands_of_c(ops)
    # In a register where no argument is, else in the red zone, below what mj_turn has there.
    kept = "qword ptr [rsp - 0x38]" if _GENERAL[-1] in operands else "r9"
    saved = [(f"qword ptr [rsp - {number(0x40 + 8 * at)}]", name)
             for at, name in enumerate(_OF_TEXTS if texts else ())]  # fmt: skip
    restored = [f"mov {name}, {place}" for place, name in saved]
    return Frame(
        operands=operands,
        words=0,
        begin=tuple(f"mov {place}, {name}" for place, name in saved),
        end=(*restored, "ret"),
        keep=(f"mov {kept}, rdx",),
        back=(f"mov rdx, {kept}",),
        make_room=("call make_room",),
        # Vector registers may hold arguments.
        to_record=(*restored, _ENTRY, "mov eax, 8", "jmp record_event"),
        to_count=(*restored, _ENTRY, "jmp pass"),
        to_lose=(*restored, _ENTRY, "jmp lose"),
    )


def _operands_of_c(ops: Sequence[int]) -> tuple[Operand, ...]:
    general, vectors, stack = iter(_GENERAL), iter(range(_VECTORS)), 8
    operands: list[Operand] = []
    for op in ops:
        kind = op & (1 << OP_SIZE_SHIFT) - 1
        register: Operand | None
        if kind in (OP_FP, OP_SKIP_FP):
            vector = next(vectors, None)
            register = None if vector is None else Vector(vector)
        else:
            register = next(general, None)
        if register is None:
            register = Memory("rsp", stack)
            stack += 8
        operands.append(register)
    return tuple(operands)
