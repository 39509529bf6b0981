"""The types and the arithmetic of questions, compared with those of a C compiler."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from markerjit.questions import Question, Scope, ask
from markerjit.questions.ir import Binary, Compare, Node
from markerjit.questions.types import Type, common, promoted, type_of_constant
from tests.support.question_reference import answer

pytestmark = pytest.mark.oracle

OF_C = {
    Type.BOOL: "_Bool",
    Type.CHAR: "unsigned char",
    Type.I8: "int8_t",
    Type.U8: "uint8_t",
    Type.I16: "int16_t",
    Type.U16: "uint16_t",
    Type.I32: "int32_t",
    Type.U32: "uint32_t",
    Type.I64: "int64_t",
    Type.U64: "uint64_t",
    Type.F64: "double",
}
NAME = (
    '_Generic((%s), int: "i32", unsigned: "u32", long: "i64", unsigned long: "u64", double: "f64")'
)


def printed(folder: Path, lines: Sequence[str]) -> list[str]:
    """What a C program prints that has these lines."""
    source, program = folder / "a.c", folder / "a"
    source.write_text(
        "#include <stdint.h>\n#include <stdio.h>\nint main(void) {\n" + "\n".join(lines) + "\n}\n"
    )
    subprocess.run(["cc", "-fwrapv", "-w", "-o", program, source], check=True)
    done = subprocess.run([program], capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_two_numbers_meet_in_the_type_that_c_gives_them(tmp_path: Path) -> None:
    pairs = list(itertools.product(OF_C, repeat=2))
    sums = [NAME % f"({OF_C[left]})0 + ({OF_C[right]})0" for left, right in pairs]
    shifts = [
        NAME % f"({OF_C[left]})0 << ({OF_C[right]})0"
        for left, right in pairs
        if Type.F64 not in (left, right)
    ]

    types = printed(tmp_path, [f"puts({name});" for name in (*sums, *shifts)])

    assert types == [
        *(str(common(left, right)) for left, right in pairs),
        *(str(promoted(left)) for left, right in pairs if Type.F64 not in (left, right)),
    ]


def test_a_constant_has_the_type_that_c_gives_it(tmp_path: Path) -> None:
    constants = (0, 1, 2**31 - 1, 2**31, 2**32, 2**63 - 1)

    types = printed(tmp_path, [f"puts({NAME % constant});" for constant in constants])

    assert types == [str(type_of_constant(constant)) for constant in constants]


def test_arithmetic_has_the_results_of_c(tmp_path: Path) -> None:
    whole = [type_ for type_ in OF_C if type_ not in (Type.F64, Type.BOOL)]
    cases = []
    for left, right in itertools.product(whole, repeat=2):
        for symbol, values in itertools.product(
            ("+", "-", "*", "/", "%", "&", "|", "^"),
            itertools.product((left.least, left.most, 7), (right.most, 3)),
        ):
            cases.append((left, right, symbol, *values))

    lines = [
        f"{{ volatile {OF_C[left]} x = {_constant(first)}; volatile {OF_C[right]} y = "
        f'{_constant(second)}; printf("%lu\\n", (uint64_t)(x {symbol} y)); }}'
        for left, right, symbol, first, second in cases
    ]
    results = [int(text) for text in printed(tmp_path, lines)]

    expected = [
        answer(_operation(left, right, symbol), {"x": first, "y": second}) % (1 << 64)
        for left, right, symbol, first, second in cases
    ]
    assert results == expected


def _constant(value: int) -> str:
    """As C's: the least i64 has no constant of its own."""
    return f"({value + 1}L - 1)" if value < 0 else f"{value}UL"


def _operation(left: Type, right: Type, symbol: str) -> Node:
    """The operation of a question that compares it with something."""
    scope = Scope("m", {"x": left, "y": right}, frozenset(("x", "y")), {})
    (question,) = ask(f"(x {symbol} y) == 0", [scope])
    assert isinstance(question, Question)
    assert isinstance(question.condition, Compare)
    assert isinstance(question.condition.left, Binary)
    return question.condition.left
