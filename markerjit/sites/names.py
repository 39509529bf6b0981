"""Names of what can be probed, parsed once from the text that a user gives.

    kv_get, kv_*              markers
    provider:name             USDT probes
    func:NAME[:return]        functions, where they are entered or left
    insn:NAME+0xOFF           an instruction of a function
    call:CALLER->CALLEE       a call of one function in another

NAME, CALLER and CALLEE are shell globs, and so are the names of markers and USDT probes. A function
may be said to be of an object, by the name of its file: `func:libc.so*:malloc`, `malloc@libc.so*`.
In the names of C++ there are colons by twos.

What this does not do: look for anything. Today markers, USDT probes and the entries of functions
can be found. The other kinds are parsed, and the caller refuses them.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

from markerjit.errors import BadArgument, Unsupported


class NameKind(Enum):
    """The kind of thing that is named. The value is its name in messages, in the plural."""

    MARKER = "markers"
    USDT = "USDT probes"
    FUNCTION = "functions"
    INSTRUCTION = "instructions"
    CALL = "calls"


class ProbeName(NamedTuple):
    """A parsed name.

    text       as it was given
    name       a glob over names of markers, of `provider:name`s, or of functions; of a call the
               callee's
    object     a glob over names of files, "" for any
    caller     a glob over functions, "" where none is named
    offset     of an instruction, from the start of its function; 0 of anything else
    at_return  where the function is left, and not where it is entered
    """

    text: str
    kind: NameKind
    name: str
    object: str = ""
    caller: str = ""
    offset: int = 0
    at_return: bool = False

    def __str__(self) -> str:
        return self.text

    @property
    def is_of_stubs(self) -> bool:
        """Whether its sites are in code that nobody prepared for us, and so need stubs."""
        return self.kind in (NameKind.USDT, NameKind.FUNCTION)


_FUNCTION = r"(?:(?P<file>[^@:]+):(?!:))??(?P<name>[^@:](?:[^@:]|::)*?)(?:@(?P<object>[^@]+?))?"
_AFTER = {
    "func": (NameKind.FUNCTION, _FUNCTION + r"(?P<leaves>(?<!:):return)?"),
    "insn": (NameKind.INSTRUCTION, _FUNCTION + r"\+(?P<offset>0x[0-9a-fA-F]{1,16})"),
    "call": (NameKind.CALL, _FUNCTION.replace("name", "caller") + r"->(?P<name>.+)"),
}
"""Regular expressions by what stands before the colon. They are compiled when one is needed: most
commands have none of these names, and would wait for it."""


def parse_name(text: str) -> ProbeName:
    """The name that a text is. Raises BadArgument for one that is none."""
    colon = _colon(text)
    if colon < 0:
        return ProbeName(text, NameKind.MARKER, text)
    first, rest = text[:colon], text[colon + 1 :]
    if first not in _AFTER:
        if not first or not rest:
            raise BadArgument("pattern", text, "a name on both sides of the colon")
        return ProbeName(text, NameKind.USDT, text)
    kind, pattern = _AFTER[first]
    match = re.fullmatch(pattern, rest, re.DOTALL)
    if match is None:
        raise BadArgument("pattern", text, _LOOKS[kind])
    fields = match.groupdict()
    return ProbeName(
        text, kind, fields["name"], fields.get("object") or fields.get("file") or "",
        fields.get("caller") or "",
        int(fields.get("offset") or "0", 16), bool(fields.get("leaves")),
    )  # fmt: skip


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
