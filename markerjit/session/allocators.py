"""What allocates in a process, and what a trace has to record of it.

Of the C library's functions, or of those of the allocator that stands in for it, an allocation is
recorded where it returns, and a free where it begins. The fields are the same for all of them, so
that one selection computes them in the process:

    block   the address of the block; 0 where there is none; UNSEEN where it is not known
    asked   the bytes that were asked for
    caller  the return address
    stack   the number of the stack, if it is asked for
    header  the word before the block, if it is asked for

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
from collections.abc import Callable, Mapping, Sequence

from markerjit.allocations.steps import Kind
from markerjit.elf import parse_format
from markerjit.errors import BadArgument, UnknownMarker, Unsupported
from markerjit.model import Field, FieldType, Signature, UsdtSite
from markerjit.questions.scope import DEPTH, MOST_DEPTH
from markerjit.session.target import Target
from markerjit.sites import parse_name
from markerjit.sites.names import PREFIX, SUFFIX, NameKind
from markerjit.tuples import NamedTuple

UNSEEN = 1
"""Of a block whose address is not known. No block has this one."""
_STACK = re.compile(r"stack(?:\((\d{1,4})\))?", re.ASCII)
_GLIBC, _JEMALLOC = "glibc", "jemalloc"
_RETURNED, _JUMPED = "rax", "first"
_MIDDLE = "_mid_memalign"
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
    objects = _allocators(target)
    if not objects:
        raise Unsupported(
            f"process {target.pid} has no malloc and free that we can find: it is linked "
            "statically without symbols, perhaps; name what allocates by --alloc and --free"
        )
    path = objects[0]
    shown = os.path.basename(path)
    symbols = [*dict.fromkeys((*_ROLES, *_AT_ENTRY)), "nallocx"]
    symbols_there = {
        site.signature.name.removeprefix(PREFIX)
        for site in _entries(target, shown, symbols)
        if site.place.object.path == path
    }
    allocator = _kind_of(shown, symbols_there)
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
    return _recorded(_events_of(sites, allocator), asked, allocator, read=read, depth=depth)


def _allocators(target: Target) -> list[str]:
    """The paths of the objects that have malloc and free, the one that is bound first."""
    having = [
        {site.place.object.path for site in _entries(target, "", [symbol])}
        for symbol in ("malloc", "free")
    ]
    program = os.path.realpath(f"/proc/{target.pid}/exe")

    def rank(path: str) -> tuple[bool, bool, str]:
        return path != program, os.path.basename(path).startswith(("libc.", "libc-")), path

    linkers = ("ld-linux", "ld.so", "ld-2")
    both = having[0] & having[1]
    return sorted(
        (path for path in both if not os.path.basename(path).startswith(linkers)), key=rank
    )


def _entries(target: Target, shown: str, symbols: Sequence[str]) -> tuple[UsdtSite, ...]:
    of_object = f"{shown}:" if shown else ""
    sites: list[UsdtSite] = []
    for symbol in symbols:
        try:
            sites += target.unprepared(parse_name(f"{PREFIX}{of_object}{symbol}"))
        except (UnknownMarker, Unsupported):
            continue
    return tuple(sites)


def _kind_of(shown: str, symbols: set[str]) -> str:
    if shown.startswith(("libc.so.6", "libc-2")):
        return _GLIBC
    return _JEMALLOC if "jemalloc" in shown or "nallocx" in symbols else ""


def _events_of(sites: Sequence[UsdtSite], allocator: str) -> dict[str, _Event]:
    """The events of these sites, by their names: one for the returns and tail calls of a
    function."""
    events: dict[str, _Event] = {}
    for site in sites:
        name = site.signature.name
        symbol = name.removeprefix(PREFIX).removesuffix(SUFFIX)
        names = [field.name for field in _fields(site.signature)]
        if site.leaves is None:
            events[name] = _Event(name, name, _AT_ENTRY[symbol], _named(names[0]), "0")
            continue
        if name in events or "dur" not in names:
            continue
        role = _ROLES[symbol]
        arguments = [*map(_named, names[names.index("dur") + 1 :])]
        # What calloc of glibc jumps to is memset, which returns its first argument.
        jumped = _JUMPED if (allocator, symbol) == (_GLIBC, "calloc") else str(UNSEEN)
        block = f'({role.block or _RETURNED} if has("{_RETURNED}") else {jumped})'
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
    allocating = {name for name, each in events.items() if each.kind >= Kind.ALLOC}
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
            {name: header % each.block if name in allocating else "0"
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
