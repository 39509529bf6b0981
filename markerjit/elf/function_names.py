"""The symbols of an object's functions, and its linkage tables, from the sections of its file.

Read with numpy: pyelftools takes seconds for a large program. A stripped object has only the names
that other objects use.

Authority: System V gABI, chapter 4 (sections, string and symbol table).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from markerjit.elf.demangle import MANGLED
from markerjit.elf.image import MAX_ADDRESS, FileImage
from markerjit.elf.sections import (
    SHT_DYNSYM,
    SHT_SYMTAB,
    Section,
    read_sections,
    section_bytes,
)
from markerjit.errors import BadFile
from markerjit.tuples import NamedTuple

_SYMBOL = np.dtype(
    {
        "names": ["name", "info", "other", "section", "value", "size"],
        "formats": ["<u4", "u1", "u1", "<u2", "<u8", "<u8"],
    }
)
_NOTYPE, _FUNC, _IFUNC = 0, 2, 10
_LOCAL = 0
_KEPT, _MOST_KEPT = 8, 4 << 20
"""Of so many objects names are kept, where their tables are no larger: a command asks for the same
C library once for each name of a list."""


class FunctionNames(NamedTuple):
    """The functions of an object by its sections; addresses of the object file.

    names      by address, all names of a function, in the order of the tables
    resolvers  the addresses of functions that choose the function of a name (IFUNC)
    labels     the addresses of symbols without a type, which may be code in assembly
    linkage    the bounds of procedure linkage tables, whose stubs are no functions
    local      the addresses of functions that no other object can name
    addresses  by name, the addresses of functions that have it
    mangled    the addresses of functions that have a name which may be spelled in other ways
    """

    names: dict[int, tuple[str, ...]]
    resolvers: frozenset[int]
    labels: frozenset[int]
    linkage: tuple[range, ...]
    local: frozenset[int] = frozenset()
    addresses: Mapping[str, Sequence[int]] = MappingProxyType({})
    mangled: frozenset[int] = frozenset()

    def is_linkage(self, address: int) -> bool:
        """Whether this is in a linkage table, whose stubs lead to it and to other objects."""
        return any(address in table for table in self.linkage)

    def outside_linkage(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those that are not in a linkage table."""
        for table in self.linkage:
            addresses = addresses[(addresses < table.start) | (addresses >= table.stop)]
        return addresses


def function_names(image: FileImage) -> FunctionNames:
    """What can be read of an object without sections, or with damaged sections. It is shared by
    those that ask: nobody changes it."""
    try:
        sections = read_sections(image)
    except BadFile:
        sections = ()
    linkage = tuple(
        range(section.address, section.address + section.size)
        for section in sections
        if section.name.startswith(b".plt")
    )
    tables = tuple(_tables(image, sections))
    is_small = sum(len(table) + len(strings) for table, strings in tables) <= _MOST_KEPT
    return (_kept_names if is_small else _names)(tables, linkage)


def _tables(image: FileImage, sections: Sequence[Section]) -> Iterator[tuple[bytes, bytes]]:
    """The tables of symbols, each with its strings."""
    for section in sections:
        if section.type in (SHT_SYMTAB, SHT_DYNSYM) and section.link < len(sections):
            try:
                yield section_bytes(image, section), section_bytes(image, sections[section.link])
            except BadFile:
                continue


def _names(tables: Sequence[tuple[bytes, bytes]], linkage: tuple[range, ...]) -> FunctionNames:
    names: dict[int, tuple[str, ...]] = {}
    resolvers: set[int] = set()
    labels: set[int] = set()
    shared: set[int] = set()
    for table, strings in tables:
        symbols = np.frombuffer(table, _SYMBOL, len(table) // _SYMBOL.itemsize)
        symbols = symbols[(symbols["section"] > 0) & (symbols["section"] < 0xFF00)]
        symbols = symbols[symbols["value"] < MAX_ADDRESS]
        types = symbols["info"] & 15
        labels.update(symbols["value"][types == _NOTYPE].tolist())
        resolvers.update(symbols["value"][types == _IFUNC].tolist())
        functions = symbols[(types == _FUNC) | (types == _IFUNC)]
        shared.update(functions["value"][functions["info"] >> 4 != _LOCAL].tolist())
        for at, value in zip(functions["name"].tolist(), functions["value"].tolist(), strict=True):
            text = strings[at : strings.find(b"\0", at)].decode("utf-8", "replace")
            if not (known := names.get(value)):
                names[value] = (text,) if text else ()
            elif text and text not in known:
                names[value] = (*known, text)
    addresses: dict[str, list[int]] = {}
    for address, texts in names.items():
        for text in texts:
            addresses.setdefault(text, []).append(address)
    return FunctionNames(
        names,
        frozenset(resolvers),
        frozenset(labels),
        linkage,
        frozenset(names.keys() - shared),
        addresses,
        frozenset(
            address for text, each in addresses.items() if text.startswith(MANGLED)
            for address in each
        ),
    )  # fmt: skip


_kept_names = lru_cache(_KEPT)(_names)
