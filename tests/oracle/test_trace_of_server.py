"""Traces of the bundled server under load, as tools see them that are not ours: babeltrace2,
Perfetto and pyarrow. The events are those that the server counted, whoever opens the file."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import NamedTuple

import pytest

import markerjit
from markerjit import Event
from markerjit.ring.to_events import events as decoded
from tests.support.commands import running
from tests.support.markers import losses, modes_of, wait_on
from tests.support.programs import Target
from tests.support.server import Client, Truth
from tests.support.timing import HANG_S
from tests.support.trace_processor import TraceProcessor, find_module

pytestmark = [pytest.mark.oracle, pytest.mark.live]

REQUESTS = 2000


class Traced(NamedTuple):
    """A run of the server: its files by suffix, the events as they streamed, what was lost and what
    the server counted, and what is to be added to their times to have them since 1970."""

    files: dict[str, Path]
    events: list[Event]
    lost: Counter[str]
    counted: dict[str, int]
    wall_offset_ns: int
    pid: int


def load(port: str) -> None:
    """By redis-benchmark, which knows nothing of us, where that is installed."""
    tool = shutil.which("redis-benchmark")
    name = Path(__file__).parents[2] / "markerjit" / "_native" / "demo" / "kvload"
    command = [str(name), "--port", port, "--requests", str(2 * REQUESTS), "--connections", "4"]
    if tool:
        what = ["-t", "get,set", "-r", "100", "-d", "20"]
        command = [tool, "-p", port, "-n", str(REQUESTS), "-c", "4", "-q", *what]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)


def trace(
    build: Path, directory: Path, *suffixes: str, ring_size: int = 1 << 20, slow: bool = False
) -> Traced:
    """All files are written at once, from the same batches. A slow reader waits for the end."""
    files = {suffix: directory / f"server.{suffix}" for suffix in suffixes}
    with ExitStack() as stack:
        server = Target(build / "kvserver")
        stack.callback(server.end)
        server.wait_ready()
        session = stack.enter_context(markerjit.attach(server.pid, ring_size=ring_size))
        truth = stack.enter_context(closing(Truth(server.ready["port"])))
        helper = stack.enter_context(ThreadPoolExecutor(1))
        stream = stack.enter_context(session.trace("kv_*"))
        info = session.trace_info(tuple(stream.types.values()), stream.clock())
        sinks = [markerjit.open_sink(str(path), info) for path in files.values()]
        running_load = helper.submit(load, server.ready["port"])
        if slow:
            running_load.result()
            counted = truth.difference()
            stream.stop()
        else:
            running_load.add_done_callback(lambda _: stream.stop())
        events: list[Event] = []
        for batch in stream.record_batches(packets=True):
            for sink in sinks:
                sink.write(batch)
            events += decoded(batch.columns, info.clock)
        if not slow:
            counted = truth.difference()
            batch = stream.rest(packets=True)
            for sink in sinks if batch else ():
                sink.write(batch)
            events += decoded(batch.columns, info.clock) if batch else []
        for sink in sinks:
            sink.close(stream.lost())
        return Traced(
            files, events, losses(session), counted, info.clock.wall_offset_ns, server.pid
        )


@pytest.fixture(scope="module")
def traced(build: Path, tmp_path_factory: pytest.TempPathFactory) -> Traced:
    """Nothing is lost."""
    traced = trace(build, tmp_path_factory.mktemp("server"), "ctf", "pftrace", "json", "parquet")
    assert dict(Counter(event.name for event in traced.events)) == {
        name: count for name, count in traced.counted.items() if count
    }
    assert traced.lost.total() == 0
    return traced


def babeltrace(tool: str, path: Path) -> tuple[list[tuple[int, str]], int]:
    """Time since 1970 and text of each event, and how many it says that were lost."""
    command = [tool, "--clock-seconds", "--no-delta", path]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_S)
    lines = [re.fullmatch(r"\[(\d+)\.(\d{9})\] (.*)", line) for line in done.stdout.splitlines()]
    events = [(int(match[1]) * 10**9 + int(match[2]), match[3]) for match in lines if match]
    assert len(events) == len(lines)
    return events, sum(map(int, re.findall(r"Tracer discarded (\d+) event", done.stderr)))


# ---- babeltrace2 -------------------------------------------------------------------------------


def test_babeltrace_reads_every_event_of_the_server(traced: Traced, needs_tool: Callable) -> None:
    tool = needs_tool("babeltrace2", "babeltrace2")

    lines, lost = babeltrace(tool, traced.files["ctf"])

    assert lost == 0
    assert len(lines) == len(traced.events)
    assert [when for when, _ in lines] == sorted(when for when, _ in lines)
    for tid in {event.tid for event in traced.events}:  # of two threads the times may be the same
        ours = sorted(event.time for event in traced.events if event.tid == tid)
        theirs = [when for when, text in lines if f"tid = {tid} " in text]
        assert len(theirs) == len(ours)
        for when, time in zip(theirs, ours, strict=True):
            assert abs(when - time - traced.wall_offset_ns) < 1000
    names = Counter(re.search(r" (kv_\w+): ", text)[1] for _, text in lines)
    assert names == Counter(event.name for event in traced.events)
    stored = next(event for event in traced.events if event.name == "kv_store")
    texts = [text for _, text in lines if " kv_store: " in text]
    assert any(f'key = "{stored.fields["key"]}"' in text for text in texts)


def test_babeltrace_counts_what_was_lost(build: Path, tmp_path: Path, needs_tool: Callable) -> None:
    tool = needs_tool("babeltrace2", "babeltrace2")
    lossy = trace(build, tmp_path, "ctf", ring_size=1 << 14, slow=True)

    lines, lost = babeltrace(tool, lossy.files["ctf"])

    assert lost == lossy.lost.total() > 0
    assert len(lines) == len(lossy.events)
    names = Counter(re.search(r" (kv_\w+): ", text)[1] for _, text in lines)
    assert names + lossy.lost == Counter(lossy.counted)


def test_babeltrace_merges_two_servers_in_order_of_time(
    build: Path, tmp_path: Path, needs_tool: Callable, target: Callable
) -> None:
    tool = needs_tool("babeltrace2", "babeltrace2")
    servers = [target("kvserver"), target("kvserver")]
    path = tmp_path / "both.ctf"

    pids = ",".join(str(server.pid) for server in servers)
    with running("trace", pids, "kv_command", "-o", path) as tracer:
        for server in servers:
            wait_on(server.pid, "kv_command", tracer)
        with ExitStack() as stack:
            clients = [stack.enter_context(Client(server.ready["port"])) for server in servers]
            for _ in range(100):
                for client in clients:
                    client.ask("PING")
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()
    lines, lost = babeltrace(tool, path)

    assert errors == f"200 events in {path}, 0 lost\n"
    assert (len(lines), lost) == (200, 0)
    assert [when for when, _ in lines] == sorted(when for when, _ in lines)
    pids = [int(re.search(r":\((\d+)\)", text)[1]) for _, text in lines]
    assert pids == [server.pid for server in servers] * 100
    assert set(modes_of(servers[0].pid).values()) == {None}


# ---- Perfetto, pyarrow -------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("suffix", ["pftrace", "json"])
def test_trace_processor_counts_the_events_of_the_server(traced: Traced, suffix: str) -> None:
    find_module()
    processor = TraceProcessor(traced.files[suffix].read_bytes())

    sql = "select name, count(*) from slice where name glob 'kv_*' group by name"
    assert dict(processor.values(sql)) == dict(Counter(event.name for event in traced.events))
    problems = (
        "select name, value from stats where value > 0 and severity in ('error', 'data_loss')"
    )
    assert processor.query(problems) == []
    (first,) = processor.values("select min(ts) from slice where name glob 'kv_*'")
    assert abs(first[0] - min(event.time for event in traced.events)) < 1_000_000


def test_perfettos_own_messages_decode_the_trace(traced: Traced) -> None:
    pytest.importorskip("perfetto", reason="needs perfetto from PyPI")
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace

    trace = Trace.FromString(traced.files["pftrace"].read_bytes())

    events = [packet for packet in trace.packet if packet.HasField("track_event")]
    assert len(events) >= len(traced.events)
    assert trace.SerializeToString()


def test_pyarrow_reads_every_event_of_the_server(traced: Traced) -> None:
    pytest.importorskip("pyarrow", reason="needs pyarrow from PyPI")
    from pyarrow import parquet

    table = parquet.read_table(traced.files["parquet"])

    assert table.num_rows == len(traced.events)
    names = Counter(table.column("name").to_pylist())
    assert names == Counter(event.name for event in traced.events)
    times = table.column("time").cast("int64").to_pylist()
    assert times == sorted(times)
    expected = sorted(event.time + traced.wall_offset_ns for event in traced.events)
    assert max(abs(time - other) for time, other in zip(times, expected, strict=True)) < 1000
    assert set(table.column("tid").to_pylist()) == {event.tid for event in traced.events}
