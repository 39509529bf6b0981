"""The names of Rust functions as they were written, where the older of its two manglings was used.

Such a symbol is one of C++, with a hash of the compiler as the last part of the name. What C++ has
no letters for is escaped: `_$LT$kv..Store$u20$as$u20$core..fmt..Debug$GT$::fmt` is
`<kv::Store as core::fmt::Debug>::fmt`. The hash is left out, so functions of one generic function
have one name here, as all overloads of C++ have without their parameters.

What this does not do: read the newer mangling, `_R…` (rust_v0.py).

Authority: the crate rustc-demangle, legacy.rs.
"""

from __future__ import annotations

import re

_OF_LINKER = re.compile(r"\.llvm\.[0-9A-F]+(?:@+[0-9A-F]*)?(?![0-9A-Za-z])")
_HASH = re.compile(r"::h[0-9a-f]{16}$")
_ESCAPED = re.compile(r"\$(SP|BP|RF|LT|GT|LP|RP|C|u[0-9a-f]{1,6})\$")
_LETTERS = {
    "SP": "@", "BP": "*", "RF": "&", "LT": "<", "GT": ">", "LP": "(", "RP": ")", "C": ",",
}  # fmt: skip


def as_in_rust(name: str) -> str:
    """A name that was demangled as one of C++; the same where it is none of Rust."""
    hashed = _HASH.search(name)
    if not hashed:
        return name
    parts = name[: hashed.start()].split("::")
    return "::".join(map(_unescaped, parts))


def without_linker(suffix: str) -> str:
    """What follows a name in a symbol, without what only tells functions of one name apart, which
    the linker optimised together."""
    return _OF_LINKER.sub("", suffix)


def _unescaped(part: str) -> str:
    part = part.removeprefix("_") if part.startswith("_$") else part
    return _ESCAPED.sub(_letter, part.replace("..", "::"))


def _letter(escaped: re.Match[str]) -> str:
    word = escaped[1]
    if word in _LETTERS:
        return _LETTERS[word]
    number = int(word[1:], 16)
    letter = chr(number) if number <= 0x10FFFF else ""
    return letter if letter.isprintable() and letter else escaped[0]
