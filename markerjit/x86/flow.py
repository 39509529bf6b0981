"""The flow of a function, decoded from its start: where instructions begin and where they lead.

A binary has a million instructions, and capstone's binding for Python makes objects of each of
them. So all instructions of a function are taken from capstone's own array, as columns.
"""

from __future__ import annotations

import ctypes
import re
from functools import cache, lru_cache

import capstone
import numpy as np
from numpy.typing import NDArray

from markerjit.tuples import NamedTuple
from markerjit.x86.decode import plain_decoder

_BRANCHES = ("j", "call", "loop", "xbegin")
_BRANCH, _JUMP, _RETURN, _RETURNED_TO = 1, 2, 4, 8
_PADDINGS = 4096
_RELATIVE = re.compile(r"\[rip[^\]]*\]")
_NUMBER = re.compile(r"0x[0-9a-f]+")


class Flow(NamedTuple):
    """A function's instructions.

    starts    the address of each, and its length
    branches  the target of each direct branch or call, by the address behind it
    leaps     address and target of each direct branch that is no call, on a condition or not
    returns   the addresses behind calls and system calls
    jumps     the addresses of indirect jumps that are not through a slot of their own
    imports   the addresses of indirect jumps through a slot of their own, [rip + disp32]
    rets      the addresses of returns
    end       where decoding ended: at the function's end, or at bytes that are no instruction
    """

    starts: dict[int, int]
    branches: dict[int, int]
    leaps: tuple[tuple[int, int], ...]
    returns: frozenset[int]
    jumps: tuple[int, ...]
    imports: tuple[int, ...]
    rets: tuple[int, ...]
    end: int


def flow(code: bytes, address: int) -> Flow:
    """The flow of a function's whole code, which stands at `address`."""
    insns = _instructions(code, address)
    sizes = dict(zip(insns["address"].tolist(), insns["size"].tolist(), strict=True))
    branches: dict[int, int] = {}
    leaps: list[tuple[int, int]] = []
    returns: list[int] = []
    jumps: list[int] = []
    imports: list[int] = []
    rets: list[int] = []
    kinds = _kinds()[insns["id"]]
    (leading,) = kinds.nonzero()
    starts, texts = insns["address"][leading].tolist(), insns["op_str"][leading].tolist()
    for start, kind, text in zip(starts, kinds[leading].tolist(), texts, strict=True):
        end = start + sizes[start]
        if kind & _RETURNED_TO:
            returns.append(end)
        if kind & _RETURN:
            rets.append(start)
        if not kind & _BRANCH:
            continue
        operand = text.partition(b"\0")[0]
        if operand.startswith(b"0x"):
            target = branches[end] = int(operand, 16)
            if not kind & _RETURNED_TO:
                leaps.append((start, target))
        elif kind & _JUMP:
            (imports if b"[rip" in operand else jumps).append(start)
    last = next(reversed(sizes), None)
    end = address if last is None else last + sizes[last]
    return Flow(
        sizes, branches, tuple(leaps), frozenset(returns), tuple(jumps), tuple(imports),
        tuple(rets), end,
    )  # fmt: skip


def _instructions(code: bytes, address: int) -> NDArray[np.void]:
    """The instructions as capstone has them in memory: `_layout` says what of them."""
    array = ctypes.POINTER(capstone._cs_insn)()
    count = capstone._cs.cs_disasm(
        plain_decoder().csh, code, len(code), address, 0, ctypes.byref(array)
    )  # fmt: skip
    if not count:
        return np.zeros(0, _layout())
    try:
        copy = ctypes.string_at(array, count * _layout().itemsize)
    finally:
        capstone._cs.cs_free(array, count)
    return np.frombuffer(copy, _layout())


@cache
def _layout() -> np.dtype[np.void]:
    """The fields of capstone's `struct cs_insn` that are read."""
    formats = {"id": "u4", "address": "i8", "size": "u2", "op_str": "S160"}
    fields = [getattr(capstone._cs_insn, name) for name in formats]
    for field, format_ in zip(fields, formats.values(), strict=True):
        assert field.size == np.dtype(format_).itemsize
    return np.dtype(
        {
            "names": [*formats],
            "formats": [*formats.values()],
            "offsets": [field.offset for field in fields],
            "itemsize": ctypes.sizeof(capstone._cs_insn),
        }
    )


@cache
def _kinds() -> NDArray[np.uint8]:
    """What an instruction does, by capstone's number of it."""
    kinds = np.zeros(capstone.x86_const.X86_INS_ENDING, np.uint8)
    for number in range(1, len(kinds)):
        name = plain_decoder().insn_name(number) or ""
        if name.startswith(_BRANCHES):
            kinds[number] |= _BRANCH | (_JUMP if name == "jmp" else 0)
        elif "ret" in name:
            kinds[number] |= _RETURN
        if "call" in name or name in ("syscall", "sysenter", "int"):
            kinds[number] |= _RETURNED_TO
    return kinds


def has_operand(code: bytes, value: int) -> bool:
    """Whether the instruction at the start of `code` has this number in an operand.

    Displacements from rip do not count: they are distances.
    """
    return any(
        f"{value:#x}" in _NUMBER.findall(_RELATIVE.sub("", operands))
        for *_, operands in plain_decoder().disasm_lite(code, 0, 1)
    )


def is_padding(code: bytes) -> bool:
    """Whether the bytes are nothing but no-ops and int3, as linkers and compilers fill gaps."""
    return not code or len(code) in padding_ends(code)


@lru_cache(_PADDINGS)
def padding_ends(code: bytes) -> tuple[int, ...]:
    """Where the no-ops and int3 end with which the bytes begin."""
    ends: list[int] = []
    for start, size, mnemonic, _ in plain_decoder().disasm_lite(code, 0):
        if mnemonic not in ("nop", "int3", "data16 nop"):
            break
        ends.append(start + size)
    return tuple(ends)
