"""What restart.S must not have, and no test of its behaviour could find."""

from __future__ import annotations

import capstone

from markerjit.abi import Entry
from markerjit.remote.native import package_file


def test_what_the_reader_moves_meanwhile_is_not_read_twice_for_one_decision(build: object) -> None:
    """A comparison and a conditional move from memory would see two limits."""
    with open(package_file("runtime.bin"), "rb") as file:
        code = file.read()
    decoder = capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
    decoder.detail = True
    moves = 0
    for sequence in Entry.from_buffer_copy(code).sequences:
        for instruction in decoder.disasm(code[sequence.start : sequence.end], sequence.start):
            if instruction.mnemonic.startswith("cmov"):
                moves += 1
                assert all(
                    operand.type == capstone.x86.X86_OP_REG for operand in instruction.operands
                )

    assert moves == 2
