"""Which names of markers make a span, and which events do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from markerjit.elf import parse_format
from markerjit.model import CType, TypeClass
from markerjit.trace.spans import DEEPEST, OpenSpans, Pair, cpu_key, pair_names

INT = CType(TypeClass.SIGNED, 4)
A, B, C = (Pair(name, f"{name}_begin", f"{name}_end") for name in "abc")


@pytest.mark.parametrize(
    ("begin", "end"),
    [
        ("x_begin", "x_end"),
        ("x_start", "x_done"),
        ("x_start", "x_end"),
        ("x_entry", "x_return"),
        ("x_entry", "x_exit"),
        ("x_enter", "x_exit"),
        ("x__begin", "x__end"),
        ("x-start", "x-done"),
    ],
)
def test_names_that_differ_by_their_last_word_make_a_span(begin: str, end: str) -> None:
    assert pair_names([end, "other", begin]) == (Pair("x", begin, end),)


@pytest.mark.parametrize(
    "names",
    [
        ("x_begin", "y_end"),
        ("x_begin", "x_done"),
        ("x_begin", "x__end"),
        ("x_begin",),
        ("begin", "end"),
        ("_begin", "_end"),
        ("postgresql:__start", "postgresql:__done"),
        ("beginx", "endx"),
        (),
    ],
)
def test_other_names_make_none(names: tuple[str, ...]) -> None:
    assert pair_names(names) == ()


def test_usdt_names_keep_their_provider() -> None:
    pairs = pair_names(["postgresql:query__start", "postgresql:query__done"])

    assert [pair.name for pair in pairs] == ["postgresql:query"]


def test_a_marker_is_in_one_pair_at_most() -> None:
    pairs = pair_names(["x_start", "x_end", "x_done"])

    assert pairs == (Pair("x", "x_start", "x_done"),)


def test_a_span_has_a_name_to_itself() -> None:
    pairs = pair_names(["x_begin", "x_end", "x_entry", "x_exit", "y", "y_begin", "y_end"])

    assert [pair.name for pair in pairs] == ["x", "y_begin", "x_entry"]


@given(st.lists(st.sampled_from(["a", "b", "a_begin", "a_end", "a_start", "a_done", "a__exit"])))
def test_pairs_never_share_markers_or_names(names: list[str]) -> None:
    pairs = pair_names(names)

    markers = [marker for pair in pairs for marker in pair[1:]]
    shown = [pair.name for pair in pairs]
    assert len(set(markers)) == len(markers)
    assert len(set(shown)) == len(shown)
    assert set(markers) <= set(names)
    assert not {name for name in shown if name in names} - set(markers)


def test_spans_nest() -> None:
    spans = OpenSpans()
    spans.begin(1, A)
    spans.begin(1, B)

    assert spans.end(1, B) == []
    assert spans.end(1, A) == []


def test_an_end_without_a_begin_ends_nothing() -> None:
    spans = OpenSpans()

    assert spans.end(1, A) is None
    spans.begin(1, B)
    assert spans.end(1, A) is None
    assert spans.end(1, B) == []


def test_threads_have_their_own_spans() -> None:
    spans = OpenSpans()
    spans.begin(1, A)

    assert spans.end(2, A) is None
    assert spans.end(1, A) == []


def test_an_end_closes_what_began_inside_and_has_not_ended() -> None:
    spans = OpenSpans()
    for pair in (A, B, C):
        spans.begin(1, pair)

    assert spans.end(1, A) == [C, B]
    assert spans.end(1, B) is None


def test_the_last_one_of_a_name_ends_first() -> None:
    spans = OpenSpans()
    for pair in (A, B, A):
        spans.begin(1, pair)

    assert spans.end(1, A) == []
    assert spans.end(1, A) == [B]


def test_spans_that_never_end_do_not_pile_up() -> None:
    spans = OpenSpans()

    begun = [spans.begin(1, A) for _ in range(DEEPEST + 2)]

    assert begun == [True] * DEEPEST + [False] * 2
    assert spans.begin(2, A)


def test_the_cpu_has_a_name_that_no_field_has() -> None:
    assert cpu_key(()) == "cpu"
    assert cpu_key(parse_format("cpu %d", (INT,))) == "cpu_2"
    assert cpu_key(parse_format("cpu %d cpu %d", (INT, INT))) == "cpu_3"
