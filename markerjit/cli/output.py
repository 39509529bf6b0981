"""Lines, tables and JSON on standard output, and remarks on standard error.

What comes from a target or a file may be in any of it, so that everything is made printable here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from markerjit.printable import printable

if TYPE_CHECKING:
    from markerjit import LeftOut, MarkerStatus, StrayHead, View

_STRAYS = 20
"""Lines of stray heads at most: an object may have had thousands."""


def say(line: str, *, error: bool = False, style: str = "") -> None:
    """Print a line on standard output, or on standard error. `style` is the parameters of SGR, the
    sequence that sets a terminal's colours (ECMA-48, 8.3.117), for this line."""
    shown = printable(line)
    if style:
        shown = f"\x1b[{style}m{shown}\x1b[0m"
    print(shown, file=sys.stderr if error else sys.stdout)


def print_checked(*texts: str) -> None:
    """Print text that is our own, or of which each character was checked before."""
    print(*texts, sep="\n")


def clear_screen() -> None:
    """Clear the terminal, and go on in its upper left corner: CUP and ED of ECMA-48."""
    print("\x1b[H\x1b[J", end="")


def is_coloured() -> bool:
    """Whether standard output takes colours: a terminal, unless NO_COLOR is set."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR")


def width() -> int | None:
    """The columns of the terminal; None where the output goes elsewhere, and nothing is cut."""
    if not sys.stdout.isatty():
        return None
    import shutil  # with all kinds of compression

    return shutil.get_terminal_size().columns


def print_json(document: object) -> None:
    """Print a document on one line, in ASCII: a terminal obeys other characters, and an encoding
    may not have them."""
    import json

    print(json.dumps(document))


def print_progress(text: str) -> None:
    """Replace the line on standard error, which has to be a terminal; "" removes it."""
    print(f"\r{printable(text)}\x1b[K", end="", file=sys.stderr, flush=True)


def print_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print columns as wide as they need. A column of numbers is aligned to the right."""
    rows = [[printable(cell) for cell in row] for row in rows]
    columns = list(zip(header, *rows, strict=True))
    widths = [max(map(len, column)) for column in columns]
    numeric = [all(_is_number(cell) for cell in column[1:]) for column in columns]
    for row in (header, *rows):
        cells = (
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        )
        say("  ".join(cells).rstrip())


def line_of_process(pid: int, line: str, *, json: bool) -> str:
    """The line of an event, with its pid and its newline, where several processes have events."""
    return f'{{"pid": {pid}, {line[1:]}\n' if json else f"{pid} {line}\n"


def print_left_out(left_out: Iterable[LeftOut]) -> None:
    """Say on standard error which markers matched and were left as they were."""
    for marker in left_out:
        say(f"markerjit: left out: {marker.sentence}", error=True)


def print_questions(markers: Iterable[MarkerStatus]) -> None:
    """Print a line for each question that is asked before probes, with its markers."""
    asked: dict[str, list[str]] = {}
    for marker in markers:
        if marker.where:
            asked.setdefault(marker.where, []).append(marker.name)
    for where, names in asked.items():
        say(f"where {where}: {', '.join(names)}")


def print_altered(markers: Iterable[MarkerStatus]) -> None:
    """Say what stands at sites whose code is neither off nor on, a line each."""
    for marker in markers:
        for problem in marker.altered:
            say(f"altered: {problem.fact}")


def print_strays(strays: Sequence[StrayHead]) -> None:
    """Say which heads belong to no marker, and what to do about each, a line each."""
    for stray in strays[:_STRAYS]:
        say(f"stray head: {stray.sentence}; {stray.advice}")
    if len(strays) > _STRAYS:
        say(f"stray head: {len(strays) - _STRAYS} more; --json shows all")


def offer_repair(view: View) -> None:
    """Say on standard error what a dead controller left, or why the runtime that is there cannot be
    used, and what to do."""
    if view.runtime_problem:
        say(f"markerjit: {view.runtime_problem}", error=True)
    status = view.arena()
    if status and status.to_mend:
        say(f"markerjit: {status.to_mend}: markerjit repair {view.pid}", error=True)


def _is_number(text: str) -> bool:
    return text.replace(".", "").replace(",", "").replace("+", "").replace("-", "").isdigit()
