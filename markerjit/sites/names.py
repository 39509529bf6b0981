"""Names of what can be probed, parsed once from the text that a user gives.

    kv_get, kv_*              markers
    provider:name             USDT probes
    func:NAME[:return]        functions, where they are entered or left
    insn:NAME+0xOFF           an instruction of a function; of an object's file, where NAME is one
    call:CALLER->CALLEE       the calls of one function in another

    FILE.c:LINE               the markers of a line of source
    A,B                       several of these
    A,!B                      those that match A and do not match B
    A,@OBJECT                 those of A in the files of this name
    A{x,y}B                   AxB and AyB

NAME, CALLER and CALLEE are shell globs, and so are the names of markers and USDT probes. Each may
be said to be of an object, by the name of its file: `kv_*@libkv.so*`, `func:libc.so*:malloc`,
`func:malloc@libc.so*`. In the names of C++ there are colons by twos, tags such as [abi:cxx11], and
commas between brackets. In those of Rust there are arrows between blanks, too.

What this does not do: look for anything (selection.py).
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from markerjit.elf.written import cut_at_commas
from markerjit.errors import BadArgument, Unsupported, shown
from markerjit.tuples import NamedTuple

PREFIX = "func:"
"""The prefix of names of functions, and of the events of their entries."""
SUFFIX = ":return"
"""The suffix of a function's name that means its exits."""
PREFIX_OF_INSTRUCTIONS = "insn:"
"""The prefix of names of instructions, and of their events."""
PREFIX_OF_CALLS = "call:"
"""The prefix of names of calls, and of their events."""
ARROW = "->"
"""The separator between caller and callee."""


def may_be_mangled(name: str) -> bool:
    """Whether a name may have a symbol of C++ or Rust in it: most have none."""
    return "_Z" in name or "_R" in name


def written_name(name: str) -> str:
    """A name as it was written in C++ or Rust: `func:ns::f(int)`, `call:g()->ns::f(int):return`."""
    kind, colon, symbols = name.partition(":")
    if not colon or not may_be_mangled(symbols):
        return name
    from markerjit.elf.demangle import demangled  # few names need it

    rest = symbols.removesuffix(SUFFIX)
    written = ARROW.join(map(demangled, rest.split(ARROW)))
    return f"{kind}:{written}{symbols[len(rest) :]}"


class NameKind(Enum):
    """The kind of thing that is named. The value is its name in messages, in the plural."""

    MARKER = "markers"
    USDT = "USDT probes"
    FUNCTION = "functions"
    INSTRUCTION = "instructions"
    CALL = "calls"
    LIST = "several names"
    EVERYTHING = "whatever is on"


class ProbeName(NamedTuple):
    """A parsed name.

    text       as it was given
    name       a glob over names of markers, of `provider:name`s, or of functions; of a call the
               callee's
    object     a glob over names of files, "" for any
    caller     a glob over functions, "" where none is named
    offset     of an instruction, from the start of its function, or of its object's file; -1 where
               any is meant; 0 of anything else
    at_return  where the function is left, and not where it is entered
    source     of markers by their line: `kv_store.c:215`
    parts      the names of a list, of which each has to be of something
    without    the names that a list excludes
    """

    text: str
    kind: NameKind
    name: str
    object: str = ""
    caller: str = ""
    offset: int = 0
    at_return: bool = False
    source: str = ""
    parts: tuple[ProbeName, ...] = ()
    without: tuple[ProbeName, ...] = ()

    def __str__(self) -> str:
        """As a message shows it."""
        return shown(self.text)

    @property
    def is_plain(self) -> bool:
        """Whether it is a glob over the names of markers or USDT probes, and nothing else."""
        return not (self.parts or self.without or self.object or self.source)

    @property
    def usdt_globs(self) -> list[str]:
        """What it says of USDT probes, `provider:name`."""
        return [part.name for part in self.parts or (self,) if part.kind is NameKind.USDT]

    @property
    def is_of_stubs(self) -> bool:
        """Whether its sites are in code that nobody prepared for us, and so need stubs."""
        kinds = {part.kind for part in self.parts} or {self.kind}
        return not kinds <= {NameKind.MARKER, NameKind.EVERYTHING}


