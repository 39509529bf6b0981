"""What allocates in a process, and what is computed there of its steps.

Of the C library's functions, or of those of the allocator that stands in for it, an allocation is a
step where it returns, and a free where it begins. The numbers are the same for all of them, so that
one selection computes them in the process:

    block   the address of the block; 0 where there is none; UNSEEN where it is not known, and
            CONTINUED where a function that is jumped to will return it
    asked   the bytes that were asked for
    caller  the return address
    stack   the number of the stack, if it is asked for
    header  the word before the block, if it is asked for

An allocating function may end with a jump to another one: what is rare, or the same for several of
them. The returns of that one are steps, too (_Jumps).

An object that has both malloc and free is an allocator. The one that is bound is the program, if it
has them; else a library other than the C library, since that comes last in the order in which the
dynamic linker looks.

What this does not do: know an allocator that one library has for itself alone, such as one that was
loaded by dlopen with RTLD_LOCAL; nor functions that pass on what malloc gave them: their callers
are not the sites.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress

from markerjit.allocations.steps import CONTINUED, OWN, UNSEEN, Kind
from markerjit.elf import parse_format
from markerjit.errors import BadArgument, MemoryFault, Unsupported
from markerjit.model import (
    Constant,
    Field,
    FieldType,
    RemoteAddress,
    Signature,
    Static,
    UsdtSite,
)
from markerjit.questions.scope import DEPTH, MOST_DEPTH
from markerjit.session.target import Target
from markerjit.sites import parse_name
from markerjit.sites.functions import functions_at, named_in_process
from markerjit.sites.names import PREFIX, SUFFIX, NameKind
from markerjit.tuples import NamedTuple
from markerjit.x86.forms import ENDBR64, jumps_by_slot
from markerjit.x86.jumps import jump_target

_STACK = re.compile(r"stack(?:\((\d{1,4})\))?", re.ASCII)
_GLIBC, _JEMALLOC = "glibc", "jemalloc"
_RETURNED, _JUMPED = "rax", "first"
_MIDDLE = "_mid_memalign"
_HOPS = 4
"""Jumps from one function to the next at most."""
_LONGEST_STUB = 16
_BY_POINTER = ("posix_memalign",)
"""The block is not what they return."""
_ALIGNED = ("memalign", "valloc", "pvalloc")
"""In glibc jumps to _MIDDLE, whose returns say more, where it has a symbol."""


class _Role(NamedTuple):
    """What a function is for: its kind of step where it returns, and the expression of the bytes
    that it is asked for, of its arguments."""

    kind: Kind
    asked: str
    block: str = ""


_ROLES = {
    "malloc": _Role(Kind.ALLOC, "{0}"),
    "calloc": _Role(Kind.OUTER, "{0}*{1}"),
    "realloc": _Role(Kind.MOVED, "{1}"),
    "memalign": _Role(Kind.OUTER, "{1}"),
    "aligned_alloc": _Role(Kind.OUTER, "{1}"),
    "posix_memalign": _Role(Kind.OUTER, "{2}", "(u64({0}) if ret == 0 else 0)"),
    "valloc": _Role(Kind.OUTER, "{0}"),
    "pvalloc": _Role(Kind.OUTER, "{0}"),
    _MIDDLE: _Role(Kind.OUTER, "{1}"),
}
_AT_ENTRY = {"free": Kind.FREE, "cfree": Kind.FREE, "realloc": Kind.MOVE}


class Recorded(NamedTuple):
    """What is recorded: the names, the selection, and by the name of a marker its kind of step.

    allocator  whose rules the given bytes follow; "" where they are not known
    depth      frames of a stack at most; 0 where there are no stacks
    """

    names: str
    select: str
    kinds: Mapping[str, Kind]
    allocator: str
    depth: int

    @property
    def by(self) -> str:
        """What sites are told apart by."""
        return f"stack({self.depth})" if self.depth else "site"


class _Event(NamedTuple):
    """An event's name, the name that it is asked for by, its kind, and its expressions."""

    name: str
    asked_by: str
    kind: Kind
    block: str
    asked: str


