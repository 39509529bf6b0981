"""Unwind tables beside what readelf makes of the same `.eh_frame`, row by row."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from markerjit.elf import FileImage
from markerjit.elf.functions import Functions
from markerjit.unwind.rules import WORD, Kind, Rule
from markerjit.unwind.table import table_of
from tests.support.programs import ROOT

pytestmark = pytest.mark.oracle

LIBRARIES = Path("/usr/lib/x86_64-linux-gnu")
FILES = [
    *(LIBRARIES / name for name in ("libc.so.6", "libm.so.6", "ld-linux-x86-64.so.2")),
    *(LIBRARIES / name for name in ("libstdc++.so.6", "libcrypto.so.3", "libsqlite3.so.0")),
    *map(Path, ("/usr/lib/postgresql/15/bin/postgres", "/usr/bin/python3.11", "/usr/bin/gdb")),
    ROOT / "build/targets/kvserver",
]
LARGE = {"libstdc++.so.6", "libcrypto.so.3", "postgres", "gdb", "python3.11"}
"""Those with very many rows, of no other kind than in the others."""
ENTRY = re.compile(r"^[0-9a-f]{8} .* FDE cie=([0-9a-f]+) pc=([0-9a-f]+)\.\.([0-9a-f]+)$")
CIE = re.compile(r"^([0-9a-f]{8}) .* CIE ")

Cells = dict[str, str]


def entries_of(path: Path) -> Iterator[tuple[int, int, list[tuple[int, Cells]]]]:
    """Start and end of each entry, and its rows by address, as readelf prints them."""
    command = ["readelf", "--debug-dump=frames-interp", path]
    # It fails where a debug file that the object names is not there.
    text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    text = re.sub(r" \(\w+\)", "", text)  # of a register that is in another one: `r8 (r8)`
    of_cie: dict[str, list[tuple[int, Cells]]] = {}
    for block in text.split("\n\n"):
        head, *lines = block.strip("\n").split("\n")
        names = lines[0].split() if lines else []
        rows = [
            (int(cells[0], 16), dict(zip(names[1:], cells[1:], strict=True)))
            for cells in map(str.split, lines[1:])
        ]
        cie, entry = CIE.match(head), ENTRY.match(head)
        if cie:
            of_cie[cie[1]] = rows
        elif entry:
            start, end = int(entry[2], 16), int(entry[3], 16)
            yield start, end, rows or [(start, cells) for _, cells in of_cie[entry[1]]]


def expected(cells: Cells) -> Rule | None:
    """The rule of a row; None where readelf does not print what it is (an expression)."""
    rbp = cells.get("rbp", "u")
    if cells["ra"] == "u":
        return Rule(Kind.OUTERMOST)
    if "exp" in (cells["CFA"], cells["ra"], rbp):
        return None
    register, distance = cells["CFA"].split("+")
    kind = {"rsp": Kind.STACK, "rbp": Kind.FRAME}.get(register)
    if kind is None or cells["ra"] != "c-8" or not re.fullmatch(r"u|s|c-\d+", rbp):
        return Rule(Kind.OTHER)
    return Rule(kind, int(distance) // WORD, int(rbp[2:] or 0) // WORD)


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.name, marks=[pytest.mark.long] * (path.name in LARGE))
        for path in FILES
    ],
)
def test_rules_are_the_rows_that_readelf_prints(
    path: Path, needs_tool: Callable[[str, str], str], build: Path
) -> None:
    needs_tool("readelf", "binutils")
    if not path.exists():
        pytest.skip(f"{path} is not on this machine")
    with FileImage(str(path)) as image:
        table = table_of(Functions(image), image.name)
    compared: Counter[bool] = Counter()
    different = []
    for start, end, rows in entries_of(path):
        last = {address: cells for address, cells in rows if start <= address < end}
        addresses = [*last, end]
        for (address, cells), after in zip(last.items(), addresses[1:], strict=True):
            rule = expected(cells)
            compared[rule is None] += 1
            for place in (address, after - 1):
                if rule is not None and table.at(place) != rule:
                    different.append(f"{place:#x}: {table.at(place)}, readelf {cells}")

    assert not different, f"{len(different)}:\n" + "\n".join(different[:10])
    assert compared[False] > 10
    assert compared[True] < 250
