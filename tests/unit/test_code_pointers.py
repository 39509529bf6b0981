"""Pointers to code in an object's data, in each way in which an object keeps them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from markerjit.elf.code_pointers import code_pointers
from markerjit.elf.function_names import function_names
from markerjit.elf.image import FileImage
from tests.support.compilers import Elf

SOURCE = r"""
static int first(void) { return 1; }
static int second(void) { return 2; }
int (*volatile table[100])(void) = { first, second, [70] = second, [99] = first };
int alias(void) __attribute__((alias("named")));
int named(void) { return table[0]() + table[99](); }
static int (*resolve(void))(void) { return first; }
int chosen(void) __attribute__((ifunc("resolve")));
int main(void) { return named() + chosen(); }
"""


def built(folder: Path, *options: str) -> Path:
    source, program = folder / "pointers.c", folder / "program"
    source.write_text(SOURCE)
    done = subprocess.run(
        ["gcc", "-O1", "-fno-ipa-icf", *options, source, "-o", program],
        capture_output=True,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"this linker does not know {options}")
    return program


@pytest.mark.parametrize(
    "options",
    [("-fPIE", "-pie"), ("-fPIE", "-pie", "-Wl,-z,pack-relative-relocs"), ("-fno-pie", "-no-pie")],
    ids=["relocations", "compact relocations", "fixed address"],
)
def test_pointers_of_data_are_found(options: tuple[str, ...], tmp_path: Path) -> None:
    program = built(tmp_path, *options)

    with FileImage(str(program)) as image:
        pointers = set(code_pointers(image).tolist())

    elf = Elf(program)
    assert {elf.function(name).address for name in ("first", "second")} <= pointers


def test_relocations_hold_nothing_else(tmp_path: Path) -> None:
    program = built(tmp_path, "-fPIE", "-pie")

    with FileImage(str(program)) as image:
        pointers = code_pointers(image).tolist()

    functions = {symbol.address for symbol in Elf(program).symbols() if symbol.name}
    assert set(pointers) <= functions
    assert pointers == sorted(set(pointers))


def test_functions_have_all_their_names(tmp_path: Path) -> None:
    program = built(tmp_path, "-fPIE", "-pie")
    elf = Elf(program)

    with FileImage(str(program)) as image:
        names = function_names(image)

    assert set(names.names[elf.function("named").address]) == {"named", "alias"}
    assert names.names[elf.function("main").address] == ("main",)
    assert [names.names[address] for address in names.resolvers] == [("resolve", "chosen")] or [
        set(names.names[address]) for address in names.resolvers
    ] == [{"resolve", "chosen"}]
    section = elf.section(".plt")
    assert section is not None
    assert range(section.address, section.address + len(section.data)) in names.linkage


def test_object_without_sections_has_no_names(tmp_path: Path) -> None:
    program = built(tmp_path, "-fPIE", "-pie")
    data = bytearray(program.read_bytes())
    data[40:48] = bytes(8)
    program.write_bytes(data)

    with FileImage(str(program)) as image:
        names = function_names(image)

    assert names.names == {}
    assert names.linkage == ()
