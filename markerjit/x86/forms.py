"""The forms of sites: what stands at a head, and what may. The one file that knows opcodes.

The same form makes an edit and recognises a site's state. A marker's form is made from how it was
compiled, and where its site and its body are; the encodings come from marker.h, which says why
they are as they are, and are those of the Intel SDM, volume 2 ("JMP", "TEST", "NOP", "INT 3").

This file does not decode anything that is not one of these forms (see decode.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from operator import contains
from types import MappingProxyType

from markerjit.model import Form, Kind, Mode, new

JMP_SHORT = 0xEB
JMP_NEAR = 0xE9
TEST_EAX = 0xA9
NOP = 0x90
INT3 = 0xCC

NEAR_LENGTH = 5
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
"""Without their tails: those differ from site to site."""


def marker_form(kind: Kind, address: int, body: int) -> Form:
    """The form of a marker's site at `address`, whose body is at `body`.

    Raises OverflowError where no displacement of 32 bits leads from one to the other.
    """
    form = _FORMS[kind]
    if kind is Kind.JUMP:
        tail = _JMP_NEAR + relative(body - address, 2 + NEAR_LENGTH)
    elif kind is Kind.NOP:
        tail = relative(body - address, NEAR_LENGTH)
    else:
        return form
    return new(Form, (kind, form.head, tail, form.ways, form.inside, form.lead, form.closed))


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
"""Of the longest no-op of a USDT probe."""


def usdt_form(code: bytes) -> Form | None:
    """The form of a USDT probe's site, whose code begins with these bytes; None where it begins
    with no no-op that sys/sdt.h and others write. It has no way to be opened, without a stub."""
    return next((form for form in _NO_OPS if code.startswith(form.head)), None)


FUNCTION = "function"
"""The name of the form of a function's entry."""
ENDBR64 = b"\xf3\x0f\x1e\xfa"
"""Indirect branches have to land on it, so it stays where a function has one."""

STUBBED = frozenset((USDT, FUNCTION))
"""The names of the forms of code that nobody prepared for us: each site gets a stub."""


def function_form(code: bytes) -> Form | None:
    """The form of a function's entry, whose code begins with these bytes, behind an endbr64; None
    without any. It has no way to be opened, without a stub."""
    return Form(FUNCTION, code[:NEAR_LENGTH], b"", MappingProxyType({})) if code else None


def form_with_stub(name: str, head: bytes, address: int, stub: int) -> Form:
    """The form of this name of a site whose head may become a jump to its stub; a breakpoint where
    it is too short for one.

    Raises OverflowError where no displacement of 32 bits leads there.
    """
    ways = {Mode.INT3: _TRAP + head[1:]}
    if len(head) == NEAR_LENGTH:
        jump = bytes([JMP_NEAR]) + relative(stub, address + NEAR_LENGTH)
        ways = {Mode.JUMP: jump, **ways}
    # What a function begins with is not known without decoding it.
    begins_short = name == FUNCTION or head[:1] == bytes([NOP])
    inside = (1,) if begins_short and len(head) > 1 else ()
    return Form(name, head, b"", MappingProxyType(ways), inside)


def stub_of(after: bytes, address: int) -> int | None:
    """Where the jump at an open head leads; None where it is no jump."""
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
