"""Names of C++ as a demangler writes them: `int ns::twice<int>(int)`, `ns::get[abi:cxx11](long)`.

Their brackets enclose commas and blanks that divide nothing. But a few tokens have characters of
brackets that open and close nothing (`operator<`), or are a part of a name (`(anonymous
namespace)`). What this does not do: demangle (demangle.py).
"""

from __future__ import annotations

import re
from functools import cache

from markerjit.tuples import NamedTuple

_OPENING, _CLOSING = "([{<", ")]}>"
_BEHIND_SCOPE = r"(?: const| volatile| &&?)*::"
"""What stands behind the parameters of a function that something else is local to."""


class Parts(NamedTuple):
    """Where the name in a written one begins, and where it ends: behind what a template returns,
    and before the parameters. The end is that of the text where there are none."""

    start: int
    end: int


def parts_of(text: str) -> Parts:
    """Where the name is in a name as it is written."""
    if _compiled(_USUAL).fullmatch(text):
        return Parts(0, text.index("("))
    plain = _plain(text)
    behind_scope = _compiled(_BEHIND_SCOPE)
    start = at = 0
    is_conversion = False
    while at < len(plain):
        letter = plain[at]
        if letter == " " and not is_conversion:
            is_conversion = plain.endswith("operator", start, at)
            if not is_conversion and plain[at + 1 : at + 2] != "<":
                start = at + 1
        elif letter in _OPENING:
            end = _end_of_brackets(plain, at)
            scope = behind_scope.match(plain, end)
            if letter == "(" and at > start and not scope:
                return Parts(start, at)
            at = scope.end() if scope else end
            continue
        at += 1
    return Parts(start, len(text))


def without_tags(text: str) -> str:
    """The text without the tags that compilers add, such as [abi:cxx11]."""
    return _compiled(r"\[abi:[^\]]*\]").sub("", text) if "[abi:" in text else text


def cut_at_commas(text: str) -> list[str]:
    """The text, cut at its commas but for those between brackets."""
    pieces: list[str] = []
    start = depth = 0
    for at, letter in enumerate(_plain(text)):
        depth = max(depth + (letter in _OPENING) - (letter in _CLOSING), 0)
        if letter == "," and not depth:
            pieces.append(text[start:at])
            start = at + 1
    pieces.append(text[start:])
    return pieces


def _end_of_brackets(plain: str, at: int) -> int:
    """The place behind the bracket that closes the one at a place."""
    depth = 0
    for place in range(at, len(plain)):
        depth += (plain[place] in _OPENING) - (plain[place] in _CLOSING)
        if not depth:
            return place + 1
    return len(plain)


def _plain(text: str) -> str:
    """The text with letters in place of all in it that only looks like brackets and blanks."""
    if not any(word in text for word in ("operator", "(anonymous", "[abi:", " to ", " for ")):
        return text
    return _compiled(_TOKENS).sub(lambda match: "_" * len(match[0]), text)


_USUAL = r"[\w:~]+\([^()]*\)(?: const)?"
"""What most are, and what is known at once."""
_TOKENS = (
    r"(?<!\w)operator(?:<=>|<<=?|>>=?|->\*?|[<>]=?|\(\)|\[\]|,(?=\()|\"\" )"
    r"|\(anonymous namespace\)|\[abi:[^\]]*\]"
    r"|^(?:[\w-]+ )+(?:to|for) "  # non-virtual thunk to
)


@cache
def _compiled(text: str) -> re.Pattern[str]:
    """A regular expression. Most commands need none of these, and would wait for it."""
    return re.compile(text)
