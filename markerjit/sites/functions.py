"""Find functions of a process by the names of their symbols, where they are entered.

The names are in the files of what is mapped (mapped_files.py); the debuggers' table of a file that
was not stripped, and what it exports of any. A function has one name here, the shortest of its
symbols with the fewest underscores before it, whichever of them it is asked for: the sites of one
address have to be one.

Arguments are the six registers in which the System V psABI passes integers and pointers (3.2.3), as
`arg0` to `arg5`: what a function does not take is what the register happened to hold.

What this does not do: decide how a function can be opened, or whether a symbol's address is one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

from markerjit.elf import FileImage, Read
from markerjit.elf.function_names import function_names
from markerjit.errors import BadFile, MemoryFault, UnknownMarker, Unsupported
from markerjit.memory import Mapping
from markerjit.model import (
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
from markerjit.sites.discover import mapped_images
from markerjit.sites.mapped_files import file_of
from markerjit.sites.names import PREFIX, NameKind, ProbeName, nearest
from markerjit.sites.selection import is_named, is_of_object
from markerjit.x86.forms import ENDBR64, NEAR_LENGTH, function_form

_ARGUMENTS = (
    General(("dil", "di", "edi", "rdi")),
    General(("sil", "si", "esi", "rsi")),
    General(("dl", "dx", "edx", "rdx")),
    General(("cl", "cx", "ecx", "rcx")),
    General(("r8b", "r8w", "r8d", "r8")),
    General(("r9b", "r9w", "r9d", "r9")),
)
_FORMAT = " ".join(f"arg{number} %#x" for number in range(len(_ARGUMENTS)))
_TYPES = (CType(TypeClass.UNSIGNED, 8),) * len(_ARGUMENTS)
_RECIPE = Recipe(_ARGUMENTS, "rdi rsi rdx rcx r8 r9")
_COLD = ".cold"
"""Behind the name of a part that a compiler has split off: nobody calls it."""
_LONGEST = len(ENDBR64) + NEAR_LENGTH


class FunctionSites(NamedTuple):
    """The entries of functions, by object and address.

    sites      those of a name that can be looked at further
    resolvers  names of functions that only choose another one when a program is loaded
    problems   files that could not be read
    """

    sites: tuple[UsdtSite, ...]
    resolvers: tuple[str, ...]
    problems: tuple[BadFile, ...]


def functions_of_process(
    pid: int, read: Read, maps: Sequence[Mapping], name: ProbeName
) -> FunctionSites:
    """The functions of a name in every object mapped into a process.

    Raises UnknownMarker, with the nearest names, where there is none; Unsupported for a name of
    anything else than the entry of functions, and for one of resolvers only; and what `read` raises
    when the process ends.
    """
    check_is_entry(name)
    finder = _Finder(name)
    in_object = partial(is_of_object, name.object)
    for image, mapped in _files(pid, read, maps, finder.problems, in_object):
        finder.add(image, mapped)
    return finder.result()


def functions_of_file(path: str, name: ProbeName) -> FunctionSites:
    """The functions of a name in an executable or shared object. Raises BadFile, and what
    `functions_of_process` raises."""
    check_is_entry(name)
    finder = _Finder(name)
    with FileImage(path) as image:
        if is_of_object(name.object, path):
            finder.add(image, MappedObject(path, 0, image.build_id(), False))
    return finder.result()


def functions_at(
    pid: int, read: Read, maps: Sequence[Mapping], addresses: Iterable[RemoteAddress]
) -> tuple[UsdtSite, ...]:
    """The functions whose sites are at these addresses of a process; fewer where an address is that
    of none. Raises what `read` raises when the process ends."""
    places = set(addresses)
    paths = {
        mapping.path
        for mapping in maps
        if any(mapping.start <= address < mapping.end for address in places)
    }
    sites: list[UsdtSite] = []
    for image, mapped in _files(pid, read, maps, [], lambda path: path in paths):
        names = function_names(image).names
        for address in sorted(places):
            offset = address - mapped.bias
            for entry in (offset, offset - len(ENDBR64)):
                site = entry in names and _site(image, mapped, entry, canonical(names[entry]))
                if site and site.address == address:
                    sites.append(site)
    return tuple(sites)


def check_is_entry(name: ProbeName) -> None:
    """Raises Unsupported for a name of anything but the entry of functions."""
    if name.kind is not NameKind.FUNCTION or name.at_return:
        what = "where functions return" if name.at_return else name.kind.value
        raise Unsupported(
            f"'{name}' names {what}, which is not supported yet: markers such as 'kv_*' are, USDT "
            "probes such as 'provider:name', and entries of functions such as 'func:main'"
        )


def canonical(names: Sequence[str]) -> str:
    """The one of a function's names by which it is known here."""
    return min(names, key=lambda text: (len(text) - len(text.lstrip("_")), len(text), text))


