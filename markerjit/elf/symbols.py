"""The name of the function at an address, from an object's symbol table, for display.

pyelftools reads the table. It takes 30 ms to import, so callers import this module when they need
it. A stripped object has no symbol table, and so no names.
"""

from __future__ import annotations

from collections.abc import Iterable

from elftools.common.exceptions import ELFError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from markerjit.elf.image import FileImage
from markerjit.errors import MarkerError


def function_at(path: str, build_id: str | None, address: int) -> str | None:
    """`name+0x12`, or None where there are no symbols or the file is another build.

    `address` is an address of the object file; `build_id` must be that of the file.
    """
    try:
        with FileImage(path) as image:
            if image.build_id() != build_id:
                return None
        with open(path, "rb") as file:
            return _lookup(ELFFile(file), address)
    except (MarkerError, ELFError, OSError):
        return None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        return None  # pyelftools does not convert errors from damaged tables


def _lookup(elf: ELFFile, address: int) -> str | None:
    for section in _tables(elf):
        for symbol in section.iter_symbols():
            start, size = symbol["st_value"], symbol["st_size"]
            if symbol["st_info"]["type"] != "STT_FUNC" or not start <= address < start + size:
                continue
            if symbol.name.isprintable():  # it is printed to a terminal
                return f"{symbol.name}+{address - start:#x}"
    return None


def _tables(elf: ELFFile) -> Iterable[SymbolTableSection]:
    for name in (".symtab", ".dynsym"):
        section = elf.get_section_by_name(name)
        if isinstance(section, SymbolTableSection):
            yield section
