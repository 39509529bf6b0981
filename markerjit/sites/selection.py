"""The sites, or recorded events, that a name matches. The name may be a list of names that excludes
others."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache, partial
from itertools import chain
from operator import attrgetter
from os.path import basename
from typing import Any, Protocol, TypeVar

from markerjit.arguments import check_all, check_text
from markerjit.elf.demangle import MANGLED, spellings
from markerjit.errors import UnknownMarker, Unsupported
from markerjit.model import Place, RemoteAddress, Signature
from markerjit.sites.names import (
    ARROW,
    PREFIX,
    PREFIX_OF_CALLS,
    PREFIX_OF_INSTRUCTIONS,
    SUFFIX,
    NameKind,
    ProbeName,
    nearest,
    parse_name,
)


class _Placed(Protocol):
    """A Site, or a UsdtSite."""

    @property
    def signature(self) -> Signature: ...
    @property
    def place(self) -> Place: ...
    @property
    def address(self) -> RemoteAddress: ...


S = TypeVar("S", bound=_Placed)
T = TypeVar("T")
_WILD = set("*?[")
_KEY = attrgetter("address", "signature.name", "signature.format")
"""A function that never was opened may be named by one address, where it is entered and left."""


def chosen(name: ProbeName, of: Callable[[ProbeName], Iterable[S]]) -> tuple[S, ...]:
    """The sites of a name. `of` has those of a single name, and raises UnknownMarker where there
    is none. Those of a list are in the order of their addresses; a list that excludes all that it
    names is unknown, too."""
    return _chosen(name, of, is_meant, _KEY)


def matching_names(pattern: str, names: Sequence[str]) -> frozenset[str]:
    """Those of these names of events that a pattern is of, as `read --marker` chooses them.

    Raises BadArgument for what is no pattern, UnknownMarker where a name of it is none of these,
    and Unsupported for an object or a line of source: a name alone does not say where it is.
    """
    check_text("pattern", pattern)
    check_all("names", names, str)
    if pattern in names:  # whatever it looks like: others write traces, too
        return frozenset((pattern,))
    return frozenset(_chosen(parse_name(pattern), partial(_matching, names), _is_event, str))


def _chosen(
    name: ProbeName,
    of: Callable[[ProbeName], Iterable[T]],
    is_meant: Callable[[ProbeName, T], bool],
    key: Callable[[T], Any],
) -> tuple[T, ...]:
    """What a name is of; those of a list are told apart by their keys, and in the order of them."""
    if name.kind is not NameKind.LIST:
        return tuple(of(name))
    named = {key(each): each for part in name.parts for each in of(part)}
    without = _Excluded(name.without)
    left = [
        each
        for each in named.values()
        if not (near := without.near(_event_of(each)))
        or not any(is_meant(excluded, each) for excluded in near)
    ]
    if not left:
        raise UnknownMarker(name.text, ())
    return tuple(sorted(left, key=key))


class _Excluded:
    """Single names, of which those are found that an event may have. A program has thousands of
    functions, and a list may exclude a thousand of them one by one."""

    def __init__(self, names: Sequence[ProbeName]) -> None:
        self._by_symbol: defaultdict[str, list[ProbeName]] = defaultdict(list)
        self._others: list[ProbeName] = []
        for name in names:
            is_symbol = name.kind is NameKind.FUNCTION and not is_glob(name.name)
            (self._by_symbol[name.name] if is_symbol else self._others).append(name)

    def near(self, event: str) -> Sequence[ProbeName]:
        """The names that the event may have: patterns, and those with its function. Most of
        thousands have none."""
        if not self._by_symbol or not event.startswith(PREFIX):
            return self._others
        symbol = event.removeprefix(PREFIX).removesuffix(SUFFIX)
        if symbol not in self._by_symbol and not symbol.startswith(MANGLED):
            return self._others
        spelled = (self._by_symbol.get(each, ()) for each in spellings(symbol))
        return [*self._others, *chain.from_iterable(spelled)]


def _event_of(each: object) -> str:
    """The event of a site, or an event."""
    return each if isinstance(each, str) else str(each.signature.name)  # type: ignore[attr-defined]


def is_meant(name: ProbeName, site: _Placed) -> bool:
    """Whether a single name is that of a site."""
    place = site.place
    if name.kind is NameKind.FUNCTION:
        symbol = symbol_of(name, site.signature.name)
        return symbol is not None and is_of(name, symbol, place.object.path)
    if name.kind is NameKind.INSTRUCTION:
        of_object = is_of_object(name.object, place.object.path)
        return of_object and is_instruction(name, site.signature.name, place)
    if name.kind is NameKind.CALL:
        of_object = is_of_object(name.object, place.object.path)
        return of_object and is_call(name, site.signature.name)
    return (
        fnmatchcase(site.signature.name, name.name)
        and is_of_object(name.object, place.object.path)
        and (not name.source or is_of_line(name.source, place.source))
    )


def symbol_of(name: ProbeName, event: str) -> str | None:
    """The symbol of the function whose entry, or exit, has this name, as the name of functions asks
    for the one or the other; None for any other name."""
    if not event.startswith(PREFIX) or event.endswith(SUFFIX) is not name.at_return:
        return None
    return event.removeprefix(PREFIX).removesuffix(SUFFIX)


def is_instruction(name: ProbeName, event: str, place: Place | None = None) -> bool:
    """Whether a name is that of an instruction, which is known by this name of its event, or where
    it is in its object's file."""
    if not event.startswith(PREFIX_OF_INSTRUCTIONS):
        return False
    if name.offset < 0:
        return True
    where, _, offset = event.removeprefix(PREFIX_OF_INSTRUCTIONS).rpartition("+")
    if offset == f"{name.offset:#x}" and is_named(name.name, where):
        return True
    if place is None or place.offset != name.offset:
        return False
    return is_of_object(name.name, place.object.path)


