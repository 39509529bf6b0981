"""The symbols of an object's functions, and its linkage tables, from the sections of its file.

Read with numpy: pyelftools takes seconds for a large program. A stripped object has only the names
that other objects use.

Authority: System V gABI, chapter 4 (sections, string and symbol table).
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np

from markerjit.elf.image import FileImage
from markerjit.errors import MemoryFault

MAX_TABLE_BYTES = 1 << 30

_TABLE, _TABLE_AT = struct.Struct("<Q"), 40  # e_shoff
_COUNTS, _COUNTS_AT = struct.Struct("<HHH"), 58  # e_shentsize, e_shnum, e_shstrndx
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SHT_SYMTAB, _SHT_DYNSYM = 2, 11
_SYMBOL = np.dtype(
    {
        "names": ["name", "info", "other", "section", "value", "size"],
        "formats": ["<u4", "u1", "u1", "<u2", "<u8", "<u8"],
    }
)
_NOTYPE, _FUNC, _IFUNC = 0, 2, 10


class FunctionNames(NamedTuple):
    """What an object's sections say of its functions; addresses of the object file.

    names      by address, all names of a function, in the order of the tables
    resolvers  the addresses of functions that choose the function of a name (IFUNC)
    labels     the addresses of symbols without a type, which may be code in assembly
    linkage    the bounds of procedure linkage tables, whose stubs are no functions
    """

    names: dict[int, tuple[str, ...]]
    resolvers: frozenset[int]
    labels: frozenset[int]
    linkage: tuple[range, ...]


def function_names(image: FileImage) -> FunctionNames:
    """Of an object without sections, or with damaged ones, what can be read."""
    names: dict[int, list[str]] = {}
    resolvers: set[int] = set()
    labels: set[int] = set()
    linkage: list[range] = []
    try:
        sections = _sections(image)
    except (MemoryFault, struct.error):
        sections = []
    for name, kind, address, offset, size, link in sections:
        if name.startswith(b".plt"):
            linkage.append(range(address, address + size))
        if kind not in (_SHT_SYMTAB, _SHT_DYNSYM) or link >= len(sections):
            continue
        try:
            table = _read(image, offset, size - size % _SYMBOL.itemsize)
            strings = _read(image, sections[link][3], sections[link][4])
        except MemoryFault:
            continue
        symbols = np.frombuffer(table, _SYMBOL)
        symbols = symbols[(symbols["section"] > 0) & (symbols["section"] < 0xFF00)]
        types = symbols["info"] & 15
        labels.update(symbols["value"][types == _NOTYPE].tolist())
        resolvers.update(symbols["value"][types == _IFUNC].tolist())
        functions = symbols[(types == _FUNC) | (types == _IFUNC)]
        for at, value in zip(functions["name"].tolist(), functions["value"].tolist(), strict=True):
            text = strings[at : strings.find(b"\0", at)].decode("utf-8", "replace")
            known = names.setdefault(value, [])
            if text and text not in known:
                known.append(text)
    return FunctionNames(
        {address: tuple(texts) for address, texts in names.items()},
        frozenset(resolvers),
        frozenset(labels),
        tuple(linkage),
    )


_Section = tuple[bytes, int, int, int, int, int]


def _sections(image: FileImage) -> list[_Section]:
    """Name, type, address, offset, size and link of each section."""
    (table,) = _TABLE.unpack(image.read_file(_TABLE_AT, _TABLE.size))
    entry_size, count, strings = _COUNTS.unpack(image.read_file(_COUNTS_AT, _COUNTS.size))
    if not table or entry_size != _SECTION.size or strings >= count:
        return []
    data = image.read_file(table, count * _SECTION.size)
    headers = list(_SECTION.iter_unpack(data))
    texts = _read(image, headers[strings][4], headers[strings][5])
    return [
        (texts[h[0] : max(texts.find(b"\0", h[0]), h[0])], h[1], h[3], h[4], h[5], h[6])
        for h in headers
    ]


def _read(image: FileImage, offset: int, size: int) -> bytes:
    if size > MAX_TABLE_BYTES:
        raise MemoryFault(offset, size, "read", f"{image.name} claims too much")
    return image.read_file(offset, size)
