"""Reading what the compiler and the linker have made of a probe: symbols, lines, types, variables.

It is read with pyelftools, which takes 30 ms to import, so this module is imported where a probe is
compiled. It is our own fresh build, which no other program could change, so it is not distrusted as
a target's objects are.

Authority: System V ABI for x86-64, chapter 4.4 (relocations); DWARF 4, chapters 3 to 6.
"""

from __future__ import annotations

import io
import struct
from bisect import bisect_right
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePath
from typing import Any

from elftools.dwarf.die import DIE
from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection
from elftools.elf.sections import SymbolTableSection

from markerjit.model import CType, Signature, TypeClass
from markerjit.probes.c.unit import Function, Parameter, ProbeEvent, Undefined, Variable
from markerjit.tuples import NamedTuple

SHF_WRITE, SHF_ALLOC, SHF_EXECINSTR = 1, 2, 4
_KIND_HISTOGRAM = 2  # MJ_VARIABLE_HISTOGRAM
VARIABLE = struct.Struct("<QQII8x")  # struct mj_variable
EVENT = struct.Struct("<QQQII12s12xQ")  # struct mj_event
EVENT_MARKER = 56  # in it
_R_X86_64_PLT32 = 4  # of a call or a jump, nothing else

# DW_ATE_*, DWARF 4, figure 20
_BOOLEAN, _FLOAT, _SIGNED, _SIGNED_CHAR, _UNSIGNED, _UNSIGNED_CHAR, _UTF = 2, 4, 5, 6, 7, 8, 16
_CHARS = (_SIGNED_CHAR, _UNSIGNED_CHAR)
_CLASS_OF_ENCODING = {
    _BOOLEAN: TypeClass.BOOL,
    _FLOAT: TypeClass.FLOAT,
    _SIGNED: TypeClass.SIGNED,
    _SIGNED_CHAR: TypeClass.SIGNED,
    _UNSIGNED: TypeClass.UNSIGNED,
    _UNSIGNED_CHAR: TypeClass.UNSIGNED,
    _UTF: TypeClass.UNSIGNED,
}
_SIZES = {TypeClass.FLOAT: (4, 8), TypeClass.BOOL: (1,)}
_QUALIFIERS = {
    "DW_TAG_const_type": "const",
    "DW_TAG_volatile_type": "volatile",
    "DW_TAG_restrict_type": "restrict",
    "DW_TAG_atomic_type": "_Atomic",
}
_TAGGED = {
    "DW_TAG_structure_type": "struct",
    "DW_TAG_union_type": "union",
    "DW_TAG_enumeration_type": "enum",
}


class Symbol(NamedTuple):
    """A symbol, as ELF's own words have it: FUNC, OBJECT, TLS …; GLOBAL, LOCAL, WEAK."""

    name: str
    value: int
    size: int
    type: str
    binding: str
    defined: bool


class Section(NamedTuple):
    """A section that is loaded, and its bytes: none where they are all zero."""

    name: str
    address: int
    size: int
    flags: int
    alignment: int
    data: bytes


class Line(NamedTuple):
    """A place in a source; "" and 0 where none is known."""

    file: str
    line: int


