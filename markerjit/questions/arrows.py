"""`->` and the prefix `*` of C in an expression, as what Python's parser reads in their place.

`->` becomes ` .` and `*` becomes `+`. These are as long, so places in the text stay what they are.
"""

from __future__ import annotations

import io
import keyword

from markerjit.tuples import NamedTuple

_ARROW, _STAR, _STARS = "->", "*", ("*", "**")
_CLOSING = (")", "]", "}")


class Prepared(NamedTuple):
    """A line that Python's parser reads, and the places of `*` that were replaced."""

    text: str
    line: str
    stars: frozenset[int]


def prepare(text: str) -> Prepared:
    """The line of a text. What cannot be read as tokens is left for the parser."""
    line = text.replace("\n", " ")
    if _ARROW not in line and _STAR not in line:
        return Prepared(line, line, frozenset())
    import tokenize  # compiles large patterns, which takes 15 ms

    indent = len(line) - len(line.lstrip())
    written, stars = list(line), set()
    before = ""
    try:
        for token in tokenize.generate_tokens(io.StringIO(line[indent:]).readline):
            at = indent + token.start[1]
            if token.type == tokenize.OP and token.string == _ARROW:
                written[at : at + 2] = " ."
            elif token.string in _STARS and _is_prefix_behind(before):
                for star in range(at, at + len(token.string)):
                    written[star] = "+"
                    stars.add(star)
            before = token.string
    except (tokenize.TokenError, SyntaxError, UnicodeError):
        pass
    return Prepared(line, "".join(written), frozenset(stars))


def _is_prefix_behind(token: str) -> bool:
    """Whether a `*` behind this token has only one operand."""
    if token in _CLOSING or token[-1:] in ("'", '"'):
        return False
    is_value = token[:1].isalnum() or (token[:1] in ("_", ".") and token != ".")
    is_value |= token.isidentifier()
    return not is_value or (keyword.iskeyword(token) and token not in ("True", "False", "None"))