def allocator_of(target: Target, *, read: bool, depth: int) -> Recorded:
    """The allocator of a process. `read`: the given bytes are to be read. `depth`: frames of a
    stack at most; 0 for no stacks. Raises Unsupported where there is none, or not one whose blocks
    have a header that we know."""
    symbols = [*dict.fromkeys((*_ROLES, *_AT_ENTRY)), "nallocx"]
    named = named_in_process(
        target.pid, target.memory.read, target.seen.maps, {*symbols, "tc_malloc"}
    )
    objects = _allocators(target, named)
    if not objects:
        raise Unsupported(
            f"process {target.pid} has no malloc and free that we can find: it is linked "
            "statically without symbols, perhaps; name what allocates by --alloc and --free"
        )
    path = objects[0]
    shown = os.path.basename(path)
    symbols_there = {named[path][symbol] for symbol in symbols if symbol in named[path]}
    # tcmalloc has functions of jemalloc's names, and rules of its own. These are names of malloc.
    is_tcmalloc = "tc_malloc" in named[path]
    allocator = "" if is_tcmalloc else _kind_of(shown, symbols_there)
    if read and allocator != _GLIBC:
        raise Unsupported(
            f"the blocks of {shown} have no header that we know; only those of glibc can be read"
        )
    if _MIDDLE in symbols_there:
        symbols_there -= {*_ALIGNED}
    of_return = [each for each in _ROLES if each in symbols_there]
    of_entry = [each for each in _AT_ENTRY if each in symbols_there]
    asked = ",".join([
        *(f"{PREFIX}{shown}:{each}{SUFFIX}" for each in of_return),
        *(f"{PREFIX}{shown}:{each}" for each in of_entry),
    ])  # fmt: skip
    sites = target.unprepared(parse_name(asked))
    jumps = _Jumps(target, sites)
    jumps.follow([site for site in sites if not _is_cleared(site, allocator)])
    asked = ",".join([asked, *jumps.names])
    events = {**_events_of(sites, allocator, jumps), **jumps.events()}
    return _recorded(events, asked, allocator, read=read, depth=depth)


def _is_cleared(site: UsdtSite, allocator: str) -> bool:
    """Whether a function ends with a jump to memset."""
    return (allocator, _symbol(site)) == (_GLIBC, "calloc")


def _symbol(site: UsdtSite) -> str:
    return site.signature.name.removeprefix(PREFIX).removesuffix(SUFFIX)


class _Jumps:
    """The functions that allocating functions, with these sites, jump to in place of a return, and
    those that these jump to.

    names   of the returns that are to be recorded as well

    What a jump to an address means for the block is CONTINUED, OWN or UNSEEN.
    """

    def __init__(self, target: Target, sites: Sequence[UsdtSite]) -> None:
        self.names: list[str] = []
        self._target = target
        self._entered = {
            site.place.object.bias + site.leaves for site in sites if site.leaves is not None
        }
        self._meanings: dict[int, int] = {}
        self._sites: list[UsdtSite] = []

    def follow(self, sites: Sequence[UsdtSite]) -> None:
        """Find what these sites jump to."""
        for _ in range(_HOPS):
            new: dict[int, int] = {}
            for site in sites:
                if site.leaves is not None and _symbol(site) not in _BY_POINTER:
                    new.update(self._targets(site))
            new = {at: entry for at, entry in new.items() if at not in self._meanings}
            self._meanings |= dict.fromkeys(new, UNSEEN)
            sites = [each for at, entry in new.items() for each in self._add(at, entry)]
            self._sites += sites

    def _targets(self, site: UsdtSite) -> dict[int, int]:
        """The address that a site jumps to, as its events have it, and what function that is."""
        operand = site.recipe.operands[0] if site.signature.format.startswith("tail ") else None
        if isinstance(operand, Static):  # a pointer that was written when the object was loaded
            at = self._pointer(operand.address)
            return {at: at}
        at = operand.value if isinstance(operand, Constant) else 0
        return {at: self._linked(at)} if at else {}

    def _linked(self, address: int) -> int:
        """Where a jump to this address comes to, by way of a linkage table or not."""
        with suppress(MemoryFault):
            code = self._target.memory.read(RemoteAddress(address), _LONGEST_STUB)
            start = len(ENDBR64) if code.startswith(ENDBR64) else 0
            if jumps_by_slot(code[start:]):
                to = jump_target(code[start:], address + start)
                return self._pointer(to.address) if isinstance(to, Static) else address
        return address

    def _pointer(self, address: int) -> int:
        with suppress(MemoryFault):
            return int.from_bytes(self._target.memory.read(RemoteAddress(address), 8), "little")
        return 0

    def _add(self, at: int, entry: int) -> Sequence[UsdtSite]:
        """Where the function that is entered here is left."""
        target = self._target
        places = [RemoteAddress(entry), RemoteAddress(entry + len(ENDBR64))]
        functions = functions_at(target.pid, target.memory.read, target.seen.maps, places)
        for site in functions[:1]:
            if site.address in self._entered:
                self._meanings[at] = OWN
                return ()
            shown = os.path.basename(site.place.object.path)
            name = f"{PREFIX}{shown}:{_symbol(site)}{SUFFIX}"
            exits = target.unprepared(parse_name(name))
            if any(each.form.head for each in exits):
                self._meanings[at] = CONTINUED
                self.names += [] if name in self.names else [name]
                return exits
        return ()

    def block(self, result: str, unseen: int | str, symbol: str = "") -> str:
        """The expression of the block, where this is the result of a return of a function."""
        text = str(unseen)
        for meaning in (CONTINUED, OWN) if symbol not in _BY_POINTER else ():
            places = [f"tail == {at:#x}" for at, each in self._meanings.items() if each == meaning]
            if places:
                text = f"({meaning} if {' or '.join(places)} else {text})"
        return f'({result} if has("{_RETURNED}") else {text})'

    def events(self) -> dict[str, _Event]:
        """The events of the functions that are jumped to."""
        return {
            name: _Event(name, name, Kind.RESULT, self.block(_RETURNED, UNSEEN), "0")
            for name in dict.fromkeys(site.signature.name for site in self._sites)
        }


