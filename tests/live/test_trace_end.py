"""The end of a trace: the markers are off before what is left is shown, and what is not shown is
counted."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from tests.support.commands import cli, running
from tests.support.markers import has_arena
from tests.support.programs import Target
from tests.support.timing import HANG_S, wait_until

MANY = 70_000
MORE = 250_000
"""More than are printed once the markers are off."""
PIPE = 1 << 16


def is_on(pid: int) -> bool:
    if not has_arena(pid):
        return False
    with markerjit.View(pid) as view:
        return any(marker.mode for marker in view.statistics())


def recorded(pid: int) -> int:
    """Events that the tracer has taken out of the rings."""
    with markerjit.View(pid) as view:
        return sum(marker.total for marker in view.statistics())


def read_until(tracer: subprocess.Popen[str], condition: Callable[[], bool]) -> bytes:
    """Read its output slowly, a page at a time, but steadily."""
    assert tracer.stdout
    read = b""

    def step() -> bool:
        nonlocal read
        if condition():
            return True
        read += tracer.stdout.buffer.raw.read(4096) or b""  # type: ignore[union-attr]
        return False

    wait_until(step, "the condition")
    return read


@pytest.mark.product
@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_markers_are_off_before_what_is_left_is_printed(
    target: Callable, processes: int, number: int
) -> None:
    programs: list[Target] = [target("truth_process") for _ in range(processes)]
    pids = [program.pid for program in programs]
    everything = MORE * processes

    with running("trace", ",".join(map(str, pids)), "*", "--json", "--ring-size", 16) as tracer:
        wait_until(lambda: all(map(is_on, pids)), "a trace")
        tracer.send_signal(signal.SIGSTOP)  # so that it finds all of them at once
        for program in programs:
            program.command(f"pass {MORE}")
        tracer.send_signal(signal.SIGCONT)
        text = read_until(tracer, lambda: sum(map(recorded, pids)) == everything)
        tracer.send_signal(number)
        late = read_until(tracer, lambda: not any(map(is_on, pids)))
        rest, errors = tracer.communicate()

    assert len(late) <= 2 * PIPE
    *events, last = map(json.loads, ((text + late).decode() + rest).splitlines())
    summary = last["summary"]
    assert tracer.returncode == 0
    assert summary["events"] == len(events) < everything
    assert (summary["lost"], summary["taken"]) == (0, [])
    assert summary["events"] + summary["not_shown"] == everything
    assert f"recorded and not printed: {summary['not_shown']:,} more events;" in errors
    times = [event["time"] for event in events]
    assert times == sorted(times)


def test_file_gets_everything_that_was_recorded_until_the_end(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_process")
    path = tmp_path / "trace.jsonl"

    with running("trace", program.pid, "*", "-o", path, "--ring-size", 4) as tracer:
        wait_until(lambda: is_on(program.pid), "a trace")
        program.command(f"pass {MANY}")
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    numbers = [event.fields["n"] for event in markerjit.open_trace(str(path)).events()]
    assert f"{MANY:,} events in" in errors
    assert len(numbers) == MANY
    assert numbers == sorted(numbers)


def test_function_is_called_with_what_is_left_when_the_markers_are_off(
    target: Callable, tmp_path: Path
) -> None:
    program = target("truth_process")
    log = tmp_path / "told"
    source = tmp_path / "probe.py"
    source.write_text(
        "import os, signal, markerjit\n"
        "def look(event):\n"
        f"    with markerjit.View({program.pid}) as view:\n"
        "        on = any(marker.mode for marker in view.statistics())\n"
        f"    with open({str(log)!r}, 'a') as file:\n"
        "        file.write('on\\n' if on else 'off\\n')\n"
        "    if on:\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
    )

    with running("trace", program.pid, "*", "--probe", f"{source}:look") as tracer:
        wait_until(lambda: is_on(program.pid), "a trace")
        program.command("pass 10")
        _, errors = tracer.communicate()

    assert log.read_text().split() == ["on"] + 9 * ["off"]
    assert "10 events, 0 lost" in errors


def test_second_signal_ends_what_is_still_printed(target: Callable) -> None:
    program = target("truth_process")

    with running("trace", program.pid, "*", "--json") as tracer:
        wait_until(lambda: is_on(program.pid), "a trace")
        program.command("pass 9000")
        wait_until(lambda: recorded(program.pid) == 9000, "the events")
        tracer.send_signal(signal.SIGINT)
        wait_until(lambda: not is_on(program.pid), "the end")
        tracer.send_signal(signal.SIGINT)
        out, errors = tracer.communicate()

    summary = json.loads(out.splitlines()[-1])["summary"]
    assert tracer.returncode == 0
    assert "recorded and not printed: " in errors
    assert summary["events"] + summary["not_shown"] == 9000


def test_trace_that_ends_after_so_many_events_says_how_many_more_there_were(
    target: Callable,
) -> None:
    program = target("truth_process")

    with running("trace", program.pid, "*", "--json", "--events", "3") as tracer:
        wait_until(lambda: is_on(program.pid), "a trace")
        program.command("pass 10")
        out, errors = tracer.communicate()

    *events, last = map(json.loads, out.splitlines())
    assert (len(events), errors) == (3, "")
    assert last["summary"] == {"events": 3, "lost": 0, "not_shown": 7, "taken": []}


@pytest.mark.parametrize("as_json", [False, True])
def test_trace_that_lost_events_says_what_would_have_helped(
    target: Callable, as_json: bool
) -> None:
    program = target("truth_process")
    options = ["--json"] if as_json else []

    with running("trace", program.pid, "*", "--ring-size", 1, *options) as tracer:
        wait_until(lambda: is_on(program.pid), "a trace")
        tracer.send_signal(signal.SIGSTOP)  # so that the rings get full
        program.command(f"pass {MORE}")
        tracer.send_signal(signal.SIGCONT)
        tracer.send_signal(signal.SIGINT)
        out, errors = tracer.communicate(timeout=HANG_S)

    would_help = [
        "--ring-size 8: each ring began with 1 MiB",
        "-o FILE.ctf: it takes a quarter of the time of lines",
        "--lossless: the process waits instead, and may become much slower",
    ]
    if as_json:
        summary = json.loads(out.splitlines()[-1])["summary"]
        assert summary["would_help"] == would_help
        assert summary["events"] + summary["lost"] + summary["not_shown"] == MORE
    else:
        *_, title, first, second, third = errors.splitlines()
        assert title == "lost events found their ring full; this would have helped:"
        assert [first.strip(), second.strip(), third.strip()] == would_help


def test_duration_ends_a_trace_with_everything_shown(target: Callable) -> None:
    program = target("truth_process")

    done = cli("trace", program.pid, "*", "--duration", "0.2")

    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "0 events, 0 lost\n"
