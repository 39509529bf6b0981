"""The forms of sites: what stands at a head, and what may. The one file that knows opcodes.

The same form makes an edit and recognises a site's state. A marker's form is made from how it was
compiled, and where its site and its body are; the encodings come from marker.h, which says why
they are as they are, and are those of the Intel SDM, volume 2 ("JMP", "TEST", "NOP", "INT 3").

This file does not decode anything that is not one of these forms (see decode.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import contains
from types import MappingProxyType

from markerjit.model import Form, Kind, Mode, new

JMP_SHORT = 0xEB
JMP_NEAR = 0xE9
TEST_EAX = 0xA9
NOP = 0x90
INT3 = 0xCC

SHORT_LENGTH = 2
NEAR_LENGTH = 5
REACH = range(-(1 << 31), 1 << 31)
"""How far a displacement of 32 bits leads, from the end of its instruction."""
HOLE_SIZES = (1 + NEAR_LENGTH, 2 * NEAR_LENGTH)
"""Bytes of a hole: of padding, with the byte before it; and of one that instructions make room for.
Its last five are the long jump."""
SYSCALL_RET = b"\x0f\x05\xc3"
SIGRETURN = (b"\x48\xc7\xc0\x0f\0\0\0\x0f\x05", b"\xb8\x0f\0\0\0\x0f\x05")
"""`mov $15, %rax; syscall`, as C libraries have it for signal handlers to return to."""
POP_RAX_RET = b"\x58\xc3"
VFORK = b"\xb8\x3a\0\0\0\x0f\x05"
"""`mov $58, %eax; syscall`: glibc's vfork, which is in a static program only if it is called."""


def _form(kind: Kind, head: bytes, ways: Mapping[Mode, bytes], lead: int = 0) -> Form:
    return Form(kind, head, b"", MappingProxyType(ways), lead=lead)


_FORMS = {
    Kind.JUMP: _form(
        Kind.JUMP,
        bytes([JMP_SHORT, 5]),  # jmp over the near jump
        {Mode.JUMP: bytes([JMP_SHORT, 0]), Mode.INT3: bytes([INT3, 5])},
    ),
    Kind.NOP: _form(
        Kind.NOP,
        bytes([TEST_EAX]),  # test eax, rel32
        {Mode.NOP: bytes([JMP_NEAR]), Mode.INT3: bytes([INT3])},
    ),
    Kind.IMMEDIATE: _form(
        Kind.IMMEDIATE,
        b"\x00",  # the operand of mov reg8, 0; its opcode stands before it
        {Mode.IMMEDIATE: b"\x01"},
        lead=1,
    ),
    Kind.SYMBOL: _form(Kind.SYMBOL, bytes([NOP]), {Mode.INT3: bytes([INT3])}),
    # The compiler wrote these: their slot decides.
    Kind.POINTER: _form(Kind.POINTER, b"", {Mode.POINTER: b""}),
    Kind.SENTINEL: _form(Kind.SENTINEL, b"", {Mode.SENTINEL: b""}),
    Kind.DIRECT: _form(Kind.DIRECT, b"", {}),  # always on
}
"""The forms without their tails, which differ from site to site."""


def marker_form(kind: Kind, address: int, body: int) -> Form:
    """The form of a marker's site at `address`, whose body is at `body`.

    Raises OverflowError where no displacement of 32 bits leads from one to the other.
    """
    form, (tail,) = _FORMS[kind], marker_tails(kind, (address,), (body,))
    return form._replace(tail=tail) if tail else form


def marker_tails(kind: Kind, addresses: Sequence[int], bodies: Sequence[int]) -> list[bytes]:
    """The tails of the forms of many sites. Raises what is raised for one of them."""
    if kind is Kind.JUMP:
        before, length = _JMP_NEAR, 2 + NEAR_LENGTH
    elif kind is Kind.NOP:
        before, length = b"", NEAR_LENGTH
    else:
        return [b""] * len(addresses)
    return [
        before + (body - address - length).to_bytes(4, "little", signed=True)
        for address, body in zip(addresses, bodies, strict=True)
    ]