_LETTER = r"(?:[^@:]|\[abi:[^\]@:]*\]|\{\w+:[^{}@:]*\}|:(?= ))"
"""Of a function's name. Rust has {shim:vtable#0}, and { size: 8 } in a constant."""
_FUNCTION = (
    r"(?:(?P<file>[^@:]+)(?<!\[abi):(?!:))??"
    rf"(?P<name>{_LETTER}(?:{_LETTER}|::)*?)(?:@(?P<object>[^@]+?))?"
)
_ARROW = rf"(?<!operator)(?<! ){ARROW}"
_AFTER = {
    "func": (NameKind.FUNCTION, _FUNCTION + r"(?P<leaves>(?<!:):return)?"),
    "insn": (NameKind.INSTRUCTION, _FUNCTION + r"\+(?P<offset>0x[0-9a-fA-F]{1,16})"),
    "call": (NameKind.CALL, _FUNCTION.replace("name", "caller") + rf"{_ARROW}(?P<name>.+)"),
}
"""Regular expressions by what stands before the colon. They are compiled when one is needed: most
commands have none of these names, and would wait for it."""


_LINE = r"[^:]*\.[A-Za-z+]+:[0-9]+"
"""The file's name has a dot, which no provider's has."""
_MOST = 4096
"""Names of a list, braces expanded."""


EVERYTHING = ProbeName("", NameKind.EVERYTHING, "*")
"""All markers, and what else is on or altered: functions, instructions, calls and USDT probes. It
is no text's name."""


@lru_cache(maxsize=64)
def parse_name(text: str) -> ProbeName:
    """The name that a text is, or the list of names. Raises BadArgument for one that is none."""
    items = [item for piece in _pieces(text) for item in _expanded(piece)]
    if len(items) == 1 and items[0][:1] not in ("!", "@"):
        return _parse(items[0])._replace(text=text)
    parts = [_parse(item) for item in items if item[:1] not in ("!", "@")] or [_parse("*")]
    without = [_parse(item[1:]) for item in items if item.startswith("!")]
    objects = [item[1:] for item in items if item.startswith("@")]
    if objects:
        if len(objects) > 1 or not objects[0]:
            raise BadArgument("pattern", text, "the name of a file behind the @")
        parts = [part if part.object else _within(part, objects[0]) for part in parts]
    return ProbeName(text, NameKind.LIST, text, parts=tuple(parts), without=tuple(without))


def returns_of(name: ProbeName) -> ProbeName:
    """The name of the exits of the functions that a name is of. Raises BadArgument for a name of
    anything else."""
    for part in (*(name.parts or (name,)), *name.without):
        if part.kind is not NameKind.FUNCTION or part.at_return:
            meaning = "a function, such as func:malloc, since no end is named"
            raise BadArgument("pattern", part.text, meaning)
    text = ",".join(
        [part.text + SUFFIX for part in name.parts or (name,)]
        + [f"!{part.text}{SUFFIX}" for part in name.without]
    )
    return parse_name(text)


def _parse(text: str) -> ProbeName:
    """A single name."""
    colon = _colon(text)
    if colon < 0:
        return _of_object(text, NameKind.MARKER)
    first, rest = text[:colon], text[colon + 1 :]
    if first not in _AFTER:
        if not first or not rest:
            raise BadArgument("pattern", text, "a name on both sides of the colon")
        if re.fullmatch(_LINE, text):
            return ProbeName(text, NameKind.MARKER, "*", source=text)
        return _of_object(text, NameKind.USDT)
    kind, pattern = _AFTER[first]
    if kind is NameKind.INSTRUCTION and rest == "*":  # all that are known
        return ProbeName(text, kind, rest, offset=-1)
    match = re.fullmatch(pattern, rest, re.DOTALL)
    if match is None:
        raise BadArgument("pattern", text, _LOOKS[kind])
    fields = match.groupdict()
    return ProbeName(
        text, kind, fields["name"], fields.get("object") or fields.get("file") or "",
        fields.get("caller") or "",
        int(fields.get("offset") or "0", 16), bool(fields.get("leaves")),
    )  # fmt: skip


