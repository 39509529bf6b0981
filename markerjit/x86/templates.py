"""The bytes of every kind of site, dormant and active: the one file that knows opcodes.

The same table makes an edit and recognises a site's state. A site is patched in its first bytes
only, its *head*: what follows (the displacement to the body) never changes. The forms come from
marker.h, which says why they are as they are; encodings are those of the Intel SDM, volume 2
("JMP", "TEST", "NOP", "INT 3").

What this file does not do: decode anything that is not one of these forms (see decode.py).
"""

from __future__ import annotations

from typing import NamedTuple

from markerjit.model import Kind, Mode

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


class Template(NamedTuple):
    """How one kind of site looks and is switched.

    dormant  the head while nothing is on
    active   the head by mode
    offset   of the head from the site's address
    """

    dormant: bytes
    active: dict[Mode, bytes]
    offset: int = 0


TEMPLATES = {
    Kind.JUMP: Template(
        bytes([JMP_SHORT, 5]),  # jmp over the near jump
        {Mode.JUMP: bytes([JMP_SHORT, 0]), Mode.INT3: bytes([INT3, 5])},
    ),
    Kind.NOP: Template(
        bytes([TEST_EAX]),  # test eax, rel32
        {Mode.NOP: bytes([JMP_NEAR]), Mode.INT3: bytes([INT3])},
    ),
    Kind.IMMEDIATE: Template(
        b"\x00",  # the operand of mov reg8, 0
        {Mode.IMMEDIATE: b"\x01"},
    ),
    Kind.SYMBOL: Template(bytes([NOP]), {Mode.INT3: bytes([INT3])}),
}
"""Kinds whose code is patched. The others are switched through their slot, which is data."""

NATIVE_MODE = {
    Kind.JUMP: Mode.JUMP,
    Kind.NOP: Mode.NOP,
    Kind.IMMEDIATE: Mode.IMMEDIATE,
    Kind.SYMBOL: Mode.INT3,
    Kind.POINTER: Mode.POINTER,
    Kind.SENTINEL: Mode.SENTINEL,
}
"""The mode that a kind was made for; `direct` has none, it is always on."""


def modes(kind: Kind) -> tuple[Mode, ...]:
    """The modes that a kind of site can be switched on with, the native one first."""
    native = NATIVE_MODE.get(kind)
    if native is None:
        return ()
    others = TEMPLATES[kind].active if kind in TEMPLATES else ()
    return (native, *(mode for mode in others if mode is not native))


def relative(target: int, end: int) -> bytes:
    """The 32-bit displacement that reaches `target` from an instruction ending at `end`."""
    return (target - end).to_bytes(4, "little", signed=True)


def site_bytes(kind: Kind, address: int, body: int) -> bytes:
    """All bytes of a dormant site, as far as the note determines them.

    Empty for the kinds whose hot path the compiler wrote (pointer, sentinel, direct).
    """
    if kind is Kind.JUMP:
        jump_end = address + 2 + NEAR_LENGTH
        return TEMPLATES[kind].dormant + bytes([JMP_NEAR]) + relative(body, jump_end)
    if kind is Kind.NOP:
        return TEMPLATES[kind].dormant + relative(body, address + NEAR_LENGTH)
    if kind in TEMPLATES:
        return TEMPLATES[kind].dormant
    return b""


def is_breakpoint(code: bytes) -> bool:
    """Whether an instruction that begins with these bytes is a breakpoint, whoever's."""
    return code[:1] == bytes([INT3])


def mode_of(kind: Kind, head: bytes) -> Mode | None:
    """How a site with these first bytes is switched on; None when it is dormant.

    What stands behind a breakpoint is not executed, so there the first byte decides: a change that
    was left half done may have another tail. Whether the breakpoint is ours, the bytes do not say.
    Raises ValueError for bytes that are neither.
    """
    template = TEMPLATES[kind]
    if is_breakpoint(head) and Mode.INT3 in template.active:
        return Mode.INT3
    if head == template.dormant:
        return None
    for mode, active in template.active.items():
        if head == active:
            return mode
    raise ValueError(head.hex(" "))
