"""Where functions of a process or a file are left: a site for each exit, from the entries of the
functions.

The exits are found in the code (spans/exits.py), and remembered with its build (openings.py). A
site is the first instruction that its opening displaces; so a function has at most one at each
address. Its name is that of the function and `:return`, and its fields are

    ret, rax    of a return: the value as debugging information has its type, as an int where there
                is none, and all 64 bits of the register
    tail, first of a tail call: the function that is jumped to, and the first of its arguments that
                are integers or pointers. What it will return is not known
    dur         nanoseconds since the entry, and behind it the first arguments of the entry: where
                entry and exits can be open together (0038)

What this does not do: open anything (stubs.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from operator import attrgetter

from markerjit.abi import STASH_ARGS
from markerjit.elf import FileImage, Read
from markerjit.elf.functions import NoFunctions
from markerjit.errors import BadFile
from markerjit.memory import Mapping
from markerjit.model import (
    Constant,
    CType,
    Duration,
    Kept,
    MappedObject,
    Operand,
    Place,
    Recipe,
    RemoteAddress,
    Returned,
    Signature,
    Static,
    TypeClass,
    UsdtSite,
    new,
)
from markerjit.probes.record import DURATION
from markerjit.session.openings import Progress, exits_of_functions, silent
from markerjit.sites.calling import GENERAL, RAX
from markerjit.sites.functions import unnamed
from markerjit.sites.mapped_files import image_of
from markerjit.sites.names import SUFFIX
from markerjit.sites.operands import shown
from markerjit.spans.columns import KeptExits
from markerjit.spans.exits import Exit, ExitKind, Exits, has_bytes_of_entry
from markerjit.spans.openings import Closed, Opening
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import exit_form
from markerjit.x86.jumps import jump_target

_OBJECT = attrgetter("place.object")
_UNKNOWN = Returned(
    "ret %d rax %#lx", (CType(TypeClass.SIGNED, 4), CType(TypeClass.UNSIGNED, 8)), (RAX, RAX)
)
_TAIL = "tail %p first %p", (CType(TypeClass.POINTER, 8),) * 2
_FIRST = GENERAL[0]
_DURATION = f"{DURATION} %lu", CType(TypeClass.UNSIGNED, 8)


BY_ENTRY = "it is a single instruction, which its entry needs"


def is_tail(signature: Signature) -> bool:
    """Whether it is that of an exit by a jump to another function."""
    return signature.format.startswith(_TAIL[0])


class Leaving(NamedTuple):
    """Where a function is left: the entry that it was asked for by, its exits, and a site for each,
    or one that cannot be opened where they are not known. `problem`: they cannot be looked for."""

    entry: UsdtSite
    exits: Exits | None
    sites: tuple[UsdtSite, ...]
    problem: str = ""


class Looked(NamedTuple):
    """Entries of functions of one object, and where these are left; `problem`: that cannot be
    looked for."""

    entries: Sequence[UsdtSite]
    exits: KeptExits | None
    problem: str = ""

    def leavings(self) -> list[Leaving]:
        """A value for each."""
        exits = self.exits
        if exits is None:
            return [_unknown(entry, self.problem) for entry in self.entries]
        return [_leaving(entry, exits[entry.place.offset]) for entry in self.entries]


def looked_for(
    pid: int,
    read: Read,
    maps: Sequence[Mapping],
    entries: Sequence[UsdtSite],
    progress: Progress = silent,
) -> Iterator[Looked]:
    """Where the functions with these entries are left, of a process with these mappings."""
    for mapped, group in groupby(entries, key=_OBJECT):
        of_object = list(group)
        try:
            image = image_of(pid, read, maps, mapped)
        except BadFile as problem:
            yield Looked(of_object, None, str(problem))
            continue
        with image:
            yield looked_for_in(image, of_object, progress)


def looked_for_in(
    image: FileImage, entries: Sequence[UsdtSite], progress: Progress = silent
) -> Looked:
    """The same, of entries of one object."""
    try:
        exits = exits_of_functions(image, [entry.place.offset for entry in entries], progress)
    except NoFunctions as problem:
        return Looked(entries, None, str(problem))
    return Looked(entries, exits)


def leavings_of(
    pid: int, read: Read, maps: Sequence[Mapping], entries: Sequence[UsdtSite]
) -> list[Leaving]:
    """A value for each function with these entries, of a process with these mappings."""
    of_objects = looked_for(pid, read, maps, entries)
    return [leaving for looked in of_objects for leaving in looked.leavings()]


def opening_at(exits: Exits, site: UsdtSite) -> Opening | Closed | str:
    """How an exit can be opened, by its site, or why there is none."""
    if exits.unbounded:
        return f"cannot be opened: {exits.unbounded} ({exits.at:#x})"
    for each in exits.exits:
        if each.opening.address == site.place.offset and each.opening != exits.entry:
            return each.opening
    if exits.exits:
        return f"cannot be opened: {BY_ENTRY}"
    return "cannot be opened: it never returns"


def sites_at(leavings: Iterable[Leaving], places: set[int]) -> list[UsdtSite]:
    """Those of the sites at these addresses that can be opened."""
    return [
        site for leaving in leavings for site in leaving.sites
        if site.address in places and site.form.head
    ]  # fmt: skip


def _unknown(entry: UsdtSite, problem: str) -> Leaving:
    return Leaving(entry, None, (_site_of_none(entry),), problem)


def _leaving(entry: UsdtSite, exits: Exits) -> Leaving:
    own = [each for each in exits.exits if each.opening != exits.entry]
    are_open_together = isinstance(exits.entry, Opening) and len(own) == len(exits.exits)
    if are_open_together and any(has_bytes_of_entry(exits, each) for each in own):
        are_open_together = False
    kept = _kept_of(entry) if are_open_together else None
    sites = tuple(_site(entry, each, kept) for each in own)
    if len(own) < len(exits.exits) or not sites:
        sites = (*sites, _site_of_none(entry))
    return new(Leaving, (entry, exits, sites, ""))


def _site_of_none(entry: UsdtSite) -> UsdtSite:
    """A site that cannot be opened, in the place of the function."""
    value = entry.returned or _UNKNOWN
    return UsdtSite(
        Signature(entry.signature.name + SUFFIX, value.format, value.args), entry.place,
        entry.address, exit_form(b""), Recipe(value.operands), entry.place.offset,
    )  # fmt: skip


def _site(entry: UsdtSite, leaving: Exit, kept: _Kept | None) -> UsdtSite:
    """The site of an exit, whose event has what is kept of the entry, too."""
    mapped = entry.place.object
    address, kind, opening = leaving
    offset = opening.address
    code = opening.code if isinstance(opening, Opening) else b""
    head = code[: opening.size] if isinstance(opening, Opening) else b""
    if kind is ExitKind.RETURN:
        format_, args, recipe = _returning(entry.returned or _UNKNOWN, kept)
    else:
        operand = _moved(jump_target(code[address - offset :], address), mapped)
        operands, text = (operand, _FIRST), f"{operand} {shown(_FIRST)}"
        format_, args, recipe = _with_kept(*_TAIL, operands, text, kept)
    fields = (
        new(Signature, (entry.signature.name + SUFFIX, format_, args)),
        new(Place, (mapped, offset, f"{entry.place.source.partition('+')[0]}+{address:#x}")),
        RemoteAddress(offset + mapped.bias),
        exit_form(head), recipe, entry.place.offset, entry if kept else None, None, (),
    )  # fmt: skip
    return new(UsdtSite, fields)


class _Kept(NamedTuple):
    """What exits have of an entry: the duration and arguments, with the names and conversions,
    their types and operands, and the operands of the entry for people."""

    words: str
    args: tuple[CType, ...]
    operands: tuple[Operand, ...]
    text: str


_Fields = tuple[str, tuple[CType, ...], Recipe]
"""The format of an exit's event, the types of its arguments, and where they are."""


