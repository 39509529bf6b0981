"""What a marker that is off costs the function that it stands in, counted in its instructions.

Counted is the function as it stands in memory up to its first return, or to the body of a marker
where that comes first. What is behind is reached only while a marker is on, or is the end of a
loop.
"""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest
from capstone import CS_ARCH_X86, CS_MODE_64, Cs, CsInsn

from tests.support.compilers import COMPILERS, STRICT, Compiler, Elf, need

SOURCE = Path(__file__).parent / "header" / "cost.c"
MARKERS = {"leaf": 1, "leaf_of_two": 2, "sum": 1, "search": 1, "reals": 1}
OPTIONS = ["-O2", "-O2 -fstack-protector-strong", "-O3", "-O2 -fcf-protection=full"]
BY_SITE = 2
"""Of `jump`: the instruction that is executed, and the jump behind it that is not."""
AROUND = 4
"""So many may come with another order of the blocks; an ordinary call takes nine at least."""


class Cost(NamedTuple):
    """Instructions up to the return, and how many of them are for the stack."""

    instructions: int
    of_stack: int


def cost_of(elf: Elf, name: str) -> Cost:
    symbol = elf.function(name)
    code = elf.read(symbol.address, symbol.size)
    decoded = Cs(CS_ARCH_X86, CS_MODE_64).disasm(code, symbol.address)
    ends = {note.body for note in elf.notes()}
    passed = list(
        takewhile(
            lambda instruction: instruction.mnemonic != "ret" and instruction.address not in ends,
            decoded,
        )
    )
    count = sum(instruction.mnemonic != "nop" for instruction in passed)
    return Cost(count + 1, sum(map(is_for_stack, passed)))


def is_for_stack(instruction: CsInsn) -> bool:
    moves = instruction.mnemonic in ("add", "sub", "lea") and instruction.op_str.startswith("rsp,")
    return moves or instruction.mnemonic in ("push", "pop", "enter", "leave", "call")


@pytest.mark.product
@pytest.mark.parametrize("compiler", COMPILERS, ids=lambda compiler: compiler.name)
@pytest.mark.parametrize("options", OPTIONS)
def test_a_marker_that_is_off_costs_the_function_no_more_than_its_site(
    compiler: Compiler, options: str, tmp_path: Path
) -> None:
    need(compiler)
    words = [*STRICT, *options.split(), "-fPIC", "-shared", SOURCE]
    marked = Elf(compiler.build_once(tmp_path / "marked.so", *words))
    bare = Elf(compiler.build_once(tmp_path / "bare.so", "-DWITHOUT_MARKERS", *words))
    names = {name: mangled(marked, name) for name in MARKERS}

    for name, markers in MARKERS.items():
        cost, without = cost_of(marked, names[name]), cost_of(bare, names[name])

        assert cost.of_stack <= without.of_stack, name
        most = without.instructions + BY_SITE * markers + AROUND
        assert cost.instructions <= most, f"{name}: {cost.instructions}, {without.instructions}"


@pytest.mark.product
@pytest.mark.parametrize("compiler", COMPILERS, ids=lambda compiler: compiler.name)
@pytest.mark.parametrize("mode", ["jump", "nop", "symbol", "immediate", "pointer"])
def test_gcc_puts_bodies_apart_from_the_code_that_is_executed(
    compiler: Compiler, mode: str, tmp_path: Path
) -> None:
    need(compiler)
    if "clang" in compiler.name:
        pytest.skip("clang does not split functions without a profile")
    words = [*STRICT, "-O2", f"-DMJ_MODE={mode}", "-fPIC", "-shared", SOURCE]
    elf = Elf(compiler.build_once(tmp_path / "marked.so", *words))
    functions = [elf.function(mangled(elf, name)) for name in MARKERS]

    bodies = [note.body for note in elf.notes()]

    assert len(bodies) == sum(MARKERS.values())
    for function in functions:
        span = range(function.address, function.address + function.size)
        assert not [body for body in bodies if body in span], function.name
    (never,) = (symbol for symbol in elf.symbols() if "mj_never_executed" in symbol.name)
    text = elf.section(".text")
    assert text is not None
    decoded = Cs(CS_ARCH_X86, CS_MODE_64).disasm(text.data, text.address)
    assert hex(never.address) not in [instruction.op_str for instruction in decoded]


def mangled(elf: Elf, name: str) -> str:
    """The function's symbol, which C++ has its own names for."""
    (size,) = {
        symbol.name
        for symbol in elf.symbols()
        if symbol.is_function and not symbol.name.endswith(".cold")
        if symbol.name == name or symbol.name.startswith(f"_Z{len(name)}{name}")
    }
    return size
