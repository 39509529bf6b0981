"""Filters of seccomp, run by ourselves: classic BPF on `struct seccomp_data`.

A filter is a list of instructions that looks at the number of a system call, the architecture, the
instruction pointer and six arguments, and returns an action. We run a target's filters on the calls
that we would have a thread make. The parts of a call that we do not know are unknown here too: a
filter that looks at one raises `LooksAtUnknown` and is not guessed.

What this does not do: read filters (markerjit/remote/filters.py).

Authority: seccomp(2); Documentation/networking/filter.rst; seccomp_check_filter in kernel/seccomp.c
and bpf_check_classic in net/core/filter.c for what the kernel accepts.
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable, Sequence

from markerjit.errors import MarkerError
from markerjit.tuples import NamedTuple

MAX_INSTRUCTIONS = 4096
"""The most instructions of one filter (BPF_MAXINSNS)."""

ALLOW, LOG = 0x7FFF0000, 0x7FFC0000
ERRNO = 0x00050000
_KILL_PROCESS = 0x80000000
_ACTIONS = {
    _KILL_PROCESS: "kills the process",
    0x00000000: "kills the thread",
    0x00030000: "sends SIGSYS (TRAP)",
    ERRNO: "returns an error",
    0x7FC00000: "asks a supervisor (USER_NOTIF)",
    0x7FF00000: "asks a tracer (TRACE)",
    LOG: "logs and allows it",
    ALLOW: "allows it",
}
_ACTION_BITS, _DATA_BITS = 0xFFFF0000, 0xFFFF
_MAX_ERRNO = 4095

_AUDIT_ARCH_X86_64 = 0xC000003E
_WORD = 0xFFFFFFFF
_MEMORY_WORDS = 16
_DATA_SIZE = 64
_INSTRUCTION = struct.Struct("<HBBI")
_DATA_NAMES = (
    "its number", "the architecture", "its instruction pointer", "its instruction pointer",
)  # fmt: skip

# Classes, and where a constant ends: linux/bpf_common.h.
_LD_ABS, _LD_LEN, _LDX_LEN = 0x20, 0x80, 0x81
_LD_IMM, _LDX_IMM, _LD_MEM, _LDX_MEM = 0x00, 0x01, 0x60, 0x61
_ST, _STX, _TAX, _TXA, _NEG = 0x02, 0x03, 0x07, 0x87, 0x84
_RET_K, _RET_A, _JA = 0x06, 0x16, 0x05
_DIV, _SHIFTS = 0x34, (0x64, 0x74)
_BY_X = 0x08
_ARITHMETIC: dict[int, Callable[[int, int], int]] = {
    0x04: operator.add,
    0x14: operator.sub,
    0x24: operator.mul,
    _DIV: operator.floordiv,
    0x44: operator.or_,
    0x54: operator.and_,
    0x64: lambda a, by: a << (by & 31),
    0x74: lambda a, by: a >> (by & 31),
    0xA4: operator.xor,
}
_JUMPS: dict[int, Callable[[int, int], bool]] = {
    0x15: operator.eq,
    0x25: operator.gt,
    0x35: operator.ge,
    0x45: lambda a, other: bool(a & other),
}


class BadFilter(MarkerError):
    """A filter that the kernel would not have accepted, so it cannot have been read correctly."""


class LooksAtUnknown(MarkerError):
    """A filter looks at a part of a call that is not known beforehand; `part` names it."""

    def __init__(self, part: str) -> None:
        super().__init__(f"a filter looks at {part}, which is not known beforehand")
        self.part = part


class Instruction(NamedTuple):
    """struct sock_filter."""

    code: int
    if_true: int
    if_false: int
    constant: int


Filter = tuple[Instruction, ...]


class Action(NamedTuple):
    """The answer of a filter: the action without its data, and the data (an errno)."""

    kind: int
    data: int

    @property
    def allows(self) -> bool:
        """Whether the call is made."""
        return self.kind in (ALLOW, LOG)

    def __str__(self) -> str:
        if self.kind == ERRNO:
            return f"returns errno {min(self.data, _MAX_ERRNO)}"
        return _ACTIONS[self.kind]


class CallData(NamedTuple):
    """A system call as a filter sees it; None for what is not known."""

    number: int
    args: tuple[int | None, ...] = ()
    instruction_pointer: int | None = None

    def words(self) -> tuple[int | None, ...]:
        """struct seccomp_data by words of 32 bits. Missing arguments are unknown."""
        args = (*self.args, *[None] * (6 - len(self.args)))
        halves: list[int | None] = []
        for value in (self.instruction_pointer, *args):
            halves += (None, None) if value is None else (value & _WORD, value >> 32 & _WORD)
        return (self.number, _AUDIT_ARCH_X86_64, *halves)


def parse_filter(data: bytes) -> Filter:
    """The instructions of a filter, checked as the kernel checks them. Raises BadFilter."""
    if len(data) % _INSTRUCTION.size:
        raise BadFilter("it ends in the middle of an instruction")
    code = tuple(Instruction._make(fields) for fields in _INSTRUCTION.iter_unpack(data))
    if not 0 < len(code) <= MAX_INSTRUCTIONS:
        raise BadFilter(f"it has {len(code)} instructions")
    for index, instruction in enumerate(code):
        if not _is_good(instruction, len(code) - index - 1):
            raise BadFilter(f"instruction {index} is not one of seccomp's: {instruction}")
    if code[-1].code not in (_RET_K, _RET_A):
        raise BadFilter("it does not end with a return")
    return code


def _is_good(instruction: Instruction, left: int) -> bool:
    """`left` is the count of instructions behind it."""
    code, if_true, if_false, constant = instruction
    if code == _LD_ABS:
        return constant < _DATA_SIZE and constant % 4 == 0
    if code in (_LD_MEM, _LDX_MEM, _ST, _STX):
        return constant < _MEMORY_WORDS
    if code == _JA:
        return constant < left
    if code & ~_BY_X in _JUMPS:
        return if_true < left and if_false < left
    if code & ~_BY_X in _ARITHMETIC:
        if code in _SHIFTS:
            return constant < 32
        return code != _DIV or constant != 0
    return code in (
        _LD_LEN, _LDX_LEN, _LD_IMM, _LDX_IMM, _TAX, _TXA, _NEG, _RET_K, _RET_A,
    )  # fmt: skip


def run_filter(code: Filter, call: CallData) -> Action:
    """The action of one filter, which `parse_filter` has checked. Raises LooksAtUnknown.

    The loop always ends, because jumps only go forward.
    """
    words = call.words()
    memory: list[int] = [0] * _MEMORY_WORDS
    a = x = at = 0
    while True:
        op, if_true, if_false, k = code[at]
        at += 1
        if op == _LD_ABS:
            word = words[k // 4]
            if word is None:
                raise LooksAtUnknown(_part(k // 4))
            a = word
        elif op & ~_BY_X in _JUMPS:
            holds = _JUMPS[op & ~_BY_X](a, x if op & _BY_X else k)
            at += if_true if holds else if_false
        elif op == _RET_K:
            return _action(k)
        elif op == _RET_A:
            return _action(a)
        elif op & ~_BY_X in _ARITHMETIC:
            by = x if op & _BY_X else k
            if op == _DIV | _BY_X and not by:
                return _action(0)  # the kernel ends the filter so
            a = _ARITHMETIC[op & ~_BY_X](a, by) & _WORD
        elif op == _JA:
            at += k
        elif op in (_ST, _STX):
            memory[k] = a if op == _ST else x
        elif op in (_TXA, _NEG):
            a = x if op == _TXA else -a & _WORD
        else:
            value = _loaded(op, k, a, memory)
            if op & 1:
                x = value
            else:
                a = value


def _loaded(op: int, k: int, a: int, memory: Sequence[int]) -> int:
    """The value that is loaded into A, or by an odd operation into X."""
    if op in (_LD_MEM, _LDX_MEM):
        return memory[k]
    if op == _TAX:
        return a
    return _DATA_SIZE if op in (_LD_LEN, _LDX_LEN) else k


def run_filters(filters: Sequence[Filter], call: CallData) -> Action:
    """The action of all filters of a thread, the oldest first: the most restrictive one.

    Raises LooksAtUnknown.
    """
    strictest = Action(ALLOW, 0)
    for code in reversed(filters):  # as the kernel does: of equals, the newest's data
        action = run_filter(code, call)
        if _signed(action.kind) < _signed(strictest.kind):
            strictest = action
    return strictest


def encode_filter(code: Iterable[Instruction]) -> bytes:
    """The bytes of a filter, as `parse_filter` takes them."""
    return b"".join(_INSTRUCTION.pack(*instruction) for instruction in code)


def _action(value: int) -> Action:
    """An action that the kernel does not know ends the process."""
    kind = value & _ACTION_BITS
    return Action(kind if kind in _ACTIONS else _KILL_PROCESS, value & _DATA_BITS)


def _signed(kind: int) -> int:
    return kind - (1 << 32) if kind & _KILL_PROCESS else kind


def _part(word: int) -> str:
    return _DATA_NAMES[word] if word < 4 else f"argument {(word - 4) // 2}"