class ObjectFile:
    """An object, or a linked image."""

    def __init__(self, data: bytes) -> None:
        self._elf = ELFFile(io.BytesIO(data))

    def symbols(self) -> Iterator[Symbol]:
        """All that have a name."""
        table = self._elf.get_section_by_name(".symtab")
        assert isinstance(table, SymbolTableSection)
        for symbol in table.iter_symbols():
            type_, binding = (symbol["st_info"][key].split("_")[1] for key in ("type", "bind"))
            if symbol.name and type_ not in ("SECTION", "FILE"):
                defined = symbol["st_shndx"] != "SHN_UNDEF"
                yield Symbol(
                    symbol.name, symbol["st_value"], symbol["st_size"], type_, binding, defined
                )

    @cached_property
    def loaded(self) -> dict[str, Section]:
        """The sections that are loaded and not empty, by name."""
        return {section.name: section for section in self.sections() if section.flags & SHF_ALLOC}

    def section(self, name: str) -> Section | None:
        """Any section that is not empty."""
        return next((section for section in self.sections() if section.name == name), None)

    def sections(self) -> Iterator[Section]:
        """All that are not empty."""
        for section in self._elf.iter_sections():
            if section["sh_size"]:
                data = b"" if section["sh_type"] == "SHT_NOBITS" else section.data()
                yield Section(
                    section.name, section["sh_addr"], section["sh_size"], section["sh_flags"],
                    section["sh_addralign"], data,
                )  # fmt: skip

    def relocations(self) -> Iterator[tuple[int, int, str]]:
        """Where, of which type, against which symbol; of all sections that are loaded."""
        for section in self._elf.iter_sections():
            if not isinstance(section, RelocationSection):
                continue
            patched = self._elf.get_section(section["sh_info"])
            if not patched["sh_flags"] & SHF_ALLOC:
                continue
            symbols: Any = self._elf.get_section(section["sh_link"])
            for relocation in section.iter_relocations():
                name = symbols.get_symbol(relocation["r_info_sym"]).name
                yield relocation["r_offset"], relocation["r_info_type"], name

    # ---- DWARF -----------------------------------------------------------------------------------

    @cached_property
    def _dwarf(self) -> Any:
        return self._elf.get_dwarf_info(relocate_dwarf_sections=False)

    def line_at(self, address: int) -> Line:
        """The line of an instruction."""
        at = bisect_right(self._lines, address, key=lambda row: row[0]) - 1
        return self._lines[at][1] if at >= 0 else Line("", 0)

    @cached_property
    def _lines(self) -> list[tuple[int, Line]]:
        rows = []
        for unit in self._dwarf.iter_CUs():
            program = self._dwarf.line_program_for_CU(unit)
            files = program["file_entry"] if program else []
            for entry in program.get_entries() if program else ():
                state = entry.state
                if state is None:
                    continue
                if state.end_sequence:
                    rows.append((state.address, Line("", 0)))
                elif 0 < state.file <= len(files):
                    file = PurePath(files[state.file - 1].name.decode(errors="replace")).name
                    rows.append((state.address, Line(file, state.line)))
        return sorted(rows, key=lambda row: row[0])

    def functions(self) -> Iterator[tuple[DIE, bool]]:
        """The functions that are written here, and whether they can be called from outside."""
        for unit in self._dwarf.iter_CUs():
            for die in unit.get_top_DIE().iter_children():
                is_function = die.tag == "DW_TAG_subprogram" and "DW_AT_name" in die.attributes
                if is_function and "DW_AT_declaration" not in die.attributes:
                    yield die, "DW_AT_external" in die.attributes


# ---- functions and their types -------------------------------------------------------------------


def name_of(die: DIE) -> str:
    """A DIE's name."""
    name = die.attributes.get("DW_AT_name")
    return name.value.decode() if name else ""


def describe_function(die: DIE, entry: int) -> Function:
    """A function as its marker has to see it."""
    children = list(die.iter_children())
    written = [child for child in children if child.tag == "DW_TAG_formal_parameter"]
    takes_more = any(child.tag == "DW_TAG_unspecified_parameters" for child in children)
    types = [_type_of(child) for child in written]
    unfit = ""
    if "DW_AT_type" in die.attributes:
        unfit = f"returns {_spell(_type_of(die))}; a probe returns nothing"
    elif not types or not _is_slot(types[0]):
        unfit = "has no `struct mj_slot *` as its first parameter, so it is not a probe"
    line = die.attributes["DW_AT_decl_line"].value
    parameters = tuple(
        Parameter(name_of(child), ctype(type_), _spell(type_))
        for child, type_ in zip(written[1:], types[1:], strict=True)
    )
    return Function(name_of(die), line, parameters, takes_more, unfit, entry)


def ctype(die: DIE | None) -> CType | None:
    """The type that a marker has for an argument of this type; None for one that it never has."""
    die = _unqualified(die)
    if die is None:
        return None
    if die.tag == "DW_TAG_pointer_type":
        return CType(TypeClass.CHARS if _points_to_chars(die) else TypeClass.POINTER, 8)
    size = die.attributes["DW_AT_byte_size"].value if "DW_AT_byte_size" in die.attributes else 0
    if die.tag == "DW_TAG_enumeration_type":
        type_class = TypeClass.SIGNED if _has_negative(die) else TypeClass.UNSIGNED
    elif die.tag == "DW_TAG_base_type" and _encoding(die) in _CLASS_OF_ENCODING:
        type_class = _CLASS_OF_ENCODING[_encoding(die)]
    else:
        return None
    return CType(type_class, size) if size in _SIZES.get(type_class, (1, 2, 4, 8)) else None


