"""The active path of a site on a terminal: a line for each part, or each instruction. A part has a
mark by its role, and a colour where the output has colours. No line has more than 80 characters.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby

from markerjit.cli import output
from markerjit.explain import ActivePath, Instruction, PathPart, Role

_WIDTH = 80
_LOOKS = {
    Role.HEAD: ("!", "1;31", "the program's code that a switch changes"),
    Role.PROGRAM: ("|", "37", "other code of the program"),
    Role.SLOT: ("=", "35", "data that is read on the way"),
    Role.SAVE: (">", "36", "arguments and registers are put away"),
    Role.WORK: (".", "", "other work"),
    Role.SEQUENCE: ("~", "34", "in a restartable sequence"),
    Role.COMMIT: ("*", "1;32", "commit: from here on it has happened"),
    Role.BACK: ("<", "36", "the way back"),
    Role.RARE: ("?", "33", "not on the usual way"),
    Role.DATA: ("-", "2", "not executed"),
}
"""The mark, the colour (SGR) and the meaning of each role."""
_BYTES_IN_LINE = 8


def show_summary(path: ActivePath) -> None:
    """A line for each part of the usual way."""
    output.say("")
    state = "" if _is_in_memory(path) else ", as it would be"
    output.say(f"  active path{state} (--path shows each instruction):")
    for part in path.parts:
        piece = part.piece
        start = f"{piece.address:x}  {len(piece.code):>3} bytes  "
        _say_wrapped(piece.name, piece.role, start, indent="    ")
    _say_remarks(path, indent="    ")


def show_path(path: ActivePath) -> None:
    """Every instruction of each part, on the usual way and off it."""
    site = path.site
    mode = f" ({path.mode})" if path.mode else ""
    state = "active path" if _is_in_memory(path) else "active path, as it would be"
    output.say(f"{site.marker} at {site.source}, {site.address:#x}: {state}{mode}")
    _show_parts(path.parts)
    if path.rest:
        output.say("")
        output.say("not on the usual way:")
        _show_parts(path.rest)
    output.say("")
    _say_remarks(path, indent="")
    roles = dict.fromkeys(part.piece.role for part in (*path.parts, *path.rest))
    for role in roles:
        mark, _, meaning = _LOOKS[role]
        _say(f"{mark} {meaning}", role)
    output.say("")


def _is_in_memory(path: ActivePath) -> bool:
    return all(part.piece.in_memory for part in path.parts)


def _show_parts(parts: Sequence[PathPart]) -> None:
    for (where, in_memory), group in groupby(
        parts, key=lambda part: (part.piece.where, part.piece.in_memory)
    ):
        output.say("")
        output.say(f"{where}:" if in_memory else f"{where}, not in the process yet:")
        for part in group:
            _show_part(part)


def _show_part(part: PathPart) -> None:
    piece = part.piece
    mark = _LOOKS[piece.role][0]
    _say_wrapped(piece.name, piece.role, "")
    for line in _code_lines(part):
        _say(f"{mark}   {line}", piece.role)


def _code_lines(part: PathPart) -> Iterator[str]:
    """Eight bytes a line, with the assembly beside the first of them."""
    piece = part.piece
    decoded = sum(len(each.code) for each in part.instructions)
    rest = piece.code[decoded:]
    data = Instruction(piece.address + decoded, rest, "")
    for address, code, text in (*part.instructions, *((data,) if rest else ())):
        width = _BYTES_IN_LINE * 3 - 1
        texts = textwrap.wrap(text, _WIDTH - width - 20) or [""]
        starts = range(0, max(len(code), len(texts) * _BYTES_IN_LINE), _BYTES_IN_LINE)
        for at, shown in zip(starts, texts + [""] * len(starts), strict=False):
            piece_of_code = code[at : at + _BYTES_IN_LINE].hex(" ")
            place = f"{address + at:x}" if piece_of_code else ""
            yield f"{place:<12} {piece_of_code:<{width}} {shown}".rstrip()


def _say_remarks(path: ActivePath, *, indent: str) -> None:
    for remark in path.remarks:
        for line in textwrap.wrap(remark, _WIDTH - len(indent) - 2):
            output.say(f"{indent}{line}")


def _say_wrapped(text: str, role: Role, start: str, *, indent: str = "") -> None:
    first = f"{indent}{_LOOKS[role][0]} {start}"
    lines = textwrap.wrap(text, _WIDTH - len(first))
    for number, line in enumerate(lines):
        _say((first if not number else " " * len(first)) + line, role)


def _say(line: str, role: Role) -> None:
    output.say(line, style=_LOOKS[role][1] if output.is_coloured() else "")
