"""Where a function's frame is empty, by its unwind rows."""

from __future__ import annotations

import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from elftools.dwarf.callframe import FDE
from elftools.elf.elffile import ELFFile
from hypothesis import given
from hypothesis import strategies as st

from markerjit.elf.functions import OMITTED, Cie, Functions
from markerjit.elf.image import FileImage
from markerjit.elf.unwind_rows import Row, entry_rows, is_entry_row, rows_of

LIBC = Path("/usr/lib/x86_64-linux-gnu/libc.so.6")
FUNCTIONS = 400


def test_rows_are_those_that_pyelftools_reads() -> None:
    if not LIBC.exists():
        pytest.skip(f"{LIBC} is not on this machine")
    with FileImage(str(LIBC)) as image:
        functions = Functions(image)
    with LIBC.open("rb") as file:
        entries = ELFFile(file).get_dwarf_info().EH_CFI_entries()[: FUNCTIONS * 2]
        frames = [entry for entry in entries if isinstance(entry, FDE)]
        checked = 0
        for frame in frames[:FUNCTIONS]:
            rows = frame.get_decoded().table
            end = frame["initial_location"] + frame["address_range"]
            for row, after in zip(rows, [*rows[1:], {"pc": end}], strict=True):
                if row["pc"] >= after["pc"]:
                    continue
                rule = row["cfa"]
                expected = rule.expr is None and (rule.reg, rule.offset) == (7, 8)
                for address in (row["pc"], after["pc"] - 1):
                    assert is_entry_row(functions, address) is expected, hex(address)
                    checked += 1
    assert checked > 1000


def test_rows_that_are_not_understood_say_nothing() -> None:
    """DW_CFA_set_loc has an address, and was read as a distance that lies behind everything."""
    rows = b"\x01" + (0x1001).to_bytes(4, "little") + b"\x0e\x10"  # from 0x1001 on: CFA = rsp + 16
    rules = Cie(OMITTED, b"\x0c\x07\x08", is_usual=True), rows
    functions = SimpleNamespace(starts=[0x1000], index=lambda _: 0, rules=lambda _: rules)

    assert not is_entry_row(cast("Functions", functions), 0x1002)


OPCODES = st.sampled_from(
    [
        *(b"\x41", b"\x02\x05", b"\x04\1\0\0\0", b"\x86\x02", b"\x83\x81\x01", b"\xc6", b"\0"),
        *(b"\x0e\x10", b"\x0e\x08", b"\x0a", b"\x0b", b"\x0c\x06\x10", b"\x0c\x07\x08"),
        *(b"\x0f\x01\x50", b"\x0f\x09\x50", b"\x10\x06\x01\x50", b"\x2e\x10", b"\x07\x10"),
        *(b"\x0d\x06", b"\x09\x06\x03", b"\x1d"),
    ]
)


@given(rows=st.lists(OPCODES | st.binary(max_size=3), max_size=12).map(b"".join))
def test_entry_rows_are_those_of_all_rules(rows: bytes) -> None:
    """They are read by themselves, as far as both can be read."""
    rules = Cie(OMITTED, b"\x0c\x07\x08\x90\x01", is_usual=True), rows
    functions = cast("Functions", SimpleNamespace(rules=lambda _: rules))
    expected: list[Row] = []
    is_cut = False
    try:
        expected.extend(rows_of(functions, 0))
    except (IndexError, ValueError):
        is_cut = True

    known = entry_rows(functions, 0)

    assert known.offsets == tuple(row.offset for row in expected)
    assert known.as_entered == tuple(row.cfa == (7, 8) for row in expected)
    assert known.is_cut == is_cut


def test_nothing_is_known_outside_of_functions(tmp_path: Path) -> None:
    source, program = tmp_path / "empty.c", tmp_path / "empty"
    source.write_text("int main(void) { return 0; }\n")
    subprocess.run(["gcc", source, "-o", program], check=True)
    with FileImage(str(program)) as image:
        functions = Functions(image)

    assert not is_entry_row(functions, 0)
