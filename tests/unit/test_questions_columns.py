"""Questions answered for whole columns, compared with the answers for a value at a time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from markerjit.errors import BadQuestion
from markerjit.questions import Question, Scope, ask
from markerjit.questions.columns import answers
from markerjit.questions.types import Type
from tests.support.choice import examples
from tests.support.question_columns import columns_of
from tests.support.question_reference import Values, answer
from tests.support.question_texts import QUESTIONS, SCOPE, VALUES_OF_AN_EVENT

PROPERTY = settings(
    max_examples=examples(80),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


def question(text: str, scope: Scope = SCOPE) -> Question:
    (asked,) = ask(text, [scope])
    assert isinstance(asked, Question)
    return asked


@PROPERTY
@given(QUESTIONS, st.lists(VALUES_OF_AN_EVENT, min_size=8, max_size=8))
def test_columns_have_the_answers_of_single_values(text: str, rows: list[Values]) -> None:
    try:
        condition = question(text).condition
    except BadQuestion:  # a constant that does not fit
        assume(False)

    truths = answers(condition, columns_of(rows, SCOPE.types), len(rows))

    assert truths.dtype == np.bool_
    assert truths.tolist() == [bool(answer(condition, row)) for row in rows]


@pytest.mark.parametrize(
    ("text", "values", "expected"),
    [
        ("x / y == 0", {"x": 5, "y": 0}, True),
        ("x % y == 0", {"x": 5, "y": 0}, True),
        ("x / y == -2147483647 - 1", {"x": -(2**31), "y": -1}, True),
        ("x % y == 0", {"x": -(2**31), "y": -1}, True),
        ("x / y == -3", {"x": -7, "y": 2}, True),
        ("x % y == -1", {"x": -7, "y": 2}, True),
        ("x + 1 < x", {"x": 2**31 - 1, "y": 0}, True),
        ("x << 32 == 0", {"x": 1, "y": 0}, True),
        ("x << y == 0", {"x": 1, "y": -1}, True),
        ("x >> 99 == -1", {"x": -5, "y": 0}, True),
        ("int(float(x) * 1e300) == -9223372036854775808", {"x": 1, "y": 0}, True),
        ("float(x) / 0.0 > 1e308", {"x": 1, "y": 0}, True),
        ("float(x) / 0.0 != float(x) / 0.0", {"x": 0, "y": 0}, True),
        ("log2(x) == -1", {"x": 0, "y": 0}, True),
        ("log2(x) == -1", {"x": -1, "y": 0}, True),
        ("log2(x) == 30", {"x": 2**31 - 1, "y": 0}, True),
        ("1 < x < y < 10", {"x": 3, "y": 4}, True),
        ("1 < x < y < 10", {"x": 3, "y": 3}, False),
        ("x in (1, 2, 3)", {"x": 2, "y": 0}, True),
        ("x not in (1, 2, 3)", {"x": 2, "y": 0}, False),
        ("(x if x > y else y) == 7", {"x": 3, "y": 7}, True),
        ("x", {"x": 0, "y": 0}, False),
        ("not x", {"x": 0, "y": 0}, True),
    ],
)
def test_answers_that_the_reference_names(
    text: str, values: dict[str, int], expected: bool
) -> None:
    scope = Scope("m", {"x": Type.I32, "y": Type.I32}, frozenset(("x", "y")), {})
    condition = question(text, scope).condition

    truths = answers(condition, {name: np.array([values[name]]) for name in values}, 1)

    assert truths.tolist() == [expected]
    assert bool(answer(condition, values)) is expected


def test_a_signed_and_an_unsigned_number_are_compared_by_value() -> None:
    scope = Scope("m", {"i": Type.I64, "u": Type.U64}, frozenset(("i", "u")), {})
    columns = {"i": np.array([-1, 1, -1], np.int64), "u": np.array([1, 1, 2**64 - 1], np.uint64)}

    values = {
        symbol: answers(question(f"i {symbol} u", scope).condition, columns, 3).tolist()
        for symbol in ("<", "<=", "==", "!=", ">=", ">")
    }

    assert values == {
        "<": [True, False, True],
        "<=": [True, True, True],
        "==": [False, True, False],
        "!=": [True, False, True],
        ">=": [False, True, False],
        ">": [False, False, False],
    }


def test_a_constant_condition_has_an_answer_for_each_event() -> None:
    assert answers(question('name == "marker"').condition, {}, 3).tolist() == [True] * 3
    assert answers(question('name == "other" and u8_ > 1').condition, {}, 2).tolist() == [False] * 2
