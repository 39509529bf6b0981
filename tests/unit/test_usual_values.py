"""What an aggregate without a call (markerjit/probes/usual.py) adds up of generated expressions, of
integers of every width and sign and of floats, against the reference of the language."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from markerjit.events.aggregates import Missed, Statistics
from markerjit.model import CType, Signature, TypeClass
from markerjit.probes.adding import ask_markers
from markerjit.questions.aggregates import Gathered, parse_aggregate
from markerjit.questions.ir import Node
from markerjit.questions.types import Type
from tests.support.adder import Adder
from tests.support.choice import examples
from tests.support.own_arena import DOUBLE, RESTARTABLE, OwnArena, geometry_of
from tests.support.question_reference import answer
from tests.support.question_texts import numbers

WIDTHS = {
    "i8_": (Type.I8, "%hhd", ctypes.c_int8), "u8_": (Type.U8, "%hhu", ctypes.c_uint8),
    "i16_": (Type.I16, "%hd", ctypes.c_int16), "u16_": (Type.U16, "%hu", ctypes.c_uint16),
    "i32_": (Type.I32, "%d", ctypes.c_int32), "u32_": (Type.U32, "%u", ctypes.c_uint32),
    "i64_": (Type.I64, "%ld", ctypes.c_int64), "u64_": (Type.U64, "%lu", ctypes.c_uint64),
    "f": (Type.F64, "%g", ctypes.c_double),
}  # fmt: skip
FORMAT = " ".join(f"{name} {form}" for name, (_, form, _) in WIDTHS.items())
SIGNATURE = Signature("widths", FORMAT, tuple(
    DOUBLE if type_ is Type.F64
    else CType(TypeClass.SIGNED if type_.signed else TypeClass.UNSIGNED, type_.bits // 8)
    for type_, _, _ in WIDTHS.values()
))  # fmt: skip
PROPERTY = settings(max_examples=examples(60), deadline=None, derandomize=True)

EVENTS = st.lists(
    st.fixed_dictionaries({name: numbers(type_) for name, (type_, _, _) in WIDTHS.items()}),
    min_size=1, max_size=12,
)  # fmt: skip
WHOLE = st.sampled_from([name for name in WIDTHS if name != "f"])
EXPRESSIONS = st.one_of(
    WHOLE,
    st.tuples(WHOLE, st.sampled_from("+-*/%&|^"), WHOLE).map(" ".join),
    st.tuples(WHOLE, WHOLE).map(lambda names: f"{names[0]} if {names[1]} > 3 else -{names[0]}"),
)
FLOATS = st.one_of(
    st.just("f"), WHOLE.map(lambda name: f"float({name})"), WHOLE.map(lambda name: f"f * {name}")
)
KEYS = st.sampled_from([None, "i8_ > 0", "u16_ % 3, f < 1.0", '"constant", i32_ & 1'])


@pytest.fixture(scope="module")
def own() -> OwnArena:
    geometry = geometry_of(max_markers=2048, aggregate_pages=2048)
    return OwnArena(geometry, way=RESTARTABLE)


class Reference:
    """An aggregate as the reference of the language adds it up."""

    def __init__(self, what: str, by: str | None, events: Sequence[Mapping[str, Any]]) -> None:
        _, (gathered,) = ask_markers(parse_aggregate(what, by=by), [SIGNATURE])
        assert isinstance(gathered, Gathered)
        self.by_key: dict[tuple[object, ...], list[float]] = {}
        self.nan = 0
        for event in events:
            key = tuple(self.part(node, event) for node in gathered.key)
            assert gathered.value is not None
            value = answer(gathered.value, event)
            if math.isnan(value):
                self.nan += 1
            else:
                self.by_key.setdefault(key, []).append(value)

    @staticmethod
    def part(node: Node, event: Mapping[str, Any]) -> object:
        """A part of a key."""
        return "constant" if node.type is Type.TEXT else answer(node, event)


def added_up(own: OwnArena, what: str, by: str | None, events: Sequence[Mapping[str, Any]]) -> Any:
    """The answers of the code, to which each event was shown twice: it is new at first."""
    adder = Adder(own, what, by=by, signature=SIGNATURE)
    for event in events:
        words = [kind(event[name]) for name, (_, _, kind) in WIDTHS.items()]
        for _ in range(2):
            adder.slot.hit(*words)
    answers = adder.answers()
    adder.free()
    return answers


def test_integers_are_added_up_as_the_reference_does(own: OwnArena) -> None:
    @PROPERTY
    @given(EXPRESSIONS, KEYS, EVENTS)
    def check(text: str, by: str | None, events: list[Mapping[str, Any]]) -> None:
        expected = Reference(f"stat({text})", by, events)

        answers = added_up(own, f"stat({text})", by, events)

        assert {row.key: row.answer for row in answers.rows} == {
            key: Statistics(2 * len(values), 2 * sum(values), min(values), max(values))
            for key, values in expected.by_key.items()
        }
        assert answers.missed == Missed()

    check()


def test_floats_are_added_up_as_the_reference_does(own: OwnArena) -> None:
    """A sum is not exact, and infinite or no number where a summand is."""

    @PROPERTY
    @given(FLOATS, KEYS, EVENTS)
    def check(text: str, by: str | None, events: list[Mapping[str, Any]]) -> None:
        expected = Reference(f"stat({text})", by, events)

        answers = added_up(own, f"stat({text})", by, events)

        rows = {row.key: row.answer for row in answers.rows}
        assert rows.keys() == expected.by_key.keys()
        for key, values in expected.by_key.items():
            made = rows[key]
            assert (made.events, made.min, made.max) == (2 * len(values), min(values), max(values))
            sizes = sum(map(abs, values))
            if math.isfinite(4 * sizes):
                assert made.sum == pytest.approx(2 * math.fsum(values), rel=1e-9, abs=sizes * 1e-9)
            elif not math.isfinite(sum(values)):
                assert not math.isfinite(made.sum)
        assert answers.missed == Missed(nan=2 * expected.nan)

    check()


@pytest.mark.parametrize("does", ["hist", "quantiles"])
def test_buckets_have_all_values_of_the_reference(own: OwnArena, does: str) -> None:
    @PROPERTY
    @given(st.one_of(EXPRESSIONS, FLOATS), KEYS, EVENTS)
    def check(text: str, by: str | None, events: list[Mapping[str, Any]]) -> None:
        expected = Reference(f"{does}({text})", by, events)

        answers = added_up(own, f"{does}({text})", by, events)

        rows = {row.key: row.answer for row in answers.rows}
        assert rows.keys() == expected.by_key.keys()
        for key, values in expected.by_key.items():
            assert rows[key].total == 2 * len(values)
            for fraction in (0, 0.5, 1) if does == "quantiles" else ():
                exact = sorted(2 * values)[int(fraction * (2 * len(values) - 1))]
                if 2.0**-32 <= abs(exact) < 2.0**64:
                    assert rows[key].quantile(fraction) == pytest.approx(exact, rel=0.02)
        assert answers.missed == Missed(nan=2 * expected.nan)

    check()