def is_call(name: ProbeName, event: str) -> bool:
    """Whether a name is that of calls, which have this name of their events."""
    if not event.startswith(PREFIX_OF_CALLS):
        return False
    caller, arrow, callee = event.removeprefix(PREFIX_OF_CALLS).partition(ARROW)
    return bool(arrow) and is_named(name.caller, caller) and is_named(name.name, callee)


def is_of(name: ProbeName, symbol: str, path: str) -> bool:
    """Whether a name is that of a function, by this symbol of it, in the object with this path."""
    return is_of_object(name.object, path) and is_named(name.name, symbol)


def is_glob(text: str) -> bool:
    """Whether a name may be that of other symbols than itself. One of C++ may look like a glob."""
    return not _WILD.isdisjoint(text)


def is_named(glob: str, symbol: str) -> bool:
    """By the symbol, or as it was written in C++ or Rust (demangle.py): such a name may look like a
    glob, and is meant as it stands, too."""
    if glob in ("*", symbol):
        return True
    if not symbol.startswith(MANGLED):
        return fnmatchcase(symbol, glob)  # also asked of each symbol of a C library
    return any(
        spelling == glob or fnmatchcase(spelling, glob)
        for spelling in spellings(symbol, _words_of(glob))
    )


@lru_cache
def _words_of(glob: str) -> tuple[str, ...]:
    """Words that are in all that a glob is of, the longest first, which the fewest names have."""
    words: list[str] = re.findall(r"\w+", glob.partition("[")[0])
    return tuple(sorted(set(words), key=len, reverse=True))


@lru_cache(1 << 10)
def is_of_object(glob: str, path: str) -> bool:
    """Whether a glob is that of a file, by its path, by its name, or by a link in its folder: a
    program is often started by a link, and a library is linked by one. Links are those that we see,
    also for a process that sees other files. "" is of any."""
    if not glob or fnmatchcase(path, glob) or fnmatchcase(basename(path), glob):
        return True
    link = os.path.join(os.path.dirname(path), glob)
    return os.path.lexists(link) and os.path.realpath(link) == path


def has_caller(name: ProbeName, paths: Iterable[str]) -> bool:
    """Whether what stands behind the @ of a function's name is a function that calls it: it is no
    name of a file, by its letters, and none of these files is called so."""
    if name.kind is not NameKind.FUNCTION or not name.object or name.at_return:
        return False
    by_letters = name.text.endswith(f"@{name.object}") and not set(name.object) & set("./")
    return by_letters and not any(is_of_object(name.object, path) for path in paths)


def without_caller(name: ProbeName) -> ProbeName:
    """The name of the function alone."""
    return parse_name(name.text.removesuffix(f"@{name.object}"))


def is_of_line(line: str, source: str) -> bool:
    """Whether `FILE:LINE` is the end of a source, from the start of a folder's or file's name."""
    return source == line or source.endswith(f"/{line}")


def _matching(names: Sequence[str], name: ProbeName) -> list[str]:
    """The events that a single name is of."""
    named = [text for text in names if _is_event(name, text)]
    if not named:
        raise UnknownMarker(name.text, nearest(name.text, set(names)))
    return named


def _is_event(name: ProbeName, text: str) -> bool:
    """Whether a single name is that of an event."""
    if name.object or name.source:
        raise Unsupported(f"'{name}': an event does not say which object or line it is of")
    if name.kind is NameKind.FUNCTION:
        symbol = symbol_of(name, text)
        return symbol is not None and is_named(name.name, symbol)
    if name.kind is NameKind.INSTRUCTION:
        return is_instruction(name, text)
    if name.kind is NameKind.CALL:
        return is_call(name, text)
    if name.kind in (NameKind.MARKER, NameKind.USDT):
        return fnmatchcase(text, name.name)
    raise Unsupported(f"'{name}' is not among the events that can be recorded")
