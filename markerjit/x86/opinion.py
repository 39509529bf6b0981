"""A second opinion on dormant sites: capstone's view of what a processor would do with their bytes.

Only capstone's library is used, and the text that it makes of an instruction. Its package for
Python takes 40 ms and more to import, a third of the first switch of a program that was just built,
since it defines the operands of twenty processors.

What this does not do: decode anything else. `markerjit.x86.decode` has capstone with all details.
"""

from __future__ import annotations

import ctypes
import os
import re
import struct
from functools import cache
from importlib.util import find_spec

from markerjit.errors import Unsupported
from markerjit.model import Form
from markerjit.tuples import NamedTuple

_X86, _MODE_64 = 3, 1 << 3  # CS_ARCH_X86, CS_MODE_64
_VERSION = 5
_ADDRESSES = 1 << 64
_INSN = struct.Struct("<I4xQH24s32s160s6xQ")
"""`struct cs_insn` of this version: id, address, size, bytes, mnemonic, operands, detail."""
_SLOT_AND_ZERO = re.compile(r"qword ptr \[rip( [+-] (0x)?[0-9a-f]+)?\], 0")
_BYTE_AND_ZERO = re.compile(r"([abcd][lh]|(si|di|bp|sp)l|r(8|9|1[0-5])b), 0")


class Line(NamedTuple):
    """An instruction as capstone writes it."""

    size: int
    mnemonic: str
    operands: str


def disagreement(form: Form, code: bytes, address: int, body: int, end: int) -> str | None:
    """Why these bytes are not a dormant site of this form, or None when they are.

    `code` starts at `address`, with the `lead` of the form, and reaches to `end`. Independent of
    the bytes of the form: it asks capstone what the processor would do, and compares that with what
    a form of this name promises.
    """
    promised = _PROMISES.get(form.name)
    if promised is None:
        return None
    return promised(lines_of(code, address), address, body, end)


def lines_of(code: bytes, address: int) -> list[Line]:
    """The instructions from the first byte on; what cannot be decoded ends the list."""
    library, handle = _capstone()
    array = ctypes.c_void_p()
    count = library.cs_disasm(handle, code, len(code), address, 0, ctypes.byref(array))
    if not count:
        return []
    try:
        content = ctypes.string_at(array, count * _INSN.size)
    finally:
        library.cs_free(array, count)
    return [
        Line(size, _text(mnemonic), _text(operands))
        for _, _, size, _, mnemonic, operands, _ in _INSN.iter_unpack(content)
    ]


def _text(field: bytes) -> str:
    return field.partition(b"\0")[0].decode("ascii")


@cache
def _capstone() -> tuple[ctypes.CDLL, ctypes.c_size_t]:
    """Capstone's library, and a handle for code of 64 bits."""
    library, handle = _library(), ctypes.c_size_t()
    if library.cs_version(None, None) >> 8 != _VERSION:
        raise Unsupported(f"capstone is not of version {_VERSION}, which markerjit was made for")
    size, pointer = ctypes.c_size_t, ctypes.c_void_p
    disasm, free = library.cs_disasm, library.cs_free
    disasm.argtypes = [size, ctypes.c_char_p, size, ctypes.c_uint64, size, pointer]
    disasm.restype = size
    free.argtypes, free.restype = [pointer, size], None
    error = library.cs_open(_X86, _MODE_64, ctypes.byref(handle))
    if error:
        raise Unsupported(f"capstone is not made for x86 (error {error})")
    return library, handle


def _library() -> ctypes.CDLL:
    """The library, if it is in its package. Only the package can find it elsewhere."""
    spec = None if "LIBCAPSTONE_PATH" in os.environ else find_spec("capstone")
    for folder in (spec and spec.submodule_search_locations) or ():
        path = os.path.join(folder, "lib", "libcapstone.so")
        if os.path.exists(path):
            return ctypes.CDLL(path, mode=os.RTLD_DEEPBIND)
    import capstone

    return ctypes.CDLL(capstone._cs._name, mode=os.RTLD_DEEPBIND)


def _jump(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return (
        _branch(lines, 0, "jmp", end)
        or _branch(lines, 1, "jmp", body)
        or _length(lines, 2, start, end)
    )


def _nop(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return _test(lines, body, end) or _length(lines, 1, start, end)


def _symbol(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return _is(lines, 0, "nop") or _length(lines, 1, start, end)


def _immediate(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return _move_of_zero(lines) or _length(lines, 1, start, end)


def _pointer(lines: list[Line], start: int, body: int, end: int) -> str | None:
    return (
        _compare_with_zero(lines) or _branch(lines, 1, "jne", body) or _length(lines, 2, start, end)
    )


_PROMISES = {
    "jump": _jump,
    "nop": _nop,
    "symbol": _symbol,
    "immediate": _immediate,
    "pointer": _pointer,
}
"""The checks by the names of forms. The other forms, whose code a compiler wrote, promise
nothing."""


def _is(lines: list[Line], index: int, mnemonic: str) -> str | None:
    if len(lines) <= index:
        return f"instruction {index + 1} cannot be decoded"
    if lines[index].mnemonic != mnemonic:
        return f"{lines[index].mnemonic} {lines[index].operands} where {mnemonic} should be"
    return None


def _branch(lines: list[Line], index: int, mnemonic: str, target: int) -> str | None:
    wrong = _is(lines, index, mnemonic)
    if wrong:
        return wrong
    number = _number(lines[index].operands)
    if number is None or number % _ADDRESSES != target % _ADDRESSES:
        return f"{mnemonic} {lines[index].operands} does not reach {target:#x}"
    return None


def _compare_with_zero(lines: list[Line]) -> str | None:
    wrong = _is(lines, 0, "cmp")
    if wrong:
        return wrong
    if not _SLOT_AND_ZERO.fullmatch(lines[0].operands):
        return f"cmp {lines[0].operands} does not compare the slot with 0"
    return None


def _test(lines: list[Line], body: int, end: int) -> str | None:
    wrong = _is(lines, 0, "test")
    if wrong:
        return wrong
    register, _, immediate = lines[0].operands.partition(", ")
    number = _number(immediate)
    displacement = (body - end) & 0xFFFFFFFF
    if register != "eax" or number is None or number & 0xFFFFFFFF != displacement:
        return f"test {lines[0].operands} does not hold the way to {body:#x}"
    return None


def _length(lines: list[Line], count: int, start: int, end: int) -> str | None:
    length = sum(line.size for line in lines[:count])
    return None if start + length == end else f"{length} bytes long, the note says {end - start}"


def _move_of_zero(lines: list[Line]) -> str | None:
    wrong = _is(lines, 0, "mov")
    if wrong:
        return wrong
    if not _BYTE_AND_ZERO.fullmatch(lines[0].operands):
        return f"mov {lines[0].operands} does not move 0 into a byte register"
    return None


def _number(operand: str) -> int | None:
    """The number that an operand is; None where it is something else."""
    try:
        return int(operand, 0)
    except ValueError:
        return None
