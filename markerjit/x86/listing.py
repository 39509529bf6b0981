"""Instructions as capstone writes them, by its library alone.

Its package for Python takes 40 ms and more to import, a third of the first switch of a program that
was just built, since it defines the operands of twenty processors.

What this does not do: details of instructions. `markerjit.x86.decode` has those.
"""

from __future__ import annotations

import ctypes
import os
import struct
from functools import cache

from markerjit.errors import Unsupported
from markerjit.tuples import NamedTuple
from markerjit.x86.libraries import library_in, load

_X86, _MODE_64 = 3, 1 << 3  # CS_ARCH_X86, CS_MODE_64
_VERSION = 5
_INSN = struct.Struct("<16xH24x32s160s14x")
"""Of `struct cs_insn` of this version: size, mnemonic, operands."""
_MNEMONIC, _OPERANDS = struct.calcsize("<16xH24x"), 32
"""Where the mnemonic is, and how far behind it the operands are."""


class Line(NamedTuple):
    """An instruction as capstone writes it."""

    size: int
    mnemonic: str
    operands: str

    @property
    def text(self) -> str:
        """All of it but its size."""
        return f"{self.mnemonic} {self.operands}" if self.operands else self.mnemonic


class Listing:
    """The instructions from the first byte of code on; what cannot be decoded ends them. A line is
    made when it is asked for."""

    def __init__(self, code: bytes, address: int) -> None:
        library, handle = _capstone()
        array = ctypes.c_void_p()
        count = library.cs_disasm(handle, code, len(code), address, 0, ctypes.byref(array))
        self._content = b""
        if count:
            try:
                self._content = ctypes.string_at(array, count * _INSN.size)
            finally:
                library.cs_free(array, count)

    def __len__(self) -> int:
        return len(self._content) // _INSN.size

    def line(self, index: int) -> Line:
        """The instruction of this number."""
        size, mnemonic, operands = _INSN.unpack_from(self._content, index * _INSN.size)
        return Line(size, _text(mnemonic), _text(operands))

    def text(self, index: int) -> str:
        """That instruction but its size, for which no line is made."""
        content, at = self._content, index * _INSN.size + _MNEMONIC
        mnemonic = content[at : content.index(b"\0", at)]
        at += _OPERANDS
        operands = content[at : content.index(b"\0", at)]
        return (mnemonic + b" " + operands if operands else mnemonic).decode("ascii")


def lines_of(code: bytes, address: int) -> list[Line]:
    """All instructions from the first byte on; what cannot be decoded ends the list."""
    listing = Listing(code, address)
    return [listing.line(index) for index in range(len(listing))]


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
    library = None
    if "LIBCAPSTONE_PATH" not in os.environ:
        library = library_in("capstone", "lib/libcapstone.so")
    if library is None:
        import capstone

        library = load(capstone._cs._name)
    return library
