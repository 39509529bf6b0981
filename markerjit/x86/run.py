"""The straight line of instructions from an address: as far as they are executed one by one."""

from __future__ import annotations

from capstone import x86_const as x86

from markerjit.tuples import NamedTuple
from markerjit.x86.decode import decoder
from markerjit.x86.relocate import Obstacle, ends_block


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


def whole_instructions(code: bytes, address: int) -> Run:
    """The instructions at an address up to the end of their block, or of `code`.

    A call is the last of a run: what it returns to has to stay where it is.
    """
    codes: list[bytes] = []
    no_op: list[bool] = []
    endbr = size = 0
    for insn in decoder().disasm(code, address):
        codes.append(bytes(insn.bytes))
        no_op.append(insn.id == x86.X86_INS_NOP)
        size += insn.size
        if insn.id == x86.X86_INS_ENDBR64 and len(codes) == 1:
            endbr = insn.size
        if ends_block(insn) or insn.group(x86.X86_GRP_CALL):
            return Run(address, tuple(codes), tuple(no_op), ends_block(insn), None, endbr)
    undecoded = Obstacle.UNDECODED if len(code) - size > 15 else None
    return Run(address, tuple(codes), tuple(no_op), False, undecoded, endbr)
