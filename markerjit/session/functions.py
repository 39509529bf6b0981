"""The functions of a process or of a file, by name, as they are now. Nothing is changed."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

from markerjit.arguments import check_path, check_text
from markerjit.elf.demangle import demangled
from markerjit.errors import BadFile
from markerjit.model import Mode, RemoteAddress, UsdtSite
from markerjit.session.target import Target
from markerjit.sites import ProbeName, parse_name
from markerjit.sites.functions import FunctionSites, functions_of_file, functions_of_process
from markerjit.sites.names import PREFIX
from markerjit.sites.selection import chosen


class Function(NamedTuple):
    """The entry of a function.

    name   of its events, `func:SYMBOL`
    text   the function as it was written, where that is known: `Json::Value::asInt() const`
    site   where it is
    mode   how it is on; None while it is not
    """

    name: str
    text: str
    site: UsdtSite
    mode: Mode | None = None


class FunctionView(NamedTuple):
    """The functions of a name, and files that could not be read.

    resolvers  the names that only choose a function when a program is loaded, and are none
    """

    functions: tuple[Function, ...]
    resolvers: tuple[str, ...]
    problems: tuple[BadFile, ...]


def functions_of(target: Target, name: ProbeName) -> FunctionView:
    """The functions of a process that a name is of. Raises what `functions_of_process` raises, and
    TargetGone."""
    target.check_open()
    with target.memory.watched():
        target.look()
        read, maps = target.memory.read, target.seen.maps
        entries = _joined(name, partial(functions_of_process, target.pid, read, maps))
        modes = {state.site.address: state.mode for state in target.states(target.seen.opened)}
    return _view(entries, modes)


def list_file_functions(path: str, pattern: str) -> FunctionView:
    """The functions of an executable or shared object.

    Raises BadFile, Unsupported, UnknownMarker, and BadArgument for a text that is no name.
    """
    check_path("path", path)
    check_text("pattern", pattern)
    return _view(_joined(parse_name(pattern), partial(functions_of_file, os.fspath(path))), {})


def _joined(name: ProbeName, of: Callable[[ProbeName], FunctionSites]) -> FunctionSites:
    """The functions of a name that may be a list."""
    parts: list[FunctionSites] = []

    def sites_of(part: ProbeName) -> tuple[UsdtSite, ...]:
        parts.append(of(part))
        return parts[-1].sites

    sites = chosen(name, sites_of)
    resolvers = dict.fromkeys(each for entries in parts for each in entries.resolvers)
    problems = {str(each): each for entries in parts for each in entries.problems}
    return FunctionSites(sites, tuple(resolvers), tuple(problems.values()))


def _view(entries: FunctionSites, modes: Mapping[RemoteAddress, Mode | None]) -> FunctionView:
    functions = tuple(
        Function(
            site.signature.name,
            demangled(site.signature.name.removeprefix(PREFIX)),
            site,
            modes.get(site.address),
        )
        for site in entries.sites
    )
    return FunctionView(functions, entries.resolvers, entries.problems)