def can_reach(kind: Kind, address: int, body: int) -> bool:
    """Whether a marker's site at `address` can lead to a body."""
    try:
        marker_tails(kind, (address,), (body,))
    except OverflowError:
        return False
    return True


_JMP_NEAR = bytes([JMP_NEAR])


def relative(target: int, end: int) -> bytes:
    """The 32-bit displacement that reaches `target` from an instruction ending at `end`."""
    return (target - end).to_bytes(4, "little", signed=True)


USDT = "usdt"
"""The name of the form of a USDT probe's site."""
_NO_OPS = tuple(
    Form(USDT, code, b"", MappingProxyType({}))
    for code in (
        b"\x0f\x1f\x44\x00\x00",  # nop dword ptr [rax+rax*1+0], of headers that leave room
        bytes([NOP]),
    )
)
NO_OP_LENGTH = 5
"""The size of the longest no-op of a USDT probe."""


def usdt_form(code: bytes) -> Form | None:
    """The form of a USDT probe's site, whose code begins with these bytes; None where it begins
    with no no-op that sys/sdt.h and others write. It has no way to be opened, without a stub."""
    return next((form for form in _NO_OPS if code.startswith(form.head)), None)


FUNCTION = "function"
"""The name of the form of a function's entry."""
INSTRUCTION = "instruction"
"""The name of the form of an instruction in the middle of a function."""
ENDBR64 = b"\xf3\x0f\x1e\xfa"
"""Indirect branches must land on an endbr64, so it stays where a function has one."""

RETURN = "return"
"""The name of the form of a function's exit."""

CALL = "call"
"""The name of the form of a call of a function."""
TAIL_CALL = "tail call"
"""The name of the form of a jump to a function, as the last thing that another one does."""

STUBBED = frozenset((USDT, FUNCTION, RETURN, INSTRUCTION, CALL, TAIL_CALL))
"""The names of the forms of code that nobody prepared for us: each site gets a stub."""


_NO_WAYS: Mapping[Mode, bytes] = MappingProxyType({})
_WITHOUT_WAYS = Form("", b"", b"", _NO_WAYS)[2:]
"""What stands behind the name and the head of a form that has no way to be opened."""


def function_form(code: bytes) -> Form | None:
    """The form of a function's entry, whose code begins with these bytes, behind an endbr64; None
    without any. It has no way to be opened, without a stub."""
    return code_form(FUNCTION, code)


def code_form(name: str, code: bytes) -> Form | None:
    """The form of this name of code that begins with these bytes, whatever they are; None without
    any. It has no way to be opened, without a stub."""
    return new(Form, (name, code[:NEAR_LENGTH], *_WITHOUT_WAYS)) if code else None


def call_form(code: bytes, *, pushes: bool) -> Form:
    """The form of a call, whose whole instruction this is: a call that pushes its return address,
    or a tail call. It has no way to be opened, without a stub."""
    return Form(CALL if pushes else TAIL_CALL, code, b"", _NO_WAYS)


def exit_form(code: bytes) -> Form:
    """The form of a function's exit, whose head is this code. It has no way to be opened, without a
    stub."""
    return new(Form, (RETURN, code, *_WITHOUT_WAYS))


