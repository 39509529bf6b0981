"""Whether an object imports functions of other objects, by their names.

The answer comes from the dynamic section, which is loaded with the object: the string table holds
the name, and a symbol of that name is undefined. A program may also look a name up while it runs
(dlsym); that is not seen here.

An object whose tables cannot be read counts as importing the function, because callers rely on the
answer no.

Authority: System V gABI, chapters 5 (dynamic section) and 4 (string and symbol table).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, takewhile
from operator import itemgetter
from typing import cast

from markerjit.elf.image import Image
from markerjit.errors import MemoryFault

PT_DYNAMIC = 2
MAX_TABLE_BYTES = 64 << 20
"""More than any real string or symbol table has."""

_TAG = itemgetter(0)  # 0 at the end: DT_NULL
DT_NEEDED, _DT_STRTAB, _DT_SYMTAB, _DT_STRSZ = 1, 5, 6, 10
_ENTRY = struct.Struct("<qQ")
_SYMBOL = struct.Struct("<IBBHQQ")  # Elf64_Sym
_SHN_UNDEF = 0
_TABLES = 32
"""The number of objects whose answers are kept: the processes of a fleet have the same
libraries."""


def needs_others(image: Image) -> bool:
    """Whether the object is linked with others. False for a static program or unreadable tables."""
    try:
        return any(tag == DT_NEEDED for tag, _ in dynamic_tags(image))
    except MemoryFault:
        return False


def imports_any(image: Image, names: tuple[bytes, ...]) -> bool:
    """Whether the object imports one of these functions, or its tables do not say."""
    try:
        tags = dict(dynamic_tags(image))
        if not {_DT_STRTAB, _DT_SYMTAB, _DT_STRSZ} <= tags.keys():
            return False
        strings_at = _address(image, tags[_DT_STRTAB])
        symbols_at = _address(image, tags[_DT_SYMTAB])
        if tags[_DT_STRSZ] > MAX_TABLE_BYTES:
            return True
        strings = image.read(strings_at, tags[_DT_STRSZ])
        places = _places(strings, names)
        if not places:
            return False
        # The number of symbols is not recorded. Linkers put the strings right behind them.
        size = strings_at - symbols_at
        if not 0 < size <= MAX_TABLE_BYTES:
            return True
        symbols = image.read(symbols_at, size - size % _SYMBOL.size)
    except MemoryFault:
        return True
    return _has_any_undefined(symbols, places)


@lru_cache(_TABLES)
def _has_any_undefined(symbols: bytes, places: frozenset[int]) -> bool:
    return any(_has_undefined(symbols, place) for place in places)


def _has_undefined(symbols: bytes, name: int) -> bool:
    """Whether one of the symbols has its name there and no section. A C library has thousands, and
    few of them have these bytes."""
    pattern = name.to_bytes(4, "little")
    at = symbols.find(pattern)
    while at >= 0:
        if not at % _SYMBOL.size and _SYMBOL.unpack_from(symbols, at)[3] == _SHN_UNDEF:
            return True
        at = symbols.find(pattern, at + 1)
    return False


def dynamic_tags(image: Image) -> Iterator[tuple[int, int]]:
    """The tags and values of the dynamic section, up to its end. Raises MemoryFault."""
    sections = (
        image.read(segment.address, segment.memory_size - segment.memory_size % _ENTRY.size)
        for segment in image.segments
        if segment.type == PT_DYNAMIC and segment.memory_size <= MAX_TABLE_BYTES
    )
    entries = chain.from_iterable(map(_ENTRY.iter_unpack, sections))
    return takewhile(_TAG, cast(Iterator[tuple[int, int]], entries))


def _address(image: Image, value: int) -> int:
    """The address in the object file. glibc adds the load bias in memory; musl does not."""
    return value if any(value in span for span in image.loaded()) else value - image.bias


@lru_cache(_TABLES)
def _places(strings: bytes, names: tuple[bytes, ...]) -> frozenset[int]:
    """The offsets of the names, each of which may also be the end of a longer one."""
    return frozenset(place for name in names for place in _places_of(strings, name))


def _places_of(strings: bytes, name: bytes) -> Iterator[int]:
    at = strings.find(name + b"\0")
    while at >= 0:
        yield at
        at = strings.find(name + b"\0", at + 1)
