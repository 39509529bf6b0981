"""Lines as a template says: each part of it, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

import markerjit
from markerjit.cli import values
from markerjit.cli.main import run
from markerjit.errors import Refused
from markerjit.model import Event
from markerjit.ring.types import Time
from markerjit.trace.template import NAMES, LineTemplate, times_of
from tests.support.made_traces import make_batch, make_info, write_trace

S = 1_000_000_000
EVENTS = [
    Event(5 * S, 0, 11, "kv_get", {"key": "a b", "len": 3, "flags": 1, "cpu": 7}),
    Event(5 * S + 1500, 1, 12, "query_start", {"id": 1, "text": 'say "no"\n'}),
    Event(6 * S + 2, 1, 11, "kv_get", {"key": None, "len": 4, "flags": 1, "cpu": 7}),
    Event(9 * S, 0, 12, "tick", {}),
]


def lines_of(text: str, events: Sequence[Event] = EVENTS, *, at_once: int = 9) -> list[str]:
    """The lines of the template, for batches of so many events."""
    info, template = make_info(), LineTemplate(text)
    pids = dict.fromkeys(info.types, 812)
    whole = b"".join(
        template.lines(
            make_batch(info, events[at : at + at_once]).columns, info.clock, pids=pids,
            sources={"kv_get": "kv.c:12"},
        )
        for at in range(0, len(events), at_once)
    )  # fmt: skip
    return whole.decode().splitlines()


@pytest.mark.parametrize("at_once", [1, 2, 9])
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{name}", ["kv_get", "query_start", "kv_get", "tick"]),
        ("cpu{cpu} {tid} {pid}", ["cpu0 11 812", "cpu1 12 812", "cpu1 11 812", "cpu0 12 812"]),
        ("{since}", ["0.000000000", "0.000001500", "1.000000002", "4.000000000"]),
        ("{delta}", ["0.000000000", "0.000000000", "1.000000002", "3.999998500"]),
        ("{source}", ["kv.c:12", "-", "kv.c:12", "-"]),
        ("{fields.key}", ["a b", "-", "(null)", "-"]),
        ("{fields.text}|", ["-|", 'say \\"no\\"\\n|', "-|", "-|"]),
        ("{fields.id}\\t{fields.len}", ["-\t3", "1\t-", "-\t4", "-\t-"]),
        ("{{{name}}} µ", ["{kv_get} µ", "{query_start} µ", "{kv_get} µ", "{tick} µ"]),
    ],
)
def test_each_part_is_in_each_line_however_events_come(
    text: str, expected: list[str], at_once: int
) -> None:
    assert lines_of(text, at_once=at_once) == expected


def test_all_fields_are_as_in_usual_lines() -> None:
    info = make_info()
    usual = markerjit.event_lines(make_batch(info, EVENTS).columns, info.clock).decode()

    assert lines_of("{time} cpu{cpu} {tid} {name} {fields}")[:3] == usual.splitlines()[:3]
    assert [line.rstrip() for line in lines_of("{name} {fields}")][3] == "tick"


def test_a_date_is_before_the_time_of_day() -> None:
    dates, times = lines_of("{date}"), lines_of("{time}")

    assert [date.split("T")[1] for date in dates] == times
    assert all(len(date) == len("2026-11-23T14:03:05.123456789") for date in dates)


def test_events_without_a_time_have_a_number_and_no_distance() -> None:
    info = make_info(Time.NONE)
    events = [event._replace(time=number) for number, event in enumerate(EVENTS)]
    columns = make_batch(info, events).columns

    lines = LineTemplate("{time} {since} {delta}").lines(columns, info.clock).decode()

    assert sorted(lines.splitlines()) == ["#0 - -", "#1 - -", "#2 - -", "#3 - -"]


def test_times_are_in_the_order_of_the_lines() -> None:
    info = make_info()

    times = times_of(make_batch(info, EVENTS).columns, info.clock)

    assert times == [event.time + info.clock.wall_offset_ns for event in EVENTS]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{tiem}", "there is no tiem in a line; did you mean time"),
        ("{}", "a name is empty; there are time, date"),
        ("{fields.}", "there is no fields. in a line"),
        ("{name", "makes no sense"),
        ("nothing", "names nothing"),
        ("{name:>20}", "{name} of the template takes no format"),
        ("{name!r}", "{name} of the template takes no format"),
    ],
)
def test_a_template_that_is_none_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Refused) as refused:
        LineTemplate(text)

    assert reason in str(refused.value)


def test_a_field_that_no_marker_has_is_refused_with_the_nearest() -> None:
    with pytest.raises(Refused, match="no marker has a field kye; did you mean yes or key"):
        LineTemplate("{fields.kye}").check(make_info().types)


def test_completion_knows_the_same_names() -> None:
    assert tuple(values._COLUMNS) == NAMES


def test_read_prints_columns_and_counts_events(
    tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    path = write_trace(tmp_path / "a.jsonl", EVENTS, {})

    assert run(["read", path, "--columns", "delta,name", "--marker", "kv_get", "-n", "1"]) == 0
    captured = capsysbinary.readouterr()
    assert captured.out == b"0.000000000 kv_get\n"
    assert captured.err == b"1 event, 0 lost\n"
    assert run(["read", path, "--format", "{name}", "--json"]) == 1
    assert run(["read", path, "--columns", "delta", "--stats"]) == 1
    refused = capsysbinary.readouterr().err.decode()
    assert "--format is for lines that are printed; leave out --json" in refused
    assert "--columns is for lines that are printed; leave out --stats" in refused
