"""`markerjit read --select`: expressions in place of the fields, in all formats."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import markerjit
from markerjit.cli import main
from markerjit.errors import BadArgument, BadQuestion, Refused
from markerjit.questions import Question, ask
from markerjit.questions.columns import values
from markerjit.questions.ir import Node, operands
from markerjit.questions.types import Type
from markerjit.trace.open import FORMATS, open_trace
from tests.support.choice import examples
from tests.support.made_traces import EVENTS, write_trace
from tests.support.question_columns import columns_of
from tests.support.question_reference import Values, answer
from tests.support.question_texts import QUESTIONS, SCOPE, VALUES_OF_AN_EVENT

SUFFIXES = [format_.suffixes[0] for format_ in FORMATS]
LOST = {(0, "kv_get"): 3}


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")


def read(*arguments: object) -> int:
    return main.run(["read", *map(str, arguments)])


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_events_have_the_expressions_in_place_of_their_fields(suffix: str, tmp_path: Path) -> None:
    trace = open_trace(write_trace(tmp_path / f"a{suffix}", EVENTS, LOST))
    every = [event for event in trace.events() if {"id", "text"} <= event.fields.keys()]

    made = markerjit.select_fields(trace, "twice=id * 2, text, short=text[:3], is_odd=id % 2 != 0")

    events = [*made.events()]
    assert [event._replace(fields={}) for event in events] == [
        event._replace(fields={}) for event in every
    ]
    assert len(events) >= 2
    for event, before in zip(events, every, strict=True):
        text = before.fields["text"]
        assert event.fields["twice"] == before.fields["id"] * 2
        assert event.fields["text"] == text
        assert event.fields["is_odd"] is bool(before.fields["id"] % 2)
        short = event.fields["short"]
        assert (short is None) == (text is None)
        if text is not None and text[:3].isascii():
            assert short == text[:3]
    assert {lack.name for lack in made.lacks} <= {"id", "text"}
    assert made.lost == trace.lost


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_what_is_selected_can_be_written_again(suffix: str, tmp_path: Path) -> None:
    path = write_trace(tmp_path / f"a{suffix}", EVENTS, LOST)
    made = markerjit.select_fields(open_trace(path), "half=id / 2, text[:2], f=float(id) / 2.0")
    before = [dict(event.fields) for event in made.events()]

    for other in SUFFIXES:
        again = tmp_path / f"b{suffix.replace('.', '_')}{other}"
        assert read(path, "--select", "half=id / 2, text[:2], f=float(id) / 2.0", "-o", again) == 0
        assert [dict(event.fields) for event in open_trace(str(again)).events()] == before


def test_a_condition_is_asked_of_the_fields_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trace(tmp_path / "a.ctf", EVENTS, LOST)

    code = read(path, "--where", "id == 7", "--select", "less=id - 9", "--json")

    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0
    assert {line["fields"]["less"] for line in lines[:-1]} == {-2}
    assert lines[-1]["summary"]["events"] == len(lines) - 1 > 0


def test_markers_that_are_left_out_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trace(tmp_path / "a.jsonl", EVENTS, LOST)

    assert read(path, "--select", "id") == 0
    assert "is left out: no id" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("select", "sentence"),
    [
        ("idd", "did you mean id"),
        ("id * 2", "this has no name"),
        ("x=u32(id)", "a stored trace has no memory of the process"),
        ("id, id", "two expressions are called id"),
        ("x=req->url", "members of structures"),
        ("", "an expression is empty"),
        ("x=text[2:]", "the beginning of a text"),
    ],
)
def test_a_wrong_selection_is_refused(select: str, sentence: str, tmp_path: Path) -> None:
    trace = open_trace(write_trace(tmp_path / "a.ctf", EVENTS, LOST))

    with pytest.raises(BadQuestion, match=sentence):
        markerjit.select_fields(trace, select)


def test_a_selection_that_no_marker_has_is_refused(tmp_path: Path) -> None:
    trace = open_trace(write_trace(tmp_path / "a.ctf", EVENTS, LOST))

    with pytest.raises(Refused, match="and no other marker has all"):
        markerjit.select_fields(trace, "a=id, b=len")
    with pytest.raises(BadArgument):
        markerjit.select_fields(trace, 3)  # type: ignore[arg-type]


def test_fields_do_not_go_with_a_selection(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_trace(tmp_path / "a.ctf", EVENTS, LOST)

    assert read(path, "--select", "id", "--fields", "id") == 1
    assert "leave out --fields" in capsys.readouterr().err


def numbers_in(node: Node) -> list[Node]:
    """All parts of an expression that are numbers, or bools."""
    own = [] if node.type is Type.TEXT else [node]
    return own + [number for part in operands(node) for number in numbers_in(part)]


@settings(
    max_examples=examples(60), deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)  # fmt: skip
@given(QUESTIONS, st.lists(VALUES_OF_AN_EVENT, min_size=4, max_size=4))
def test_each_part_of_an_expression_has_its_value_and_type(text: str, rows: list[Values]) -> None:
    try:
        (asked,) = ask(text, [SCOPE])
    except BadQuestion:  # a constant that does not fit
        assume(False)
    assert isinstance(asked, Question)
    columns: dict[str, Any] = columns_of(rows, SCOPE.types)

    for node in numbers_in(asked.condition):
        made = values(node, columns, len(rows))
        expected = [answer(node, row) for row in rows]

        size = 8 if node.type is Type.F64 else max(node.type.bits // 8, 1)
        assert (made.dtype.kind == "f") is (node.type is Type.F64)
        assert made.dtype.itemsize == size
        np.testing.assert_array_equal(made, np.array(expected, made.dtype))
