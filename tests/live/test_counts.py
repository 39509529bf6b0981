"""Events against the program's own counters: none missing, none invented, every field right."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode
from tests.support.commands import running
from tests.support.markers import losses, wait_on
from tests.support.processes import text_of
from tests.support.programs import ROOT
from tests.support.server import Client, Truth
from tests.support.timing import HANG_S, Limited, wait_until

SERVERS = [
    ("kvserver", Mode.JUMP),
    ("kvserver", Mode.INT3),
    ("kvserver-nop", Mode.NOP),
    ("kvserver-nop", Mode.INT3),
    ("kvserver-pointer", Mode.POINTER),
]


def make_load(build: Path, port: str, requests: int = 20_000) -> None:
    """Every marker is passed: gets and sets by kvload, the rest by hand."""
    load = [build / "kvload", "--port", port, "--requests", str(requests), "--connections", "8"]
    subprocess.run(load, check=True, capture_output=True, timeout=HANG_S)
    for turn in range(20):
        with Client(port) as client:
            client.ask("SET", f"key {turn}", "x" * turn)
            assert client.ask("DEL", f"key {turn}", "nothing") == 1


@pytest.mark.parametrize(("server", "mode"), SERVERS)
def test_events_and_losses_of_a_trace_are_what_the_server_counted(
    target: Callable, build: Path, server: str, mode: Mode
) -> None:
    program = target(server)
    port = program.ready["port"]
    seen: Counter[str] = Counter()

    ring_size = 16 << 20
    with (
        markerjit.attach(program.pid, ring_size=ring_size) as session,
        closing(Truth(port)) as truth,
    ):
        with session.trace("kv_*", mode=mode) as stream, ThreadPoolExecutor(1) as helper:
            load = helper.submit(make_load, build, port)
            load.add_done_callback(lambda _: stream.stop())
            seen.update(event.name for event in stream)
            load.result()
            expected = truth.difference()
        seen.update(event.name for event in stream.drain())
        lost = losses(session)

    assert dict(seen + lost) == expected
    assert stream.statistics() == (seen.total(), lost.total(), 0, 0, ())
    assert seen["kv_delete"] > 0


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_what_finds_its_ring_full_is_counted_to_the_last_event(
    target: Callable, build: Path, mode: Mode
) -> None:
    program = target("kvserver")
    port = program.ready["port"]

    with (
        markerjit.attach(program.pid, ring_size=1 << 16) as session,
        closing(Truth(port)) as truth,
    ):
        with session.trace("kv_*", mode=mode) as stream:
            make_load(build, port)
            expected = truth.difference()
        seen = Counter(event.name for event in stream.drain())
        lost = losses(session)

    assert dict(seen + lost) == expected
    assert lost.total() > seen.total() > 0
    assert stream.statistics() == (seen.total(), lost.total(), 0, 0, ())


# The test of a trace has them all.
@pytest.mark.parametrize(
    ("server", "mode"),
    [*SERVERS[:2], *(pytest.param(*row, marks=pytest.mark.long) for row in SERVERS[2:])],
)
def test_events_and_losses_of_the_command_are_what_the_server_counted(
    target: Callable, build: Path, server: str, mode: Mode, tmp_path: Path
) -> None:
    program = target(server)
    port = program.ready["port"]
    output = tmp_path / "events"

    args = ["trace", program.pid, "kv_*", "--mode", mode, "--ring-size", 4, "--json"]
    with (
        closing(Truth(port)) as truth,
        output.open("w") as file,
        running(*args, stdout=file) as tracer,
    ):
        wait_on(program.pid, "kv_store", tracer)
        make_load(build, port)
        expected = truth.difference()
        tracer.send_signal(signal.SIGINT)
        _, errors = tracer.communicate()

    assert (tracer.returncode, errors) == (0, "")
    *events, last = map(json.loads, output.read_text().splitlines())
    assert len(events) == last["summary"]["events"]
    seen = Counter(event["name"] for event in events)
    with markerjit.attach(program.pid) as session:
        lost = losses(session)
    assert last["summary"]["lost"] == lost.total()
    assert dict(seen + lost) == expected


@pytest.mark.parametrize(("server", "mode"), SERVERS)
def test_count_probe_counts_what_the_server_counts(
    target: Callable, build: Path, server: str, mode: Mode
) -> None:
    program = target(server)
    port = program.ready["port"]

    with markerjit.attach(program.pid) as session, closing(Truth(port)) as truth:
        session.enable("kv_*", mode=mode, probe="count")
        make_load(build, port)
        expected = truth.difference()
        session.disable("kv_*")
        hits = {marker.name: marker.total for marker in session.statistics()}

    assert hits == expected


@pytest.mark.parametrize("program_name", ["truth_threads", "truth_static"])
@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_threads_that_are_born_and_die_are_all_seen(
    target: Callable, program_name: str, mode: Mode
) -> None:
    program = target(program_name, "8", "--rate", "500", "--birth", "--paused")
    with markerjit.attach(program.pid) as session:
        before = time.monotonic_ns()
        with session.trace("truth_*", mode=mode) as stream:
            program.ask("resume")
            wait_until(lambda: program.ask("counts")["truth_birth"] > 300, "threads to be born")
            threads = {int(name) for name in os.listdir(f"/proc/{program.pid}/task")}
            counts = program.ask("pause")
            events = stream.poll()
        events += stream.drain()
        after = time.monotonic_ns()
        lost = losses(session)

    seen = Counter(event.name for event in events)
    assert dict(seen + lost) == {name: counts[name] for name in ("truth_loop", "truth_birth")}
    tid_of: dict[int, set[int]] = {}
    latest: dict[int, int] = {}
    for event in events:
        assert 0 <= event.cpu < (os.cpu_count() or 1)
        assert before <= event.time <= after
        assert event.time >= latest.get(event.cpu, 0)
        latest[event.cpu] = event.time
        if event.name == "truth_loop":
            tid_of.setdefault(event.fields["i"], set()).add(event.tid)
    assert {len(tids) for tids in tid_of.values()} == {1}
    assert set(tid_of) == set(range(8))
    assert set.union(*tid_of.values()) <= threads
    births = [event for event in events if event.name == "truth_birth"]
    assert len({event.tid for event in births}) > 1
    ids = [event.fields["id"] for event in births]
    assert ids == sorted(set(ids))


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_every_copy_of_an_inlined_marker_is_seen(target: Callable, mode: Mode) -> None:
    program = target("truth_inline")
    turns = 103

    with markerjit.attach(program.pid) as session:
        sites = len(session.sites("truth_inline"))
        with session.trace("truth_inline", mode=mode) as stream:
            program.command(f"run {turns}")
        events = stream.drain()

    assert sites >= 4
    assert [(event.fields["where"], event.fields["i"]) for event in events] == [
        *[(where, turns) for where in range(3)],
        *[(3, i) for i in range(turns)],
    ]


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_twelve_arguments_of_all_types_arrive_as_they_were(target: Callable, mode: Mode) -> None:
    program = target("truth_inline")
    times = 300

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_types", mode=mode) as stream:
            program.command(f"fire {times}")
        events = stream.drain()

    assert [event.fields for event in events] == [
        {
            "flag": bool(k & 1),
            "schar": -1 - k % 128,
            "uchar": 255 - k % 256,
            "short": k - (1 << 15),
            "ushort": (1 << 16) - 1 - k,
            "int": k - (1 << 31),
            "uint": (1 << 32) - 1 - k,
            "long": k - (1 << 63),
            "ulong": (1 << 64) - 1 - k,
            "float": k + 0.5,
            "double": -k - 0.25,
            "key": ("", "key", 'größe "1"\n')[k % 3],
        }
        for k in range(times)
    ]
    assert all(type(event.fields["flag"]) is bool for event in events)


def test_strings_pointers_chars_and_bit_fields_arrive_as_they_were(target: Callable) -> None:
    program = target("truth_inline")
    times = 60

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_more") as stream:
            answer = program.command(f"fire {times}")
        events = stream.drain()

    pointer = int(answer.rsplit("=", 1)[1])
    assert [event.fields for event in events] == [
        {
            "char": chr(ord("a") + k % 26),
            "llong": k - (1 << 63),
            "ullong": (1 << 64) - 1 - k,
            "part": "sixsix"[: k % 7],
            "pointer": pointer,
            "color": -3 if k & 1 else 7,
            "narrow": k & 7,
            "signed_narrow": -(k & 15),
            "nothing": None,
        }
        for k in range(times)
    ]


LONG = """
#include <markerjit/marker.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(void) {
    static char text[4096];
    printf("ready\\n"), fflush(stdout);
    for (char c; read(0, &c, 1) == 1;) {
        memset(text, c, sizeof text - 1);
        MARK(longer, "whole %s four %.4s some %.*s small %hhd", text, text, 3000, text,
             (signed char)-c);
        if (write(1, "\\n", 1) < 0) return 1;
    }
    return 0;
}
"""


@pytest.mark.parametrize("compiler", ["cc", "clang", "musl-gcc", "musl-gcc -static"])
def test_strings_longer_than_the_limit_are_cut_and_say_so(
    needs_tool: Callable, compiler: str, tmp_path: Path
) -> None:
    package = {"clang": "clang", "cc": "gcc"}.get(compiler, "musl-tools")
    needs_tool(compiler.split()[0], package)
    source = tmp_path / "longer.c"
    source.write_text(LONG)
    flags = ["-O2", f"-I{ROOT}/native/include", "-o", tmp_path / "longer", source]
    subprocess.run([*compiler.split(), *flags], check=True, timeout=HANG_S)

    with Limited(
        [tmp_path / "longer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    ) as program:
        assert program.stdout.readline() == b"ready\n"
        text = text_of(program.pid)
        with markerjit.attach(program.pid) as session:
            with session.trace("longer") as stream:
                program.stdin.write(b"z")
                assert program.stdout.readline() == b"\n"
            events = stream.drain()
        unchanged = text_of(program.pid) == text
        program.stdin.close()
        assert program.wait(HANG_S) == 0

    assert unchanged
    (event,) = events
    assert event.tid == program.pid
    fields = event.fields
    assert fields["whole"].rstrip("…") == "z" * 256
    assert fields["whole"].endswith("…")
    assert fields["four"] == "zzzz"
    assert fields["some"].startswith("z" * 256)
    assert fields["small"] == -ord("z")


# ---- dlopen, fork ---------------------------------------------------------------


def test_library_that_comes_and_goes_is_found_and_forgotten(target: Callable, build: Path) -> None:
    program = target("truth_dlopen")

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.UnknownMarker):
            session.sites("truth_plugin")
        for turn in range(3):
            program.command(f"load {build}/truth_plugin.so")
            with session.trace("truth_*") as stream:
                program.command("call 10")
            events = stream.drain()
            assert Counter(event.name for event in events) == {"truth_host": 10, "truth_plugin": 10}
            session.enable("truth_*", mode=Mode.INT3)
            program.command("call 5")
            program.command("unload")
            text = text_of(program.pid)  # with what is on of the host
            with pytest.raises(markerjit.UnknownMarker):
                session.enable("truth_plugin")
            assert text_of(program.pid) == text
            session.disable("truth_*")
            hits = {marker.name: marker.total for marker in session.statistics()}
            assert hits["truth_host"] == 15 * (turn + 1)

    assert program.ask("counts") == {"truth_host": 45, "truth_plugin": 45}


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_child_runs_through_switched_markers_and_is_not_in_the_trace(
    target: Callable, mode: Mode
) -> None:
    program = target("truth_fork")

    with markerjit.attach(program.pid) as session:
        with session.trace("truth_*", mode=mode) as stream:
            answers = [program.command("fork 100") for _ in range(10)]
        events = stream.drain()
        counts = program.ask("counts")

    assert all(answer.endswith("status=0") for answer in answers)
    assert counts == {"truth_parent": 10, "truth_child": 1000}
    assert [(event.name, event.fields["turn"]) for event in events] == [
        ("truth_parent", turn) for turn in range(1, 11)
    ]
    assert {event.tid for event in events} == {program.pid}
