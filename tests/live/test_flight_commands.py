"""`flight`: what is saved, when and by whom; and the process that waits for a crash."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from tests.support.code_bytes import code_of
from tests.support.commands import cli, facts, one_line, running
from tests.support.markers import modes_of, wait_switched
from tests.support.processes import is_gone, state_of
from tests.support.programs import Target
from tests.support.timing import wait_until

pytestmark = pytest.mark.also_user


def read_events(path: Path) -> list[dict[str, Any]]:
    """Each event's fields."""
    trace = markerjit.open_trace(str(path))
    events = list(trace.events())
    assert trace.problems == []
    assert [event.time for event in events] == sorted(event.time for event in events)
    return [dict(event.fields) for event in events]


@pytest.mark.parametrize("suffix", ["jsonl", "ctf"])
def test_dump_saves_while_it_runs_and_after_it_is_off(
    target: Callable, tmp_path: Path, suffix: str
) -> None:
    program = target("truth_threads", "2", "--rate", "2000")

    begun = cli("flight", "start", program.pid, "truth_*")
    status = cli("status", program.pid)
    wait_until(lambda: program.ask("counts")["truth_loop"] > 100, "events")
    first = cli("flight", "dump", program.pid, "-o", tmp_path / f"first.{suffix}")
    facts("off", program.pid, "*")
    paths = [tmp_path / f"{name}.{suffix}" for name in ("second", "third")]
    documents = [facts("flight", "dump", program.pid, "-o", path) for path in paths]

    assert begun.returncode == 0 and "markerjit flight dump" in begun.stdout
    assert "flight recorder: on" in status.stdout
    assert first.returncode == 0 and "truth_loop" in first.stdout
    assert documents[0]["markers"] == documents[1]["markers"]
    (marker,) = documents[0]["markers"]
    early, late = read_events(tmp_path / f"first.{suffix}"), read_events(paths[0])
    assert len(early) == int(re.search(r"([\d,]+) events in", first.stdout)[1].replace(",", ""))
    assert (marker["events"], marker["overwritten"], marker["lost"]) == (len(late), 0, 0)
    keys = [[tuple(fields.values()) for fields in events] for events in (early, late)]
    assert set(keys[0]) < set(keys[1])


@pytest.mark.parametrize(
    ("args", "reason"),
    [
        (["flight", "dump", "PID", "-o", "a.txt"], "no flight recorder"),
        (["flight", "dump", "PID"], "-o FILE"),
        (["flight", "start", "PID", "truth_*", "--on-crash"], "-o FILE"),
        (["flight", "start", "PID", "truth_*", "-o", "a.xyz"], "suffix"),
        (["flight", "start", "PID", "truth_*", "-o", "none/a.txt"], "no directory"),
        (["flight", "start", "PID", "truth_*", "--time", "never"], ""),
        (["flight", "start", "PID"], ""),
        (["flight", "PID", "truth_*"], ""),
        (["flight", "stop", "PID"], "no flight recorder is on in process"),
    ],
)
def test_wrong_requests_are_refused_and_nothing_is_on(
    target: Callable, args: list[str], reason: str
) -> None:
    pid = target("truth_threads", "1", "--rate", "100").pid

    done = cli(*(str(pid) if arg == "PID" else arg for arg in args))

    if reason:
        one_line(done, reason)
    assert done.returncode == (1 if reason else 2)
    assert set(modes_of(pid).values()) == {None}


@pytest.mark.parametrize("end", ["quit", "SIGKILL", "SIGINT"])
def test_record_into_a_file_saves_when_the_process_ends_and_when_we_do(
    target: Callable, tmp_path: Path, end: str
) -> None:
    program = target("truth_modes-jump", may_die=True)
    path = tmp_path / "events.jsonl"

    with running("flight", "start", program.pid, "truth_mode", "-o", path) as recorder:
        wait_until(lambda: modes_of(program.pid)["truth_mode"], "the marker to be on")
        wait_until(lambda: state_of(recorder.pid) == "S", "the recorder to wait")
        program.command("run 50")
        if end == "quit":
            program.process.stdin.close()
        elif end == "SIGKILL":
            program.process.kill()
        else:
            recorder.send_signal(signal.SIGINT)
        output, errors = recorder.communicate()

    assert recorder.returncode == 0, errors
    assert "50 events in" in output
    assert [fields["i"] for fields in read_events(path)] == list(range(50))
    if end == "SIGINT":
        assert errors == ""
        assert modes_of(program.pid)["truth_mode"] is None
    else:
        how = "ended with exit code 0" if end == "quit" else "was ended by SIGKILL"
        assert errors == f"process {program.pid} {how}\n"


def test_interrupt_before_the_recorder_waits_ends_it_too(target: Callable, tmp_path: Path) -> None:
    program = target("truth_modes-jump")

    for turn in range(4):  # wherever in its start it is
        path = tmp_path / f"{turn}.jsonl"
        with running("flight", "start", program.pid, "truth_mode", "-o", path) as recorder:
            wait_until(
                lambda recorder=recorder: handles_interrupts(recorder.pid), "its handlers to stand"
            )
            recorder.send_signal(signal.SIGINT)
            output, errors = recorder.communicate()
        assert errors == ""
        if recorder.returncode == 0:
            assert "0 events in" in output
            assert read_events(path) == []
        else:  # nothing was switched on yet, so there was nothing to end
            assert (recorder.returncode, output) == (128 + signal.SIGINT, "")
            assert not path.exists()
        assert modes_of(program.pid)["truth_mode"] is None


