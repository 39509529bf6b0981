"""Names that the fields of an event hide, in stored traces; and names as C++ writes them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import markerjit
from markerjit.errors import BadQuestion
from markerjit.model import CType, Field, FieldType, TypeClass
from markerjit.questions import scope_of
from markerjit.questions.aggregates import ask_aggregate, parse_aggregate
from markerjit.questions.latencies import Timed, ask_latency
from markerjit.questions.scope import OF_EVENT
from markerjit.sites.names import written_name

NAME = Field("name", FieldType.INT, CType(TypeClass.SIGNED, 4), 0, "d")
WITH, WITHOUT = scope_of("hiding", [NAME], {}), scope_of("plain", [], {})


@pytest.fixture
def trace(tmp_path: Path) -> markerjit.Trace:
    path = tmp_path / "hiding.jsonl"
    events = [
        {"time": 1000 * number, "cpu": number % 2, "tid": 70 + number, "name": "open",
         "fields": {"tid": -number, "time": 7, "cpu": 9, "name": f"file{number}"}}
        for number in range(4)
    ]  # fmt: skip
    path.write_text("".join(f"{json.dumps(event)}\n" for event in events))
    return markerjit.open_trace(path)


@pytest.mark.parametrize(
    ("where", "chosen"),
    [
        ('event("tid") == 72', [-2]),
        ("tid == -2", [-2]),
        ('event("cpu") == 1 and cpu == 9', [-1, -3]),
        ('event("time") >= 2000 and time == 7', [-2, -3]),
        ('event("name") == "open" and name == "file1"', [-1]),
        ('event("name") == "file1"', []),
    ],
)
def test_a_stored_event_is_asked_apart_from_its_fields(
    trace: markerjit.Trace, where: str, chosen: list[int]
) -> None:
    events = markerjit.where(trace, where).events()

    assert [event.fields["tid"] for event in events] == chosen


def test_a_selection_has_both(trace: markerjit.Trace) -> None:
    made = markerjit.select_fields(trace, 'thread=event("tid"), tid')

    assert [event.fields for event in made.events()] == [
        {"thread": 70 + number, "tid": -number} for number in range(4)
    ]


def test_what_no_event_has_is_refused_with_what_there_is(trace: markerjit.Trace) -> None:
    with pytest.raises(BadQuestion, match="event takes one of") as caught:
        markerjit.where(trace, 'event("nam") == "x"')

    assert all(f'"{name}"' in str(caught.value) for name in OF_EVENT)


def test_a_field_that_no_event_has_is_refused_also_where_the_event_has_the_name() -> None:
    with pytest.raises(BadQuestion, match="there is no field tid"):
        ask_aggregate(parse_aggregate("count()", by='field("tid")'), [WITH])


@pytest.mark.parametrize("by", ["name", "tid, name"])
def test_a_key_is_not_of_fields_and_of_events(by: str) -> None:
    with pytest.raises(BadQuestion, match=r"name is a field of hiding, and not of plain; write ev"):
        ask_aggregate(parse_aggregate("count()", by=by), [WITHOUT, WITH])
    with pytest.raises(BadQuestion, match=r"name is a field of hiding"):
        ask_latency(Timed("a", "b", by), [WITHOUT, WITH], [WITHOUT])
    with pytest.raises(BadQuestion, match=r"name is a field of hiding"):
        ask_latency(Timed("a", "b", by), [WITHOUT], [WITHOUT, WITH])


def test_fields_of_unlike_types_that_hide_a_name_are_told_with_the_way_around_them() -> None:
    text = NAME._replace(type=FieldType.STRING, ctype=CType(TypeClass.POINTER, 8))
    scopes = [WITH, scope_of("other", [text], {})]

    with pytest.raises(BadQuestion, match=r'i32, text; name .*, or write event\("name"\)'):
        ask_aggregate(parse_aggregate("count()", by="name"), scopes)
    assert ask_aggregate(parse_aggregate("count()", by='event("name")'), scopes).shape.key


def test_a_key_is_known_to_be_the_name_of_the_marker() -> None:
    def are_names(by: str) -> list[bool]:
        asked = parse_aggregate("count()", by=by)
        return [part.is_name for part in ask_aggregate(asked, [WITH]).shape.key]

    assert are_names('name, event("name"), "hiding", field("name")') == [False, True, False, False]


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("kv_get", "kv_get"),
        ("provider:_Z1fi", "provider:f(int)"),
        ("func:malloc:return", "func:malloc:return"),
        ("func:_ZN5house5plainEi", "func:house::plain(int)"),
        ("func:_ZN5house5plainEi:return", "func:house::plain(int):return"),
        ("call:_Z1fi->_Z1gv", "call:f(int)->g()"),
        ("func:_Zebra", "func:_Zebra"),
    ],
)
def test_a_name_is_written_as_in_the_source(name: str, written: str) -> None:
    assert written_name(name) == written
