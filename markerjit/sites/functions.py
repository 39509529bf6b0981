"""Find functions of a process by the names of their symbols, where they are entered.

The names are in the files of what is mapped (mapped_files.py); the debuggers' table of a file that
was not stripped, and what it exports of any. A function has one name here, the shortest of its
symbols with the fewest underscores before it, whichever of them it is asked for: the sites of one
address have to be one.

Where debugging information has the prototype of a function, its arguments have their names and
types (calling.py). Otherwise they are the six registers in which the System V psABI passes integers
and pointers (3.2.3), as `arg0` to `arg5`: what a function does not take is what the register
happened to hold.

A function without a symbol is known by its file and address, as in func:libjemalloc.so.2+0x21e80,
where the unwind tables have a function that begins there. A pattern is of such names where it has
an address in it, as in func:libjemalloc.so.2+0x21*, and in an object without any symbol.

What this does not do: decide how a function can be opened, or whether a symbol's address is one; or
find where functions are left, which the names do not say.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from collections.abc import Mapping as Map
from functools import cached_property, partial
from typing import TYPE_CHECKING

from markerjit.elf import FileImage, Read
from markerjit.elf.function_names import FunctionNames, function_names
from markerjit.elf.functions import OF_GO, Functions, NoFunctions
from markerjit.elf.heads import heads_of
from markerjit.elf.prototypes import Prototype, Prototypes, has_reader, prototypes_of
from markerjit.elf.sections import is_go
from markerjit.errors import BadFile, UnknownMarker, Unsupported
from markerjit.memory import Mapping
from markerjit.model import (
    CType,
    MappedObject,
    Place,
    Recipe,
    RemoteAddress,
    Signature,
    TypeClass,
    UsdtSite,
    new,
)
from markerjit.printable import counted
from markerjit.sites.calling import GENERAL, passed, returned
from markerjit.sites.discover import mapped_images
from markerjit.sites.mapped_files import file_of
from markerjit.sites.names import PREFIX, SUFFIX, NameKind, ProbeName, nearest
from markerjit.sites.operands import shown
from markerjit.sites.selection import is_glob, is_named, is_of_object
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import CALL, ENDBR64, FUNCTION, NEAR_LENGTH, TAIL_CALL, function_form

if TYPE_CHECKING:
    from markerjit.elf.layouts import CLayout

UNKNOWN = Signature(
    "",
    " ".join(f"arg{number} %#x" for number in range(len(GENERAL))),
    (CType(TypeClass.UNSIGNED, 8),) * len(GENERAL),
)
"""Of a function without debugging information: what the registers hold."""
REGISTERS = Recipe(GENERAL, "rdi rsi rdx rcx r8 r9")
_WITH_ARGUMENTS = (FUNCTION, CALL, TAIL_CALL)
_OF_GO = "runtime.main"
"""A function of each program of Go, whose name is there where symbols were not stripped."""
_LACKS_BOTH = "has neither symbols nor .eh_frame_hdr, the table of functions"
COLD = ".cold"
"""Behind the name of a part that a compiler has split off: nobody calls it."""
_AT = "+0x"
_PLACE = re.compile(r"\+0x([0-9a-f]{1,16})$", re.ASCII)
_LONGEST = len(ENDBR64) + NEAR_LENGTH


ALL = "*"
"""The glob of all functions that have a symbol."""
EVERY = "**"
"""The glob of all functions of a file, also of those without a symbol."""


class FunctionSites(NamedTuple):
    """The entries of functions, by object and address.

    sites      those of a name that can be looked at further
    resolvers  names of functions that only choose another one when a program is loaded
    problems   files that could not be read
    nameless   how many functions have no symbol and so are not among all those of a file, by the
               names of files
    """

    sites: tuple[UsdtSite, ...]
    resolvers: tuple[str, ...]
    problems: tuple[BadFile, ...]
    nameless: Map[str, int]


def functions_of_process(
    pid: int, read: Read, maps: Sequence[Mapping], name: ProbeName, *, counts_nameless: bool = True
) -> FunctionSites:
    """The functions of a name in every object mapped into a process, where they are entered. Where
    `counts_nameless` is not set, those without a symbol are counted only for what is raised.

    Raises UnknownMarker, with the nearest names, where there is none; Unsupported for a name of
    anything else than functions, and for one of resolvers only; and what `read` raises
    when the process ends.
    """
    check_is_function(name)
    paths = dict.fromkeys(os.path.basename(mapping.path) for mapping in maps if mapping.executable)
    files = [path for path in paths if path and not path.startswith(("[", "memfd:"))]
    finder = _Finder(name, files, counts_nameless=counts_nameless)
    in_object = partial(is_of_object, name.object)
    for image, mapped in files_of_process(pid, read, maps, finder.problems, in_object):
        finder.add(image, mapped)
    return finder.result()


def named_in_process(
    pid: int, read: Read, maps: Sequence[Mapping], symbols: Collection[str]
) -> dict[str, dict[str, str]]:
    """By the path of each object mapped into a process, those of these symbols that are a function
    there, each with the name by which that is known here. All are looked up in one reading of each
    file. Raises what `read` raises when the process ends."""
    named: dict[str, dict[str, str]] = {}
    for image, mapped in files_of_process(pid, read, maps, [], lambda path: True):
        known = function_names(image)
        named[mapped.path] = {
            symbol: canonical(names)
            for address, names in known.names.items()
            if address not in known.resolvers
            for symbol in names
            if symbol in symbols
        }
    return named


def functions_of_file(path: str, name: ProbeName) -> FunctionSites:
    """The functions of a name in an executable or shared object. Raises BadFile, and what
    `functions_of_process` raises."""
    check_is_function(name)
    finder = _Finder(name, [os.path.basename(path)])
    with FileImage(path) as image:
        if is_of_object(name.object, path):
            finder.add(image, MappedObject(path, 0, image.build_id(), False))
    return finder.result()


def nameless_words(counts: Map[str, int]) -> str:
    """The functions without a symbol in a clause, and how to name them; "" where there are none."""
    if not counts:
        return ""
    of = next(iter(counts)) if len(counts) == 1 else f"{len(counts)} files"
    file = of if len(counts) == 1 else ALL
    functions = counted(sum(counts.values()), "function")
    verb = "has" if sum(counts.values()) == 1 else "have"
    return f"{functions} of {of} {verb} no name; '{PREFIX}{file}{_AT}*' names them by address"


RETURNED = "ret"
"""What a function returns, among the fields of where it is left."""


class Described(NamedTuple):
    """The C types of a function's arguments by name, and where it is left of `ret`. `lacks` says
    why there are none, where that is so: a clause."""

    name: str
    types: Map[str, CLayout]
    lacks: str


def described_in_process(
    pid: int, read: Read, maps: Sequence[Mapping], name: ProbeName
) -> tuple[Described, ...]:
    """The types of the functions of a name in a process. Raises what `read` raises when it ends."""
    in_object = partial(is_of_object, name.object)
    return tuple(
        each
        for image, mapped in files_of_process(pid, read, maps, [], in_object)
        for each in _described_in(image, mapped, name)
    )


def described_in_file(path: str, name: ProbeName) -> tuple[Described, ...]:
    """The same of a file. Raises BadFile."""
    with FileImage(path) as image:
        mapped = MappedObject(path, 0, image.build_id(), False)
        return tuple(_described_in(image, mapped, name)) if is_of_object(name.object, path) else ()


def _described_in(image: FileImage, mapped: MappedObject, name: ProbeName) -> Iterator[Described]:
    functions = NamedFunctions(image, mapped)
    for address, names in functions.symbols.names.items():
        if any(is_named(name.name, text) for text in names):
            described = functions.types(address)
            if not name.at_return:
                types = {field: described.types[field] for field in described.types}
                types.pop(RETURNED, None)
                described = described._replace(types=types)
            yield described


def functions_at(
    pid: int, read: Read, maps: Sequence[Mapping], addresses: Iterable[RemoteAddress]
) -> tuple[UsdtSite, ...]:
    """The functions whose sites are at these addresses of a process; fewer where an address is that
    of none. Raises what `read` raises when the process ends."""
    places = sorted(set(addresses))
    of_path = _by_path(maps, places)
    sites: list[UsdtSite] = []
    for image, mapped in files_of_process(pid, read, maps, [], of_path.__contains__):
        functions = NamedFunctions(image, mapped)
        known: dict[int, None] = {}  # in their order, and each once
        asked = of_path[mapped.path]
        for address in asked:
            offset = address - mapped.bias
            entries = (offset, offset - len(ENDBR64))
            named = [entry for entry in entries if entry in functions.symbols.names]
            known |= dict.fromkeys(named or filter(functions.names_of, entries))
        meant = set(asked)
        sites += [site for site in functions.sites([*known]) if site.address in meant]
    return tuple(sites)


def mapped_from(
    read: Read, maps: Sequence[Mapping], left: Map[RemoteAddress, int]
) -> set[RemoteAddress]:
    """Where functions are entered in a process: by an address in the object of each, the address
    that the object file has. Raises as `functions_at`."""
    of_path = _by_path(maps, sorted(left))
    return {
        RemoteAddress(left[address] + loaded.bias)
        for mapping, loaded in mapped_images(read, maps, [])
        for address in of_path.get(mapping.path, ())
    }


def _by_path(
    maps: Sequence[Mapping], places: Sequence[RemoteAddress]
) -> dict[str, list[RemoteAddress]]:
    """The sorted addresses by the path of the object in which they are."""
    of_path: dict[str, list[RemoteAddress]] = {}
    for mapping in maps:
        first, last = (bisect_left(places, at) for at in (mapping.start, mapping.end))
        if first < last:
            of_path.setdefault(mapping.path, []).extend(places[first:last])
    return of_path


def check_is_function(name: ProbeName) -> None:
    """Raises Unsupported for a name of anything but functions."""
    if name.kind is not NameKind.FUNCTION:
        raise Unsupported(
            f"'{name}' names {name.kind.value}, which are not supported yet: markers such as "
            "'kv_*' are, USDT probes such as 'provider:name', and functions such as 'func:main' "
            "or 'func:main:return'"
        )


def is_described(site: UsdtSite) -> bool:
    """Whether the arguments of a function are those of its prototype, and not registers."""
    return site.signature.format != UNKNOWN.format


def unnamed(site: UsdtSite) -> UsdtSite:
    """The site as it is without debugging information: six registers, where a function is entered
    or called."""
    if site.form.name not in _WITH_ARGUMENTS or site.leaves is not None:
        return site
    signature = UNKNOWN._replace(name=site.signature.name)
    return site._replace(signature=signature, recipe=REGISTERS, returned=None, types=())


def canonical(names: Sequence[str]) -> str:
    """The one of a function's names by which it is known here."""
    if len(names) == 1:
        return names[0]
    return min(names, key=lambda text: (len(text) - len(text.lstrip("_")), len(text), text))


