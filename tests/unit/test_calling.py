"""Where arguments are at the entry of a function, by the System V psABI."""

from __future__ import annotations

import pytest

from markerjit.elf.prototypes import Kind, Member, Parameter, Prototype, Value
from markerjit.model import Memory, Vector
from markerjit.sites.calling import GENERAL, passed
from markerjit.sites.operands import shown

INT, LONG, DOUBLE = Value(Kind.SIGNED, 4), Value(Kind.SIGNED, 8), Value(Kind.FLOAT, 8)
WIDE, VOID, UNKNOWN = Value(Kind.LONG_DOUBLE, 16), Value(Kind.VOID), Value(Kind.OTHER)
TEXT = Value(Kind.TEXT, 8)
LARGE = Value(Kind.STRUCTURE, 40)
SPAN = Value(Kind.STRUCTURE, 16, members=(Member("start", 0, TEXT), Member("length", 8, LONG)))
POINT = Value(Kind.STRUCTURE, 16, members=(Member("x", 0, DOUBLE), Member("y", 8, DOUBLE)))
PACKED = Value(Kind.STRUCTURE, 9, members=(Member("tag", 0, Value(Kind.SIGNED, 1)),
                                           Member("value", 1, LONG)))  # fmt: skip


def places(*values: Value, returned: Value = VOID) -> list[str]:
    parameters = tuple(Parameter(f"p{index}", value) for index, value in enumerate(values))
    return [
        f"{each.name} {shown(each.argument.operand)}"
        for each in passed(Prototype(parameters, returned))
    ]


def test_integers_and_floats_have_registers_of_their_own() -> None:
    assert places(LONG, DOUBLE, INT, DOUBLE) == ["p0 rdi", "p1 xmm0", "p2 rsi", "p3 xmm1"]


def test_what_finds_no_register_stands_above_the_return_address() -> None:
    values = [LONG] * 8 + [DOUBLE] * 9

    arguments = passed(Prototype(tuple(Parameter("", each) for each in values), VOID))

    operands = [each.argument.operand for each in arguments]
    assert operands[:6] == list(GENERAL)
    assert operands[6:8] == [Memory("rsp", 8), Memory("rsp", 16)]
    assert operands[8:] == [Vector(number) for number in range(4)]  # twelve in all


def test_a_large_result_takes_the_first_register() -> None:
    assert places(LONG, returned=LARGE) == ["p0 rsi"]


def test_a_result_in_registers_takes_none() -> None:
    assert places(LONG, returned=SPAN) == ["p0 rdi"]


def test_a_small_structure_is_in_registers_by_words() -> None:
    assert places(LONG, SPAN, POINT, LONG) == [
        "p0 rdi", "p1_start rsi", "p1_length rdx", "p2_x xmm0", "p2_y xmm1", "p3 rcx",
    ]  # fmt: skip


def test_a_structure_is_in_registers_as_a_whole_or_not_at_all() -> None:
    assert places(*[LONG] * 5, SPAN, LONG, LONG)[5:] == ["p6 r9", "p7 24(rsp)"]


@pytest.mark.parametrize(("value", "behind"), [(LARGE, 48), (PACKED, 24), (WIDE, 24)])
def test_what_goes_over_the_stack_moves_what_comes_behind(value: Value, behind: int) -> None:
    assert places(value, *[LONG] * 7)[-1] == f"p7 {behind}(rsp)"


def test_a_long_double_is_aligned() -> None:
    assert places(*[LONG] * 7, WIDE, LONG)[-1] == "p8 40(rsp)"


def test_what_comes_behind_a_structure_that_may_be_aligned_is_left_out_on_the_stack() -> None:
    """`__attribute__((aligned(16)))`: it then begins at a multiple of 16, and else where it is."""
    pair = Value(Kind.STRUCTURE, 32)

    assert places(*[LONG] * 7, pair, LONG) == places(*[LONG] * 7)
    assert places(*[LONG] * 8, pair, LONG)[-1] == "p9 56(rsp)"
    assert places(LONG, pair, DOUBLE)[-1] == "p2 xmm0"


def test_what_comes_behind_an_unknown_type_is_left_out() -> None:
    assert places(LONG, UNKNOWN, LONG) == ["p0 rdi"]
    assert places(LONG, returned=UNKNOWN) == []


def test_a_structure_with_a_long_double_is_not_understood() -> None:
    wide = Value(Kind.STRUCTURE, 16, members=(Member("wide", 0, WIDE),))

    assert places(LONG, wide, LONG) == ["p0 rdi"]
