"""Markers switched on and off a thousand times while a server answers its clients.

redis-benchmark is Debian's own, unmodified; kvload runs beside it, because it looks at every value
that comes back. MARKERJIT_FLIPS asks for more switches than the thousand of all cases together, of
which there are a quarter where the tests are chosen.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode
from tests.support.choice import spacing
from tests.support.commands import cli, facts, one_line, running
from tests.support.markers import modes_of, wait_on
from tests.support.processes import text_of
from tests.support.server import Client
from tests.support.timing import HANG_S, Limited, joined, wait_until

FLIPS = int(os.environ.get("MARKERJIT_FLIPS", 1200 // spacing(4)))
REQUESTS = {"1": 20_000 // spacing(8), "16": 100_000 // spacing(8)}
"""For GET and for SET, by the pipeline: without one a request takes ten times as long. There are as
many runs as the switches need."""
PATTERNS = ("kv_*", "kv_command", "kv_hit", "kv_[ms]*")
CASES = {
    "kvserver": (Mode.JUMP, Mode.INT3),
    "kvserver-nop": (Mode.NOP, Mode.INT3),
    "kvserver-pointer": (Mode.POINTER,),
}


@contextmanager
def verified_load(build: Path, port: str) -> Iterator[None]:
    """kvload beside the body: no error and no wrong value until its end."""
    command = [build / "kvload", "--port", port, "--connections", "4", "--seconds", "600"]
    command += ["--rate", "10000"]  # of half a CPU, which the rest of the load needs
    with Limited(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as load:
        try:
            yield
        finally:
            load.terminate()
            out, errors = load.communicate()
    summary = json.loads(out.splitlines()[-1])["summary"]
    assert (load.returncode, errors) == (0, b"")
    assert summary["errors"] == summary["wrong"] == 0
    assert summary["hits"] > 0


def counters(port: str) -> dict[str, int]:
    with Client(port) as client:
        return client.counters()


def flip_while(
    session: markerjit.Session, modes: tuple[Mode, ...], running: Callable[[], bool]
) -> int:
    """Switch on and off, by turns in every mode and pattern, until it no longer runs."""
    flips = 0
    while running():
        mode = modes[flips // 2 % len(modes)]
        pattern = PATTERNS[flips // 2 // len(modes) % len(PATTERNS)]
        probe = ("count", "record")[flips // 16 % 2]
        session.enable(pattern, mode=mode, probe=probe)
        session.disable(pattern)
        flips += 2
    return flips


@pytest.mark.product
@pytest.mark.parametrize("pipeline", ["1", "16"])
@pytest.mark.parametrize("server", CASES)
def test_no_request_fails_while_markers_are_switched(
    target: Callable, build: Path, needs_tool: Callable, server: str, pipeline: str
) -> None:
    benchmark = needs_tool("redis-benchmark", "redis-tools")
    program = target(server)
    port = program.ready["port"]
    command = [benchmark, "-p", port, "-c", "50", "-P", pipeline]
    requests = REQUESTS[pipeline]
    command += ["-n", str(requests), "-t", "set,get", "-r", "1000", "--csv"]
    text = text_of(program.pid)
    least = FLIPS // (2 * len(CASES))
    flips, runs, before = 0, 0, counters(port)

    with verified_load(build, port), markerjit.attach(program.pid) as session:
        while flips < least:
            with Limited(
                command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            ) as load:
                flips += flip_while(session, CASES[server], lambda: load.poll() is None)
                assert load.stdout is not None
                output = load.stdout.read()
            runs += 1
            assert load.returncode == 0, output
            assert "error" not in output.lower()
        seen = {marker.name: marker for marker in session.statistics()}
    after = counters(port)

    assert after["stores"] - before["stores"] >= runs * requests
    assert after["hits"] + after["misses"] - before["hits"] - before["misses"] >= runs * requests
    assert all(marker.mode is None for marker in seen.values())
    # both states were really run through, not only written
    assert 0 < seen["kv_command"].total < after["commands"] - before["commands"]
    assert text_of(program.pid) == text


def test_traces_that_come_and_go_under_load_leave_no_byte_changed(
    target: Callable, build: Path
) -> None:
    program = target("kvserver")
    text = text_of(program.pid)
    events = 0

    with verified_load(build, program.ready["port"]), markerjit.attach(program.pid) as session:
        for turn in range(20 // spacing(2)):
            mode = (Mode.JUMP, Mode.INT3)[turn % 2]
            with session.trace("kv_hit", mode=mode) as stream:
                for event in stream:
                    assert event.fields["key"].startswith("load:")
                    events += 1
                    if stream.statistics().events > 100:
                        break

    assert events > 0
    assert text_of(program.pid) == text


def test_redis_cli_is_traced_command_by_command(target: Callable, needs_tool: Callable) -> None:
    client = needs_tool("redis-cli", "redis-tools")
    program = target("kvserver")

    def redis(*words: str) -> str:
        command = [client, "-p", program.ready["port"], *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=HANG_S, check=True
        ).stdout.strip()

    with running("trace", program.pid, "kv_[chmsd]*", "--json") as tracer:
        wait_on(program.pid, "kv_command", tracer)
        answers = [redis(*line.split()) for line in ("SET color blue", "GET color", "GET none")]
        answers.append(redis("DEL", "color"))
        tracer.send_signal(signal.SIGINT)
        out, _ = tracer.communicate()

    events = [json.loads(line) for line in out.splitlines()[:-1]]
    assert answers == ["OK", "blue", "", "1"]
    pairs = [(event["name"], event["fields"]) for event in events if event["name"] != "kv_close"]
    commands = [fields["name"] for name, fields in pairs if name == "kv_command"]
    assert [word for word in commands if word in ("SET", "GET", "DEL")] == [
        "SET",
        "GET",
        "GET",
        "DEL",
    ]
    assert ("kv_store", {"key": "color", "size": 4}) in pairs
    assert ("kv_hit", {"key": "color", "size": 4}) in pairs
    assert ("kv_miss", {"key": "none"}) in pairs
    assert ("kv_delete", {"key": "color"}) in pairs


# ---- signals and breakpoints of the program's own -----------------------------------------------


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_marker_in_a_signal_handler_is_counted_with_the_one_that_it_interrupts(
    target: Callable, mode: Mode
) -> None:
    program = target("truth_signals", "--timer")

    with markerjit.attach(program.pid) as session:
        before = program.ask("pause")
        session.enable("truth_*", mode=mode, probe="record")
        program.ask("resume")
        wait_until(
            lambda: program.ask("counts")["truth_handler"] > before["truth_handler"] + 200, "alarms"
        )
        after = program.ask("pause")
        session.disable("truth_*")
        hits = {marker.name: marker.total for marker in session.statistics()}

    names = ("truth_work", "truth_handler")
    assert {name: hits[name] for name in names} == {
        name: after[name] - before[name] for name in names
    }


def test_program_keeps_its_own_breakpoints(target: Callable) -> None:
    program = target("truth_signals", "--own-trap")

    with markerjit.attach(program.pid) as session:
        for turn in range(3):
            session.enable("truth_*", mode=Mode.INT3)
            assert program.ask("trap")["own_trap"] == 2 * turn + 1
            hits = session.statistics("truth_work")[0].total
            wait_until(lambda: session.statistics("truth_work")[0].total > hits, "more hits")  # noqa: B023
            session.disable("truth_*")
            assert program.ask("trap")["own_trap"] == 2 * turn + 2


def test_breakpoints_are_refused_where_a_thread_blocks_sigtrap(target: Callable) -> None:
    program = target("truth_signals", "--block-trap")
    text = text_of(program.pid)

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.Refused, match="blocks SIGTRAP"):
            session.enable("truth_work", mode=Mode.INT3)
        assert text_of(program.pid) == text
        session.enable("truth_work", mode=Mode.JUMP)
        wait_until(lambda: session.statistics("truth_work")[0].total > 0, "hits")
        session.disable("truth_work")

    assert text_of(program.pid) == text


def test_sleep_in_epoll_wait_is_not_interrupted_by_five_hundred_stops(target: Callable) -> None:
    program = target("truth_signals")

    with markerjit.attach(program.pid) as session:
        for turn in range(250):
            session.enable("truth_w*", mode=(Mode.JUMP, Mode.INT3)[turn % 2])
            if turn % 10 == 0:
                program.ask("poke")
            session.disable("truth_w*")

    assert program.ask("counts")["eintr"] == 0
    wait_until(lambda: program.ask("counts")["truth_woken"] > 0, "a wake-up")


# ---- death, and others -----------------------------------------------------------------------


@pytest.mark.parametrize("end", ["quit", "kill", "kill, no zombie"])
def test_trace_says_that_the_process_has_ended(target: Callable, end: str) -> None:
    program = target("truth_threads", "2", "--rate", "2000", may_die=True)

    with running("trace", program.pid, "truth_loop") as tracer:
        assert tracer.stdout is not None
        assert tracer.stdout.readline()
        if end != "quit":
            program.process.kill()
            if end == "kill, no zombie":
                program.wait()
        else:
            program.process.stdin.write(b"quit\n")
            program.process.stdin.flush()
        _, errors = tracer.communicate()

    assert "Traceback" not in errors
    assert re.search(rf"process {program.pid} .*ended", errors)
    assert tracer.returncode == 1


@pytest.mark.parametrize("command", ["trace", "enable", "disable"])
def test_program_that_became_another_is_noticed_and_not_written(
    target: Callable, build: Path, command: str
) -> None:
    program = target("truth_fork")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_parent")
        program.command("fork 1")
        assert program.command(f"exec {build}/truth_fork").startswith("ready")
        text = text_of(program.pid)
        with pytest.raises(markerjit.MarkerError, match=r"process \d+ .*"):
            if command == "trace":
                with session.trace("truth_parent"):
                    pass
            else:
                getattr(session, command)("truth_parent")

    assert text_of(program.pid) == text
    with markerjit.attach(program.pid) as session:
        session.enable("truth_parent")
        program.command("fork 1")
        session.disable("truth_parent")
        assert session.statistics("truth_parent")[0].total == 1
    assert text_of(program.pid) == text


@pytest.mark.parametrize("what", ["switch", "trace"])
def test_kill_in_the_middle_is_told_in_a_sentence_or_ends_the_stream(
    target: Callable, what: str
) -> None:
    seen = 0
    for turn in range(11, -1, -spacing(3)):
        program = target("truth_threads", "4", "--rate", "5000", may_die=True)
        with markerjit.attach(program.pid) as session:
            session.enable("truth_*", mode=Mode.INT3)
            session.disable("truth_*")
            kill = (program.pid, signal.SIGKILL)  # not Popen.kill, which waits first
            killer = threading.Timer(0.0007 * turn, os.kill, kill)
            if what == "switch":
                killer.start()
                with pytest.raises(markerjit.MarkerError, match=rf"process {program.pid}.*end"):
                    for flip in range(1_000_000):
                        session.enable("truth_*", mode=(Mode.JUMP, Mode.INT3)[flip % 2])
                        session.disable("truth_*")
            else:
                with session.trace("truth_*") as stream:
                    killer.start()
                    seen += sum(1 for _ in stream)
        joined(killer)
        assert program.wait() == -signal.SIGKILL
    assert what == "switch" or seen > 0


# ---- two controllers ---------------------------------------------------------------------------


def test_second_tracer_is_told_who_reads(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    text = text_of(program.pid)
    with running("trace", program.pid, "truth_loop") as first:
        wait_on(program.pid, "truth_loop", first)

        one_line(cli("trace", program.pid, "truth_loop"), f"process {first.pid}|pid {first.pid}")

        assert modes_of(program.pid)["truth_loop"] == "jump"
        first.send_signal(signal.SIGINT)
        out, _ = first.communicate()
    assert first.returncode == 0
    assert out
    assert text_of(program.pid) == text
    assert cli("trace", program.pid, "truth_loop", "--events", 1).returncode == 0


def test_look_at_an_arena_in_the_making(target: Callable) -> None:
    for _ in range(8):
        pid = target("kvserver").pid
        with running("on", pid, "kv_*") as controller:
            while controller.poll() is None:
                assert modes_of(pid)
            output = controller.communicate()
        assert controller.returncode == 0, output


def test_two_controllers_that_come_at_the_same_moment(target: Callable) -> None:
    names = ("kv_hit", "kv_miss", "kv_store")
    for _ in range(5):
        program = target("kvserver")
        text = text_of(program.pid)
        with ExitStack() as stack:
            both = [stack.enter_context(running("on", program.pid, name)) for name in names]
            ends = [(*process.communicate(), process.returncode) for process in both]

        on = {name for name, mode in modes_of(program.pid).items() if mode}
        assert on == {name for name, (_, _, code) in zip(names, ends, strict=True) if code == 0}
        assert all(code in (0, 1) and "Traceback" not in errors for _, errors, code in ends), ends
        with Client(program.ready["port"]) as client:
            client.ask("SET", "a", "1")
            client.ask("GET", "a")
            client.ask("GET", "b")
        hits = {
            marker["name"]: marker["hits"] for marker in facts("status", program.pid)["markers"]
        }
        assert {name for name, count in hits.items() if count} == on
        assert cli("off", program.pid, "*").returncode == 0
        assert text_of(program.pid) == text