def files_of_process(
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


class NamedFunctions:
    """The functions of an object. Debugging information is looked for when the first site needs
    it."""

    def __init__(self, image: FileImage, mapped: MappedObject) -> None:
        self.symbols = function_names(image)
        self._image = image
        self._mapped = mapped
        self.file = os.path.basename(mapped.path)
        self._known: dict[int, Prototype | None] = {}

    @cached_property
    def _prototypes(self) -> Prototypes | None:
        return prototypes_of(self._image)

    @cached_property
    def _bounds(self) -> Functions | None:
        try:
            return Functions(self._image)
        except NoFunctions:
            return None

    @property
    def has_bounds(self) -> bool:
        """Whether the object has a table of its functions."""
        return self._bounds is not None

    def names_of(self, entry: int) -> tuple[str, ...]:
        """The names of the function that is entered here: its symbols, or else its file and
        address; none where no function begins."""
        names = self.symbols.names.get(entry)
        if names:
            return names
        bounds = self._bounds.at(entry) if self._bounds else None
        return (self._place(entry),) if bounds and bounds.start == entry else ()

    def _place(self, entry: int) -> str:
        return f"{self.file}{_AT}{entry:x}"

    def at_places(self, name: str) -> list[UsdtSite]:
        """The sites of functions without symbols that are known by their file and address, or all
        of them; none for any other name."""
        place = _PLACE.search(name)
        if place:
            entry = int(place[1], 16)
            entries = [entry] if name in self.names_of(entry) else []
        elif _AT in name or name == EVERY or not self.symbols.names:
            entries = [entry for entry in self.nameless() if is_named(name, self._place(entry))]
        else:
            entries = []
        return self.sites(entries)

    def nameless(self) -> list[int]:
        """Where the functions begin that have no symbol."""
        bounds = self._bounds
        if bounds is None:
            return []
        starts = self.symbols.outside_linkage(bounds.starts[~bounds.parts]).tolist()
        return [entry for entry in starts if entry not in self.symbols.names]

    def sites(self, entries: Sequence[int]) -> list[UsdtSite]:
        """The sites of the functions that are entered at these addresses: behind an endbr64, which
        indirect calls have to find. There is none where no code is, and of a cold part."""
        mapped, file, sites = self._mapped, self.file, []
        for entry, code in zip(entries, heads_of(self._image, entries, _LONGEST), strict=True):
            symbol = canonical(self.names_of(entry))
            offset = entry + len(ENDBR64) if code.startswith(ENDBR64) else entry
            form = function_form(code[offset - entry :])
            if form is None or symbol.endswith(COLD):
                continue
            prototype = self._prototype(entry)
            signature, recipe = _described(prototype)
            fields = (
                new(Signature, (PREFIX + symbol, signature.format, signature.args)),
                new(Place, (mapped, offset, f"{file}+{entry:#x}")),
                offset + mapped.bias,
                form, recipe, None, None,
                returned(prototype) if prototype else None,
                tuple(each.text for each in passed(prototype)) if prototype else (),
            )  # fmt: skip
            sites.append(new(UsdtSite, fields))
        return sites

    def described(self, entry: int) -> tuple[Signature, Recipe]:
        """The arguments of a function, and where they are; registers where they are not known. The
        signature has no name."""
        return _described(self._prototype(entry))

    def types(self, entry: int) -> Described:
        """The C types of a function's arguments."""
        names, local = self.names_of(entry), entry in self.symbols.local
        known = self._prototypes
        types = known.layouts_of(names, entry, local=local) if known else {}
        lacks = "it takes no arguments" if types else self._lack()
        return Described(PREFIX + canonical(names), types, lacks)

    def _lack(self) -> str:
        """Why a function's types are not known."""
        path = self._mapped.path
        if not has_reader():
            return "that needs drgn, which the extra `debug` installs: pip install markerjit[debug]"
        if self._prototypes:
            return f"the debugging information of {path} does not have this function"
        return (
            f"{path} has no debugging information here, which its -dbgsym package or "
            f"`debuginfod-find debuginfo {path}` would bring"
        )

    def _prototype(self, entry: int) -> Prototype | None:
        if self._prototypes is None:
            return None
        if entry not in self._known:
            names, local = self.names_of(entry), entry in self.symbols.local
            self._known[entry] = self._prototypes.of(names, entry, local=local) or None
        return self._known[entry]


def _described(prototype: Prototype | None) -> tuple[Signature, Recipe]:
    if not prototype:
        return UNKNOWN, REGISTERS
    arguments = passed(prototype)
    operands = tuple(each.argument.operand for each in arguments)
    signature = Signature(
        "",
        " ".join(f"{each.name} {each.conversion}" for each in arguments),
        tuple(each.argument.ctype for each in arguments),
    )
    return signature, Recipe(operands, " ".join(map(shown, operands)))


def _may_have(glob: str, symbols: FunctionNames) -> Collection[int]:
    """The addresses of functions of which a glob may be: of a name as it stands, those that have
    it, and those of C++ and Rust, whose names may be spelled so."""
    if is_glob(glob):
        return symbols.names
    return symbols.mangled.union(symbols.addresses.get(glob, ()))


class _Finder:
    """The functions of a name, of one object after the other."""

    def __init__(
        self, name: ProbeName, files: Sequence[str], *, counts_nameless: bool = True
    ) -> None:
        """`files` are the names of those that are looked at, the program's first."""
        self.problems: list[BadFile] = []
        self._name = name
        self._files = files
        self._counts_nameless = counts_nameless
        self._sites: list[UsdtSite] = []
        self._resolvers: list[str] = []
        self._others: list[set[str]] = []
        self._nameless: Counter[str] = Counter()
        self._nothing_known: list[str] = []

    def add(self, image: FileImage, mapped: MappedObject) -> None:
        functions = NamedFunctions(image, mapped)
        symbols = functions.symbols
        chosen = {text for address in symbols.resolvers for text in symbols.names.get(address, ())}
        glob = self._name.name
        entries: list[int] = []
        for address in sorted(_may_have(glob, symbols)):
            matching = [text for text in symbols.names[address] if is_named(glob, text)]
            if not matching:
                continue
            # What had the name in older versions of a library is not what is meant.
            if chosen.issuperset(matching):
                self._resolvers.append(matching[0])
                continue
            entries.append(address)
        self._sites += functions.sites(entries)
        self._sites += functions.at_places(self._name.name)
        if not self._sites:
            texts = {text for names in symbols.names.values() for text in names}
            if _OF_GO not in texts and is_go(image):
                self._nothing_known.append(f"{functions.file} {OF_GO}")
            elif not texts and not functions.has_bounds:
                self._nothing_known.append(f"{functions.file} {_LACKS_BOTH}")
            self._others.append(texts)
        leaves_out = bool(symbols.names)
        if self._name.name != ALL:
            leaves_out = not self._sites and bool(self._name.object)
        if self._sites and not self._counts_nameless:
            leaves_out = False
        if leaves_out and (number := len(functions.nameless())):
            self._nameless[functions.file] += number

    def result(self) -> FunctionSites:
        """Raises what `functions_of_process` raises where there is no function."""
        entries = FunctionSites(
            tuple(self._sites), tuple(self._resolvers), tuple(self.problems), self._nameless
        )
        if not entries.sites:
            if not self._others and not entries.problems:
                _refuse_object(self._name, self._files)
            advice, others = nameless_words(entries.nameless), self._others
            if self._nothing_known:
                advice, others = self._nothing_known[0], []
            _refuse(self._name, entries, others, advice)
        return entries


def _refuse_object(name: ProbeName, files: Sequence[str]) -> None:
    """Raise what says best why no file is of the name's object. `malloc:retrn` looks like one, and
    so does a program by another name than that of its file."""
    asked, suffix = name.text.removesuffix(SUFFIX), SUFFIX * name.at_return
    names: tuple[str, ...] = tuple(
        f"{PREFIX}{file}:{name.name}{suffix}" for file in nearest(name.object, {*files})
    )
    if nearest(name.name, {SUFFIX[1:]}):
        names = (PREFIX + name.object + SUFFIX,)
    program = f"; the program's is {files[0]}" if files else ""
    advice = f"no file here is called {name.object}{program}"
    raise UnknownMarker(asked, names, what="function", advice=advice)


def _refuse(
    name: ProbeName, entries: FunctionSites, others: Sequence[set[str]], advice: str
) -> None:
    """Raise what says best why there is no function of this name."""
    if entries.resolvers:
        raise Unsupported(
            f"'{name}' names what only chooses a function when a program is loaded (IFUNC): name "
            "the one that is chosen, such as 'func:__memmove_*'"
        )
    if entries.problems:
        raise entries.problems[0]
    names = tuple(PREFIX + text for text in nearest(name.name, *others))
    asked = name.text.removesuffix(SUFFIX)  # which a latency may have put there
    raise UnknownMarker(asked, names, what="function", advice=advice)
