"""Files of several processes in one order of time, in every format that has them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from markerjit.errors import BadTrace, Refused
from markerjit.model import Event
from markerjit.ring.types import Time
from markerjit.trace.encode import with_packets
from markerjit.trace.join import in_one_order, join_traces
from markerjit.trace.open import (
    FORMATS,
    is_joint,
    needs_all_first,
    open_joint,
    open_sink,
    open_trace,
    open_traces,
    takes_packets,
)
from markerjit.trace.reading import Trace
from markerjit.trace.sink import TraceInfo
from tests.support.made_traces import EVENTS, make_batch, make_info

SUFFIXES = ("jsonl", "pftrace", "parquet", "arrow")
LOST = {(0, "kv_get"): 3}


@pytest.fixture(autouse=True)
def _needed() -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")


def of_process(pid: int, later: int = 0) -> tuple[TraceInfo, list[Event]]:
    """A trace, and its events that are later by so many nanoseconds than those of the others."""
    info = make_info()._replace(pid=pid, command=f"program of {pid}")
    return info, [event._replace(time=event.time + later) for event in EVENTS]


def written(folder: Path, suffix: str = "ctf") -> list[Trace]:
    """Traces of three processes whose events come in turns, the first with losses."""
    traces = []
    for pid, later in (7, 0), (8, 3), (9, 1_000_000_000):
        info, events = of_process(pid, later)
        path = str(folder / f"{pid}.{suffix}")
        sink = open_sink(path, info)
        lost = LOST if pid == 7 else {}
        for some in events[:4], events[4:]:
            batch = make_batch(info, some, lost)
            sink.write(with_packets(batch) if takes_packets(sink) else batch)
        sink.close(lost)
        traces.append(open_trace(path))
    return traces


def shown(traces: Sequence[Trace]) -> list[tuple[int, str, str, list[Event], dict]]:
    return [
        (trace.info.pid, trace.info.command, trace.info.host, [*map(plain, trace.events())],
         {key: count for key, count in trace.lost.items() if count})
        for trace in traces
    ]  # fmt: skip


def plain(event: Event) -> Event:
    return Event(*event)


def test_formats_that_have_files_of_several_processes() -> None:
    assert {f"x{format_.suffixes[0]}" for format_ in FORMATS if format_.join} == {
        f"x.{suffix}" for suffix in SUFFIXES
    }
    assert [suffix for suffix in SUFFIXES if needs_all_first(f"x.{suffix}")] == ["parquet", "arrow"]
    assert not is_joint("x.ctf")
    with pytest.raises(Refused, match="Chrome JSON has no file of several processes"):
        open_joint("x.json")


@pytest.mark.product
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("source", ["ctf", *SUFFIXES])
def test_traces_are_joined_and_are_the_same_again(tmp_path: Path, source: str, suffix: str) -> None:
    traces = written(tmp_path, "ctf")
    if source != "ctf":
        first = str(tmp_path / f"first.{source}")
        join_traces(traces, first)
        traces = list(open_traces(first))
    path = str(tmp_path / f"all.{suffix}")

    count = join_traces(traces, path)

    joined = open_traces(path)
    assert count == 3 * len(EVENTS)
    assert shown(joined) == shown(traces)
    assert [trace.info.pid for trace in joined] == [7, 8, 9]
    assert joined[0].lost == LOST
    assert not any(trace.problems for trace in joined)
    with pytest.raises(BadTrace, match="holds the events of several processes"):
        open_trace(path)
    with pytest.raises(Refused, match="exists already"):
        join_traces(traces, path)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_only_chosen_markers_are_joined(tmp_path: Path, suffix: str) -> None:
    path = str(tmp_path / f"all.{suffix}")

    count = join_traces(written(tmp_path), path, "odd".__eq__)

    assert count == 3
    joined = open_traces(path)
    assert {event.name for trace in joined for event in trace.events()} == {"odd"}
    assert not any(any(trace.lost.values()) for trace in joined)


def test_records_of_several_traces_come_in_one_order(tmp_path: Path) -> None:
    traces = written(tmp_path)

    batches = list(in_one_order(traces))

    times = [sorted(int(time) for columns in batch for time in columns.time) for batch in batches]
    assert len(batches) > 1
    flat = [time for batch in times for time in batch]
    assert flat == sorted(flat)
    assert len(flat) == 3 * len(EVENTS)


def test_table_of_several_processes_has_their_pids_in_the_order_of_time(tmp_path: Path) -> None:
    """Its types are those of one program: a kind would say nothing."""
    from pyarrow import parquet

    path = str(tmp_path / "all.parquet")
    join_traces(written(tmp_path), path)

    table = parquet.read_table(path)

    assert table.column_names[:5] == ["time", "pid", "cpu", "tid", "name"]
    assert "kind" not in table.column_names
    times = table["time"].to_pylist()
    assert times == sorted(times)
    assert table["pid"].to_pylist()[:4] == [7, 8, 7, 8]


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_process_that_executes_a_file_has_the_events_of_both_programs(
    tmp_path: Path, suffix: str
) -> None:
    """JSON lines and tables have one trace for it, and Perfetto's protobuf has two."""
    path = str(tmp_path / f"all.{suffix}")
    (first, events), (second, others) = of_process(7), of_process(7, 5_000_000_000)
    sink = open_joint(path)
    sink.add(first)
    sink.add(second)

    sink.write(make_batch(first, events).columns)
    sink.write(make_batch(second, others).columns)
    sink.close({7: LOST})

    traces = open_traces(path)
    assert {trace.info.pid for trace in traces} == {7}
    assert len(traces) == (2 if suffix == "pftrace" else 1)
    assert [plain(event) for trace in traces for event in trace.events()] == [*events, *others]
    assert sum(sum(trace.lost.values()) for trace in traces) == 3