def form_with_stub(name: str, head: bytes, address: int, stub: int, reach: int = 0) -> Form:
    """The form of this name of a site whose head may become a jump to its stub; a breakpoint where
    it is too short for one. A head of two bytes becomes a short jump, whose displacement `reach`
    leads to a hole. One that is a jump on a condition gets another target, and nothing else: the
    stub of a breakpoint would have to ask for the condition. So does a call: the stub finds pushed
    where it returns to, which a breakpoint would not push.

    Raises OverflowError where no displacement of 32 bits leads there.
    """
    if name == CALL and is_call(head):
        call = _ADDRESS_SIZE * (len(head) - NEAR_LENGTH) + bytes([_CALL_NEAR])
        call += relative(stub, address + len(head))
        return Form(name, head, b"", MappingProxyType({Mode.JUMP: call}))
    if is_near_condition(head):
        jump = head[:2] + relative(stub, address + CONDITION_LENGTH)
        return Form(name, head, b"", MappingProxyType({Mode.JUMP: jump}))
    ways = {Mode.INT3: _TRAP + head[1:]}
    if len(head) == NEAR_LENGTH:
        ways = {Mode.JUMP: _near_jump(address, stub), **ways}
    elif len(head) == SHORT_LENGTH:
        jump = bytes([JMP_SHORT]) + reach.to_bytes(1, "little", signed=True)
        ways = {Mode.JUMP: jump, **ways}
    # What other code begins with is not known without decoding it.
    begins_short = name != USDT or head[:1] == bytes([NOP])
    inside = (1,) if begins_short and len(head) > 1 else ()
    return Form(name, head, b"", MappingProxyType(ways), inside)


def hole_content(before: bytes, address: int, stub: int, copies: int) -> bytes:
    """What a hole holds while it is used: a byte that stays, and the jump to the stub; or the jump
    to the copies of the instructions that are lost there, and that to the stub.

    Raises OverflowError where no displacement of 32 bits leads there.
    """
    first = _near_jump(address, copies) if copies else before[:1]
    return first + _near_jump(address + len(first), stub)


def reach_of(jump: bytes) -> int:
    """The displacement of a short jump."""
    return int.from_bytes(jump[1:2], "little", signed=True)


def _near_jump(address: int, target: int) -> bytes:
    return bytes([JMP_NEAR]) + relative(target, address + NEAR_LENGTH)


def is_near_jump(code: bytes) -> bool:
    """Whether an instruction is a jump, conditional or not, with a displacement of 32 bits."""
    return (len(code) == NEAR_LENGTH and code[0] == JMP_NEAR) or is_near_condition(code)


def is_near_condition(code: bytes) -> bool:
    """Whether an instruction is a conditional jump with a displacement of 32 bits."""
    return len(code) == CONDITION_LENGTH and code[0] == _TWO_BYTES and code[1] & 0xF0 == _JCC_NEAR


CONDITION_LENGTH = 6
_TWO_BYTES, _JCC_NEAR = 0x0F, 0x80


def condition_of(code: bytes) -> int | None:
    """The condition of a conditional jump, as its number in the opcode; None for anything else."""
    code = code.lstrip(_HINTS)
    if is_near_condition(code):
        return code[1] & 0xF
    return code[0] & 0xF if len(code) == SHORT_LENGTH and code[0] & 0xF0 == _JCC_SHORT else None


def depends(code: bytes) -> bool:
    """Whether it is a direct jump that is not always taken: on a condition of the flags, or on
    %rcx (loop, jrcxz)."""
    return condition_of(code) is not None or _is_on_rcx(code)


def _is_on_rcx(code: bytes) -> bool:
    code = code.lstrip(_HINTS + _ADDRESS_SIZE)
    return len(code) == SHORT_LENGTH and code[0] in _ON_RCX


def displacement_of(jump: bytes) -> int:
    """The displacement of a direct jump."""
    code = jump.lstrip(_HINTS + _ADDRESS_SIZE)
    return int.from_bytes(code[2 if is_near_condition(code) else 1 :], "little", signed=True)


def skip_unless_taken(jump: bytes, size: int) -> bytes:
    """Code that skips so many bytes where a conditional jump is not taken. It changes %rcx as that
    jump does."""
    displacement = size.to_bytes(4, "little")
    condition = condition_of(jump)
    if condition is not None:
        return bytes([_TWO_BYTES, _JCC_NEAR | condition ^ 1]) + displacement
    return jump[:-1] + bytes([NEAR_LENGTH, JMP_NEAR]) + displacement


_JCC_SHORT = 0x70
_ON_RCX = range(0xE0, 0xE4)  # loopne, loope, loop, jrcxz
_HINTS = b"\x2e\x3e\xf2"


