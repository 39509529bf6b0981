"""What must not compile does not, and the compiler says why; corrected (-DFIXED) it compiles.

Each file of tests/compile_fail/ begins with `/* expect: REGEX */`, a part of the message. No
warning is switched on: these are errors for everybody.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.compilers import COMPILERS, Compiler, need
from tests.support.programs import ROOT

FILES = sorted((ROOT / "tests" / "compile_fail").glob("*.c*"))
CASES = [
    pytest.param(
        compiler,
        source,
        id=f"{source.name}-{compiler.name}",
        # A source in C is tried in C by gcc and in C++ by clang: so is the header by both.
        marks=[pytest.mark.long]
        * (compiler.is_extra or (source.suffix == ".c" and compiler.is_cxx != compiler.is_clang)),
    )
    for source in FILES
    for compiler in COMPILERS
    if compiler.is_cxx or source.suffix == ".c"
]


def expectation(source: Path) -> str:
    first = source.read_text().splitlines()[0]
    match = re.fullmatch(r"/\* expect: (.+) \*/", first)
    assert match, f"{source.name} begins with {first!r}"
    return match[1]


@pytest.mark.parametrize(("compiler", "source"), CASES)
def test_a_wrong_marker_does_not_compile_and_a_corrected_one_does(
    compiler: Compiler, source: Path, tmp_path: Path
) -> None:
    need(compiler)

    wrong = compiler.run("-c", source, "-o", tmp_path / "wrong.o")
    right = compiler.run("-c", "-DFIXED", source, "-o", tmp_path / "right.o")

    assert wrong.returncode != 0, f"{source.name} compiled"
    assert re.search(expectation(source), wrong.stderr), wrong.stderr[:3000]
    assert right.returncode == 0, right.stderr[:3000]
    assert not right.stderr


def test_there_is_a_case_for_each_promise() -> None:
    assert len(FILES) >= 15
