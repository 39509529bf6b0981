"""Names of Rust's newer mangling are those that LLVM and binutils read in the same symbols."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable

import pytest

from markerjit.elf.rust_v0 import written
from tests.support.rust_symbols import older_symbols, symbols_of_library

LLVM, BINUTILS = "llvm-cxxfilt", "c++filt"
PACKAGES = {LLVM: "llvm", BINUTILS: "binutils"}
_OF_LINKER = re.compile(r" \(\.llvm\.\d+\)$")
_HASH = re.compile(r"(?<=\w)\[(?:[0-9a-f]{9,16}|0)\]")
_TYPE = re.compile(r"(?<=\d): [iu](?:\d+|size)\b|(?<=['e]): (?:char|bool)\b")


def read_by(tool: str, symbols: Iterable[str]) -> list[str]:
    if shutil.which(tool) is None:
        pytest.skip(f"needs {tool} (Debian package {PACKAGES[tool]})")
    text = "\n".join(symbols)
    done = subprocess.run([tool], input=text, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_whatever_the_grammar_makes_is_as_llvm_reads_it() -> None:
    symbols = older_symbols(1500, seed=101)

    assert [written(symbol) for symbol in symbols] == read_by(LLVM, symbols)


def test_names_of_the_standard_library_are_as_llvm_reads_them() -> None:
    symbols = [each for each in symbols_of_library() if "." not in each.replace(".llvm.", "")]
    assert len(symbols) > 500

    names = [_OF_LINKER.sub("", text) for text in read_by(LLVM, symbols)]

    assert [written(symbol) for symbol in symbols] == names


def test_names_of_the_standard_library_are_as_binutils_reads_them() -> None:
    """It also writes the number of each crate, and the type of each constant."""
    symbols = [symbol for symbol in symbols_of_library() if "." not in symbol]

    names = [_TYPE.sub("", _HASH.sub("", text)) for text in read_by(BINUTILS, symbols)]

    assert [written(symbol) for symbol in symbols] == names
