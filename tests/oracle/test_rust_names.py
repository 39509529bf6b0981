"""Names of Rust's newer mangling are those that LLVM and binutils read in the same symbols."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterable

import pytest

from markerjit.elf.rust_v0 import written
from tests.support.rust_symbols import older_symbols, symbols_of_library

LLVM, BINUTILS = "llvm-cxxfilt", "c++filt"
PACKAGES = {LLVM: "llvm", BINUTILS: "binutils"}
_OF_LINKER = re.compile(r" \(\.llvm\.\d+\)$")
_HASH = re.compile(r"(?<=\w)\[(?:[0-9a-f]{9,16}|0)\]")
_TYPE = re.compile(r"(?<=\d): [iu](?:\d+|size)\b|(?<=['e]): (?:char|bool)\b")


Read = Callable[[str, Iterable[str]], list[str]]


@pytest.fixture
def read_by(needs_tool: Callable[[str, str], str]) -> Read:
    def read(tool: str, symbols: Iterable[str]) -> list[str]:
        command, text = [needs_tool(tool, PACKAGES[tool])], "\n".join(symbols)
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    return read


def test_whatever_the_grammar_makes_is_as_llvm_reads_it(read_by: Read) -> None:
    symbols = older_symbols(1500, seed=101)

    assert [written(symbol) for symbol in symbols] == read_by(LLVM, symbols)


def test_names_of_the_standard_library_are_as_llvm_reads_them(read_by: Read) -> None:
    symbols = [each for each in symbols_of_library() if "." not in each.replace(".llvm.", "")]
    assert len(symbols) > 500

    names = [_OF_LINKER.sub("", text) for text in read_by(LLVM, symbols)]

    assert [written(symbol) for symbol in symbols] == names


def test_names_of_the_standard_library_are_as_binutils_reads_them(read_by: Read) -> None:
    """It also writes the number of each crate, and the type of each constant."""
    symbols = [symbol for symbol in symbols_of_library() if "." not in symbol]

    names = [_TYPE.sub("", _HASH.sub("", text)) for text in read_by(BINUTILS, symbols)]

    assert [written(symbol) for symbol in symbols] == names
