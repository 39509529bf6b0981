"""`markerjit read --where`: the events of a trace that meet a condition, in all formats."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from markerjit.cli import main
from markerjit.errors import BadArgument, BadQuestion
from markerjit.model import Event
from markerjit.ring.types import Time
from markerjit.trace.open import FORMATS, open_sink, open_trace
from markerjit.trace.where import where
from tests.support.made_traces import EVENTS, START_NS, make_batch, make_info, write_trace

SUFFIXES = [format_.suffixes[0] for format_ in FORMATS]
CONDITIONS: list[tuple[str, Callable[[Event], bool]]] = [
    ("id < 0", lambda event: event.fields.get("id", 0) in (-8,)),
    ("rows % 2 == 0 and id == 7", lambda event: event.fields.get("rows") == 12),
    ("len > 1 << 62", lambda event: event.name == "kv_get" and event.fields["len"] != 0),
    ("flags & 0x80", lambda event: event.fields.get("flags") == 255),
    ("text is None", lambda event: event.name == "query_start" and event.fields["text"] is None),
    ("'ä' in text", lambda event: event.fields.get("text") is not None),
    ("key.startswith('a')", lambda event: event.fields.get("key") == "a b"),
    ("key[2:] == 'ain'", lambda event: event.fields.get("key") == "plain"),
    ("c == 'x' and yes and x < 0.5 and y == -2.5", lambda event: event.name == "odd"),
    ("at > 1 << 62", lambda event: event.name == "odd"),
    ("cpu == 1 and tid == 813", lambda event: event.tid == 813 and "cpu" not in event.fields),
    ("not cpu", lambda event: event.cpu == 0),  # kv_get has a field of this name
    (f"time >= {START_NS + 1000}", lambda event: event.time >= START_NS + 1000),
    ("name == 'tick' or name.startswith('query')", lambda event: event.name[0] in "tq"),
    ("id > 0 or len > 0", lambda event: event.fields.get("id", event.fields.get("len", 0)) > 0),
]


def write(path: Path) -> str:
    return write_trace(path, EVENTS, {(0, "kv_get"): 3, (1, "odd"): 1})


def run(*arguments: str) -> int:
    return main.run(["read", *arguments])


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_events_that_meet_a_condition_are_chosen(suffix: str, tmp_path: Path) -> None:
    path = write(tmp_path / f"a{suffix}")
    every = [*open_trace(path).events()]

    for text, meets in CONDITIONS:
        events = [*where(open_trace(path), text).events()]

        expected = [event for event in every if meets(event)]
        assert events == expected, text


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_the_rest_is_read_as_without_a_condition(
    suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / f"a{suffix}")
    assert run(path, "--json", "--marker", "query_start") == 0
    plain = capsys.readouterr()
    assert run(path, "--json", "--marker", "query_start", "--where", "True") == 0
    asked = capsys.readouterr()

    assert asked.out == plain.out
    assert asked.err == plain.err


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_events_of_threads_cpus_and_times_are_chosen(suffix: str, tmp_path: Path) -> None:
    """kv_get has a field that is called cpu, which is not meant."""
    path = write(tmp_path / f"a{suffix}")
    every = [*open_trace(path).events()]
    middle = every[len(every) // 2].time
    bounds: list[tuple[dict[str, Any], Callable[[Event], bool]]] = [
        ({"tids": [813, 1]}, lambda event: event.tid == 813),
        ({"cpus": [1]}, lambda event: event.cpu == 1),
        ({"since": middle}, lambda event: event.time >= middle),
        ({"before": middle, "cpus": (0,)}, lambda event: event.time < middle and not event.cpu),
        ({"tids": []}, lambda event: False),
    ]

    for arguments, chosen in bounds:
        events = [*where(open_trace(path), "True", **arguments).events()]

        assert events == [event for event in every if chosen(event)], arguments


def test_options_choose_threads_cpus_and_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.jsonl")
    trace = open_trace(path)
    every = [*trace.events()]
    first, last = every[0].time, every[-1].time
    assert first < last

    def times(*options: str) -> list[int]:
        assert run(path, "--json", *options) == 0
        *lines, _ = map(json.loads, capsys.readouterr().out.splitlines())
        return [line["time"] for line in lines]

    def clock(time_ns: int, form: str) -> str:
        seconds, rest = divmod(time_ns + trace.info.clock.wall_offset_ns, 10**9)
        return datetime.fromtimestamp(seconds).strftime(form) + f".{rest:09d}"[:10]

    assert times() == [event.time for event in every]
    assert times("-n", "2") == [event.time for event in every[:2]]
    assert times("--tid", "813,7") == [event.time for event in every if event.tid in (813, 7)]
    assert times("--cpu", "1") == [event.time for event in every if event.cpu == 1]
    assert times("--from", "+1h") == []
    assert times("--from", "+0s") == times()
    assert times("--to", "+0ms") == []
    assert times("--to", f"+{(last - first) / 1e9:.9f}s") == [
        event.time for event in every if event.time < last
    ]
    assert times("--from", clock(last, "%H:%M:%S")) == [
        event.time for event in every if event.time >= last
    ]
    assert times("--to", clock(first, "%Y-%m-%dT%H:%M:%S")[:-3]) == []


@pytest.mark.parametrize(
    "options",
    [("--tid", "x"), ("--cpu", "1,,2"), ("--from", "soon"), ("--to", "25:00"), ("--from", "+x"),
     ("-n", "0"), ("-n", "5", "--stats"), ("--to", "2026-13-01")],
)  # fmt: skip
def test_wrong_bounds_are_wrong_usage(options: tuple[str, ...], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="2"):
        run(write(tmp_path / "a.jsonl"), *options)


def test_a_condition_goes_with_sums_and_conversions(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, other = write(tmp_path / "a.ctf"), str(tmp_path / "b.jsonl")

    assert run(path, "--stats", "--json", "--where", "id == 7") == 0
    summary = json.loads(capsys.readouterr().out)
    assert run(path, "-o", other, "--where", "id == 7") == 0

    assert summary["events"] == 2
    assert [event.fields["id"] for event in open_trace(other).events()] == [7, 7]


def test_markers_without_a_name_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.jsonl")

    assert run(path, "--marker", "query*", "--where", "rows > 3") == 0

    assert capsys.readouterr().err == (
        "markerjit: no event of query_start meets the condition: no rows\n1 event, 0 lost\n"
    )


def test_a_wrong_condition_is_refused_with_its_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "a.jsonl")

    assert run(path, "--marker", "query_done", "--where", "id == 7 and row > 3") == 1

    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err == (
        "markerjit: there is no name row; did you mean rows?\n"
        "  id == 7 and row > 3\n"
        "              ^^^\n"
        "names: cpu, id, name, rows, tid, time\n"
    )


def test_a_constant_has_to_fit_for_each_marker(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "a.jsonl"))

    with pytest.raises(BadQuestion, match=r"^kv_put: 9223372036854775808 does not fit into i64"):
        where(trace, "len >= 1 << 63")
    events = [*where(trace, "len >= 1 << 63", lambda name: name == "kv_get").events()]
    assert [event.name for event in events] == ["kv_get"]


def test_a_trace_without_times_has_no_time(tmp_path: Path) -> None:
    info = make_info(Time.NONE, tid=False)
    path = str(tmp_path / "a.jsonl")
    sink = open_sink(path, info)
    events = [event._replace(tid=0) for event in EVENTS]
    sink.write(make_batch(info, events, {}))
    sink.close({})
    trace = open_trace(path)

    with pytest.raises(BadQuestion, match=r"the trace was recorded without a clock"):
        where(trace, "time > 3")
    with pytest.raises(BadQuestion, match=r"the trace was recorded without thread ids"):
        where(trace, "tid > 3")
    assert len([*where(trace, "id > 0").events()]) == 3
    for name, bounds in (("time", {"since": 0}), ("tid", {"tids": [0]})):
        selection = where(trace, "True", **bounds)  # type: ignore[arg-type]
        assert [*selection.events()] == []
        assert {lack.name for lack in selection.lacks} == {name}


def test_an_empty_trace_has_no_events_to_ask(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"summary": {"events": 0, "lost": 0}}\n')

    assert [*where(open_trace(str(path)), "whatever > 3").events()] == []
    with pytest.raises(BadQuestion):
        where(open_trace(str(path)), "whatever >")


def test_types_of_one_name_are_asked_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(
            json.dumps({"time": time, "cpu": 0, "tid": 1, "name": "m", "fields": fields}) + "\n"
            for time, fields in enumerate([{"a": 1}, {"b": 2}, {"a": 5, "b": 0}])
        )
    )

    events = where(open_trace(str(path)), "a > 0 or b > 0").events()

    assert [event.time for event in events] == [0, 1, 2]
    assert [event.time for event in where(open_trace(str(path)), "b > 0").events()] == [1]


def test_events_keep_the_order_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        "".join(
            json.dumps({"time": time, "cpu": 0, "tid": 1, "name": "m", "fields": {"a": time}})
            + "\n"
            for time in (5, 3, 9, 1)
        )
    )

    events = where(open_trace(str(path)), "a != 3").events()

    assert [event.time for event in events] == [5, 9, 1]


def test_arguments_are_checked(tmp_path: Path) -> None:
    trace = open_trace(write(tmp_path / "a.jsonl"))

    with pytest.raises(BadArgument):
        where(trace, 3)  # type: ignore[arg-type]
    with pytest.raises(BadArgument):
        where(trace, "True", "kv_*")  # type: ignore[arg-type]
