"""What is recorded against what programs say that they passed: every value, thread and time; and
recorded and lost events together against what they count, however hard they make it."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import Event, Mode
from markerjit.ring.types import Time
from tests.support.commands import cli
from tests.support.markers import losses
from tests.support.programs import ROOT, Target
from tests.support.timing import HANG_S
from tests.support.truth_values import TURNS, lines_of, shown

KINDS = [
    ("truth_values", Mode.JUMP),
    ("truth_values", Mode.INT3),
    ("truth_values_nop", Mode.NOP),
    ("truth_values_pointer", Mode.POINTER),
    ("truth_values-1", Mode.JUMP),  # compiled with an older header
]
TICK_NS = 10_000_000
"""CLOCK_MONOTONIC_COARSE is as of the last tick."""


# ---- values, threads, times --------------------------------------------------------------------


@pytest.mark.product
@pytest.mark.parametrize("clock", list(Time))
@pytest.mark.parametrize(("name", "mode"), KINDS)
def test_every_event_has_the_values_the_thread_and_the_time_that_it_had(
    target: Callable, name: str, mode: Mode, clock: Time
) -> None:
    program = target(name)
    lines = lines_of(program)

    with markerjit.attach(program.pid) as session:
        for thread_id in (True, False):
            before = time.monotonic_ns()
            with session.trace("*", mode=mode, time=clock, thread_id=thread_id) as stream:
                tids = [program.ask(f"{who} 0 {TURNS}")["tid"] for who in ("fire", "there")]
            events = stream.drain()
            after = time.monotonic_ns()

            assert stream.statistics() == (2 * len(lines), 0, 0, 0, ())
            texts = shown(events, stream)
            if clock in (Time.TSC, Time.MONOTONIC):
                assert texts == lines * 2
                assert [event.tid for event in events] == [
                    tid * thread_id for tid in tids for _ in lines
                ]
            assert Counter(texts) == Counter(lines * 2)
            assert Counter(event.tid for event in events) == Counter(
                tid * thread_id for tid in tids for _ in lines
            )
            check_times(events, clock, before, after)


def check_times(events: Sequence[Event], clock: Time, before: int, after: int) -> None:
    """In order, and within the span; without a clock the number on the CPU."""
    if clock is not Time.NONE:
        times = [event.time for event in events]
        assert times == sorted(times)
        assert before - (TICK_NS if clock is Time.COARSE else 0) <= times[0]
        assert times[-1] <= after
        return
    for cpu in {event.cpu for event in events}:
        numbers = [event.time for event in events if event.cpu == cpu]
        assert numbers == sorted(numbers)
        # A CPU has two rings; the second one is for who is interrupted.
        assert Counter(numbers).most_common(1)[0][1] <= 2
        assert numbers[0] == 0 and numbers[-1] < len(numbers)


@pytest.mark.product
@pytest.mark.parametrize("fields", [("a",), ("b", "l", "g"), ("d", "j")])
@pytest.mark.parametrize(("name", "mode"), KINDS)
def test_only_the_fields_that_were_asked_for_are_recorded(
    target: Callable, name: str, mode: Mode, fields: tuple[str, ...]
) -> None:
    program = target(name)

    lines = []
    for line in lines_of(program):
        marker, *shown_fields = line.split()
        chosen = [field for field in shown_fields if field.split("=")[0] in fields]
        lines.append(" ".join([marker, *chosen]))
    with markerjit.attach(program.pid) as session:
        with session.trace("*", mode=mode, fields=fields) as stream:
            program.command(f"fire 0 {TURNS}")
        events = stream.drain()

    assert shown(events, stream) == lines


def test_markers_are_recorded_in_many_ways_one_after_the_other(target: Callable) -> None:
    program = target("truth_values")
    lines = lines_of(program)

    with markerjit.attach(program.pid) as session:
        for turn, clock in enumerate(list(Time) * 2):
            with session.trace("*", time=clock, thread_id=turn % 3 > 0) as stream:
                program.command(f"fire 0 {TURNS}")
            assert Counter(shown(stream.drain(), stream)) == Counter(lines)
            with session.trace("mixed_*", time=clock, fields=("c", "k")) as stream:
                program.command(f"fire 0 {TURNS}")
            assert len(stream.drain()) == 6 * TURNS
        hits = {marker.name: marker.total for marker in session.statistics()}

    assert {hits[name] for name in hits if not name.startswith("mixed")} == {8 * TURNS}
    assert {hits[name] for name in hits if name.startswith("mixed")} == {16 * TURNS}


def test_field_that_no_marker_has_is_refused(target: Callable) -> None:
    pid = target("truth_values").pid

    done = cli("trace", pid, "ints_2", "--fields", "a,nothing")

    assert done.returncode == 1
    assert "nothing" in done.stderr and "a, b" in done.stderr


# ---- recorded + lost = truth -------------------------------------------------------------------

CROWDS = {
    "64 threads": (["64"], 400),
    "moving": (["4", "--move"], 1000),
    "handlers": (["2", "--alarm", "3"], 100_000),
    "all": (["8", "--move", "--alarm", "2", "--fork"], 500),
}


@pytest.fixture(scope="session")
def built_otherwise(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """truth_crowd, compiled by another compiler or linked in another way."""
    built: dict[str, Path] = {}

    def build(compiler: str) -> Path:
        if compiler not in built:
            path = tmp_path_factory.mktemp("crowd") / "truth_crowd"
            flags = ["-O2", "-pthread", f"-I{ROOT}/native/include", "-o", str(path)]
            source = f"{ROOT}/native/targets/truth_crowd.c"
            subprocess.run([*compiler.split(), *flags, source], check=True, timeout=HANG_S)
            built[compiler] = path
        return built[compiler]

    return build


def record_crowd(
    program: Target, turns: int, *, ring_size: int, slow: bool = False, **options: Any
) -> tuple[list[Event], Counter[str], dict[str, int]]:
    """Run a crowd to its end: the events, the losses, and what the program has counted. A slow
    reader does not read before that."""
    with (
        markerjit.attach(program.pid, ring_size=ring_size) as session,
        ThreadPoolExecutor(1) as helper,
    ):
        events = []
        with session.trace("crowd_*", **options) as stream:
            if slow:
                counts = program.ask(f"run {turns}")
            else:
                running = helper.submit(program.ask, f"run {turns}")
                running.add_done_callback(lambda _: stream.stop())
                events += stream
                counts = running.result()
        events += stream.drain()
        lost = losses(session)
        hits = Counter({marker.name: marker.total for marker in session.statistics()})
    seen = Counter(event.name for event in events)
    assert +hits == seen + lost
    assert stream.statistics() == (len(events), lost.total(), 0, 0, ())
    return events, lost, counts


def check_crowd(events: Sequence[Event], lost: Counter[str], counts: dict[str, int]) -> None:
    """None missing, none twice, none of a child, and those of a thread in their order. They need
    not have come in it: what is behind one that is not finished comes later."""
    children = counts.pop("crowd_child")
    seen = Counter(event.name for event in events)
    assert seen + lost == Counter(counts), children
    assert len({(event.name, *event.fields.values()) for event in events}) == len(events)
    turns: dict[int, list[int]] = {}
    for event in sorted(events, key=lambda record: record.time):
        if event.name == "crowd_turn":
            turns.setdefault(event.fields["who"], []).append(event.fields["n"])
    for numbers in turns.values():
        assert numbers == sorted(numbers)


@pytest.mark.product
@pytest.mark.parametrize("ring_size", [4096, 1 << 14, 1 << 20])
@pytest.mark.parametrize("slow", [False, True], ids=["reading", "slow"])
@pytest.mark.parametrize("crowd", list(CROWDS))
def test_recorded_and_lost_are_what_a_crowd_has_counted(
    target: Callable, crowd: str, slow: bool, ring_size: int
) -> None:
    args, turns = CROWDS[crowd]
    program = target("truth_crowd", *args)

    # Rings that grow would lose nothing while they are read.
    options = {"ring_growth": 0} if ring_size == 4096 else {}

    events, lost, counts = record_crowd(program, turns, ring_size=ring_size, slow=slow, **options)

    if ring_size == 4096:
        assert lost.total() > 0
    if ring_size == 1 << 20 and crowd != "handlers":
        assert lost.total() == 0
    check_crowd(events, lost, counts)


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
@pytest.mark.parametrize("clock", list(Time))
def test_they_are_with_every_clock_too(target: Callable, clock: Time, mode: Mode) -> None:
    program = target("truth_crowd", "3", "--alarm", "2", "--move")

    events, lost, counts = record_crowd(program, 800, ring_size=1 << 14, time=clock, mode=mode)

    assert counts["crowd_alarm"] > 0
    seen = Counter(event.name for event in events)
    del counts["crowd_child"]
    assert seen + lost == Counter(counts)


@pytest.fixture(params=["no rseq", "gcc -static", "musl-gcc", "musl-gcc -static"])
def other(
    request: pytest.FixtureRequest,
    needs_tool: Callable,
    monkeypatch: pytest.MonkeyPatch,
    built_otherwise: Callable[[str], Path],
) -> Iterator[Callable[..., Target]]:
    """Start truth_crowd where threads have no restartable sequences, or another thread library."""
    started: list[Target] = []

    def start(*args: str) -> Target:
        if request.param == "no rseq":
            monkeypatch.setenv("GLIBC_TUNABLES", "glibc.pthread.rseq=0")
            path = built_otherwise("gcc")
        else:
            needs_tool("musl-gcc" if "musl" in request.param else "gcc", "musl-tools")
            path = built_otherwise(request.param)
        started.append(Target(path, *args))
        started[-1].wait_ready()
        return started[-1]

    yield start
    assert [program.end() for program in started] == [None] * len(started)


@pytest.mark.parametrize("ring_size", [4096, 1 << 20])
def test_they_are_in_programs_without_restartable_sequences(
    other: Callable[..., Target], ring_size: int
) -> None:
    program = other("4", "--move", "--alarm", "3", "--fork")

    events, lost, counts = record_crowd(program, 500, ring_size=ring_size)

    assert counts["crowd_alarm"] > 0 and counts["crowd_child"] > 0
    check_crowd(events, lost, counts)
    assert {event.tid for event in events if event.name == "crowd_turn"} <= tids_of(program)


def tids_of(program: Target) -> set[int]:
    return {int(name) for name in os.listdir(f"/proc/{program.pid}/task")}


@pytest.mark.parametrize("crowd", [["2", "--raw"], ["3", "--raw", "--move"]])
def test_they_are_with_a_thread_that_no_thread_library_knows(
    target: Callable, crowd: list[str]
) -> None:
    program = target("truth_crowd", *crowd)

    events, lost, counts = record_crowd(program, 3000, ring_size=1 << 20)

    check_crowd(events, lost, counts)
    assert {event.tid for event in events} <= tids_of(program) | {0}


@pytest.mark.parametrize("output", ["ctf", None])
def test_events_and_losses_of_a_trace_in_the_middle_of_a_run_are_its_hits(
    target: Callable, tmp_path: Path, output: str | None
) -> None:
    program = target("truth_threads", "2", "--rate", "3000", "--birth")
    path = tmp_path / f"events.{output}"
    args = ["-o", path] if output else []

    with markerjit.View(program.pid) as view:
        before = Counter({marker.name: marker.total for marker in view.statistics()})
    done = cli("trace", program.pid, "truth_*", "--duration", "0.3", "--json", *args)
    with markerjit.View(program.pid) as view:
        after = Counter({marker.name: marker.total for marker in view.statistics()})

    assert (done.returncode, done.stderr) == (0, "")
    *lines, last = map(json.loads, done.stdout.splitlines())
    total = (after - before).total()
    assert last["summary"] == {"events": total, "lost": 0, "not_shown": 0, "taken": []}
    if output:
        events = markerjit.open_trace(str(path)).events()
        assert Counter(event.name for event in events) == after - before
    else:
        assert Counter(line["name"] for line in lines) == after - before
