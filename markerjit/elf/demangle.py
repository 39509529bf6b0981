"""The names of C++ functions as they were written, from those of their symbols; and of Rust's.

The C++ library of this machine does it (`__cxa_demangle` of the Itanium C++ ABI, 3.4). Where there
is none, names stay as they are. Symbols of Rust's newer mangling are read here (rust_v0.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from types import ModuleType

from markerjit.elf.written import parts_of, without_tags

_OF_CXX, OF_RUST = "_Z", "_R"
MANGLED = (_OF_CXX, OF_RUST)
"""How a symbol begins that has types in it, and so may be written in other ways."""
_LONGEST = 4096
_HASHED = len("17h0123456789abcdefE")
"""Letters of the end of a symbol of Rust."""


def demangled(symbol: str) -> str:
    """`Json::Value::asInt() const`; the symbol itself where it is no name of C++ or Rust."""
    if symbol.startswith(OF_RUST):
        return _rust_v0().written(symbol) or symbol
    if not symbol.startswith(_OF_CXX) or len(symbol) > _LONGEST:
        return symbol  # the library also takes types: it would call a function `i` int
    demangle, free = _library()
    if demangle is None:
        return symbol
    status = ctypes.c_int()
    text = demangle(symbol.encode(), None, None, ctypes.byref(status))
    if not text:
        return _of_clone(symbol)
    try:
        written = ctypes.string_at(text).decode(errors="replace")
    finally:
        free(text)
    if not _is_of_rust(written):
        return written
    from markerjit.elf.written_in_rust import as_in_rust

    return as_in_rust(written)


def _of_clone(symbol: str) -> str:
    """The name of a function of Rust whose symbol has more behind it, such as `.llvm.7`, which the
    library knows only behind parameters; the symbol itself where it is none."""
    behind = symbol.rfind("E.") + 1
    if symbol[behind - _HASHED : behind - _HASHED + 3] != "17h":
        return symbol
    written = demangled(symbol[:behind])
    if written == symbol[:behind]:
        return symbol
    from markerjit.elf.written_in_rust import without_linker

    return written + without_linker(symbol[behind:])


def _is_of_rust(written: str) -> bool:
    """Whether a name may end with the hash that the compiler of Rust puts there."""
    return written[-19:-16] == "::h"


def qualified_name(symbol: str) -> str:
    """`ns::look<int>` of the symbol of `long ns::look[abi:cxx11]<int>(int) const`; the symbol
    itself where it is no name of C++, or of something that has no parameters."""
    if symbol.startswith(OF_RUST):
        return symbol
    text = demangled(symbol)
    start, end = parts_of(text)
    return symbol if text == symbol or end == len(text) else without_tags(text[start:end])


def short_name(symbol: str) -> str:
    """The name to type: without the parameters of C++, or the generic arguments of Rust."""
    if symbol.startswith(OF_RUST):
        return _rust_v0().written_briefly(symbol) or symbol
    text = qualified_name(symbol)
    return demangled(symbol) if text == symbol else text


def spellings(symbol: str, words: Sequence[str] = ()) -> Iterator[str]:
    """How a function may be called: by its symbol, or as it was written in C++; with its parameters
    or without, with what a template returns or without, and without tags such as [abi:cxx11]. In
    Rust, with its generic arguments or without, and as the older mangling has it. All those, at
    least, that have these words in them."""
    yield symbol
    if symbol.startswith(OF_RUST):
        yield from _spellings_of_rust(symbol, words)
        return
    text = demangled(symbol)
    if text != symbol and all(word in text for word in words):
        start, end = parts_of(text)
        for written in dict.fromkeys((text, text[start:end], text[start:], text[:end])):
            yield written
            if (bare := without_tags(written)) != written:
                yield bare


def _spellings_of_rust(symbol: str, words: Sequence[str]) -> Iterator[str]:
    v0 = _rust_v0()
    if not all(v0.may_have(symbol, word) for word in words):
        return
    if not (text := v0.written(symbol)):
        return
    yield text
    brief = v0.written_briefly(symbol) if "<" in text else text
    yield from {brief, v0.as_before(brief)} - {text}


@cache
def _rust_v0() -> ModuleType:
    """Most programs need none of it. Importing it for each of thousands of symbols takes time."""
    from markerjit.elf import rust_v0

    return rust_v0


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