def jumps_always(code: bytes) -> bool:
    """Whether a direct jump is unconditional."""
    return code.lstrip(_HINTS)[:1] in (bytes([JMP_NEAR]), bytes([JMP_SHORT]))


_CALL_NEAR, _INDIRECT = 0xE8, 0xFF
_CALL_SLOT, _JUMP_SLOT = 0x15, 0x25  # ModRM: /2 and /4, [rip + disp32]
_BOUND = 0xF2
_ADDRESS_SIZE = b"\x67"
"""A prefix that has no effect on a call. Linkers write it, too, to keep the length of a call by a
slot."""
SLOT_LENGTH = 6
"""The size of a call or jump by a slot."""


def is_call(code: bytes) -> bool:
    """Whether an instruction is a direct call, or one by a slot of the object."""
    by_slot = code[:2] == bytes([_INDIRECT, _CALL_SLOT]) and len(code) == SLOT_LENGTH
    return by_slot or _is_direct_call(code)


def jumps_by_slot(code: bytes) -> bool:
    """Whether an instruction is a jump by a slot of the object, as in a stub of a linkage table."""
    slot = bytes([_INDIRECT, _JUMP_SLOT])
    return code.startswith((slot, bytes([_BOUND]) + slot))


def _is_direct_call(code: bytes) -> bool:
    near = code.removeprefix(_ADDRESS_SIZE)
    return len(near) == NEAR_LENGTH and near[0] == _CALL_NEAR


def jump_of_call(call: bytes, address: int, place: int) -> bytes:
    """The jump at `place` to what the call at an address calls, directly or by a slot. Raises
    OverflowError where no displacement of 32 bits leads there."""
    end = address + len(call)
    target = end + int.from_bytes(call[-4:], "little", signed=True)
    if _is_direct_call(call):
        return _near_jump(place, target)
    return bytes([_INDIRECT, _JUMP_SLOT]) + relative(target, place + SLOT_LENGTH)


def entry_of_linkage(code: bytes, end: int) -> int:
    """Where a stub of a linkage table begins whose jump by a slot ends at this offset of the
    code."""
    at = end - SLOT_LENGTH
    if at and code[at - 1] == _BOUND:
        at -= 1
    return at - len(ENDBR64) if code[:at].endswith(ENDBR64) else at


def stub_of(after: bytes, address: int) -> int | None:
    """Where the jump or call at an open head leads; None where it is neither."""
    if is_near_condition(after) or _is_direct_call(after):
        return address + len(after) + int.from_bytes(after[-4:], "little", signed=True)
    if len(after) != NEAR_LENGTH or after[0] != JMP_NEAR:
        return None
    return address + NEAR_LENGTH + int.from_bytes(after[1:], "little", signed=True)


def is_breakpoint(code: bytes) -> bool:
    """Whether an instruction that begins with these bytes is a breakpoint, ours or not."""
    return code[:1] == _TRAP


_TRAP = bytes([INT3])


def mode_of(form: Form, head: bytes) -> Mode | None:
    """How a site of this form is switched on, whose head is found so; None when it is dormant.

    Behind a breakpoint a change that was left half done may have bytes of one head and of another;
    those of somebody else are not ours to write over. The bytes do not say whether the breakpoint
    is ours. Raises ValueError for bytes that are neither.
    """
    if head == form.head:
        return None
    for mode, active in form.ways.items():
        if head == active:
            return mode
    if Mode.INT3 in form.ways and is_planted(head, (form.head, *form.ways.values())):
        return Mode.INT3
    raise ValueError(head.hex(" "))


def is_planted(head: bytes, heads: Iterable[bytes]) -> bool:
    """Whether a breakpoint stands in one of these heads of a site: each byte behind it is the one
    that one of them has there."""
    known = list(map(set, zip(*heads, strict=True)))
    return is_breakpoint(head) and all(map(contains, known[1:], head[1:]))
