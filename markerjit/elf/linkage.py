"""The words of an object through which it calls other functions, and what each leads to.

The dynamic linker fills such a word (an entry of the global offset table) by a relocation, which
has the name of a symbol, or the address of a function of the object itself.

An object whose tables make no sense has no such words here. Nothing is read from a process, so the
present value of a word is not known.

Authority: System V gABI, chapter 5 (dynamic section, relocation); the psABI for x86-64, 4.4.1.
"""

from __future__ import annotations

import numpy as np

from markerjit.elf.code_pointers import relocations
from markerjit.elf.image import FileImage
from markerjit.elf.imports import MAX_TABLE_BYTES, dynamic_tags
from markerjit.errors import MemoryFault
from markerjit.tuples import NamedTuple

_DT_STRTAB, _DT_SYMTAB = 5, 6
_DT_STRSZ, _DT_PLTRELSZ, _DT_JMPREL = 10, 2, 23
_64, _GLOB_DAT, _JUMP_SLOT, _RELATIVE, _IRELATIVE = 1, 6, 7, 8, 37
_BY_NAME, _BY_ADDRESS = (_64, _GLOB_DAT, _JUMP_SLOT), (_RELATIVE, _IRELATIVE)
_SYMBOL_SIZE = 24


class Linkage(NamedTuple):
    """The words, by their addresses in the object file.

    names      the symbol that each is filled with
    addresses  the function of the object itself, or the one that chooses it (IFUNC)
    """

    names: dict[int, str]
    addresses: dict[int, int]


def linkage_of(image: FileImage) -> Linkage:
    """What an object's relocations say; nothing where they cannot be read."""
    try:
        tags = dict(dynamic_tags(image))
        linked = relocations(image, tags, _DT_JMPREL, _DT_PLTRELSZ)
        table = np.concatenate([relocations(image, tags), linked])
        by_address = table[np.isin(table["kind"], _BY_ADDRESS)]
        by_name = table[np.isin(table["kind"], _BY_NAME)]
        names = _names(image, tags, set(by_name["symbol"].tolist()))
    except (MemoryFault, ValueError):
        return Linkage({}, {})
    pairs = zip(by_name["offset"].tolist(), by_name["symbol"].tolist(), strict=True)
    return Linkage(
        {offset: names[symbol] for offset, symbol in pairs if symbol in names},
        dict(zip(by_address["offset"].tolist(), by_address["addend"].tolist(), strict=True)),
    )


def _names(image: FileImage, tags: dict[int, int], symbols: set[int]) -> dict[int, str]:
    """The names of these symbols, by their numbers. Symbols without a name are left out."""
    if not symbols or not {_DT_SYMTAB, _DT_STRTAB, _DT_STRSZ} <= tags.keys():
        return {}
    count = max(symbols) + 1
    if max(count * _SYMBOL_SIZE, tags[_DT_STRSZ]) > MAX_TABLE_BYTES:
        raise ValueError(count)
    table = image.read(tags[_DT_SYMTAB], count * _SYMBOL_SIZE)
    strings = image.read(tags[_DT_STRTAB], tags[_DT_STRSZ])
    names: dict[int, str] = {}
    for symbol in symbols:
        at = int.from_bytes(table[symbol * _SYMBOL_SIZE : symbol * _SYMBOL_SIZE + 4], "little")
        text = strings[at : strings.find(b"\0", at)].decode("utf-8", "replace")
        if at and text:
            names[symbol] = text
    return names
