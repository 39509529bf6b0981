"""The table that both runs print: a line for each program, and what is not as it should be."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from markerjit.errors import MarkerError
from tests.whole.programs import PROGRAMS, Missing, Program


class Row(NamedTuple):
    """What is said of a program.

    cells   of its line, without its name
    wrong   what is not as it should be
    notes   lines below its line
    """

    cells: Sequence[str]
    wrong: Sequence[str]
    notes: Sequence[str] = ()


def print_table(
    names: Sequence[str],
    columns: Sequence[tuple[str, int]],
    row_of: Callable[[Program], Row],
) -> int:
    """Run the programs of these names, all where there are none, and print the table.

    columns   a title and a width for each, the first for the name of the program
    row_of    runs a program

    Returns the exit code: 1 if something is not as it should be, 2 if a program is not known.
    """
    known = [program.name for program in PROGRAMS]
    if unknown := sorted(set(names).difference(known)):
        print(f"{', '.join(unknown)}: the programs are {', '.join(known)}", file=sys.stderr)
        return 2
    widths = [width for _, width in columns]
    print("".join(f"{title:>{width}}" for title, width in columns))
    wrong: list[str] = []
    for program in PROGRAMS:
        if names and program.name not in names:
            continue
        try:
            row = row_of(program)
        except Missing as missing:
            print(f"{program.name:>{widths[0]}}  not here: {missing}")
            continue
        except MarkerError as error:
            row = Row((), [str(error)])
        cells = (program.name, *row.cells)
        print("".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=False)))
        for note in row.notes:
            print(f"{'':{widths[0]}}  {note}")
        sys.stdout.flush()
        wrong += [f"{program.name}: {each}" for each in row.wrong]
    print("\n".join(wrong) or "as it should be")
    return 1 if wrong else 0
