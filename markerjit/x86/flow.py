"""The flow of a function, decoded from its start: where instructions begin and where they lead."""

from __future__ import annotations

import re
from functools import cache

import capstone

from markerjit.tuples import NamedTuple

_BRANCHES = ("j", "call", "loop", "xbegin", "bnd j", "bnd call", "notrack")
_RELATIVE = re.compile(r"\[rip[^\]]*\]")
_NUMBER = re.compile(r"0x[0-9a-f]+")


class Flow(NamedTuple):
    """A function's instructions.

    starts    the address of each, and its length
    branches  the target of each direct branch or call, by the address behind it
    returns   the addresses behind calls and system calls
    jumps     the addresses of indirect jumps that are not through a slot of their own
    imports   the addresses of indirect jumps through a slot of their own, [rip + disp32]
    rets      the addresses of returns
    end       where decoding ended: at the function's end, or at bytes that are no instruction
    """

    starts: dict[int, int]
    branches: dict[int, int]
    returns: frozenset[int]
    jumps: tuple[int, ...]
    imports: tuple[int, ...]
    rets: tuple[int, ...]
    end: int


def flow(code: bytes, address: int) -> Flow:
    """The flow of a function's whole code, which stands at `address`."""
    starts: dict[int, int] = {}
    branches: dict[int, int] = {}
    returns: set[int] = set()
    jumps: list[int] = []
    imports: list[int] = []
    rets: list[int] = []
    at = address
    for start, size, mnemonic, operands in _decoder().disasm_lite(code, address):
        starts[start] = size
        at = start + size
        if mnemonic.startswith(_BRANCHES):
            if operands.startswith("0x"):
                branches[at] = int(operands, 16)
            elif "jmp" in mnemonic:
                (imports if "[rip" in operands else jumps).append(start)
        elif "ret" in mnemonic:
            rets.append(start)
        if "call" in mnemonic or mnemonic in ("syscall", "sysenter", "int"):
            returns.add(at)
    return Flow(starts, branches, frozenset(returns), tuple(jumps), tuple(imports), tuple(rets), at)


def has_operand(code: bytes, value: int) -> bool:
    """Whether the instruction at the start of `code` has this number in an operand.

    Displacements from rip do not count: they are distances.
    """
    return any(
        f"{value:#x}" in _NUMBER.findall(_RELATIVE.sub("", operands))
        for *_, operands in _decoder().disasm_lite(code, 0, 1)
    )


def is_padding(code: bytes) -> bool:
    """Whether the bytes are nothing but no-ops and int3, as linkers and compilers fill gaps."""
    end = 0
    for start, size, mnemonic, _ in _decoder().disasm_lite(code, 0):
        if mnemonic not in ("nop", "int3", "data16 nop"):
            return False
        end = start + size
    return end == len(code)


@cache
def _decoder() -> capstone.Cs:
    return capstone.Cs(capstone.CS_ARCH_X86, capstone.CS_MODE_64)
