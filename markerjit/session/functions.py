"""The functions of a process or of a file, by name, as they are now. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from collections.abc import Mapping as Map
from functools import partial

from markerjit.arguments import check_path, check_text
from markerjit.elf import FileImage, Read, parse_format
from markerjit.elf.demangle import demangled
from markerjit.errors import BadFile, Unsupported
from markerjit.memory import Mapping
from markerjit.model import Field, Mode, UsdtSite
from markerjit.printable import counted
from markerjit.session.exits import BY_ENTRY, Leaving, leavings_of, looked_for_in
from markerjit.session.target import Key, Target, key_of
from markerjit.sites import ProbeName, parse_name
from markerjit.sites.calls import calls_of_file, calls_of_process
from markerjit.sites.functions import (
    FunctionSites,
    functions_of_file,
    functions_of_process,
    is_described,
    nameless_words,
)
from markerjit.sites.instructions import instructions_of_file, instructions_of_process
from markerjit.sites.names import ARROW, PREFIX, SUFFIX, NameKind
from markerjit.sites.selection import chosen
from markerjit.spans.exits import Exit, ExitKind, Exits, has_bytes_of_entry
from markerjit.spans.openings import Opening
from markerjit.tuples import NamedTuple, brief

_SHOWN = 3
"""Names in the repr of a view."""


class FunctionExit(NamedTuple):
    """An exit of a function.

    offset  of its instruction, as the object file has it
    tail    it is a tail call
    way     how it is opened; None where it cannot be
    reason  why it cannot be; "" where it can
    alone   it has bytes that the entry needs, so the entry and it are not open together by jumps
    """

    offset: int
    tail: bool
    way: str | None
    reason: str
    alone: bool = False


class Function(NamedTuple):
    """A function, where it is entered or, for a name with `:return`, where it is left; an
    instruction; or a call, one of those of its name.

    name     of its events, `func:SYMBOL`, `func:SYMBOL:return`, `insn:SYMBOL+0xOFF` or
             `call:SYMBOL->SYMBOL`
    text     the function as it was written, where that is known: `Json::Value::asInt() const`
    site     where it is entered, or where the instruction or the call is
    left     a site where it is left, of a name with `:return`; None of others
    mode     how it is on; None while it is not
    exits    where it is left; None of an entry, and where that is not known
    problem  why it is not known; "" where it is
    """

    name: str
    text: str
    site: UsdtSite
    mode: Mode | None = None
    exits: tuple[FunctionExit, ...] | None = None
    problem: str = ""
    left: UsdtSite | None = None

    def __repr__(self) -> str:
        return brief(self)

    @property
    def fields(self) -> tuple[Field, ...]:
        """Those of its events: the arguments that it is entered with, or what it is left with."""
        signature = (self.left or self.site).signature
        return parse_format(signature.format, signature.args)

    @property
    def types(self) -> dict[str, str]:
        """The C types of the arguments that it is entered with, by name, as far as they are
        known."""
        signature = self.site.signature
        fields = parse_format(signature.format, signature.args)
        types = self.site.types
        return {each.name: types[each.arg] for each in fields if types and types[each.arg]}

    @property
    def has_prototype(self) -> bool:
        """Whether the arguments are known; otherwise they are registers."""
        return is_described(self.site)


class FunctionView(NamedTuple):
    """The functions of a name, and files that could not be read.

    resolvers  the names that only choose a function when a program is loaded, and are none
    nameless   how many functions have no symbol and so are not among all those of a file, by the
               names of files
    """

    functions: tuple[Function, ...]
    resolvers: tuple[str, ...]
    problems: tuple[BadFile, ...]
    nameless: Map[str, int]

    @property
    def advice(self) -> str:
        """How to name those without a symbol; "" where there are none."""
        return nameless_words(self.nameless)

    def __repr__(self) -> str:
        names = [each.text for each in self.functions[:_SHOWN]]
        more = ", …" if len(self.functions) > _SHOWN else ""
        count = counted(len(self.functions), "function")
        return f"<FunctionView of {count}: {', '.join(names)}{more}>"


def functions_of(target: Target, name: ProbeName) -> FunctionView:
    """The functions of a process that a name is of. Raises what `functions_of_process` raises, and
    TargetGone."""
    target.check_open()
    with target.memory.watched():
        target.look()
        read, maps = target.memory.read, target.seen.maps
        entries = _joined(name, partial(_of_process, target.pid, read, maps))
        modes = {key_of(state.site): state.mode for state in target.states(target.seen.opened)}
        if not _are_left(name):
            return _view(entries, modes)
        leavings = leavings_of(target.pid, read, maps, entries.sites)
    return _view_of_exits(entries, leavings, modes)


def list_file_functions(path: str, pattern: str) -> FunctionView:
    """The functions of an executable or shared object.

    Raises BadFile, Unsupported, UnknownMarker, and BadArgument for a text that is no name.
    """
    check_path("path", path)
    check_text("pattern", pattern)
    name = parse_name(pattern)
    entries = _joined(name, partial(_of_file, os.fspath(path)))
    if not _are_left(name):
        return _view(entries, {})
    with FileImage(os.fspath(path)) as image:
        leavings = looked_for_in(image, entries.sites).leavings()
    return _view_of_exits(entries, leavings, {})


def _are_left(name: ProbeName) -> bool:
    """Whether a name is of functions where they are left. Raises Unsupported for a list of both."""
    kinds = {part.at_return for part in name.parts or (name,)}
    if len(kinds) > 1:
        raise Unsupported(
            f"'{name}' names both entries and returns of functions, which are not listed together; "
            "name only one kind"
        )
    return kinds == {True}


def _of_process(pid: int, read: Read, maps: Sequence[Mapping], name: ProbeName) -> FunctionSites:
    ways = {
        NameKind.INSTRUCTION: instructions_of_process,
        NameKind.CALL: calls_of_process,
    }
    return ways.get(name.kind, functions_of_process)(pid, read, maps, name)


def _of_file(path: str, name: ProbeName) -> FunctionSites:
    ways = {NameKind.INSTRUCTION: instructions_of_file, NameKind.CALL: calls_of_file}
    return ways.get(name.kind, functions_of_file)(path, name)


def _joined(name: ProbeName, of: Callable[[ProbeName], FunctionSites]) -> FunctionSites:
    """The functions of a name that may be a list."""
    parts: list[FunctionSites] = []

    def sites_of(part: ProbeName) -> tuple[UsdtSite, ...]:
        parts.append(of(part))
        return parts[-1].sites

    sites = chosen(name, sites_of)
    resolvers = dict.fromkeys(each for entries in parts for each in entries.resolvers)
    problems = {str(each): each for entries in parts for each in entries.problems}
    nameless = {file: n for entries in parts for file, n in entries.nameless.items()}
    return FunctionSites(sites, tuple(resolvers), tuple(problems.values()), nameless)


def _view(entries: FunctionSites, modes: Map[Key, Mode | None]) -> FunctionView:
    functions = tuple(
        Function(
            site.signature.name,
            _written(site.signature.name),
            site,
            modes.get(key_of(site)),
        )
        for site in entries.sites
    )
    return FunctionView(functions, entries.resolvers, entries.problems, entries.nameless)


def _written(name: str) -> str:
    """What a name names, as it was written in C++: for a call both functions."""
    return ARROW.join(map(demangled, name.partition(":")[2].split(ARROW)))


def _view_of_exits(
    entries: FunctionSites, leavings: Sequence[Leaving], modes: Map[Key, Mode | None]
) -> FunctionView:
    functions = tuple(_left(leaving, modes) for leaving in leavings)
    return FunctionView(functions, entries.resolvers, entries.problems, entries.nameless)


def _left(leaving: Leaving, modes: Map[Key, Mode | None]) -> Function:
    entry, exits, sites, problem = leaving
    symbol = entry.signature.name.removeprefix(PREFIX)
    mode = next(filter(None, (modes.get(key_of(site)) for site in sites)), None)
    ways: tuple[FunctionExit, ...] | None = None
    if exits and exits.unbounded:
        problem = f"{exits.unbounded} ({exits.at:#x})"
    elif exits:
        ways = tuple(_way(exits, each) for each in exits.exits)
    name = entry.signature.name + SUFFIX
    return Function(name, demangled(symbol), entry, mode, ways, problem, sites[0])


def _way(exits: Exits, leaving: Exit) -> FunctionExit:
    tail, opening = leaving.kind is ExitKind.TAIL, leaving.opening
    if opening == exits.entry:
        return FunctionExit(leaving.address, tail, None, BY_ENTRY)
    if isinstance(opening, Opening):
        alone = has_bytes_of_entry(exits, leaving)
        return FunctionExit(leaving.address, tail, str(opening.way), "", alone)
    reasons = dict.fromkeys(str(way.reason) for way in opening.turned_down)
    return FunctionExit(leaving.address, tail, None, ", ".join(reasons))
