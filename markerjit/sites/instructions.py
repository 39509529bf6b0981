"""Find an instruction of a process, or of a file, by where it is.

    insn:NAME+0xOFF        so many bytes behind the entry of a function
    insn:OBJECT+0xOFFSET   at an address of an object's file, as objdump shows it

Both are names of one site, which is known by the first one where a symbol says it. Its arguments
are the general registers as they are before the instruction, by their names, and `rip`.

A function is decoded from its start. So an address in the middle of an instruction is recognised,
and refused with a message that names the instruction.

What this does not do: decide how an instruction can be opened (spans/).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from markerjit.elf import FileImage, Read
from markerjit.elf.function_names import FunctionNames, function_names
from markerjit.elf.functions import Functions, NoFunctions
from markerjit.errors import BadFile, MemoryFault, UnknownMarker, Unsupported
from markerjit.memory import Mapping
from markerjit.model import (
    Constant,
    CType,
    General,
    MappedObject,
    Place,
    Recipe,
    RemoteAddress,
    Signature,
    TypeClass,
    UsdtSite,
)
from markerjit.sites.functions import FunctionSites, canonical, files_of_process
from markerjit.sites.names import PREFIX_OF_INSTRUCTIONS, ProbeName, nearest
from markerjit.sites.selection import is_named, is_of_object
from markerjit.x86.forms import INSTRUCTION, NEAR_LENGTH, code_form

_LEGACY = ("ax", "bx", "cx", "dx", "si", "di", "bp", "sp")
_REGISTERS = (
    *(General((f"{name[0]}l", name, f"e{name}", f"r{name}")) for name in _LEGACY[:4]),
    *(General((f"{name}l", name, f"e{name}", f"r{name}")) for name in _LEGACY[4:]),
    *(General((f"r{n}b", f"r{n}w", f"r{n}d", f"r{n}")) for n in range(8, 16)),
)
_NAMES = (*(register.names[-1] for register in _REGISTERS), "rip")
_FORMAT = " ".join(f"{name} %#x" for name in _NAMES)
_TYPES = (CType(TypeClass.UNSIGNED, 8),) * len(_NAMES)
MAX_FUNCTION = 1 << 20
"""Bytes of a function that is decoded."""


def instructions_of_process(
    pid: int, read: Read, maps: Sequence[Mapping], name: ProbeName
) -> FunctionSites:
    """The instructions of a name, in every object mapped into a process.

    Raises UnknownMarker, with the nearest names, where no function or object is called so;
    Unsupported where there is no such instruction; and what `read` raises when the process ends.
    """
    check_is_one(name)
    finder = _Finder(name)
    in_object = partial(is_of_object, name.object)
    for image, mapped in files_of_process(pid, read, maps, finder.problems, in_object):
        finder.add(image, mapped)
    return finder.result()


def instructions_of_file(path: str, name: ProbeName) -> FunctionSites:
    """The instructions of a name in an executable or shared object. Raises BadFile, too."""
    check_is_one(name)
    finder = _Finder(name)
    with FileImage(path) as image:
        if is_of_object(name.object, path):
            finder.add(image, MappedObject(path, 0, image.build_id(), False))
    return finder.result()


def instructions_at(
    pid: int, read: Read, maps: Sequence[Mapping], addresses: Iterable[RemoteAddress]
) -> Iterator[UsdtSite]:
    """The sites of instructions that would be at these addresses of a process; none where an
    address is that of no object. Whether an instruction begins there is not asked."""
    places = set(addresses)
    paths = {
        mapping.path
        for mapping in maps
        if any(mapping.start <= address < mapping.end for address in places)
    }
    for image, mapped in files_of_process(pid, read, maps, [], lambda path: path in paths):
        object_ = _Object(image, mapped)
        for address in sorted(places):
            site = object_.site(address - mapped.bias)
            if site:
                yield site


def check_is_one(name: ProbeName) -> None:
    """Raises Unsupported for a name that does not say which instruction is meant."""
    if name.offset < 0:
        raise Unsupported(
            f"'{name}' names every instruction; name one by its function, as insn:main+0x12, or by "
            "its file, as insn:libc.so.6+0x9ac40"
        )


class _Object:
    """The code of an object, as far as it is needed to name and decode an instruction."""

    def __init__(self, image: FileImage, mapped: MappedObject) -> None:
        self.names: FunctionNames = function_names(image)
        self._image = image
        self._mapped = mapped
        self._file = os.path.basename(mapped.path)
        try:
            self._functions: Functions | None = Functions(image)
        except NoFunctions:
            self._functions = None

    def around(self, place: int) -> range | None:
        """The bounds of the function that has an address."""
        return self._functions.at(place) if self._functions else None

    def name_of(self, place: int) -> str:
        """The name of an address: by its function, or else by the file."""
        function = self.around(place)
        names = self.names.names.get(function.start) if function else None
        if function and names:
            return f"{canonical(names)}+{place - function.start:#x}"
        return f"{self._file}+{place:#x}"

    def site(self, place: int) -> UsdtSite | None:
        """The site of an instruction that begins at an address; None where no code is."""
        code = b""
        for size in (NEAR_LENGTH, 1):  # the last one of a segment may be short
            try:
                code = self._image.read(place, size)
            except MemoryFault:
                continue
            break
        form = code_form(INSTRUCTION, code)
        if form is None:
            return None
        address = RemoteAddress(place + self._mapped.bias)
        return UsdtSite(
            Signature(PREFIX_OF_INSTRUCTIONS + self.name_of(place), _FORMAT, _TYPES),
            Place(self._mapped, place, f"{self._file}+{place:#x}"),
            address,
            form,
            Recipe((*_REGISTERS, Constant(address)), " ".join(_NAMES)),
        )

    def against(self, place: int) -> str | None:
        """Why no instruction begins at an address, in words; None where one does."""
        function = self.around(place)
        if function is None:
            return "is in no function that its object knows of"
        if len(function) > MAX_FUNCTION:
            return f"is in a function of {len(function)} bytes, which is not decoded"
        from markerjit.x86.decode import disassemble  # 40 ms

        for insn in disassemble(self._image.read(function.start, len(function)), function.start):
            if insn.address == place:
                return None
            if insn.address < place < insn.address + len(insn.code):
                begin = PREFIX_OF_INSTRUCTIONS + self.name_of(insn.address)
                return f"is in the middle of '{insn.text}', which is {begin}"
        return "is behind bytes that cannot be decoded"


class _Finder:
    """The instructions of a name, of one object after the other."""

    def __init__(self, name: ProbeName) -> None:
        self.problems: list[BadFile] = []
        self._name = name
        self._sites: list[UsdtSite] = []
        self._refused: list[str] = []
        self._others: list[set[str]] = []

    def add(self, image: FileImage, mapped: MappedObject) -> None:
        glob, offset = self._name.name, self._name.offset
        names = function_names(image)
        entries = [
            address
            for address, texts in names.names.items()
            if any(is_named(glob, text) for text in texts)
        ]
        is_object = not self._name.object and is_of_object(glob, mapped.path)
        if not entries and not is_object:
            self._others.append({text for texts in names.names.values() for text in texts})
            return
        object_ = _Object(image, mapped)
        places = [offset] if is_object else []
        for entry in sorted(entries):
            function = object_.around(entry)
            if function and offset >= len(function):
                size = len(function)
                self._refused.append(f"is behind the end of its function, which has {size} bytes")
            else:
                places.append(entry + offset)
        for place in places:
            against, site = object_.against(place), object_.site(place)
            if against or site is None:
                self._refused.append(against or "is where no code is")
            else:
                self._sites.append(site)

    def result(self) -> FunctionSites:
        """Raises what `instructions_of_process` raises where there is none."""
        if self._sites:
            return FunctionSites(tuple(self._sites), (), tuple(self.problems), {})
        if self._refused:
            raise Unsupported(f"'{self._name}' {self._refused[0]}")
        if self.problems:
            raise self.problems[0]
        texts = nearest(self._name.name, *self._others)
        names = tuple(f"{PREFIX_OF_INSTRUCTIONS}{text}+{self._name.offset:#x}" for text in texts)
        raise UnknownMarker(self._name.text, names, what="function or object")