def handles_interrupts(pid: int) -> bool:
    """Whether it takes SIGHUP, which Python by itself does not."""
    status = Path(f"/proc/{pid}/status").read_text()
    return bool(int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16) & 1)


def waits_for_crash(program: Target, path: Path) -> int:
    """`record --on-crash`; the process that waits in the background."""
    begun = cli("flight", "start", program.pid, "truth_mode", "--on-crash", "-o", path)
    assert (begun.returncode, begun.stderr) == (0, "")
    return int(re.search(r"as process (\d+)", begun.stdout)[1])


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGKILL, signal.SIGTERM])
def test_on_crash_saves_what_a_killed_program_had_done(
    target: Callable, tmp_path: Path, number: signal.Signals
) -> None:
    program = target("truth_modes-jump", may_die=True)
    path = tmp_path / "crash.jsonl"
    watcher = waits_for_crash(program, path)

    program.command("run 20")
    os.kill(program.pid, number)

    wait_until(lambda: is_gone(watcher), "the watcher to save and end")
    assert [fields["i"] for fields in read_events(path)] == list(range(20))


@pytest.mark.parametrize("end", ["quit", "off"])
def test_on_crash_saves_nothing_where_nothing_crashed(
    target: Callable, tmp_path: Path, end: str
) -> None:
    program = target("truth_modes-jump")
    path = tmp_path / "crash.jsonl"
    watcher = waits_for_crash(program, path)
    program.command("run 20")

    assert not is_gone(watcher)
    if end == "quit":
        program.process.stdin.close()
    else:
        facts("off", program.pid, "*")

    wait_until(lambda: is_gone(watcher), "the watcher to end")
    assert not path.exists()


def test_a_recorder_that_is_killed_leaves_the_flight_on(target: Callable, tmp_path: Path) -> None:
    program = target("truth_modes-jump")

    with running(
        "flight", "start", program.pid, "truth_mode", "-o", tmp_path / "a.txt"
    ) as recorder:
        wait_until(lambda: modes_of(program.pid)["truth_mode"], "the marker to be on")
        wait_switched(program.pid)
        recorder.kill()
        recorder.wait()
    program.command("run 20")
    cli("on", program.pid, "truth_spin")

    saved = facts("flight", "dump", program.pid, "-o", tmp_path / "b.txt")
    assert saved["markers"][0]["events"] == 20
    assert os.listdir(tmp_path) == ["b.txt"]


def test_stop_ends_it_and_leaves_what_others_have_switched_on(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_modes-jump")
    cli("flight", "start", program.pid, "truth_mode")
    cli("on", program.pid, "truth_spin")
    program.command("run 20")

    done = cli("flight", "stop", program.pid)

    assert (done.returncode, done.stderr) == (0, "")
    ended, dump, stopped = done.stdout.splitlines()
    assert ended == "the flight recorder of truth_mode is ended; it has no marker left"
    assert dump == f"markerjit flight dump {program.pid} -o FILE saves what it has kept"
    assert "stopped, for at most" in stopped
    modes = modes_of(program.pid)
    assert modes["truth_mode"] is None and modes["truth_spin"]
    saved = facts("flight", "dump", program.pid, "-o", tmp_path / "a.txt")
    assert saved["markers"][0]["events"] == 20
    one_line(cli("flight", "stop", program.pid), "no flight recorder is on in process")


def test_commands_by_their_older_names_do_the_same(target: Callable, tmp_path: Path) -> None:
    program = target("truth_modes-jump")

    begun = cli("record", program.pid, "truth_mode", "--flight")
    program.command("run 20")
    saved = facts("dump", program.pid, "-o", tmp_path / "a.jsonl")

    assert (begun.returncode, begun.stderr) == (0, "")
    assert saved["markers"][0]["events"] == 20


def test_stop_and_off_without_a_pattern_are_for_functions_and_usdt_probes_too(
    target: Callable,
) -> None:
    """Of a process without a marker, in which `*` was refused."""
    program = target("truth_usdt")
    before = code_of(program)

    cli("flight", "start", program.pid, "func:turn", "truth:turn")
    stopped = cli("flight", "stop", program.pid)
    assert (stopped.returncode, stopped.stderr) == (0, "")
    assert "the flight recorder of func:turn, truth:turn is ended" in stopped.stdout
    assert code_of(program) == before

    cli("on", program.pid, "func:turn", "truth:turn", "func:pass_values")
    cli("flight", "start", program.pid, "truth:values")
    off = cli("off", program.pid)
    assert (off.returncode, off.stderr) == (0, "")
    assert off.stdout.splitlines()[:3] == [
        "func:pass_values: off, 1 site", "func:turn: off, 1 site", "truth:turn: off, 1 site"
    ]  # fmt: skip
    assert code_of(program) == before
    one_line(cli("off", program.pid), "nothing is on in process")
