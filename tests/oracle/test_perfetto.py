"""Perfetto judges the traces that we write for it: its trace processor answers SQL, and its own
messages decode them. Both for its protobuf and for Chrome's JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from markerjit.model import Event
from markerjit.ring.types import Time
from markerjit.trace.open import open_joint, open_sink
from markerjit.trace.sink import TraceInfo
from markerjit.trace.spans import DEEPEST
from tests.support.made_traces import EVENTS, START_NS, WALL_NS, make_batch, make_info
from tests.support.trace_processor import TraceProcessor, find_module

pytestmark = [pytest.mark.oracle, pytest.mark.slow]

SLICES = """select s.ts, s.dur, s.name, s.depth, coalesce(t.tid, 0) tid
            from slice s left join thread_track tt on s.track_id = tt.id
            left join thread t using (utid)
            order by s.ts, s.depth"""
LOST = {(0, "kv_get"): 3, (1, "odd"): 1}


@pytest.fixture(scope="module", autouse=True)
def _module() -> None:
    find_module()


def write(path: Path, info: TraceInfo, *batches: list[Event]) -> bytes:
    """A whole trace, as bytes."""
    sink = open_sink(str(path), info)
    for events in batches:
        sink.write(make_batch(info, events, LOST))
    sink.close(LOST)
    return path.read_bytes()


@pytest.fixture(scope="module", params=["pftrace", "json"])
def judge(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, TraceProcessor]]:
    path = tmp_path_factory.mktemp("perfetto") / f"a.{request.param}"
    some = list(EVENTS)
    yield request.param, TraceProcessor(write(path, make_info(), some[:4], some[4:]))


def complaints(processor: TraceProcessor) -> list[Any]:
    return processor.query(
        "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
    )


def test_slices_and_instants_are_where_they_were(judge: tuple[str, TraceProcessor]) -> None:
    _, processor = judge

    rows = [
        row
        for row in processor.values(SLICES)
        if "lost" not in row[2] and not row[2].startswith("trace ")
    ]

    assert rows == [
        (START_NS + 10, 991, "query", 0, 812),
        (START_NS + 20, 0, "kv_get", 0, 813),
        (START_NS + 25, 5, "query", 1, 812),
        (START_NS + 31, 0, "tick", 1, 812),
        (START_NS + 41, 0, "kv_put", 1, 812),
        (START_NS + 1_000, 0, "odd", 0, 4_000_000),
        (START_NS + 1_002, 0, "query_done", 0, 812),
        (START_NS + 2_000_000_001, 0, "kv_get", 0, 813),
    ]
    assert complaints(processor) == []


def test_fields_are_arguments(judge: tuple[str, TraceProcessor]) -> None:
    kind, processor = judge
    prefix = "debug" if kind == "pftrace" else "args"

    rows = processor.query(
        "select s.name slice, s.ts, a.flat_key, a.display_value from slice s "
        f"join args a using (arg_set_id) where a.flat_key glob '{prefix}.*'"
    )

    by_time: dict[int, dict[str, str]] = {}
    for row in rows:
        fields = by_time.setdefault(row["ts"], {})
        fields[row["flat_key"].removeprefix(f"{prefix}.")] = row["display_value"]
    query = by_time[START_NS + 10]
    assert (query["id"], query["text"], query["rows"], query["cpu"]) == (
        "7", "select 'ä'\n\"1\"", "12", "0",
    )  # fmt: skip
    get = by_time[START_NS + 20]
    assert (get["key"], get["flags"], get["cpu"], get["cpu_2"]) == ("a b", "255", "-1", "1")
    odd = by_time[START_NS + 1_000]
    assert (odd["c"], odd["y"], odd["name"]) == ("x", "-2.5", "")
    assert int(odd["at"], 0) % (1 << 64) == 0xFFFF_8000_0000_0000
    put = by_time[START_NS + 41]
    assert (put["key"], put["len"]) == ("plain", str(-(1 << 63)))


def test_the_process_and_its_threads_are_known(judge: tuple[str, TraceProcessor]) -> None:
    _, processor = judge

    rows = processor.values(
        "select p.pid, p.name, t.tid from thread t join process p using (upid) "
        "where p.pid = 812 order by t.tid"
    )

    assert rows == [(812, "kvserver", 812), (812, "kvserver", 813), (812, "kvserver", 4_000_000)]


def test_losses_are_instants(judge: tuple[str, TraceProcessor]) -> None:
    _, processor = judge

    rows = processor.values("select name from slice where name glob '*lost: *' order by name")

    assert rows == [("1 lost: odd",), ("3 lost: kv_get",)]


def test_the_time_of_day_is_known(tmp_path: Path) -> None:
    processor = TraceProcessor(write(tmp_path / "a.pftrace", make_info(), list(EVENTS)))

    rows = processor.values("select ts, to_realtime(ts) from slice where name = 'odd'")

    assert rows == [(START_NS + 1_000, START_NS + 1_000 + WALL_NS)]
    assert processor.values("select clock_name, clock_value from clock_snapshot") == [
        ("MONOTONIC", START_NS),
        ("REALTIME", START_NS + WALL_NS),
    ]


def test_places_in_the_source_are_known(tmp_path: Path) -> None:
    processor = TraceProcessor(write(tmp_path / "a.pftrace", make_info(), list(EVENTS)))

    rows = processor.values(
        "select extract_arg(arg_set_id, 'source.file_name'), "
        "extract_arg(arg_set_id, 'source.line_number') from slice where name = 'kv_get'"
    )

    assert rows == [("kv.c", 12)] * 2


@pytest.mark.parametrize("suffix", ["pftrace", "json"])
def test_a_span_whose_end_was_lost_ends_with_the_one_around_it(suffix: str, tmp_path: Path) -> None:
    info = make_info()
    names = ("query_start", "query_start", "kv_get", "query_done", "query_done")
    fields = {event.name: event.fields for event in EVENTS}
    some = [Event(START_NS + n, 0, 7, name, fields[name]) for n, name in enumerate(names)]
    outer = [kind for kind in info.types if kind.marker in ("tick", "kv_put")]
    renamed = [
        type(kind)(kind.id, name, kind.format, kind.fields, time=kind.time, tid=kind.tid)
        for kind, name in zip(outer, ("outer_begin", "outer_end"), strict=True)
    ]
    info = info._replace(types=(*(k for k in info.types if k not in outer), *renamed))
    some.insert(0, Event(START_NS - 1, 0, 7, "outer_begin", {}))
    some[4:] = [Event(START_NS + 9, 0, 7, "outer_end", {"key": "", "len": 0})]

    processor = TraceProcessor(write(tmp_path / f"a.{suffix}", info, some))

    assert [row[:4] for row in processor.values(SLICES) if row[4] == 7] == [
        (START_NS - 1, 10, "outer", 0),
        (START_NS, 9, "query", 1),
        (START_NS + 1, 8, "query", 2),
        (START_NS + 2, 0, "kv_get", 3),
    ]
    assert complaints(processor) == []


def test_many_events_of_a_thread_keep_their_order(tmp_path: Path) -> None:
    """Times that are equal, and spans deeper than we write."""
    info = make_info()
    fields = {event.name: event.fields for event in EVENTS}
    starts = [Event(START_NS, 0, 7, "query_start", fields["query_start"])] * (DEEPEST + 2)
    ends = [Event(START_NS + 1, 0, 7, "query_done", fields["query_done"])] * (DEEPEST + 2)

    processor = TraceProcessor(write(tmp_path / "a.pftrace", info, starts, ends))

    rows = processor.values("select name, count(*), max(dur) from slice group by name order by 1")
    assert [row for row in rows if row[0].startswith("query")] == [
        ("query", DEEPEST, 1),
        ("query_done", 2, 0),
        ("query_start", 2, 0),
    ]
    assert complaints(processor) == []


def test_a_file_that_was_cut_off_is_read(tmp_path: Path) -> None:
    for suffix in ("pftrace", "json"):
        whole = write(tmp_path / f"a.{suffix}", make_info(), list(EVENTS))

        processor = TraceProcessor(whole[:-100])

        names = {row[2] for row in processor.values(SLICES)}
        assert {"query", "kv_get", "odd"} <= names


def test_a_trace_without_a_clock_opens_and_has_no_spans(tmp_path: Path) -> None:
    info = make_info(Time.NONE)
    numbered = [event._replace(time=n, cpu=0) for n, event in enumerate(EVENTS)]

    processor = TraceProcessor(write(tmp_path / "a.pftrace", info, numbered))

    rows = processor.values("select name, max(ts), max(dur) from slice group by name order by 1")
    assert [row for row in rows if row[0].startswith(("query", "trace"))] == [
        ("query_done", 8, 0),
        ("query_start", 2, 0),
        ("trace began", 0, 0),
        ("trace ended", 9, 0),
    ]
    assert complaints(processor) == []


def test_perfettos_messages_know_every_field_that_we_write(tmp_path: Path) -> None:
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    data = write(tmp_path / "a.pftrace", make_info(), list(EVENTS))

    trace = Trace.FromString(data)

    assert not unknown_fields(trace)
    assert {packet.trusted_packet_sequence_id for packet in trace.packet} == {812}
    first = trace.packet[0]
    assert first.first_packet_on_sequence
    assert first.sequence_flags == first.SEQ_INCREMENTAL_STATE_CLEARED
    assert sorted(name.name for name in first.interned_data.event_names) == sorted(
        {event.name for event in EVENTS} | {"query"}
    )


def unknown_fields(message: Any) -> list[int]:
    """The numbers of fields that a message, or one in it, has and its type does not."""
    from google.protobuf.unknown_fields import UnknownFieldSet

    numbers = [field.field_number for field in UnknownFieldSet(message)]
    for descriptor, value in message.ListFields():
        if descriptor.message_type is not None:
            for item in value if hasattr(value, "append") else [value]:
                numbers += unknown_fields(item)
    return numbers


def test_chrome_json_is_what_its_format_asks_for(tmp_path: Path) -> None:
    rows = json.loads(write(tmp_path / "a.json", make_info(), list(EVENTS)))

    for row in rows:
        assert row["ph"] in "MBEi"
        assert {"name", "pid", "tid", "ph"} <= set(row)
        assert row["ph"] == "M" or isinstance(row["ts"], float)
        assert row["ph"] != "i" or row["s"] in "tp"


# ---- several processes ---------------------------------------------------------------------------


def test_file_of_several_processes_is_one_trace_with_a_track_for_each(tmp_path: Path) -> None:
    path = tmp_path / "all.pftrace"
    sink = open_joint(str(path))
    infos = [make_info()._replace(pid=pid, command=f"program {pid}") for pid in (71, 72)]
    for info in infos:
        sink.add(info)
    for info in infos:
        sink.write(make_batch(info, EVENTS).columns)
    sink.close({71: LOST, 72: {}})

    processor = TraceProcessor(path.read_bytes())

    assert complaints(processor) == []
    processes = "select pid, name from process where pid in (71, 72) order by pid"
    assert processor.query(processes) == [
        {"pid": 71, "name": "program 71"}, {"pid": 72, "name": "program 72"},
    ]  # fmt: skip
    counts = processor.query(
        """select p.pid, count(*) events from slice s join thread_track tt on s.track_id = tt.id
           join thread t using (utid) join process p using (upid) group by p.pid order by p.pid"""
    )
    (first, second) = counts
    assert first["events"] == second["events"] > 0
