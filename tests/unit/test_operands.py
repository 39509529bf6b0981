"""Operands of USDT notes: every form that gcc and clang emit, and what is refused."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from markerjit.elf import FileImage
from markerjit.elf.stapsdt import read_sdt_notes
from markerjit.errors import BadNote
from markerjit.model import (
    Constant,
    CType,
    General,
    HighByte,
    Memory,
    Operand,
    Static,
    TypeClass,
    Vector,
)
from markerjit.sites.operands import Names, parse_operands
from tests.support.usdt import build

BIAS = 0x10000
A = General(("al", "ax", "eax", "rax"))
R8 = General(("r8b", "r8w", "r8d", "r8"))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("made"), ['PROBE one, ""'])


@pytest.fixture
def names(made: Path) -> Iterator[Names]:
    with FileImage(str(made)) as image:
        yield Names(image, read_sdt_notes(image).symbols, BIAS)


def address_of(path: Path, symbol: str) -> int:
    text = subprocess.run(["nm", path], capture_output=True, text=True, check=True).stdout
    (value,) = re.findall(rf"^([0-9a-f]+) . {symbol}$", text, re.MULTILINE)
    return int(value, 16)


@pytest.mark.parametrize(
    ("text", "operand", "type_"),
    [
        ("-4@%eax", A, "i32"),
        ("8@%rax", A, "u64"),
        ("1@%al", A, "u8"),
        ("-2@%ax", A, "i16"),
        ("1@%ah", HighByte("ah"), "u8"),
        ("1@%r8b", R8, "u8"),
        ("2@%r8w", R8, "u16"),
        ("-4@%r8d", R8, "i32"),
        ("-8@%r8", R8, "i64"),
        ("1@%sil", General(("sil", "si", "esi", "rsi")), "u8"),
        ("4@%ax", A, "u32"),  # the number decides, and not the register's name
        ("8@%r12", General(("r12b", "r12w", "r12d", "r12")), "u64"),
        ("-4@-20(%rbp)", Memory("rbp", -20), "i32"),
        ("4@(%rdi)", Memory("rdi", 0), "u32"),
        ("4@0(%r13)", Memory("r13", 0), "u32"),
        ("8@0x10(%rsp)", Memory("rsp", 16), "u64"),
        ("8@(%rax,%rbx,8)", Memory("rax", 0, "rbx", 8), "u64"),
        ("8@(%rax, %rbx, 8)", Memory("rax", 0, "rbx", 8), "u64"),
        ("8@-16(%rax,%rbx)", Memory("rax", -16, "rbx", 1), "u64"),
        ("2@64(,%r9,2)", Memory("", 64, "r9", 2), "u16"),
        ("-4@$12", Constant(12), "i32"),
        ("1@$-1", Constant(-1), "u8"),
        ("8@$0xffffffffffffffff", Constant((1 << 64) - 1), "u64"),
        ("8f@%xmm0", Vector(0), "f64"),
        ("-4f@%xmm15", Vector(15), "f32"),
        ("8@%xmm1", Vector(1), "f64"),
        ("8f@%rax", A, "f64"),
        ("8f@-8(%rbp)", Memory("rbp", -8), "f64"),
    ],
)
def test_operand_is_read(names: Names, text: str, operand: Operand, type_: str) -> None:
    (argument,) = parse_operands(text, names)

    assert argument.operand == operand
    assert str(argument.ctype) == type_


@pytest.mark.parametrize(
    ("text", "addend"),
    [
        ("8@counter(%rip)", 0),
        ("8@counter+8(%rip)", 8),
        ("8@8+counter(%rip)", 8),
        ("8@counter+16-8(%rip)", 8),
        ("8@counter", 0),
    ],
)
def test_operand_with_a_symbol_is_at_its_address(
    names: Names, made: Path, text: str, addend: int
) -> None:
    (argument,) = parse_operands(text, names)

    assert argument.operand == Static(address_of(made, "counter") + addend + BIAS, "counter")


def test_constant_may_be_the_address_of_a_symbol(names: Names, made: Path) -> None:
    (argument,) = parse_operands("8@$counter+8", names)

    assert argument.operand == Constant(address_of(made, "counter") + 8 + BIAS, "counter")


def test_address_that_a_constant_has_no_room_for_is_refused(tmp_path: Path) -> None:
    path = build(tmp_path, ['PROBE one, ""'], "-no-pie")
    with FileImage(str(path)) as image:
        names = Names(image, read_sdt_notes(image).symbols, 0)

        (argument,) = parse_operands("4@$counter", names)
        with pytest.raises(BadNote, match="does not fit into 2 bytes"):
            parse_operands("2@$counter", names)

    assert argument.operand == Constant(address_of(path, "counter"), "counter")


def test_symbol_with_a_register_is_read_where_addresses_are_fixed(tmp_path: Path) -> None:
    path = build(tmp_path, ['PROBE one, ""'], "-no-pie")
    with FileImage(str(path)) as image:
        names = Names(image, read_sdt_notes(image).symbols, 0)

        (argument,) = parse_operands("8@counter+8(,%rax,8)", names)

    assert argument.operand == Memory("", address_of(path, "counter") + 8, "rax", 8)


def test_operands_are_separated_by_blanks_and_may_have_some_inside(names: Names) -> None:
    arguments = parse_operands(" 8@%rax  -4@(%rax, %rbx, 4) 1@$0 ", names)

    assert [str(argument.ctype) for argument in arguments] == ["u64", "i32", "u8"]
    assert parse_operands("", names) == ()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("%eax", "without a size"),
        ("8@", "without a size"),
        ("3@%eax", "3 bytes"),
        ("16f@%xmm0", "16 bytes"),
        ("2f@%xmm0", "2 bytes"),
        ("8f@%xmm16", "%xmm16 is not supported"),
        ("8@%ymm0", "%ymm0 is not supported"),
        ("8@%st", "%st is not supported"),
        ("2@%ah", "larger than the register"),
        ("4@%fs:counter@tpoff", "behind a segment register"),
        ("4@%fs:-4(%rax)", "behind a segment register"),
        ("8@counter@GOTPCREL(%rip)", "no sum"),
        ("8@nowhere(%rip)", "no symbol of the name nowhere"),
        ("8@.LC0(%rip)", "no symbol"),
        ("8@counter+4096000(%rip)", "not in the program"),
        ("8@counter-counter(%rip)", "no sum"),
        ("8@16(%rip)", "names no symbol"),
        ("8@16", "without a name"),
        ("8@counter(,%rax,8)", "can be loaded anywhere"),
        ("8@(%eax)", "%eax cannot hold an address"),
        ("8@(%rax,%rsp,8)", "%rsp cannot hold an address"),
        ("8@(%rax,%rbx,3)", "no sum"),
        ("8@8(", "no sum"),
        ("8@99999999999(%rax)", "too large"),
        ("1@$256", "does not fit"),
        ("1@$-129", "does not fit"),
        ("4@$counter", "does not fit"),
        ("8f@$1", "a constant that is a float"),
        ("8@$", "no sum"),
        ("8@$9999999999999999999999999", "too large"),
        (" ".join(["8@%rax"] * 13), "13 arguments"),
    ],
)
def test_operand_that_is_not_understood_is_refused(names: Names, text: str, reason: str) -> None:
    with pytest.raises(BadNote) as problem:
        parse_operands(text, names)

    assert reason in str(problem.value)
    assert len(str(problem.value)) < 300


def test_symbol_of_two_places_is_refused(tmp_path: Path) -> None:
    """Two source files may each have a static variable of the same name."""
    second = tmp_path / "second.s"
    second.write_text('.data\nsame: .quad 1\n.section .note.GNU-stack,""\n')
    lines = ['PROBE one, "8@same(%rip)"', ".data", "same: .quad 2", ".text"]
    path = build(tmp_path, lines, "-shared", "-nostdlib", str(second))
    with FileImage(str(path)) as image:
        notes = read_sdt_notes(image)

        with pytest.raises(BadNote, match="2 symbols of the name same"):
            parse_operands(notes.notes[0].operands, Names(image, notes.symbols, 0))


SDT = """
#include <sys/sdt.h>
static long numbers[8];
long global;
int f(char c, short s, unsigned u, long l, double d, float x, long *p, unsigned char i) {
  DTRACE_PROBE8(t, registers, c, s, u, l, p, i, &numbers[i], 3);
  DTRACE_PROBE5(t, floats, d, x, d * 2, (unsigned char)200, -5);
  DTRACE_PROBE3(t, memory, p[i], numbers[3], global);
  return (int)(d + x);
}
"""


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("options", [("-O0",), ("-O2",), ("-O2", "-fPIC"), ("-Os", "-mavx")])
def test_operands_of_a_compiler_are_understood(
    tmp_path: Path, compiler: str, options: tuple[str, ...]
) -> None:
    if not Path("/usr/include/x86_64-linux-gnu/sys/sdt.h").exists():
        pytest.skip("needs sys/sdt.h (Debian package systemtap-sdt-dev)")
    if shutil.which(compiler) is None:
        pytest.skip(f"needs {compiler} (Debian package {compiler})")
    source, output = tmp_path / "t.c", tmp_path / "t.so"
    source.write_text(SDT)
    words = [compiler, *options, "-shared", "-fPIC", source, "-o", output]
    subprocess.run(words, check=True, capture_output=True)

    with FileImage(str(output)) as image:
        notes = read_sdt_notes(image)
        names = Names(image, notes.symbols, 0)
        by_name = {note.name: parse_operands(note.operands, names) for note in notes.notes}

    assert [str(argument.ctype) for argument in by_name["registers"]] == [
        "i8", "i16", "u32", "i64", "u64", "u8", "u64", "i32"
    ]  # fmt: skip
    assert [argument.ctype.type_class for argument in by_name["floats"]] == [
        TypeClass.FLOAT, TypeClass.FLOAT, TypeClass.FLOAT, TypeClass.UNSIGNED, TypeClass.SIGNED
    ]  # fmt: skip
    assert by_name["memory"][0].ctype == CType(TypeClass.SIGNED, 8)