def test_program_that_comes_after_the_first_event_has_no_place_in_a_table(tmp_path: Path) -> None:
    sink = open_joint(str(tmp_path / "all.parquet"))
    (first, events), (second, _) = of_process(7), of_process(8)
    sink.add(first)
    sink.write(make_batch(first, events).columns)

    with pytest.raises(Refused, match="has the columns that it began with"):
        sink.add(second)

    sink.close({})


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_no_program_at_all_is_an_empty_file(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"all.{suffix}"

    join_traces([], str(path))

    assert path.exists()


def test_traces_without_times_are_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "a.ctf")
    info = make_info(Time.NONE)
    open_sink(path, info).close({})

    with pytest.raises(Refused, match="without times there is no order"):
        join_traces([open_trace(path)] * 2, str(tmp_path / "all.jsonl"))


@pytest.mark.parametrize(
    "programs",
    ["no list", [7], [{"pid": -1}], [{"pid": 7, "command": 3, "types": [], "sources": {}}],
     [{"pid": 7, "command": "", "types": ["x"], "sources": {}}],
     [{"pid": 7, "command": "", "types": [], "sources": []}]],
)  # fmt: skip
def test_programs_of_a_table_that_make_no_sense_are_a_bad_trace(
    tmp_path: Path, programs: object
) -> None:
    from pyarrow import parquet

    path = str(tmp_path / "all.parquet")
    join_traces(written(tmp_path), path)
    table = parquet.read_table(path)
    header = json.loads(table.schema.metadata[b"markerjit"])
    metadata = {"markerjit": json.dumps({**header, "programs": programs})}
    parquet.write_table(table.replace_schema_metadata(metadata), path)

    with pytest.raises(BadTrace, match="makes no sense"):
        open_traces(path)


def test_event_of_a_type_that_its_process_does_not_have_is_a_bad_trace(tmp_path: Path) -> None:
    from pyarrow import parquet

    path = str(tmp_path / "all.parquet")
    join_traces(written(tmp_path), path)
    table = parquet.read_table(path)
    header = json.loads(table.schema.metadata[b"markerjit"])
    header["programs"][0]["types"] = []
    metadata = {"markerjit": json.dumps(header)}
    parquet.write_table(table.replace_schema_metadata(metadata), path)

    with pytest.raises(BadTrace, match="process 7 has no"):
        list(open_traces(path)[0].events())


def test_damaged_perfetto_file_of_several_programs_is_read_up_to_the_cut(tmp_path: Path) -> None:
    path = tmp_path / "all.pftrace"
    join_traces(written(tmp_path), str(path))
    path.write_bytes(path.read_bytes()[:-400])

    traces = open_traces(str(path))

    assert sum(1 for trace in traces for _ in trace.events()) > len(EVENTS)
    assert any(trace.problems for trace in traces)
