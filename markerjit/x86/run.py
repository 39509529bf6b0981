"""The straight line of instructions from an address: as far as they are executed one by one."""

from __future__ import annotations

import sys
from functools import lru_cache

from capstone import x86_const as x86

from markerjit.tuples import NamedTuple
from markerjit.x86.decode import decoder, sizes
from markerjit.x86.relocate import Obstacle, ends_block, says_all

_KINDS = 1 << 14


class Run(NamedTuple):
    """Instructions that follow one another from `address`.

    codes     the bytes of each
    no_op     whether each is a no-op
    ends      the last one is not followed by what stands behind it
    obstacle  why there are no more: bytes that are no instruction; or None
    endbr     the length of an endbr64 at the start, 0 where there is none
    """

    address: int
    codes: tuple[bytes, ...]
    no_op: tuple[bool, ...]
    ends: bool
    obstacle: Obstacle | None
    endbr: int

    def first(self, size: int) -> bytes:
        """The fewest instructions that have `size` bytes, or all there are."""
        taken = b""
        for code in self.codes:
            if len(taken) >= size:
                break
            taken += code
        return taken

    def no_ops(self) -> bytes:
        """The no-ops at the start."""
        count = next((n for n, is_no_op in enumerate(self.no_op) if not is_no_op), len(self.no_op))
        return b"".join(self.codes[:count])


def whole_instructions(code: bytes, address: int, enough: int = sys.maxsize) -> Run:
    """The instructions at an address up to the end of their block, or of `code`; no more than have
    `enough` bytes.

    A call is the last of a run, because its return address has to stay where it is.
    """
    codes: list[bytes] = []
    no_op: list[bool] = []
    endbr = at = 0
    most = enough if enough < len(code) else 0  # of instructions; 0: all
    for size, number in sizes(code, most):
        codes.append(code[at : at + size])
        at += size
        kind = _kind_of(number, codes[-1])
        no_op.append(kind.no_op)
        if kind.endbr and len(codes) == 1:
            endbr = size
        if kind.ends or kind.calls or at >= enough:
            return Run(address, tuple(codes), tuple(no_op), kind.ends, None, endbr)
    undecoded = Obstacle.UNDECODED if len(code) - at > 15 else None
    return Run(address, tuple(codes), tuple(no_op), False, undecoded, endbr)


class _Kind(NamedTuple):
    """The properties of an instruction that do not depend on its address."""

    no_op: bool
    endbr: bool
    ends: bool
    calls: bool


def _kind_of(number: int, code: bytes) -> _Kind:
    """What an instruction is. For nearly all, capstone's number says it: those of one number have
    one mnemonic, and but for transfers one kind."""
    if number in _PLAIN_NUMBERS:
        return _PLAIN
    kind = _kind(code)
    if kind == _PLAIN and says_all(decoder().insn_name(number) or ""):
        _PLAIN_NUMBERS.add(number)
    return kind


_PLAIN = _Kind(no_op=False, endbr=False, ends=False, calls=False)
_PLAIN_NUMBERS: set[int] = set()


@lru_cache(_KINDS)
def _kind(code: bytes) -> _Kind:
    (insn,) = decoder().disasm(code, 0)
    return _Kind(
        insn.id == x86.X86_INS_NOP,
        insn.id == x86.X86_INS_ENDBR64,
        ends_block(insn),
        bool(insn.group(x86.X86_GRP_CALL)),
    )
