"""The symbols of an object's functions, and its linkage tables, from the sections of its file.

Read with numpy: pyelftools takes seconds for a large program. A stripped object has only the names
that other objects use.

Authority: System V gABI, chapter 4 (sections, string and symbol table).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from markerjit.elf.image import MAX_ADDRESS, FileImage
from markerjit.elf.sections import SHT_DYNSYM, SHT_SYMTAB, read_sections, section_bytes
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


class FunctionNames(NamedTuple):
    """The functions of an object by its sections; addresses of the object file.

    names      by address, all names of a function, in the order of the tables
    resolvers  the addresses of functions that choose the function of a name (IFUNC)
    labels     the addresses of symbols without a type, which may be code in assembly
    linkage    the bounds of procedure linkage tables, whose stubs are no functions
    local      the addresses of functions that no other object can name
    """

    names: dict[int, tuple[str, ...]]
    resolvers: frozenset[int]
    labels: frozenset[int]
    linkage: tuple[range, ...]
    local: frozenset[int] = frozenset()

    def is_linkage(self, address: int) -> bool:
        """Whether this is in a linkage table, whose stubs lead to it and to other objects."""
        return any(address in table for table in self.linkage)

    def outside_linkage(self, addresses: NDArray[np.int64]) -> NDArray[np.int64]:
        """Those that are not in a linkage table."""
        for table in self.linkage:
            addresses = addresses[(addresses < table.start) | (addresses >= table.stop)]
        return addresses


def function_names(image: FileImage) -> FunctionNames:
    """What can be read of an object without sections, or with damaged sections."""
    names: dict[int, tuple[str, ...]] = {}
    resolvers: set[int] = set()
    labels: set[int] = set()
    linkage: list[range] = []
    shared: set[int] = set()
    try:
        sections = read_sections(image)
    except BadFile:
        sections = ()
    for section in sections:
        if section.name.startswith(b".plt"):
            linkage.append(range(section.address, section.address + section.size))
        if section.type not in (SHT_SYMTAB, SHT_DYNSYM) or section.link >= len(sections):
            continue
        try:
            table = section_bytes(image, section)
            strings = section_bytes(image, sections[section.link])
        except BadFile:
            continue
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
    return FunctionNames(
        names,
        frozenset(resolvers),
        frozenset(labels),
        tuple(linkage),
        frozenset(names.keys() - shared),
    )
