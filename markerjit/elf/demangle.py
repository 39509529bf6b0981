"""The names of C++ functions as they were written, from those of their symbols.

The C++ library of this machine does it (`__cxa_demangle` of the Itanium C++ ABI, 3.4). Where there
is none, names stay as they are.
"""

from __future__ import annotations

import ctypes
from functools import cache

_PREFIX = "_Z"
_LONGEST = 4096


def demangled(symbol: str) -> str:
    """`Json::Value::asInt() const`; the symbol itself where it is no name of C++."""
    if not symbol.startswith(_PREFIX) or len(symbol) > _LONGEST:
        return symbol  # the library also takes types: it would call a function `i` int
    demangle, free = _library()
    if demangle is None:
        return symbol
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return symbol
    try:
        return ctypes.string_at(text).decode(errors="replace")
    finally:
        free(text)


def qualified_name(symbol: str) -> str:
    """`ns::look<int>` of the symbol of `long ns::look<int>(int) const`; the symbol itself where it
    is no name of C++, or of something that has no parameters."""
    text = demangled(symbol)
    if text == symbol:
        return symbol
    depth = start = 0
    for place, character in enumerate(text):
        depth += (character == "<") - (character == ">")
        if character == " " and not depth:  # behind what a template returns
            start = place + 1
        elif character == "(" and not depth and place > start:
            return text[start:place]
    return symbol


@cache
def _library() -> tuple[ctypes._NamedFuncPointer | None, ctypes._NamedFuncPointer]:
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]
    try:
        demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    except (OSError, AttributeError):
        return None, free
    demangle.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p]
    demangle.restype = ctypes.c_void_p
    return demangle, free
