"""The sites, or recorded events, that a name is of, where it may be a list of names, with others
excluded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from functools import partial
from operator import attrgetter
from os.path import basename
from typing import Any, Protocol, TypeVar

from markerjit.arguments import check_all, check_text
from markerjit.elf.demangle import demangled
from markerjit.errors import UnknownMarker, Unsupported
from markerjit.model import Place, RemoteAddress, Signature
from markerjit.sites.names import PREFIX, NameKind, ProbeName, nearest, parse_name


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


def chosen(name: ProbeName, of: Callable[[ProbeName], Iterable[S]]) -> tuple[S, ...]:
    """The sites of a name. `of` has those of a single name, and raises UnknownMarker where there
    is none. Those of a list are in the order of their addresses; a list that excludes all that it
    names is unknown, too."""
    return _chosen(name, of, is_meant, attrgetter("address"))


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
    left = [
        each
        for each in named.values()
        if not any(is_meant(excluded, each) for excluded in name.without)
    ]
    if not left:
        raise UnknownMarker(name.text, ())
    return tuple(sorted(left, key=key))


def is_meant(name: ProbeName, site: _Placed) -> bool:
    """Whether a single name is that of a site."""
    place = site.place
    if name.kind is NameKind.FUNCTION:
        text = site.signature.name
        return text.startswith(PREFIX) and is_of(name, text.removeprefix(PREFIX), place.object.path)
    return (
        fnmatchcase(site.signature.name, name.name)
        and is_of_object(name.object, place.object.path)
        and (not name.source or is_of_line(name.source, place.source))
    )


def is_of(name: ProbeName, symbol: str, path: str) -> bool:
    """Whether a name is that of a function, by this symbol of it, in the object with this path."""
    return is_of_object(name.object, path) and is_named(name.name, symbol)


def is_named(glob: str, symbol: str) -> bool:
    """By the symbol, or as it was written in C++, with its parameters or without."""
    if fnmatchcase(symbol, glob) or not symbol.startswith("_Z"):
        return fnmatchcase(symbol, glob)
    written = demangled(symbol)
    return fnmatchcase(written, glob) or fnmatchcase(written.partition("(")[0], glob)


def is_of_object(glob: str, path: str) -> bool:
    """Whether a glob is that of a file, by its path or by its name; "" is of any."""
    return not glob or fnmatchcase(path, glob) or fnmatchcase(basename(path), glob)


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
    if name.kind is NameKind.FUNCTION and not name.at_return:
        return text.startswith(PREFIX) and is_named(name.name, text.removeprefix(PREFIX))
    if name.kind in (NameKind.MARKER, NameKind.USDT):
        return fnmatchcase(text, name.name)
    raise Unsupported(f"'{name}' is not among the events that can be recorded")
