"""Shares of real programs that can be opened, and every pointer that a linker knows of is a target.

tests/support/opening_coverage.py prints the whole table.
"""

from __future__ import annotations

import bisect
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from markerjit.spans import Code, Way
from tests.support.compilers import Elf
from tests.support.opening_coverage import (
    LIBRARIES,
    code_of,
    coverage,
    entries,
    usdt_sites,
)

pytestmark = pytest.mark.oracle

SAMPLE = 200
ENTRIES = [
    "/usr/bin/bash",
    "/usr/bin/python3",
    "/usr/lib/postgresql/15/bin/postgres",
    *(f"{LIBRARIES}/{name}" for name in ("libc.so.6", "libstdc++.so.6", "libsqlite3.so.0")),
]
PROBES = {
    # the sites, and how many of them a jump of five bytes opens at least
    "/usr/lib/postgresql/15/bin/postgres": (71, 67),
    "/usr/bin/python3": (8, 7),  # text in its data looks like an address in one
    f"{LIBRARIES}/libstdc++.so.6": (3, 2),
}
R_X86_64_64, R_X86_64_PC32 = 1, 2
ALLOCATED = 2
LEA = 0x8D


def need(name: str) -> None:
    if not Path(name).exists():
        pytest.skip(f"{name} is not on this machine")


@pytest.mark.parametrize("name", ENTRIES, ids=lambda name: Path(name).name)
def test_nearly_all_entries_are_opened_by_a_jump(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    need(name)
    code = code_of(name)

    result = coverage(code, entries(code, SAMPLE))

    assert result.share(Way.NO_OP, Way.JUMP, Way.PADDING) > 0.95
    assert result.share(*Way) > 0.98
    record_property("summary", f"{Path(name).name}: {result}")


@pytest.mark.parametrize("name", PROBES, ids=lambda name: Path(name).name)
def test_usdt_sites_are_opened(name: str, record_property: Callable[[str, object], None]) -> None:
    need(name)
    sites = usdt_sites(name)
    known, jumps = PROBES[name]
    if len(sites) != known:
        pytest.skip(f"{name} is of another release: it has {len(sites)} sites")

    result = coverage(code_of(name), sites)

    assert result.ways[Way.JUMP] + result.ways[Way.PADDING] >= jumps
    assert result.ways[None] == 0
    record_property("summary", f"{Path(name).name}, USDT: {result}")


@pytest.mark.parametrize("options", [("-pie",), ("-no-pie",)], ids=["pie", "fixed address"])
def test_every_pointer_of_the_linker_is_a_target(options: tuple[str, ...], tmp_path: Path) -> None:
    """--emit-relocs keeps what the linker was told of each pointer and of each table's entry."""
    archive = f"{LIBRARIES}/libsqlite3.a"
    need(archive)
    source, program = tmp_path / "main.c", tmp_path / "program"
    source.write_text("int main(void) { return 0; }\n")
    whole = ("-Wl,--whole-archive", archive, "-Wl,--no-whole-archive", "-Wl,--emit-relocs")
    subprocess.run(
        ["gcc", *options, source, *whole, "-lm", "-lz", "-ldl", "-lpthread", "-o", program],
        check=True,
    )
    code = code_of(str(program))

    pointers, table_entries = linked_targets(program, code)

    assert len(pointers) > 500
    assert len(table_entries) > 1000
    for target in sorted(pointers | table_entries):
        assert code.targets(target, target + 1), hex(target)


def linked_targets(program: Path, code: Code) -> tuple[set[int], set[int]]:
    """The places in code that pointers of data lead to, and those that jump tables lead to."""
    elf = Elf(program)
    text, rodata, table = (elf.section(name) for name in (".text", ".rodata", ".symtab"))
    assert text is not None
    assert rodata is not None
    assert table is not None
    values = [fields[4] for fields in struct.iter_unpack("<IBBHQQ", table.data)]
    code_bounds = range(text.address, text.address + len(text.data))
    pointers: set[int] = set()
    loads: set[int] = set()
    places: list[int] = []
    for section in elf.sections:
        if not section.name.startswith(".rela.") or section.flags & ALLOCATED:
            continue
        for place, kind, symbol, addend in struct.iter_unpack("<QIIq", section.data):
            target = values[symbol] + addend
            if kind == R_X86_64_64 and target in code_bounds:
                pointers.add(target)
            elif kind == R_X86_64_PC32 and section.name == ".rela.rodata":
                places.append(place)
            elif kind == R_X86_64_PC32 and code.read(place - 2, 1) == bytes([LEA]):
                loads.add(target + 4)
    entered: set[int] = set()
    starts = sorted(loads)
    for place in places:
        start = starts[bisect.bisect_right(starts, place) - 1]
        (distance,) = struct.unpack_from("<i", rodata.data, place - rodata.address)
        entered.add(start + distance)
    return {pointer for pointer in pointers if code.functions.at(pointer)}, entered
