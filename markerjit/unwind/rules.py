"""The rule by which a frame leads to its caller's frame, in 32 bits.

The idea is that of the kernel's ORC (Linux, Documentation/arch/x86/orc-unwinder.rst): of all that
DWARF can say, what compilers do say. From the low bits up a rule has

    4 bits   its kind
    16 bits  a distance from the register that the kind names, signed, in words of 8 bytes
    12 bits  how many words below the CFA the caller's frame pointer is; 0: it is in its register
"""

from __future__ import annotations

import re
from enum import IntEnum

from markerjit.elf.unwind_rows import RBP, RSP, UNDEFINED, Row, Saved
from markerjit.tuples import NamedTuple

WORD = 8


class Kind(IntEnum):
    """How the CFA is computed, which is the caller's stack pointer; and some that have none.

    NONE        no function is here
    STACK       the stack pointer, and a distance
    FRAME       the frame pointer, and a distance
    STACK_WORD  the word at that distance from the stack pointer, and 8 (OpenSSL's assembly)
    FRAME_WORD  the word at that distance from the frame pointer, which was saved where the frame
                pointer shows (a function that aligns its stack)
    LINKAGE     a stub of a procedure linkage table: by the place in the stub
    SIGNAL      the kernel's frame of a signal, which has all registers of what it interrupted
    OUTERMOST   nothing has called this one
    OTHER       the row is of none of these kinds
    """

    NONE = 0
    STACK = 1
    FRAME = 2
    STACK_WORD = 3
    FRAME_WORD = 4
    LINKAGE = 5
    SIGNAL = 6
    OUTERMOST = 7
    OTHER = 8


class Rule(NamedTuple):
    """A rule's parts; `saved` in words."""

    kind: Kind
    distance: int = 0
    saved: int = 0


_RETURN_ADDRESS = -WORD
_LINKAGE = bytes.fromhex("77 08 80 00 3f 1a 3b 2a 33 24 22")
"""rsp + 8 + ((rip & 15) >= 11) * 8, which linkers write for a table of stubs of 16 bytes."""
_SIGNAL = bytes.fromhex("77 a0 01 06"), bytes.fromhex("77 f8 00"), bytes.fromhex("77 a8 01")
"""CFA, rbp and rip in the frame that the kernel makes for a signal: arch/x86/include/uapi/asm/
sigcontext.h behind a struct ucontext's first 40 bytes."""
_AT_FRAME = b"\x76\x00"
_OF_STACK = re.compile(rb"\x77([\0-\x7f]|[\x80-\xff][\0-\x7f])\x06\x23\x08", re.DOTALL)
_OF_FRAME = re.compile(rb"\x76([\0-\x7f]|[\x80-\xff][\0-\x7f])\x06", re.DOTALL)

MOST_DISTANCE = (1 << 15) - 1
MOST_SAVED = (1 << 12) - 1


def encode(rule: Rule) -> int:
    """The rule in 32 bits."""
    return rule.kind | (rule.distance & 0xFFFF) << 4 | rule.saved << 20


def decode(word: int) -> Rule:
    """The rule of 32 bits; one of a kind that is not known is OTHER."""
    kind = word & 15
    distance = word >> 4 & 0xFFFF
    return Rule(
        Kind(kind) if kind <= Kind.OTHER else Kind.OTHER,
        distance - (distance >> 15 << 16),
        word >> 20 & MOST_SAVED,
    )


def rule_of(row: Row) -> Rule:
    """The rule that a row is."""
    if row.rip == UNDEFINED:
        return Rule(Kind.OUTERMOST)
    if (row.cfa, row.rbp, row.rip) == _SIGNAL:
        return Rule(Kind.SIGNAL)
    if row.rip != _RETURN_ADDRESS:
        return Rule(Kind.OTHER)
    kind, distance = _of_cfa(row.cfa)
    if kind is Kind.FRAME_WORD and row.rbp == _AT_FRAME:
        saved: int | None = 0
    else:
        saved = None if kind in (Kind.FRAME_WORD, Kind.OTHER) else _saved(row.rbp)
    if saved is None or distance % WORD or abs(distance) > WORD * MOST_DISTANCE:
        return Rule(Kind.OTHER)
    return Rule(kind, distance // WORD, saved)


def _saved(place: Saved) -> int | None:
    """The number of words from a register's place up to the CFA; None where a rule cannot say
    it."""
    if place is None or place == UNDEFINED:
        return 0
    if not isinstance(place, int) or place % WORD:
        return None
    words = -place // WORD
    return words if 1 <= words <= MOST_SAVED else None


def _of_cfa(cfa: tuple[int, int] | bytes) -> tuple[Kind, int]:
    """The kind, and the distance in bytes."""
    if isinstance(cfa, tuple):
        return {RSP: Kind.STACK, RBP: Kind.FRAME}.get(cfa[0], Kind.OTHER), cfa[1]
    if cfa == _LINKAGE:
        return Kind.LINKAGE, 0
    for pattern, kind in ((_OF_STACK, Kind.STACK_WORD), (_OF_FRAME, Kind.FRAME_WORD)):
        match = pattern.fullmatch(cfa)
        if match:
            return kind, _signed(match[1])
    return Kind.OTHER, 0


def _signed(number: bytes) -> int:
    """An SLEB128 of one or two bytes."""
    value = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(number))
    return value - (value >> 7 * len(number) - 1 << 7 * len(number))
