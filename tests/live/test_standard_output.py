"""`-o -`: a trace on standard output, while it is recorded, and back by `read -`."""

from __future__ import annotations

import io
import json
import os
import subprocess
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.cli.recording import SUFFIXES
from tests.support.commands import ENVIRONMENT, cli, one_line, running
from tests.support.markers import modes_of, wait_on
from tests.support.programs import Target
from tests.support.timing import wait_until

pytestmark = pytest.mark.also_user

TURNS = 40


def read_back(data: bytes, *options: str) -> subprocess.CompletedProcess[bytes]:
    with running("read", "-", *options, stdin=subprocess.PIPE, text=False) as reader:
        answer = reader.communicate(data)
    return subprocess.CompletedProcess(["read", "-", *options], reader.returncode, *answer)


def traced(program: Target, *options: str) -> bytes:
    """Standard output of a trace of so many turns."""
    with running(
        "trace", program.pid, "truth_mode", "-n", TURNS, "-o", "-", *options, text=False
    ) as tracer:
        wait_on(program.pid, "truth_mode", tracer)
        program.command(f"run {TURNS}")
        out, errors = tracer.communicate()
    assert tracer.returncode == 0, errors
    assert errors.decode().splitlines()[-1] == f"{TURNS:,} events on standard output, 0 lost"
    return bytes(out)


@pytest.mark.slow
@pytest.mark.parametrize("name", SUFFIXES)
def test_each_format_is_streamed_and_read_back_whole(target: Callable, name: str) -> None:
    program = target("truth_modes-jump")

    data = traced(program, "--format", name)
    back = read_back(data, "--json")

    events = [json.loads(line) for line in back.stdout.splitlines()]
    assert back.returncode == 0 and back.stderr == b"", back.stderr
    assert events.pop() == {"summary": {"events": TURNS, "lost": 0}}
    assert [event["fields"]["i"] for event in events] == list(range(TURNS))


def test_it_comes_while_it_is_recorded(target: Callable) -> None:
    program = target("truth_modes-jump")

    with running("trace", program.pid, "truth_mode", "-o", "-", "--format", "jsonl") as tracer:
        wait_on(program.pid, "truth_mode", tracer)
        header = json.loads(tracer.stdout.readline())
        program.command("run 1")
        event = json.loads(tracer.stdout.readline())
        tracer.terminate()
        rest, errors = tracer.communicate()

    assert header["trace"]["pid"] == program.pid
    assert event["fields"]["i"] == 0
    assert json.loads(rest)["summary"]["events"] == 1
    assert (tracer.returncode, errors) == (0, "1 event on standard output, 0 lost\n")


def test_a_reader_that_goes_ends_the_trace_and_leaves_nothing(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_modes-jump")

    with running(
        "trace", program.pid, "truth_mode", "-o", "-",
        env=ENVIRONMENT | {"TMPDIR": str(tmp_path)},
    ) as tracer:  # fmt: skip
        wait_on(program.pid, "truth_mode", tracer)
        assert os.listdir(tmp_path)
        tracer.stdout.close()
        program.command("run 10")
        tracer.wait()

    assert tracer.returncode == 0
    assert modes_of(program.pid)["truth_mode"] is None
    assert os.listdir(tmp_path) == []


def test_a_paused_reader_costs_no_events(target: Callable) -> None:
    program = target("truth_modes-jump")
    turns = 20_000

    with running("trace", program.pid, "truth_mode", "-o", "-", "--format", "jsonl") as tracer:
        wait_on(program.pid, "truth_mode", tracer)
        program.command(f"run {turns}")
        wait_until(lambda: modes_of(program.pid)["truth_mode"], "the marker to be on still")
        tracer.terminate()
        out, errors = tracer.communicate()

    assert json.loads(out.splitlines()[-1])["summary"]["events"] == turns
    assert errors.startswith(f"{turns:,} events on standard output, 0 lost\n")


def test_arrow_is_a_stream_that_its_own_reader_takes(target: Callable) -> None:
    pa = pytest.importorskip("pyarrow")
    program = target("truth_modes-jump")

    table = pa.ipc.open_stream(io.BytesIO(traced(program, "--format", "arrow"))).read_all()

    assert table.num_rows == TURNS
    assert table.column("i").to_pylist() == list(range(TURNS))


def test_several_processes_are_an_archive_of_traces(target: Callable, tmp_path: Path) -> None:
    pids = [target("truth_modes-jump").pid for _ in range(2)]
    both = ",".join(map(str, pids))

    one_line(cli("trace", both, "truth_mode", "-o", "-"), "--format ctf")
    with running(
        "trace", both, "truth_mode", "-d", "100ms", "-o", "-", "--format", "ctf", text=False
    ) as tracer:
        out, _ = tracer.communicate()

    with tarfile.open(fileobj=io.BytesIO(out)) as archive:
        names = {name.split("/")[1] for name in archive.getnames() if "/" in name}
    assert names == {f"pid-{pid}.ctf" for pid in pids}
    assert read_back(out, "--stats").returncode == 0


def test_a_trace_in_a_file_and_a_flight_recorder_go_there_too(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_modes-jump")
    cli("flight", "start", program.pid, "truth_mode")
    program.command("run 5")

    dumped = cli("flight", "dump", program.pid, "-o", "-", "--format", "jsonl")
    (tmp_path / "a.jsonl").write_text(dumped.stdout)
    again = cli("read", tmp_path / "a.jsonl", "-o", "-", "--format", "text")
    (tmp_path / "b.txt").write_text(again.stdout)

    assert dumped.stderr == "5 events on standard output\n"
    assert again.stderr == "5 events on standard output, 0 lost\n"
    events = [*markerjit.open_trace(str(tmp_path / "b.txt")).events()]
    assert [event.fields["i"] for event in events] == list(range(5))


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-o", "-", "--json"), "leave out --json"),
        (("-o", "a.txt", "--format", "jsonl"), "FILE is in the format of its suffix"),
        (("--format", "arrow"), "--format arrow is for -o -"),
    ],
)
def test_what_has_no_sense_is_refused_before_anything_is_on(
    target: Callable, options: tuple[str, ...], reason: str
) -> None:
    program = target("truth_modes-jump")

    one_line(cli("trace", program.pid, "truth_mode", *options), reason)
    with markerjit.View(program.pid) as view:
        assert not view.has_runtime


def test_an_archive_that_is_no_trace_is_refused(tmp_path: Path) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        link = tarfile.TarInfo("trace.ctf/metadata")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(link)

    done = read_back(data.getvalue())

    assert done.returncode == 1
    assert done.stderr == (
        b"markerjit: the archive on standard input has more than files and directories\n"
    )