def _kept_of(entry: UsdtSite) -> _Kept:
    return _kept(entry.signature.format, entry.signature.args, entry.recipe.text)


@lru_cache(1 << 12)
def _kept(format_: str, args: tuple[CType, ...], text: str) -> _Kept:
    args = args[:STASH_ARGS]
    words = format_.split(" ")[: 2 * len(args)]
    operands = (Kept(index) for index in range(len(args)))
    return _Kept(
        " ".join((_DURATION[0], *words)), (_DURATION[1], *args), (Duration(), *operands), text
    )


@lru_cache(1 << 12)
def _returning(value: Returned, kept: _Kept | None) -> _Fields:
    return _with_kept(*value, _shown(value.operands), kept)


def _with_kept(
    format_: str,
    args: tuple[CType, ...],
    operands: tuple[Operand, ...],
    text: str,
    kept: _Kept | None,
) -> _Fields:
    """The fields of an exit's event, and behind them what is kept of the entry."""
    if kept is None:
        return format_, args, Recipe(operands, text)
    recipe = Recipe((*operands, *kept.operands), f"{text} {kept.text}".strip())
    return f"{format_} {kept.words}".lstrip(), args + kept.args, recipe


def unnamed_exit(site: UsdtSite) -> UsdtSite:
    """The same exit as it is without debugging information."""
    enters = unnamed(site.enters) if site.enters else None
    kept = _kept_of(enters) if enters else None
    if is_tail(site.signature):
        operands = site.recipe.operands[: len(_TAIL[1])]
        text = f"{operands[0]} {shown(operands[1])}"
        fields = _with_kept(*_TAIL, operands, text, kept)
    else:
        fields = _returning(_UNKNOWN, kept)
    format_, args, recipe = fields
    signature = Signature(site.signature.name, format_, args)
    return site._replace(signature=signature, recipe=recipe, enters=enters)


def _shown(operands: Sequence[Operand]) -> str:
    """The first one stands for both: they are one register."""
    return shown(operands[0]) if operands else ""


def _moved(operand: Operand | None, mapped: MappedObject) -> Operand:
    """The operand in the process. A target that no operand says is 0."""
    match operand:
        case None:
            return Constant(0)
        case Constant(value):
            return Constant(value + mapped.bias)
        case Static(address):
            return Static(RemoteAddress(address + mapped.bias), "")
    return operand
