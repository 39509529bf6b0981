"""Find the calls of a function in another one, of a process or of a file.

    call:CALLER->CALLEE   each place in CALLER, and in the parts that a compiler has split off it,
                          where CALLEE is called

A call is a direct one, one through CALLEE's stub in the linkage table, or one by CALLEE's slot in
the global offset table. A jump to CALLEE that ends CALLER (a tail call) counts, too. The arguments
are those of CALLEE: they are in their places already, where the function will find them. The return
address of a call is not on the stack yet; the recipe says the operands as the function finds them,
with it.

A caller without a symbol is named by its object's file and its address there: `bash+0x1f2a0`.

What this does not do: know which function a register, a table or a pointer leads to; find calls
that a compiler has inlined; or decide how a call can be opened (spans/).
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Sequence
from functools import partial

from markerjit.elf import FileImage, Read
from markerjit.elf.functions import NoFunctions
from markerjit.errors import BadFile, MemoryFault, UnknownMarker, Unsupported
from markerjit.memory import Mapping
from markerjit.model import MappedObject, Place, Recipe, RemoteAddress, Signature, UsdtSite
from markerjit.sites.branches import Call, Callee, CallsOfObject
from markerjit.sites.functions import (
    REGISTERS,
    UNKNOWN,
    FunctionSites,
    NamedFunctions,
    files_of_process,
)
from markerjit.sites.names import ARROW, PREFIX_OF_CALLS, NameKind, ProbeName, nearest
from markerjit.sites.selection import is_named, is_of_object
from markerjit.x86.forms import call_form

_ALL = ProbeName("", NameKind.CALL, "*", caller="*")

Described = tuple[Signature, Recipe]


def calls_of_process(
    pid: int, read: Read, maps: Sequence[Mapping], name: ProbeName
) -> FunctionSites:
    """The calls of a name, in every object mapped into a process.

    Raises UnknownMarker, with the nearest names, where there is no such caller or callee;
    Unsupported where none of the ones is seen to call one of the others; and what `read` raises
    when the process ends.
    """
    finder = _Finder(name)
    in_object = partial(is_of_object, name.object)
    for image, mapped in files_of_process(pid, read, maps, finder.problems, in_object):
        finder.add(image, mapped)
    _describe(pid, read, maps, finder)
    return finder.result()


def calls_of_file(path: str, name: ProbeName) -> FunctionSites:
    """The calls of a name in an executable or shared object. The arguments of functions in other
    objects are not known there. Raises BadFile, too."""
    finder = _Finder(name)
    with FileImage(path) as image:
        if is_of_object(name.object, path):
            finder.add(image, MappedObject(path, 0, image.build_id(), False))
    return finder.result()


def calls_at(
    pid: int, read: Read, maps: Sequence[Mapping], addresses: Iterable[RemoteAddress]
) -> tuple[UsdtSite, ...]:
    """The calls at these addresses of a process. Addresses without a call are left out."""
    places = set(addresses)
    paths = {
        mapping.path
        for mapping in maps
        if any(mapping.start <= address < mapping.end for address in places)
    }
    finder = _Finder(_ALL)
    for image, mapped in files_of_process(pid, read, maps, [], lambda path: path in paths):
        finder.add(image, mapped, {address - mapped.bias for address in places})
    _describe(pid, read, maps, finder)
    return finder.sites()


def _describe(pid: int, read: Read, maps: Sequence[Mapping], finder: _Finder) -> None:
    """Look in all objects for the arguments of functions that others call."""
    if finder.imported:
        for image, mapped in files_of_process(pid, read, maps, [], lambda path: True):
            finder.describe(image, mapped)


class _Finder:
    """The calls of a name, of one object after the other.

    problems  files that could not be read
    imported  callees of other objects, whose arguments are not known yet
    """

    def __init__(self, name: ProbeName) -> None:
        self.problems: list[BadFile] = []
        self.imported: set[str] = set()
        self._name = name
        self._calls: list[tuple[Call, MappedObject]] = []
        self._own: dict[tuple[MappedObject, int], Described] = {}
        self._described: dict[str, Described] = {}
        self._others: list[set[str]] = []
        self._callers: set[str] = set()
        self._callees: set[str] = set()

    def add(
        self, image: FileImage, mapped: MappedObject, places: Collection[int] | None = None
    ) -> None:
        """The calls in an object; only those at these places, where some are given."""
        named = NamedFunctions(image, mapped)
        glob = self._name.caller
        texts = {text for each in named.symbols.names.values() for text in each}
        if "*" not in glob and not any(is_named(glob, text) for text in texts):
            self._others.append(texts)
            return
        try:
            code = CallsOfObject(image, named)
        except (NoFunctions, MemoryFault):
            return
        for call in self._calls_in(code, places):
            self._calls.append((call, mapped))
            entry = call.callee.entry
            if entry is None:
                self.imported.add(call.callee.name)
            elif (mapped, entry) not in self._own:
                chooses = entry in named.symbols.resolvers
                described = (UNKNOWN, REGISTERS) if chooses else named.described(entry)
                self._own[mapped, entry] = described

    def _calls_in(self, code: CallsOfObject, places: Collection[int] | None) -> list[Call]:
        caller, callee = self._name.caller, self._name.name
        if places is None:
            callers = {
                index
                for index in range(len(code.functions))
                if caller == "*" or any(is_named(caller, text) for text in code.caller_names(index))
            }
        else:
            callers = {index for index in map(code.functions.index, places) if index is not None}
        callees, slots = (
            {address for address, each in known.items() if self._is_meant(code, each, callee)}
            for known in (code.callees, code.slots)
        )
        self._callers.update(code.caller_names(index)[0] for index in callers)
        known = (*code.callees.values(), *code.slots.values())
        self._callees.update(each.name for each in known)
        calls = code.calls(callers, callees, slots)
        return [call for call in calls if places is None or call.address in places]

    @staticmethod
    def _is_meant(code: CallsOfObject, callee: Callee, glob: str) -> bool:
        return glob == "*" or any(is_named(glob, text) for text in code.callee_names(callee))

    def describe(self, image: FileImage, mapped: MappedObject) -> None:
        """The arguments of functions of this object that others call."""
        named = NamedFunctions(image, mapped)
        left = self.imported - self._described.keys()
        for entry, texts in named.symbols.names.items():
            for text in left.intersection(texts):
                described = named.described(entry)
                if entry not in named.symbols.resolvers and described != (UNKNOWN, REGISTERS):
                    self._described[text] = described

    def sites(self) -> tuple[UsdtSite, ...]:
        """A site for each call that was found."""
        return tuple(self._site(call, mapped) for call, mapped in self._calls)

    def _site(self, call: Call, mapped: MappedObject) -> UsdtSite:
        address, code, pushes, caller, callee = call
        unknown = UNKNOWN, REGISTERS
        if callee.entry is None:
            signature, recipe = self._described.get(callee.name, unknown)
        else:
            signature, recipe = self._own[mapped, callee.entry]
        return UsdtSite(
            signature._replace(name=f"{PREFIX_OF_CALLS}{caller}{ARROW}{callee.name}"),
            Place(mapped, address, f"{os.path.basename(mapped.path)}+{address:#x}"),
            RemoteAddress(address + mapped.bias),
            call_form(code, pushes=pushes),
            recipe,
        )

    def result(self) -> FunctionSites:
        """Raises what `calls_of_process` raises where there is none."""
        if self._calls:
            return FunctionSites(self.sites(), (), tuple(self.problems), {})
        if self.problems:
            raise self.problems[0]
        name, caller, callee = self._name.text, self._name.caller, self._name.name
        if not self._callers:
            texts = nearest(caller, *self._others)
            names = tuple(_name(text, callee) for text in texts)
            raise UnknownMarker(name, names, what="function")
        if not any(is_named(callee, text) for text in self._callees):
            texts = nearest(callee, self._callees)
            names = tuple(_name(caller, text) for text in texts)
            raise UnknownMarker(name, names, what="function")
        raise Unsupported(
            f"'{name}': no such call is in the code; calls by a pointer or a table, and inlined "
            f"ones, are not found there; func:{callee} has all but the inlined ones"
        )


def _name(caller: str, callee: str) -> str:
    return f"{PREFIX_OF_CALLS}{caller}{ARROW}{callee}"