def _allocators(target: Target, named: Mapping[str, Collection[str]]) -> list[str]:
    """The paths of the objects that have malloc and free, the one that is bound first. `named` are
    symbols of functions, by the paths of objects."""
    program = os.path.realpath(f"/proc/{target.pid}/exe")

    def rank(path: str) -> tuple[bool, bool, str]:
        return path != program, os.path.basename(path).startswith(("libc.", "libc-")), path

    linkers = ("ld-linux", "ld.so", "ld-2")
    both = [path for path, names in named.items() if "malloc" in names and "free" in names]
    return sorted(
        (path for path in both if not os.path.basename(path).startswith(linkers)), key=rank
    )


def _kind_of(shown: str, symbols: set[str]) -> str:
    if shown.startswith(("libc.so.6", "libc-2")):
        return _GLIBC
    return _JEMALLOC if "jemalloc" in shown or "nallocx" in symbols else ""


def _events_of(sites: Sequence[UsdtSite], allocator: str, jumps: _Jumps) -> dict[str, _Event]:
    """The events of these sites, by their names: one for the returns and tail calls of a
    function."""
    events: dict[str, _Event] = {}
    for site in sites:
        name = site.signature.name
        symbol = _symbol(site)
        names = [field.name for field in _fields(site.signature)]
        if site.leaves is None:
            events[name] = _Event(name, name, _AT_ENTRY[symbol], _named(names[0]), "0")
            continue
        if name in events or "dur" not in names:
            continue
        role = _ROLES[symbol]
        arguments = [*map(_named, names[names.index("dur") + 1 :])]
        # What calloc of glibc jumps to is memset, which returns its first argument.
        jumped = _JUMPED if _is_cleared(site, allocator) else UNSEEN
        block = jumps.block(role.block or _RETURNED, jumped, symbol)
        events[name] = _Event(
            name, name, role.kind, block.format(*arguments), role.asked.format(*arguments)
        )
    return events


def _named(field: str) -> str:
    return f'field("{field}")'


def own_allocator(
    target: Target, allocs: Sequence[str], frees: Sequence[str], *, depth: int
) -> Recorded:
    """Markers and functions that are named as what allocates and frees.

    An allocating marker has a field `ptr`, or one pointer alone, and `size`, or one whole number
    alone; one that frees has the first of these. A function returns the block, and its first
    argument is the size, or the block that is freed. `depth` is as of `allocator_of`.

    Raises BadArgument where it is not known which field is meant, and UnknownMarker.
    """
    events: dict[str, _Event] = {}
    for allocates, texts in ((True, allocs), (False, frees)):
        for text in texts:
            for name, each in _own_events(target, text, allocates=allocates).items():
                if name in events:
                    what = "a name of something that does not both allocate and free"
                    raise BadArgument("frees" if name in events else "allocs", text, what)
                events[name] = each
    asked = ",".join(dict.fromkeys(each.asked_by for each in events.values()))
    return _recorded(events, asked, "", read=False, depth=depth)


