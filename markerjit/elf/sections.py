"""The sections of an object's file, and the symbols of its data.

Only a file has them: section headers and the sections read here are not loaded with the program.
A file without section headers has no sections. One whose headers cannot be believed has none
either, and says why.

Authority: System V gABI, chapter 4 ("Sections", "String Table", "Symbol Table").
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from markerjit.elf.image import FileImage
from markerjit.errors import BadFile, MemoryFault
from markerjit.tuples import NamedTuple

MAX_SECTIONS = 65_535
MAX_SECTION_BYTES = 256 << 20
"""More than any section has that is read here; a browser's names take 100 MB."""

_TABLE_OF_GO = b".gopclntab"
_FEW_NAMES = 1 << 16
"""Bytes of the names of sections, of most files."""

SHT_SYMTAB = 2
SHT_NOTE = 7
SHT_NOBITS = 8
SHT_DYNSYM = 11

_HEADER = struct.Struct("<40xQ10xHHH")  # e_shoff, e_shentsize, e_shnum, e_shstrndx
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_SHN_UNDEF, _SHN_RESERVED, _SHN_XINDEX = 0, 0xFF00, 0xFFFF
_STT_NOTYPE, _STT_OBJECT, _STT_FUNC = 0, 1, 2
_KINDS = (_STT_NOTYPE, _STT_OBJECT, _STT_FUNC)


class Section(NamedTuple):
    """A section header: its name, and the fields of Elf64_Shdr that are used."""

    name: bytes
    type: int
    address: int
    offset: int
    size: int
    link: int
    align: int


def read_sections(image: FileImage) -> tuple[Section, ...]:
    """The sections, in their order. Raises BadFile."""
    try:
        return _sections(image)
    except MemoryFault:
        raise BadFile(f"{image.name}: its section headers are cut off") from None


def may_have_section(image: FileImage, name: bytes) -> bool:
    """Whether the file may have a section of this name: False where it certainly has none. Much
    quicker than `read_sections`, which says what is wrong with headers."""
    try:
        table, entry_size, count, names = _HEADER.unpack_from(image.head)
        if not table:
            return False
        if entry_size != _SECTION.size or not 0 <= names < count:
            return True
        header = _SECTION.unpack(image.read_file(table + names * entry_size, _SECTION.size))
        offset, size = header[4], header[5]
        return size > _FEW_NAMES or name + b"\0" in image.read_file(offset, size)
    except (MemoryFault, struct.error):
        return True


def is_go(image: FileImage) -> bool:
    """Whether functions of Go are in it: the table with which its runtime finds them stays where
    symbols are stripped."""
    return may_have_section(image, _TABLE_OF_GO)


def section_bytes(image: FileImage, section: Section) -> bytes:
    """The contents of a section. Raises BadFile."""
    if section.type == SHT_NOBITS:
        return b""
    if section.size > MAX_SECTION_BYTES:
        raise BadFile(f"{image.name}: it claims a section of {section.size} bytes")
    try:
        return image.read_file(section.offset, section.size)
    except MemoryFault:
        raise BadFile(f"{image.name}: one of its sections is cut off") from None


class Symbols:
    """The defined symbols of a file, by name. The tables are read when the first name is asked
    for."""

    def __init__(self, image: FileImage, sections: tuple[Section, ...]) -> None:
        self._image = image
        self._sections = sections
        self._tables: list[tuple[bytes, bytes]] | None = None

    def addresses(self, name: str) -> set[int]:
        """The addresses, in the object file, of all symbols of this name that are data or code.
        Local ones of several source files may share a name. Raises BadFile."""
        if self._tables is None:
            self._tables = list(self._read())
        pattern = b"\0%b\0" % name.encode()
        return {
            address
            for symbols, strings in self._tables
            for place in _places(strings, pattern)
            for address in _named(symbols, place + 1)
        }

    def _read(self) -> Iterator[tuple[bytes, bytes]]:
        tables = {section.type: section for section in reversed(self._sections)}  # one of each
        for kind in (SHT_SYMTAB, SHT_DYNSYM):
            section = tables.get(kind)
            if section and section.link < len(self._sections):
                symbols = section_bytes(self._image, section)
                strings = section_bytes(self._image, self._sections[section.link])
                yield symbols[: len(symbols) - len(symbols) % _SYMBOL.size], strings


def _sections(image: FileImage) -> tuple[Section, ...]:
    table, entry_size, count, names = _HEADER.unpack(image.read_file(0, _HEADER.size))
    if not table:
        return ()
    if entry_size != _SECTION.size:
        raise BadFile(f"{image.name}: its section headers are of {entry_size} bytes, not 64")
    first = _SECTION.unpack(image.read_file(table, _SECTION.size))
    count = count or first[5]  # more than fit into the header
    names = first[6] if names == _SHN_XINDEX else names
    if count > MAX_SECTIONS:
        raise BadFile(f"{image.name}: it claims {count} sections")
    headers = list(_SECTION.iter_unpack(image.read_file(table, count * _SECTION.size)))
    if names >= count:
        raise BadFile(f"{image.name}: its sections have no names")
    unnamed = [
        Section(b"", kind, address, offset, size, link, align)
        for _, kind, _, address, offset, size, link, _, align, _ in headers
    ]
    strings = section_bytes(image, unnamed[names])
    return tuple(
        section._replace(name=strings[header[0] : strings.find(b"\0", header[0])])
        for section, header in zip(unnamed, headers, strict=True)
    )


def _places(strings: bytes, pattern: bytes) -> Iterator[int]:
    """Where the whole name begins. A name that is the end of another one is not looked for: data
    has names of its own."""
    at = strings.find(pattern)
    while at >= 0:
        yield at
        at = strings.find(pattern, at + 1)


def _named(symbols: bytes, name: int) -> Iterator[int]:
    """The addresses of the defined symbols whose name is at this offset of the strings."""
    pattern = name.to_bytes(4, "little")
    at = symbols.find(pattern)
    while at >= 0:
        if at % _SYMBOL.size == 0:
            _, info, _, section, address, _ = _SYMBOL.unpack_from(symbols, at)
            if _SHN_UNDEF < section < _SHN_RESERVED and info & 15 in _KINDS:
                yield address
        at = symbols.find(pattern, at + 1)
