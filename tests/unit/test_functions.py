"""Bounds of functions and landing pads from unwind tables, against pyelftools and the symbols."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile

from markerjit.elf.functions import PT_GNU_EH_FRAME, Functions, NoFunctions, encoded
from markerjit.elf.image import FileImage
from markerjit.elf.landing_pads import landing_pads
from markerjit.errors import MarkerError
from tests.support.compilers import CXX_COMPILERS, Compiler, Elf, need

SOURCE = r"""
#include <stdexcept>
struct Loud { ~Loud(); };
extern int calls;
int calls;
Loud::~Loud() { calls++; }
__attribute__((noinline)) void thrower(int n) {
    if (n > 2) throw std::runtime_error("no");
    calls++;
}
__attribute__((noinline)) int catcher(int n) {
    Loud loud;
    try { thrower(n); } catch (const std::exception &) { return 1; }
    return 0;
}
__attribute__((cold, noinline)) void rare(int n) { calls += n; }
int splits(int n) {
    Loud loud;
    if (__builtin_expect(n == 77, 0)) { rare(n); thrower(n); rare(1); }
    return n;
}
int main(int argc, char **) { return catcher(argc) + splits(argc); }
"""


@pytest.fixture(scope="module", params=CXX_COMPILERS, ids=lambda compiler: compiler.name)
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    compiler: Compiler = request.param
    need(compiler)
    folder = tmp_path_factory.mktemp("functions")
    source = folder / "source.cc"
    source.write_text(SOURCE)
    return compiler.build_once(folder / "program", "-O2", source)


def functions_of(path: Path) -> Functions:
    with FileImage(str(path)) as image:
        return Functions(image)


def frames_of(path: Path) -> list[FDE]:
    with path.open("rb") as file:
        entries = ELFFile(file).get_dwarf_info().EH_CFI_entries()
        return sorted(
            (entry for entry in entries if isinstance(entry, FDE)),
            key=lambda entry: entry["initial_location"],
        )


def test_bounds_are_those_of_the_unwind_tables(program: Path) -> None:
    functions = functions_of(program)

    frames = frames_of(program)
    assert functions.starts.tolist() == [frame["initial_location"] for frame in frames]
    assert (functions.ends - functions.starts).tolist() == [
        frame["address_range"] for frame in frames
    ]


def test_function_is_found_by_any_of_its_addresses(program: Path) -> None:
    functions = functions_of(program)
    symbol = Elf(program).function("main")

    bounds = range(symbol.address, symbol.address + symbol.size)
    assert functions.at(bounds.start) == bounds
    assert functions.at(bounds.stop - 1) == bounds
    assert functions.at(0) is None
    assert functions.at(1 << 60) is None


def test_parts_are_not_functions_that_are_called(program: Path) -> None:
    functions = functions_of(program)
    names = {symbol.address: symbol.name for symbol in Elf(program).symbols() if symbol.is_function}

    parts = [names.get(int(start), "") for start in functions.starts[functions.parts]]
    whole = [names.get(int(start), "") for start in functions.starts[~functions.parts]]

    assert all(".cold" in name or not name for name in parts)
    assert {"main", "_Z7catcheri", "_Z6splitsi", "_Z7throweri"} <= set(whole)


def test_landing_pads_are_those_that_the_unwinder_uses(program: Path) -> None:
    """gdb and readelf do not decode the table; the code at a pad shows that it is one."""
    functions = functions_of(program)
    pads = landing_pads(functions)

    text = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", program], capture_output=True, text=True, check=True
    ).stdout
    starts = {int(line.split(":")[0], 16) for line in text.splitlines() if line.startswith("  ")}
    assert len(pads) >= 2
    assert pads <= starts
    assert all(functions.at(pad) for pad in pads)
    assert not pads & set(functions.starts[~functions.parts].tolist())


def test_damaged_tables_are_refused_or_read(program: Path, tmp_path: Path) -> None:
    """Every error is one of ours, whatever bytes are in the segment of the tables."""
    good = program.read_bytes()
    with FileImage(str(program)) as image:
        segment = next(s for s in image.segments if s.type == PT_GNU_EH_FRAME)
    generator = random.Random(15)
    damaged = tmp_path / "damaged"
    for _ in range(200):
        data = bytearray(good)
        for _ in range(generator.choice((1, 4, 40))):
            at = segment.offset + generator.randrange(segment.file_size + 600)
            data[at] = generator.choice((0, 0xFF, generator.randrange(256)))
        damaged.write_bytes(data)
        try:
            functions = functions_of(damaged)
            landing_pads(functions)
        except MarkerError:
            continue
        assert len(functions.parts) == len(functions) == len(functions.ends)


def test_table_without_a_function_is_refused(program: Path, tmp_path: Path) -> None:
    with FileImage(str(program)) as image:
        segment = next(s for s in image.segments if s.type == PT_GNU_EH_FRAME)
    data = bytearray(program.read_bytes())
    data[segment.offset + 8 : segment.offset + 12] = bytes(4)  # the count
    empty = tmp_path / "empty"
    empty.write_bytes(data)

    with pytest.raises(NoFunctions, match="has no function"):
        functions_of(empty)


def test_table_with_a_landing_pad_that_is_no_address_is_refused() -> None:
    number = b"\xff" * 9 + b"\x7f"  # ULEB128, of 70 bits
    good, bad = b"\0\0\x10\0", b"\0\0" + number + b"\0"  # where, size, pad, action
    lists = b"\xff\xff\x01" + bytes([len(good + bad)]) + good + bad
    functions = SimpleNamespace(
        base=0x1000,
        data=(0x1008).to_bytes(8, "little") + lists,
        with_exceptions=lambda: [(0x2000, 0x1000, 0)],
    )

    with pytest.raises(NoFunctions, match="exceptions of 0x2000 cannot be read"):
        landing_pads(cast("Functions", functions))


@pytest.mark.parametrize(
    ("encoding", "data", "value"),
    [
        (0x0B, b"\xfc\xff\xff\xff", -4),  # sdata4
        (0x1B, b"\xfc\xff\xff\xff", 0xFFC),  # relative to 0x1000, where it stands
        (0x1B, bytes(4), 0),  # there is none
        (0x01, b"\x81\x01", 129),
    ],
)
def test_pointer_is_read_by_its_encoding(encoding: int, data: bytes, value: int) -> None:
    assert encoded(data, 0, encoding, 0x1000) == (value, len(data))


@pytest.mark.parametrize("encoding", [0x9B, 0x80, 0x3B, 0x50, 0x0F])
def test_pointer_of_an_encoding_that_is_not_known_is_not_guessed(encoding: int) -> None:
    with pytest.raises(ValueError, match=str(encoding)):
        encoded(b"\1" * 16, 0, encoding, 0x1000)


def test_object_without_unwind_tables_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "bare.c"
    source.write_text("void _start(void) { for (;;); }\n")
    bare = tmp_path / "bare"
    subprocess.run(
        ["gcc", "-nostdlib", "-static", "-fno-asynchronous-unwind-tables", source, "-o", bare],
        check=True,
    )

    with pytest.raises(NoFunctions, match=r"it has no \.eh_frame_hdr"):
        functions_of(bare)