def _files(
    pid: int,
    read: Read,
    maps: Sequence[Mapping],
    problems: list[BadFile],
    is_meant: Callable[[str], bool],
) -> Iterator[tuple[FileImage, MappedObject]]:
    """The files of the objects whose paths are meant, each open until the next one is asked for.
    One that cannot be read is a problem more."""
    for mapping, loaded in mapped_images(read, maps, []):
        if not is_meant(mapping.path):
            continue
        try:
            image = file_of(pid, mapping, loaded)
        except BadFile as problem:
            problems.append(problem)
            continue
        with image:
            yield (
                image,
                MappedObject(mapping.path, loaded.bias, loaded.build_id(), mapping.deleted),
            )


def _site(image: FileImage, mapped: MappedObject, entry: int, symbol: str) -> UsdtSite | None:
    """The site of a function that is entered here: behind an endbr64, which indirect calls have to
    find. None where no code is."""
    if symbol.endswith(_COLD):
        return None
    code = b""
    for size in (_LONGEST, 1):  # the last function of a segment may be short
        try:
            code = image.read(entry, size)
        except MemoryFault:
            continue
        break
    offset = entry + len(ENDBR64) if code.startswith(ENDBR64) else entry
    form = function_form(code[offset - entry :])
    if form is None:
        return None
    source = f"{os.path.basename(mapped.path)}+{entry:#x}"
    return UsdtSite(
        Signature(PREFIX + symbol, _FORMAT, _TYPES),
        Place(mapped, offset, source),
        RemoteAddress(offset + mapped.bias),
        form,
        _RECIPE,
    )


class _Finder:
    """The functions of a name, of one object after the other."""

    def __init__(self, name: ProbeName) -> None:
        self.problems: list[BadFile] = []
        self._name = name
        self._sites: list[UsdtSite] = []
        self._resolvers: list[str] = []
        self._others: set[str] = set()

    def add(self, image: FileImage, mapped: MappedObject) -> None:
        symbols = function_names(image)
        chosen = {text for address in symbols.resolvers for text in symbols.names.get(address, ())}
        for address, names in sorted(symbols.names.items()):
            matching = [text for text in names if is_named(self._name.name, text)]
            if not matching:
                continue
            # What had the name in older versions of a library is not what is meant.
            if chosen.issuperset(matching):
                self._resolvers.append(matching[0])
                continue
            site = _site(image, mapped, address, canonical(names))
            self._sites += [site] if site else []
        if not self._sites:
            self._others.update(text for names in symbols.names.values() for text in names)

    def result(self) -> FunctionSites:
        """Raises what `functions_of_process` raises where there is no function."""
        entries = FunctionSites(tuple(self._sites), tuple(self._resolvers), tuple(self.problems))
        if not entries.sites:
            _refuse(self._name, entries, self._others)
        return entries


def _refuse(name: ProbeName, entries: FunctionSites, others: set[str]) -> None:
    """Raise what says best why there is no function of this name."""
    if entries.resolvers:
        raise Unsupported(
            f"'{name}' names what only chooses a function when a program is loaded (IFUNC): name "
            "the one that is chosen, such as 'func:__memmove_*'"
        )
    if entries.problems:
        raise entries.problems[0]
    names = tuple(PREFIX + text for text in nearest(name.name, others))
    raise UnknownMarker(name.text, names, what="function")
