"""Files of a trace against what was reported and counted: every format, printed again, and several
processes in one order of time."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import Event
from markerjit.ring.to_events import events as decoded
from markerjit.ring.types import Time
from tests.support.commands import cli, one_line, running
from tests.support.markers import modes_of, wait_on
from tests.support.programs import ROOT, Target
from tests.support.server import Truth
from tests.support.timing import HANG_S, wait_until

SUFFIXES = ["ctf", "ctf2", "parquet", "arrow", "pftrace", "json", "jsonl", "txt"]
FEWER_SUFFIXES = [
    suffix
    if suffix in {"ctf", "parquet", "pftrace", "jsonl"}  # packets, a table, slices and lines
    else pytest.param(suffix, marks=pytest.mark.long)
    for suffix in SUFFIXES
]
TABLES = {".parquet", ".arrow"}
DEMO = ROOT / "markerjit" / "_native" / "demo"


# ---- the server --------------------------------------------------------------------------------


def load(port: str, requests: int = 3000) -> None:
    command = [DEMO / "kvload", "--port", port, "--requests", str(requests), "--connections", "4"]
    subprocess.run(command, check=True, capture_output=True, timeout=HANG_S)


def trace_load(program: Target, path: Path, *args: object) -> tuple[int, int]:
    """Trace the server under load into a file; events and losses as the command says."""
    with running("trace", program.pid, "kv_*", "-o", path, *args) as tracer:
        wait_on(program.pid, "kv_store", tracer)
        load(program.ready["port"])
        tracer.send_signal(signal.SIGINT)
        output, errors = tracer.communicate()
    assert (tracer.returncode, output) == (0, ""), errors
    match = re.match(rf"([\d,]+) events in {re.escape(str(path))}, ([\d,]+) lost\n", errors)
    assert match, errors
    events, lost = (int(number.replace(",", "")) for number in match.groups())
    return events, lost


@pytest.mark.pythons
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_file_has_the_events_that_were_reported_and_the_server_counted(
    target: Callable, build: Path, tmp_path: Path, suffix: str
) -> None:
    program = target("kvserver")
    path = tmp_path / f"events.{suffix}"

    with closing(Truth(program.ready["port"])) as truth:
        events, lost = trace_load(program, path)
        expected = truth.difference()
    trace = markerjit.open_trace(str(path))
    summary = markerjit.summarise(trace)

    assert (summary.events, summary.lost) == (events, lost) == (events, 0)
    assert trace.info.pid == program.pid
    assert trace.problems == []
    counts = {marker.name: marker.events for marker in summary.markers}
    del expected["kv_command"]  # of our asking, too
    for name, count in expected.items():
        # Connections of our own are closed when all is over.
        assert counts.get(name, 0) == count, name
    assert counts["kv_command"] == 3000
    assert set(modes_of(program.pid).values()) == {None}


def test_file_ends_after_as_many_events_as_were_asked_for_or_some_more(
    target: Callable, tmp_path: Path
) -> None:
    pid = target("truth_threads", "2", "--rate", "2000").pid
    path = tmp_path / "events.jsonl"

    done = cli("trace", pid, "truth_loop", "-o", path, "--events", 50, "--json")

    summary = json.loads(done.stdout)["summary"]
    assert done.returncode == 0
    assert 50 <= summary["events"] == path.read_text().count('"fields": {')


@pytest.mark.parametrize("suffix", ["ctf", "parquet", "jsonl"])
def test_file_of_a_program_that_ended_is_whole(
    target: Callable, tmp_path: Path, suffix: str
) -> None:
    program = target("truth_modes-jump", may_die=True)
    path = tmp_path / f"events.{suffix}"

    with running("trace", program.pid, "truth_*", "-o", path) as tracer:
        wait_on(program.pid, "truth_mode", tracer)
        program.command("run 3000")
        program.process.kill()
        _, errors = tracer.communicate()

    assert tracer.returncode == 1
    total, ended = errors.splitlines()
    assert total == f"3,000 events in {path}, 0 lost"
    assert re.fullmatch(f"markerjit: process {program.pid} .*ended.*", ended)
    events = markerjit.open_trace(str(path)).events()
    assert [event.fields["i"] for event in events] == list(range(3000))


def test_file_without_events_is_a_trace_too(target: Callable, tmp_path: Path) -> None:
    pid = target("truth_modes-jump").pid
    paths = [tmp_path / f"events.{suffix}" for suffix in SUFFIXES]

    done = cli("trace", pid, "truth_*", "-o", paths[0], "--duration", "0.1")
    with markerjit.attach(pid) as session, session.trace("truth_*") as stream:
        assert written_at_once(session, stream, paths[1:]) == []
    read = cli("read", paths[0])

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"0 events in {paths[0]}, 0 lost\n"
    assert (read.returncode, read.stdout, read.stderr) == (0, "", "0 events, 0 lost\n")
    for path in paths:
        trace = markerjit.open_trace(str(path))
        assert list(trace.events()) == []
        assert (dict(trace.lost), trace.problems) == ({}, [])


@pytest.mark.parametrize("suffix", ["jsonl", "txt"])
def test_line_that_is_cut_is_no_event(target: Callable, tmp_path: Path, suffix: str) -> None:
    program = target("truth_modes-jump")
    path, cut = (tmp_path / f"{name}.{suffix}" for name in ("whole", "cut"))

    with markerjit.attach(program.pid) as session, session.trace("truth_mode") as stream:
        program.command("run 20")
        written_at_once(session, stream, [path])
    data = path.read_bytes()
    for size in range(data.rindex(b"evaluated") - 9, data.rindex(b"evaluated") + 12):
        cut.write_bytes(data[:size])
        events = list(markerjit.open_trace(str(cut)).events())
        assert [event.fields["evaluated"] for event in events] == list(range(1, len(events) + 1))


# ---- the same lines ----------------------------------------------------------------------------


def written_at_once(
    session: markerjit.Session, stream: markerjit.EventStream, paths: Sequence[Path]
) -> list[Event]:
    """What is in the rings, into all these files; the events as they stream."""
    info = session.trace_info(tuple(stream.types.values()), stream.clock())
    batch = stream.rest(packets=True, columns=True)
    for path in paths:
        sink = markerjit.open_sink(str(path), info)
        if batch:
            sink.write(batch)
        sink.close(stream.lost())
    return decoded(batch.columns, stream.clock()) if batch else []


@pytest.mark.parametrize("clock", list(Time))
def test_read_prints_the_lines_that_trace_prints(
    target: Callable, tmp_path: Path, clock: Time
) -> None:
    program = target("truth_values")
    paths = [tmp_path / f"events.{suffix}" for suffix in SUFFIXES]

    with (
        markerjit.attach(program.pid) as session,
        session.trace("*", time=clock) as stream,
    ):
        program.command("fire 0 16")
        events = written_at_once(session, stream, paths)
    to_line = markerjit.line_formatter(stream.fields, clock=stream.clock())
    lines = [to_line(event) for event in events]
    # A table has nanoseconds, and the counter is finer: it may be another one in each of them.
    numbers = {kind.marker: kind.id for kind in stream.types.values()}
    in_table = sorted(events, key=lambda event: (event.time, numbers[event.name]))
    lines_of_table = [to_line(event) for event in in_table] if clock is Time.TSC else lines

    assert len(lines) == 16 * 23
    printed = cli("read", paths[0])
    assert (printed.returncode, printed.stderr) == (0, f"{len(lines):,} events, 0 lost\n")
    assert printed.stdout.splitlines() == read_again(paths[0])[0]
    for path in paths:
        again, times = read_again(path)
        without_time, expected = (
            [line.split(" ", 1)[1] for line in listing]
            for listing in (again, lines_of_table if path.suffix in TABLES else lines)
        )
        if clock is Time.COARSE:  # many have the same time
            assert sorted(without_time) == sorted(expected)
        else:
            assert without_time == expected
        if path.suffix != ".txt" or clock is Time.NONE:  # there it is the time of day alone
            off = [abs(time - event.time) for time, event in zip(times, events, strict=True)]
            assert max(off) <= (1000 if path.suffix in (".json", ".pftrace") else 50)


def read_again(path: Path) -> tuple[list[str], list[int]]:
    """The lines that `read` prints of a file, and the times of its events."""
    trace = markerjit.open_trace(str(path))
    to_line, events = trace.formatter(), list(trace.events())
    return [to_line(event) for event in events], [event.time for event in events]


@pytest.mark.parametrize("args", [[], ["--json"], ["--time", "none"]])
def test_trace_and_read_print_alike(target: Callable, tmp_path: Path, args: list[str]) -> None:
    pid = target("truth_threads", "2", "--rate", "2000").pid
    path = tmp_path / "events.ctf"
    as_json = [arg for arg in args if arg == "--json"]

    printed = cli("trace", pid, "truth_loop", "--events", 5, *args)
    cli("trace", pid, "truth_loop", "--events", 5, "-o", path, *args)
    read = cli("read", path, *as_json)

    def shape(line: str) -> str:
        if line.startswith('{"summary"'):  # a file has everything, and nobody takes markers from it
            summary = json.loads(line)["summary"]
            line = str({name: summary[name] for name in ("events", "lost")})
        return re.sub(r"\d+", "0", line)

    assert len({shape(line) for line in printed.stdout.splitlines()}) == 1 + bool(as_json)
    assert {shape(line) for line in printed.stdout.splitlines()} == {
        shape(line) for line in read.stdout.splitlines()
    }


def test_what_is_no_marker_is_read_again(target: Callable, tmp_path: Path) -> None:
    """USDT probes, functions and returns. For all formats see tests/unit/test_trace_formats.py."""
    program = target("truth_usdt")
    path = tmp_path / "events.ctf"
    patterns = ("truth:turn", "func:turn", "func:turn:return")

    with (
        running("trace", program.pid, *patterns, "-o", path) as trace,
        markerjit.View(program.pid) as view,
    ):
        wait_until(
            lambda: sum(marker.on for marker in view.status()) == len(patterns), "they are on"
        )
        program.ask("run 20")
        trace.send_signal(signal.SIGINT)
        assert trace.wait() == 0, trace.stderr.read()
    (returns, other) = (
        cli("read", path, "--marker", pattern).stdout.splitlines()
        for pattern in ("func:*:return", "truth:*")
    )

    assert Counter(event.name for event in markerjit.read(str(path)).events()) == dict.fromkeys(
        patterns, 20
    )
    assert [len(returns), len(other)] == [20, 20]
    assert all(" func:turn:return " in line for line in returns)


# ---- several processes -------------------------------------------------------------------------


def two_at_work(target: Callable, **kwargs: Any) -> list[Target]:
    return [target("truth_threads", "2", "--rate", "1000", "--paused", **kwargs) for _ in range(2)]


@pytest.mark.parametrize("as_json", [False, True], ids=["text", "JSON lines"])
def test_events_of_two_processes_come_in_one_order_of_time(
    target: Callable, tmp_path: Path, as_json: bool
) -> None:
    programs = [target("truth_modes-jump") for _ in range(2)]
    pids, path = [program.pid for program in programs], tmp_path / "events"
    args = ["--json"] * as_json

    with (
        path.open("w") as file,
        running("trace", ",".join(map(str, pids)), "truth_mode", *args, stdout=file) as tracer,
    ):
        for pid in pids:
            wait_on(pid, "truth_mode", tracer)
        for _ in range(3):
            for program in programs:
                program.command("run 100")
        wait_until(lambda: path.read_text().count("truth_mode") == 600, "all events")
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    assert tracer.returncode == 0, errors
    lines = path.read_text().splitlines()
    if as_json:
        summary = json.loads(lines.pop())["summary"]
        assert (summary["events"], summary["lost"]) == (len(lines), 0)
        pairs = [(event["pid"], event["time"]) for event in map(json.loads, lines)]
    else:
        assert errors == f"{len(lines):,} events, 0 lost\n"
        pairs = [(int(line.split()[0]), line.split()[1]) for line in lines]
    assert Counter(pid for pid, _ in pairs) == dict.fromkeys(pids, 300)
    times = [when for _, when in pairs]
    assert times == sorted(times)
    assert [pid for pid, _ in groupby(pid for pid, _ in pairs)] == pids * 3


@pytest.mark.parametrize("clock", [Time.TSC, Time.MONOTONIC, Time.COARSE])
def test_merging_goes_on_while_one_is_left_and_loses_nothing_of_those_that_end(
    target: Callable, clock: Time
) -> None:
    programs = [target("truth_modes-jump", may_die=True) for _ in range(3)]

    with ExitStack() as stack:
        sessions = [stack.enter_context(markerjit.attach(program.pid)) for program in programs]
        streams = [
            stack.enter_context(session.trace("truth_mode", time=clock)) for session in sessions
        ]
        merged = []
        for number, program in enumerate(programs):
            program.command(f"run {10 + number}")
        merging = markerjit.merge(streams)
        for number, program in enumerate(programs):
            program.command(f"run {100 + number}")
            program.process.kill() if number else program.process.stdin.close()
            program.wait()
            while sum(item.stream == number for item in merged) < 110 + 2 * number:
                merged += next(merging)
        assert list(merging) == []

    assert Counter(item.stream for item in merged) == {0: 110, 1: 112, 2: 114}
    times = [item.event.time for item in merged]
    assert times == sorted(times)
    assert all(stream.target_ended for stream in streams)


def test_losses_of_merged_processes_are_all_told(target: Callable) -> None:
    programs = [target("truth_modes-jump", may_die=True) for _ in range(2)]

    with ExitStack() as stack:
        streams = []
        for program in programs:
            session = stack.enter_context(markerjit.attach(program.pid, ring_size=4096))
            streams.append(stack.enter_context(session.trace("truth_mode")))
        for program in programs:
            program.command("run 5000")
            program.process.kill()
            program.wait()
        merged = [item for batch in markerjit.merge(streams) for item in batch]

        for number, stream in enumerate(streams):
            seen = sum(item.stream == number for item in merged)
            assert stream.statistics() == (seen, 5000 - seen, 0, 0, ())


def test_two_processes_are_written_into_one_directory(target: Callable, tmp_path: Path) -> None:
    programs = [target("truth_modes-jump") for _ in range(2)]
    counts = {program.pid: turns for program, turns in zip(programs, (100, 200), strict=True)}
    pids, path = [*counts], tmp_path / "both.ctf"

    with running("trace", ",".join(map(str, pids)), "truth_mode", "-o", path) as tracer:
        for program in programs:
            wait_on(program.pid, "truth_mode", tracer)
            program.command(f"run {counts[program.pid]}")
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    assert (tracer.returncode, errors) == (
        0,
        f"{sum(counts.values()):,} events in {path}, 0 lost\n",
    )
    assert sorted(entry.name for entry in path.iterdir()) == sorted(
        f"pid-{pid}.ctf" for pid in pids
    )
    for pid in pids:
        trace = markerjit.open_trace(str(path / f"pid-{pid}.ctf"))
        assert sum(1 for _ in trace.events()) == counts[pid]
        assert trace.info.pid == pid
    for suffix in "jsonl", "pftrace", "parquet", "arrow", "ctf":  # each from the one before
        other = tmp_path / f"other.{suffix}"
        done = cli("read", path, "-o", other)
        assert done.stdout == f"{other}: {sum(counts.values()):,} events, 0 lost\n", done.stderr
        lines = cli("read", other).stdout.splitlines()
        assert Counter(int(line.split()[0]) for line in lines) == counts
        path = other
    first, second = (cli("read", path, "--stats", "--tid", pid).stdout.splitlines() for pid in pids)
    assert first[0].startswith("100 events") and second[0].startswith("200 events")
    assert first[-1] == second[-1] == "1 other process without an event"


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["-o", "both.json"], "several programs are written into a directory"),
        (["-o", "none/both.ctf"], "no directory"),
        (["-o", "file.ctf"], "exists"),
        (["--time", "none"], "no order"),
    ],
)
def test_several_processes_are_refused_what_they_cannot_have(
    target: Callable, tmp_path: Path, args: list[str], reason: str
) -> None:
    programs = two_at_work(target)
    (tmp_path / "file.ctf").write_text("precious")
    args = [str(tmp_path / arg) if "." in arg else arg for arg in args]

    done = cli("trace", ",".join(str(program.pid) for program in programs), "truth_*", *args)

    one_line(done, reason)
    assert (tmp_path / "file.ctf").read_text() == "precious"
    for program in programs:
        with markerjit.View(program.pid) as view:
            assert not view.has_runtime


# ---- no more than were asked for -----------------------------------------------------------------


@pytest.mark.parametrize("suffix", FEWER_SUFFIXES)
def test_file_has_no_more_events_than_were_asked_for(
    target: Callable, tmp_path: Path, suffix: str
) -> None:
    """The rings have many more by then."""
    program = target("truth_threads", "4", "--rate", "20000")
    path = tmp_path / f"events.{suffix}"

    done = cli("trace", program.pid, "truth_loop", "-n", "1234", "-o", path)

    assert done.returncode == 0, done.stderr
    assert f"1,234 events in {path}" in done.stderr
    assert markerjit.summarise(markerjit.open_trace(str(path))).events == 1234


@pytest.mark.product
@pytest.mark.parametrize("name", ["all.ctf", "all.jsonl", "all.parquet"])
@pytest.mark.parametrize("more", [(), ("--follow",)])
def test_files_of_several_processes_have_no_more_together(
    target: Callable, tmp_path: Path, name: str, more: Sequence[str]
) -> None:
    programs = [target("truth_threads", "2", "--rate", "20000") for _ in range(2)]
    pids = ",".join(str(program.pid) for program in programs)
    path = tmp_path / name

    done = cli("trace", *more, pids, "truth_loop", "-n", "777", "-o", path)

    assert done.returncode == 0, done.stderr
    assert f"777 events in {path}" in done.stderr
    traces = markerjit.open_traces(str(path))
    assert sum(markerjit.summarise(trace).events for trace in traces) == 777


def test_what_a_killed_trace_has_left_is_named_by_the_next_one(
    target: Callable, tmp_path: Path
) -> None:
    """A trace that still runs is not named."""
    program = target("truth_threads", "2", "--rate", "2000")
    path = tmp_path / "all.parquet"
    follow = ("trace", "--follow", program.pid, "truth_loop", "-o", path)
    with running(*follow) as tracer:
        wait_until(lambda: any(tmp_path.glob(".all.parquet-*/all.ctf/*/*")), "its traces")
        other = cli("trace", "--follow", target("truth_threads", "2").pid, "truth_loop", "-n", "10",
                    "-o", tmp_path / "all.parquet")  # fmt: skip
        tracer.kill()
        tracer.communicate()
    (left,) = tmp_path.glob(".all.parquet-*/all.ctf")

    done = cli(*follow, "-n", "10", "--force")

    assert other.returncode == 0 and str(left) not in other.stderr, other.stderr
    assert done.returncode == 0, done.stderr
    assert (
        f"an earlier trace ended before it was made into all.parquet; it is in {left}"
        in done.stderr
    )
    assert markerjit.open_traces(str(left))
    assert [*tmp_path.glob(".all.parquet-*/all.ctf")] == [left]