def _own_events(target: Target, text: str, *, allocates: bool) -> dict[str, _Event]:
    name = parse_name(text)
    parameter = "allocs" if allocates else "frees"
    if name.parts or name.without:
        raise BadArgument(parameter, text, "a single name; there may be several of them")
    kind = Kind.ALLOC if allocates else Kind.FREE
    if name.kind is not NameKind.FUNCTION:
        sites: Sequence[Signature] = [site.signature for site in target.matching(name)]
        return {
            each.name: _Event(each.name, text, kind, *_fields_meant(parameter, text, each))
            for each in sites
        }
    if allocates and not name.at_return:
        text += SUFFIX
    events: dict[str, _Event] = {}
    for site in target.unprepared(parse_name(text)):
        names = [field.name for field in _fields(site.signature)]
        if site.leaves is None:
            each = _Event(site.signature.name, text, kind, _named(names[0]), "0")
        elif "dur" in names and len(names) > names.index("dur") + 1:
            size = _named(names[names.index("dur") + 1])
            block = f'({_RETURNED} if has("{_RETURNED}") else {UNSEEN})'
            each = _Event(site.signature.name, text, kind, block, size)
        else:
            what = "a function whose arguments are known when it returns"
            raise BadArgument(parameter, text, what)
        events.setdefault(site.signature.name, each)
    return events


def _fields(signature: Signature) -> tuple[Field, ...]:
    return tuple(parse_format(signature.format, signature.args))


def _fields_meant(parameter: str, text: str, signature: Signature) -> tuple[str, str]:
    """The expressions of the block and of its size."""
    fields = _fields(signature)
    pointer = _meant("ptr", fields, lambda field: field.type is FieldType.POINTER)
    size = _meant("size", fields, lambda field: field.type is FieldType.INT)
    if pointer is None or (size is None and parameter == "allocs"):
        what = "ptr and size" if parameter == "allocs" else "ptr"
        raise BadArgument(
            parameter, text,
            f"a marker with the fields {what}; {signature.name} has "
            f"{', '.join(field.name for field in fields) or 'none'}",
        )  # fmt: skip
    return _named(pointer), _named(size) if size else "0"


def _meant(name: str, fields: Sequence[Field], fits: Callable[[Field], bool]) -> str | None:
    named = [field.name for field in fields if field.name == name]
    fitting = [field.name for field in fields if fits(field)]
    return named[0] if named else fitting[0] if len(fitting) == 1 else None


def _recorded(
    events: Mapping[str, _Event], names: str, allocator: str, *, read: bool, depth: int
) -> Recorded:
    functions = {name for name in events if name.startswith(PREFIX)}
    with_block = {name for name, each in events.items() if each.kind >= Kind.ALLOC}
    allocating = {name for name in with_block if events[name].kind != Kind.RESULT}
    parts = {
        "block": _by_name({name: each.block for name, each in events.items()}),
        "asked": _by_name({name: each.asked for name, each in events.items()}),
        "caller": _by_name({
            name: "caller" if name in functions & allocating else "0" for name in events
        }),
    }  # fmt: skip
    if read:
        header = "u64(%s - 8)"
        parts["header"] = _by_name(
            {name: header % each.block if name in with_block else "0"
             for name, each in events.items()}
        )  # fmt: skip
    if depth:
        parts["stack"] = _by_name(
            {name: _stack(depth, name in functions) if name in allocating else "0"
             for name in events}
        )  # fmt: skip
    select = ", ".join(f"{name}={text}" for name, text in parts.items())
    kinds = {name: each.kind for name, each in events.items()}
    return Recorded(names, select, kinds, allocator, depth)


def _stack(depth: int, is_function: bool) -> str:
    """The number of a stack. The frame of an allocating function itself is not one of `depth`."""
    return f"int(stack({min(depth + is_function, MOST_DEPTH)}))"


def depth_of(by: str) -> int:
    """Frames of a stack at most, for a text that says what allocations are told apart by; 0 for
    immediate callers. Raises BadArgument."""
    stack = _STACK.fullmatch(by) if isinstance(by, str) else None
    depth = 0 if by == "site" else int(stack[1] or DEPTH) if stack else -1
    if not (by == "site" or 1 <= depth <= MOST_DEPTH):
        raise BadArgument("by", by, f"site, stack, or stack(N) with N from 1 to {MOST_DEPTH}")
    return depth


def _by_name(texts: Mapping[str, str]) -> str:
    """The text of each event, by its name; the commonest one is for the rest."""
    groups: dict[str, list[str]] = {}
    for name, text in texts.items():
        groups.setdefault(text, []).append(name)
    *others, last = sorted(groups, key=lambda text: len(groups[text]))
    for text in others:
        names = ", ".join(f'"{name}"' for name in groups[text])
        is_one = f"name in ({names})" if len(groups[text]) > 1 else f"name == {names}"
        last = f"({text}) if {is_one} else ({last})"
    return last
