"""A trace summed up: counts, rates, what is in fields, losses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from markerjit.facts.traces import summary_facts
from markerjit.model import Event
from markerjit.ring.clock import NS
from markerjit.ring.types import Time
from markerjit.trace.open import open_sink, open_trace
from markerjit.trace.sketch import Budget
from markerjit.trace.statistics import NumberSummary, Summary, ValueSummary, summarise
from tests.support.made_traces import EVENTS, START_NS, make_batch, make_info, put


def summary_of(tmp_path: Path, *events: Event, each: int = 1000, **lost: int) -> Summary:
    info = make_info()
    sink = open_sink(str(tmp_path / "a.jsonl"), info)
    sink.write(make_batch(info, events))
    sink.close({(0, name): count for name, count in lost.items()})
    return summarise(open_trace(str(tmp_path / "a.jsonl")), budget=Budget(each=each))


def get(time: int, key: str | None, length: int) -> Event:
    fields = {"key": key, "len": length, "flags": 0, "cpu": 0}
    return Event(START_NS + time, 0, 1, "kv_get", fields)


def test_a_marker_has_its_count_its_rate_its_losses_and_its_times(tmp_path: Path) -> None:
    events = [get(n * NS, "a", n) for n in range(5)]

    summary = summary_of(tmp_path, *events, Event(START_NS + 8 * NS, 0, 1, "tick", {}), kv_get=7)
    marker = summary.markers[0]

    assert (summary.events, summary.lost) == (6, 7)
    assert (marker.name, marker.events, marker.lost, marker.source) == ("kv_get", 5, 7, "kv.c:12")
    assert (marker.first_ns, marker.last_ns) == (START_NS, START_NS + 4 * NS)
    assert marker.rate_hz == 5 / 8


def test_markers_with_most_events_come_first_and_those_without_any_are_there(
    tmp_path: Path,
) -> None:
    summary = summary_of(tmp_path, *EVENTS)

    assert [(marker.name, marker.events) for marker in summary.markers] == [
        ("query_done", 3), ("kv_get", 2), ("query_start", 2), ("kv_put", 1), ("odd", 1), ("tick", 1)
    ]  # fmt: skip


def test_an_empty_trace_has_no_markers_with_events(tmp_path: Path) -> None:
    summary = summary_of(tmp_path)

    assert (summary.events, summary.first_ns) == (0, None)
    assert {marker.events for marker in summary.markers} == {0}


@pytest.mark.parametrize(("each", "error"), [(1000, 0), (10, 0.01)])
def test_a_number_has_its_percentiles_and_how_exact_they_are(
    each: int, error: float, tmp_path: Path
) -> None:
    summary = summary_of(tmp_path, *(get(n, "a", n + 1) for n in range(100)), each=each)

    field = summary.markers[0].fields[1]
    assert isinstance(field, NumberSummary)
    assert (field.values, field.least, field.largest, field.mean) == (100, 1, 100, 50.5)
    assert field.error == error
    for shown, right in ((field.p50, 50), (field.p90, 90), (field.p99, 99)):
        assert shown == pytest.approx(right, abs=right * error + (0.5 if error else 0))
        assert isinstance(shown, int)


def test_a_text_has_its_most_frequent_values(tmp_path: Path) -> None:
    keys = [None, *"a" * 9, *"b" * 5, *"cdefg"]

    field = (
        summary_of(tmp_path, *(get(n, key, 0) for n, key in enumerate(keys))).markers[0].fields[0]
    )

    assert isinstance(field, ValueSummary)
    assert (field.values, field.nulls, field.distinct, field.missed) == (19, 1, 7, 0)
    assert field.shown()[:2] == [('"a"', 9), ('"b"', 5)]
    assert len(field.top) == 5


def test_addresses_characters_and_truths_are_counted_not_ranked(tmp_path: Path) -> None:
    fields = summary_of(tmp_path, EVENTS[6]).markers[0].fields

    shown = {value.field.name: value.shown() for value in fields if isinstance(value, ValueSummary)}
    assert shown == {
        "c": [("'x'", 1)],
        "yes": [("true", 1)],
        "at": [("0xffff800000000000", 1)],
        "name": [('""', 1)],
    }


def test_markers_that_are_not_wanted_are_left_out_with_their_losses(tmp_path: Path) -> None:
    summary_of(tmp_path, *EVENTS, kv_get=1, tick=5)

    summary = summarise(open_trace(str(tmp_path / "a.jsonl")), lambda name: name == "tick")

    assert ([marker.name for marker in summary.markers], summary.lost) == (["tick"], 5)


def test_without_a_clock_there_are_no_rates(tmp_path: Path) -> None:
    info = make_info(Time.NONE)
    put(open_sink(str(tmp_path / "a.jsonl"), info), info)

    summary = summarise(open_trace(str(tmp_path / "a.jsonl")))

    assert (summary.first_ns, summary.last_ns) == (None, None)
    assert {marker.rate_hz for marker in summary.markers} == {None}


@pytest.mark.parametrize("number", ["inf", "nan"])
def test_a_summary_is_json_whatever_is_in_it(number: str, tmp_path: Path) -> None:
    event = EVENTS[6]._replace(fields={**EVENTS[6].fields, "x": float(number)})

    document = json.loads(json.dumps(summary_facts(summary_of(tmp_path, event)), allow_nan=False))

    field = next(entry for entry in document["markers"][0]["fields"] if entry["name"] == "x")
    assert (field["max"], field["nans"]) == (("inf", 0) if number == "inf" else (None, 1))
