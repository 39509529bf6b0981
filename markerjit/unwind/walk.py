"""The frames of a stack, from a thread's registers and its memory.

    1  find the rule of the frame: of the instruction that is to be executed, and of a caller by the
       last byte of its call, because a call may be the last instruction of its function
    2  compute the CFA, and read the return address and the caller's frame pointer
    3  go on with the caller, if that makes sense: stacks grow downwards, so a caller's stack
       pointer is above; and a return address is in code

Where there is no rule, the frame pointer may show a frame all the same, as it does in code that a
program has made for itself. That is believed only if a return address is there.

The content of a stack is not trusted: every walk ends, whatever the stack holds.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Protocol

from markerjit.errors import MemoryFault
from markerjit.tuples import NamedTuple
from markerjit.unwind.rules import WORD, Kind, Rule

DEPTH = 64
"""Frames of a stack, if nothing else is asked for."""
MAX_DEPTH = 4096

_RIP, _RSP, _RBP = 168, 160, 120
"""Where the registers are in the frame of a signal, from the stack pointer of its handler's
return."""
_LATE = 11
"""From this byte of a linkage stub on, it has pushed a word."""


class Registers(NamedTuple):
    """The registers from which a walk begins, or goes on."""

    rip: int
    rsp: int
    rbp: int


class StackEnd(StrEnum):
    """The reason why a walk ended. It is shown as the last line of the stack, except for
    OUTERMOST."""

    OUTERMOST = ""
    NO_TABLE = "[no table]"
    DAMAGED = "[damaged]"
    DEEPER = "[deeper]"


class Stack(NamedTuple):
    """The frames of a stack, the innermost first.

    addresses  where each frame goes on: the next instruction, and of a caller what follows its call
    exact      whether that is an instruction that was to be executed, as it is for the innermost
               frame, and for one that a signal has interrupted
    end        what ended the walk
    """

    addresses: tuple[int, ...]
    exact: tuple[bool, ...]
    end: StackEnd


class Code(Protocol):
    """What is known of a process's code."""

    def rule(self, address: int) -> Rule:
        """The rule at an address; of kind NONE where no table has it."""
        ...

    def is_code(self, address: int) -> bool:
        """Whether instructions can be at an address."""
        ...


Word = Callable[[int], int]
"""Reads 8 bytes at an address, or raises MemoryFault."""


def walk(
    code: Code, word: Word, registers: Registers, depth: int = DEPTH, *, is_called: bool = False
) -> Stack:
    """The frames of a stack, at most `depth`. `is_called`: its rip follows a call, as a return
    address does, and is no instruction that is to be executed."""
    addresses = [registers.rip]
    exact = [not is_called]
    end = StackEnd.DEEPER
    while True:
        rule = code.rule(registers.rip - (not exact[-1]))
        try:
            caller = _caller(code, word, rule, registers)
        except MemoryFault:
            caller = StackEnd.DAMAGED
        if isinstance(caller, StackEnd):
            end = caller
            break
        if len(addresses) == depth:
            break
        registers = caller
        addresses.append(registers.rip)
        exact.append(rule.kind is Kind.SIGNAL)
    return Stack(tuple(addresses), tuple(exact), end)


def _caller(code: Code, word: Word, rule: Rule, registers: Registers) -> Registers | StackEnd:
    """The registers of the caller, or why there are none. Raises MemoryFault."""
    if rule.kind is Kind.OUTERMOST:
        return StackEnd.OUTERMOST
    if rule.kind is Kind.OTHER:  # its frame pointer need not show its frame
        return StackEnd.NO_TABLE
    if rule.kind is Kind.NONE:
        return _framed(code, word, registers) or StackEnd.NO_TABLE
    rsp = registers.rsp
    if rule.kind is Kind.SIGNAL:  # its stack may be another one, above or below
        caller = Registers(word(rsp + _RIP), word(rsp + _RSP), word(rsp + _RBP))
        return caller if code.is_code(caller.rip) else StackEnd.DAMAGED
    cfa = _cfa(word, rule, registers)
    if cfa <= rsp or cfa % WORD:
        return StackEnd.DAMAGED
    rip = word(cfa - WORD)
    if not rip:  # nothing is returned to
        return StackEnd.OUTERMOST
    if not code.is_code(rip):
        return StackEnd.DAMAGED
    if rule.kind is Kind.FRAME_WORD:
        rbp = word(registers.rbp)
    else:
        rbp = word(cfa - WORD * rule.saved) if rule.saved else registers.rbp
    return Registers(rip, cfa, rbp)


def _cfa(word: Word, rule: Rule, registers: Registers) -> int:
    distance = WORD * rule.distance
    if rule.kind is Kind.STACK:
        return registers.rsp + distance
    if rule.kind is Kind.FRAME:
        return registers.rbp + distance
    if rule.kind is Kind.STACK_WORD:
        return word(registers.rsp + distance) + WORD
    if rule.kind is Kind.FRAME_WORD:
        return word(registers.rbp + distance)
    return registers.rsp + (2 * WORD if registers.rip % 16 >= _LATE else WORD)  # LINKAGE


def _framed(code: Code, word: Word, registers: Registers) -> Registers | None:
    """The caller by the frame pointer, where that shows a frame above the stack pointer."""
    rbp = registers.rbp
    if rbp < registers.rsp or rbp % WORD:
        return None
    try:
        saved, rip = word(rbp), word(rbp + WORD)
    except MemoryFault:
        return None
    return Registers(rip, rbp + 2 * WORD, saved) if code.is_code(rip) else None