def _type_of(die: DIE) -> DIE | None:
    return die.get_DIE_from_attribute("DW_AT_type") if "DW_AT_type" in die.attributes else None


def _unqualified(die: DIE | None, *, but: tuple[str, ...] = ()) -> DIE | None:
    """Without typedefs and qualifiers, up to one of `but`."""
    while die is not None and (die.tag in _QUALIFIERS or die.tag == "DW_TAG_typedef"):
        if die.tag in but:
            break
        die = _type_of(die)
    return die


def _is_slot(type_: DIE | None) -> bool:
    pointer = _unqualified(type_)
    if pointer is None or pointer.tag != "DW_TAG_pointer_type":
        return False
    target = _unqualified(_type_of(pointer))
    return target is not None and name_of(target) == "mj_slot"


def _points_to_chars(pointer: DIE) -> bool:
    """As marker.h has it: of what is volatile, it only says that it is a pointer."""
    target = _unqualified(_type_of(pointer), but=("DW_TAG_volatile_type", "DW_TAG_atomic_type"))
    return target is not None and target.tag == "DW_TAG_base_type" and _encoding(target) in _CHARS


def _encoding(die: DIE) -> int:
    return int(die.attributes["DW_AT_encoding"].value)


def _has_negative(enumeration: DIE) -> bool:
    """C gives an enumeration the type unsigned int where it can."""
    underlying = _unqualified(_type_of(enumeration))
    if underlying is not None:
        return _encoding(underlying) in (_SIGNED, _SIGNED_CHAR)
    values = [
        child.attributes["DW_AT_const_value"].value
        for child in enumeration.iter_children()
        if child.tag == "DW_TAG_enumerator"
    ]
    return any(value < 0 for value in values)


def _spell(die: DIE | None) -> str:
    """As one writes it in C, nearly."""
    if die is None:
        return "void"
    if die.tag == "DW_TAG_pointer_type":
        target = _spell(_type_of(die))
        return f"{target}{'' if target.endswith('*') else ' '}*"
    if die.tag in _QUALIFIERS:
        word, inner = _QUALIFIERS[die.tag], _spell(_type_of(die))
        return f"{inner} {word}" if inner.endswith("*") else f"{word} {inner}"
    if die.tag in _TAGGED:
        return f"{_TAGGED[die.tag]} {name_of(die) or '{…}'}"
    return name_of(die) or "a function"


# ---- what is undefined, what is counted and emitted ----------------------------------------------


def first_uses(image: ObjectFile, names: frozenset[str]) -> tuple[Undefined, ...]:
    """Where each of these symbols is used first."""
    uses: dict[str, Undefined] = {}
    for offset, type_, name in sorted(image.relocations()):
        if name in names and name not in uses:
            line = image.line_at(offset)
            uses[name] = Undefined(name, *line, called=type_ == _R_X86_64_PLT32)
    for name in names - uses.keys():
        uses[name] = Undefined(name, "", 0, called=False)
    return tuple(sorted(uses.values(), key=lambda symbol: (symbol.file, symbol.line, symbol.name)))


def variables(image: ObjectFile, data: int) -> tuple[Variable, ...]:
    """The counters and histograms, their places from the start of the data."""
    section = image.section(".mj_variables")
    variables = []
    for name, place, kind, words in VARIABLE.iter_unpack(section.data if section else b""):
        variables.append(Variable(_text(image, name), kind == _KIND_HISTOGRAM, place - data, words))
    return tuple(variables)


def events(image: ObjectFile, data: int) -> Iterator[ProbeEvent]:
    """The events, one for each mj_emit, the word of each from the start of the data."""
    section = image.loaded.get(".mj_events")
    for at in range(0, section.size if section else 0, EVENT.size):
        assert section is not None
        name, format_, file, line, argc, types, _ = EVENT.unpack_from(section.data, at)
        args = tuple(CType(TypeClass(code >> 4), 1 << (code & 15)) for code in types[:argc])
        word = section.address + at + EVENT_MARKER - data
        where = PurePath(_text(image, file)).name
        signature = Signature(_text(image, name), _text(image, format_), args)
        yield ProbeEvent(signature, where, line, (word,))


def _text(image: ObjectFile, address: int) -> str:
    for section in image.loaded.values():
        at = address - section.address
        if 0 <= at < len(section.data):
            return section.data[at : section.data.index(0, at)].decode(errors="backslashreplace")
    raise AssertionError(f"no string at {address:#x}")
