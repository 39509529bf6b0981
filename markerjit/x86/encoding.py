"""Instructions as keystone encodes them, each decoded again by capstone: its output is not trusted.

A line is in the syntax in which capstone writes it, so that what was meant and what was made can be
compared as text. It is encoded by itself, far from everything else. So it has no label in it, and a
stand-in for what depends on its place:

    "je ."                  a jump to itself, with a displacement of one byte
    "call 0x10001000000"    to somewhere that needs four bytes (FAR)

keystone 0.9.2 silently makes wrong code of some forms, such as `push 0xffffffff`. Code that
capstone does not read as it was meant is refused.

keystone's package for Python takes 40 ms to import. Only its library is used.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache
from itertools import accumulate, pairwise

from markerjit.errors import MarkerError, Unsupported
from markerjit.x86.forms import ENDBR64
from markerjit.x86.libraries import library_in, load
from markerjit.x86.listing import lines_of

HERE, FAR = 1 << 40, (1 << 40) + (1 << 24)
"""Where instructions are encoded, and what is out of reach of a displacement of one byte from
there. Both are far from every offset in a segment, which keystone would otherwise make relative to
rip."""

_X86, _MODE_64 = 4, 1 << 3  # KS_ARCH_X86, KS_MODE_64
_VERSION = 9  # 0.9
_OLDER_THAN = {"endbr64": f".byte {', '.join(map(hex, ENDBR64))}"}
"""Instructions that keystone does not know."""
_ITSELF = " ."
"""The end of a jump to itself."""


class WronglyAssembled(MarkerError):
    """keystone's code is not what was asked for."""


def encoded(lines: Sequence[str]) -> list[bytes]:
    """The bytes of each of these instructions. Raises WronglyAssembled."""
    code = assembled("\n".join(_OLDER_THAN.get(line, line) for line in lines), HERE)
    decoded = lines_of(code, HERE)
    ends = list(accumulate((each.size for each in decoded), initial=0))
    if len(decoded) != len(lines) or ends[-1] != len(code):
        raise WronglyAssembled(f"{len(lines)} instructions became {len(decoded)}")
    for line, each, start in zip(lines, decoded, ends[:-1], strict=True):
        expected = line[:-1] + f"{HERE + start:#x}" if line.endswith(_ITSELF) else line
        if each.text != expected:
            raise WronglyAssembled(f"`{line}` became `{each.text}` where it should be `{expected}`")
    return [code[start:end] for start, end in pairwise(ends)]


def assembled(text: str, address: int) -> bytes:
    """keystone's code of a text at an address. Raises WronglyAssembled where it has none."""
    library, handle = _keystone()
    code, size, count = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_size_t()
    error = library.ks_asm(
        handle, text.encode(), address,
        ctypes.byref(code), ctypes.byref(size), ctypes.byref(count),
    )  # fmt: skip
    if error:
        sentence = library.ks_strerror(library.ks_errno(handle)).decode()
        raise WronglyAssembled(f"keystone: {sentence}")
    if not code:
        return b""
    try:
        return ctypes.string_at(code, size.value)
    finally:
        library.ks_free(code)


@cache
def _keystone() -> tuple[ctypes.CDLL, ctypes.c_void_p]:
    """keystone's library, and a handle for code of 64 bits."""
    library, handle = _library(), ctypes.c_void_p()
    if library.ks_version(None, None) != _VERSION:
        raise Unsupported(f"keystone is not of version 0.{_VERSION}, which markerjit was made for")
    pointer, number = ctypes.c_void_p, ctypes.c_uint64
    library.ks_asm.argtypes = [pointer, ctypes.c_char_p, number, pointer, pointer, pointer]
    library.ks_free.argtypes, library.ks_free.restype = [pointer], None
    library.ks_errno.argtypes = [pointer]
    library.ks_strerror.restype = ctypes.c_char_p
    error = library.ks_open(_X86, _MODE_64, ctypes.byref(handle))
    if error:
        raise Unsupported(f"keystone is not made for x86 (error {error})")
    return library, handle


def _library() -> ctypes.CDLL:
    library = library_in("keystone", "libkeystone.so")
    if library is None:
        from keystone import keystone

        library = load(keystone._ks._name)
    return library
