"""Check of function names out of symbol tables, which pyelftools reads from a file.

An input is the bytes of a shared object's headers, section headers, symbol tables and their
strings, one after another; the rest of the file is zeros.
"""

from __future__ import annotations

import os
import struct
from functools import cache
from typing import NamedTuple

from markerjit.elf import FileImage
from markerjit.elf.symbols import function_at
from markerjit.errors import BadFile, Unsupported
from tests.fuzz.edits import Place
from tests.fuzz.harness import ACCEPTED, LINE, Harness, Seed
from tests.support.programs import ROOT, make

_PROGRAM = "truth_plugin.so"
_ENTRY = 64
_SYMTAB, _STRTAB, _DYNSYM = 2, 3, 11


class _Table(NamedTuple):
    """A span of the file: where it is, how large, and where numbers stand in each entry."""

    offset: int
    size: int
    entry: int
    fields: tuple[tuple[int, int], ...]


_SECTION_FIELDS = (
    *((0, 4), (4, 4), (8, 8), (16, 8), (24, 8), (32, 8), (40, 4), (44, 4), (48, 8), (56, 8)),
)
_SYMBOL_FIELDS = ((0, 4), (4, 1), (5, 1), (6, 2), (8, 8), (16, 8))


@cache
def _file() -> bytes:
    make(f"build/targets/{_PROGRAM}")
    return (ROOT / "build" / "targets" / _PROGRAM).read_bytes()


@cache
def _tables() -> tuple[_Table, ...]:
    data = _file()
    sections = struct.unpack_from("<Q", data, 40)[0]
    count = struct.unpack_from("<H", data, 60)[0]
    tables = [
        _Table(0, 0x40, 0x40, ((40, 8), (52, 2), (58, 2), (60, 2), (62, 2))),
        _Table(sections, count * _ENTRY, _ENTRY, _SECTION_FIELDS),
    ]
    for index in range(count):
        _, type_, _, _, offset, size = struct.unpack_from(
            "<IIQQQQ", data, sections + index * _ENTRY
        )
        if type_ in (_SYMTAB, _DYNSYM):
            tables.append(_Table(offset, size, 24, _SYMBOL_FIELDS))
        elif type_ == _STRTAB:
            tables.append(_Table(offset, size, max(size, 1), ()))
    return tuple(tables)


def check_symbols(data: bytes) -> str:
    """function_at raises nothing: a table that makes no sense has no name."""
    file, content, at = _scratch(), bytearray(_file()), 0
    for table in _tables():
        part = data[at : at + table.size]
        content[table.offset : table.offset + len(part)] = part
        at += table.size
    os.pwrite(file, content, 0)
    path = f"/proc/self/fd/{file}"
    try:
        with FileImage(path) as image:
            build_id = image.build_id()
    except (BadFile, Unsupported) as error:
        return type(error).__name__
    name = function_at(path, build_id, _function())
    if name is None:
        return "no name"
    assert len(name) < LINE
    assert name.isprintable()
    return ACCEPTED


@cache
def _scratch() -> int:
    return os.memfd_create("fuzz-symbols")


@cache
def _function() -> int:
    """An address in a function of the program."""
    from elftools.elf.elffile import ELFFile

    with (ROOT / "build" / "targets" / _PROGRAM).open("rb") as file:
        table = ELFFile(file).get_section_by_name(".dynsym")
        addresses = [symbol["st_value"] for symbol in table.iter_symbols() if symbol["st_size"]]
    return addresses[0] + 1


def _seeds() -> list[Seed]:
    body, places = b"", []
    for table in _tables():
        for entry in range(0, table.size, table.entry):
            at = len(body) + entry
            places += [Place(at + field, width) for field, width in table.fields]
        body += _file()[table.offset : table.offset + table.size]
    return [Seed(body, places)]


HARNESSES = (Harness("symbols", _seeds, check_symbols, weight=6),)