def _of_object(text: str, kind: NameKind) -> ProbeName:
    """`NAME` or `NAME@OBJECT`. No marker or provider has the sign in its name."""
    name, at, mapped = text.partition("@")
    if at and not (name and mapped):
        raise BadArgument("pattern", text, "a name on both sides of the @")
    return ProbeName(text, kind, name, mapped)


def _within(name: ProbeName, mapped: str) -> ProbeName:
    return name._replace(text=f"{name.text}@{mapped}", object=mapped)


def _pieces(text: str) -> list[str]:
    """The text, cut at its commas but for those between brackets. Raises BadArgument for nothing
    between two of them."""
    pieces = cut_at_commas(text) if "," in text else [text]
    if not all(piece.removeprefix("!") for piece in pieces) and text:
        raise BadArgument("pattern", text, "a name on both sides of the comma")
    return pieces


def _expanded(text: str) -> list[str]:
    """The texts that braces with a comma are short for, as in a shell: the innermost first. Commas
    between other brackets, as in {lambda(int, int)#1} of C++, do not count."""
    if text.count("{") > _MOST.bit_length():
        raise BadArgument("pattern", text, f"at most {_MOST} names")
    for braces in re.finditer(r"\{([^{}]*,[^{}]*)\}", text) if "{" in text else ():
        middles = cut_at_commas(braces[1])
        if len(middles) == 1:
            continue
        before, after = text[: braces.start()], text[braces.end() :]
        made: list[str] = []
        for middle in middles:
            made += _expanded(before + middle + after)
            if len(made) > _MOST:
                raise BadArgument("pattern", text, f"at most {_MOST} names")
        return made
    return [text]


def _colon(text: str) -> int:
    """Where the first colon is that is not inside of a glob's brackets, which are markers' as ever;
    -1 without one."""
    start = 0
    while True:
        colon, opened = text.find(":", start), text.find("[", start)
        first = opened + 1 + (text[opened + 1 : opened + 2] == "!")
        closed = text.find("]", first + 1)  # the first character may be a bracket itself
        if colon < 0 or opened < 0 or colon < opened or closed < 0:
            return colon
        start = closed + 1


_LOOKS = {
    NameKind.FUNCTION: "func:NAME or func:NAME:return",
    NameKind.INSTRUCTION: "insn:NAME+0xOFFSET",
    NameKind.CALL: "call:CALLER->CALLEE",
}


def check_is_marker(name: ProbeName) -> None:
    """Raises Unsupported for a name of anything else."""
    if name.kind is not NameKind.MARKER:
        raise Unsupported(
            f"'{name}' names {name.kind.value}, which are not supported here: markers such as "
            "'kv_*' are, and in a running process USDT probes and functions"
        )


_MOST_NEAR = 2
_MANY = 4096
_LIKE, _MUCH_LIKE = 0.5, 0.75
"""How like a pattern a name has to be, and one of the program to come before those of libraries."""


def nearest(pattern: str, *objects: set[str]) -> tuple[str, ...]:
    """The names that are most like a pattern, at most two, for a message: those of C++ as they are
    written. Of several objects the first one is the program: what is much like the pattern there is
    what was probably meant."""
    from difflib import get_close_matches

    text = pattern.strip("*?")
    objects = tuple(_as_written(names, text) for names in objects)
    names = sorted(set[str]().union(*objects))
    alike = get_close_matches(text, names, _MOST_NEAR, _LIKE)
    if len(objects) > 1:
        own = get_close_matches(text, sorted(objects[0]), _MOST_NEAR, _MUCH_LIKE)
        alike = [*dict.fromkeys([*own, *alike])][:_MOST_NEAR]
    return tuple(alike)


def _as_written(names: set[str], text: str) -> set[str]:
    """The names, those of C++ without their parameters, and of Rust without generic arguments. Of
    very many of Rust only those with a word of the text: reading takes longer than comparing."""
    if not any(map(may_be_mangled, names)):
        return names
    from markerjit.elf.demangle import OF_RUST, short_name

    rust = {name for name in names if name.startswith(OF_RUST)}
    left_out: set[str] = set()
    if len(rust) > _MANY:
        words = re.findall(r"[A-Za-z]\w{2,}", text)
        left_out = {name for name in rust if not any(word in name for word in words)}
    return set(map(short_name, names - left_out))
