"""A rate: no second has more events of a marker than were asked for, on whatever CPUs, and the
others are counted as held back."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.abi import CONTROL, Control
from markerjit.ring.brakes import Pace
from tests.support.commands import cli, facts
from tests.support.keys import forbid_sequences, run_for_a_while, truth_of
from tests.support.processes import text_of
from tests.support.timing import wait_until

pytestmark = pytest.mark.live

NS = 1_000_000_000


def most_in(seconds: float, per_s: int) -> int:
    """The most events of a rate in so long a time."""
    pace = Pace.of(per_s, NS)
    return int((seconds * NS + pace.ahead) // pace.step) + 1


def change_facts(pid: int, field: str, change: Callable[[int], int]) -> None:
    """Write over what the runtime knows of a process; a session that comes later believes it."""
    with markerjit.attach(pid) as session:
        arena = session._target.seen.arena
        assert arena
        place, size = getattr(Control, field).offset, getattr(Control, field).size
        value = change(int(getattr(arena.facts, field)))
        arena.store.write(CONTROL + place, value.to_bytes(size, "little"))


@pytest.fixture(params=["restartable", "atomic", "system clock"])
def program(request: pytest.FixtureRequest, target: Callable) -> Any:
    """Threads that pass two markers at full speed, more of them than there are CPUs."""
    process = target("truth_keys", "4", "--timer", "--keys", "10")
    with markerjit.attach(process.pid) as session:
        session.on("truth_key")
        session.off("truth_key")
    if request.param == "atomic":
        forbid_sequences(process.pid)
    if request.param == "system clock":
        change_facts(process.pid, "cpu_flags", lambda flags: flags & ~4)
    return process


def executions(program: Any, folder: Path) -> int:
    return sum(key.count for key in truth_of(program, folder).values())


@pytest.mark.product
@pytest.mark.parametrize("per_s", [1, 15, 1000, 100_000])
def test_no_second_has_more_and_the_others_are_held_back(
    program: Any, tmp_path: Path, per_s: int
) -> None:
    code = text_of(program.pid)
    before = executions(program, tmp_path)
    with markerjit.attach(program.pid) as session:
        since = time.monotonic()
        session.on("truth_key", at_most=per_s)
        run_for_a_while(program, 0.2)
        program.ask("fork 1000")  # of a child nothing counts
        took = time.monotonic() - since
        (marker,) = session.statistics("truth_key")
        session.off("truth_key")
    passed = executions(program, tmp_path) - before

    assert marker.hits + marker.held_back == passed
    assert marker.at_most == per_s
    assert min(passed, 1 + per_s // 10) <= marker.hits + 1
    assert 0 < marker.hits <= most_in(took, per_s)
    assert marker.lost == 0
    assert text_of(program.pid) == code


def test_all_are_let_through_below_the_rate(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.on("truth_mode", at_most=10_000)
        program.ask("run 1000")
        (marker,) = session.statistics("truth_mode")

    assert (marker.hits, marker.held_back) == (1000, 0)


def test_rate_is_of_what_the_condition_and_the_sample_let_through(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        with session.trace("truth_mode", where="i % 2 == 1", sample="1/2", at_most=10) as stream:
            program.ask("run 100000")
            (marker,) = session.statistics("truth_mode")
        numbers = [event.fields["i"] for event in stream.drain()]

    assert (marker.where, marker.sample, marker.at_most) == ("i % 2 == 1", "1/2", 10)
    assert numbers[0] < 100  # the first of them, and those that follow far behind
    assert all(number % 2 == 1 for number in numbers)  # type: ignore[operator]
    assert abs(len(numbers) + marker.held_back - 25_000) < 1200
    assert stream.held_back == marker.held_back
    assert stream.statistics().lost == 0


def test_subscription_keeps_to_its_rate(target: Callable) -> None:
    program = target("truth_modes-jump")
    seen: list[markerjit.Event] = []
    with (
        markerjit.attach(program.pid) as session,
        session.subscribe("truth_mode", seen.append, at_most=1, sample="1/1"),
    ):
        program.ask("run 1000")
        wait_until(lambda: seen, "the event has come")
        (marker,) = session.statistics("truth_mode")

    assert (marker.at_most, marker.sample) == (1, "1/1")
    assert (len(seen), marker.held_back) == (1, 999)


def test_number_of_those_held_back_begins_anew(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        for _ in range(2):
            session.on("truth_mode", at_most=1)
            program.ask("run 1000")
            (marker,) = session.statistics("truth_mode")
            session.off("truth_mode")

            assert (marker.hits, marker.held_back) == (1, 999)
        (off,) = session.statistics("truth_mode")

    assert off.held_back == 999


def test_time_of_another_clock_stops_nothing(target: Callable) -> None:
    """As where a machine was put back to an earlier state, or the process wrote over the word."""
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.on("truth_mode", at_most=5)
        arena = session._target.seen.arena
        assert arena
        marker = next(int(entry.id) for entry in arena.markers.entries() if entry.since)
        place = arena.braking.next(marker) - arena.base
        for word in (2**63 - 1, 2**63, 2**64 - 1, 2**62):
            arena.store.write(place, word.to_bytes(8, "little"))
            before = session.statistics("truth_mode")[0].hits
            program.ask("run 10")

            assert session.statistics("truth_mode")[0].hits >= before + 1


@pytest.mark.parametrize(
    ("program", "name"), [("truth_functions", "func:turn"), ("truth_usdt", "truth:turn")]
)
def test_functions_and_usdt_probes_have_rates(target: Callable, program: str, name: str) -> None:
    process = target(program)
    with markerjit.attach(process.pid) as session:
        session.on(name, at_most=2)
        process.ask("run 1000")
        (marker,) = session.statistics(name)
        session.off(name)

    assert marker.hits + marker.held_back == 1000
    assert marker.hits >= 1


# ---- it is said ----------------------------------------------------------------------------------


def test_commands_say_what_was_held_back(target: Callable, tmp_path: Path) -> None:
    program = target("truth_modes-jump")
    pid = program.pid
    done = cli("on", pid, "truth_mode", "--at-most", "1/s", "--where", "i >= 0")
    program.ask("run 1000")
    (listed,) = facts("list", pid, "truth_mode")["markers"]
    status = cli("status", pid).stdout
    cli("off", pid, "truth_mode")

    assert "truth_mode: on (jump, count) at most 1/s where i >= 0" in done.stdout
    assert (listed["at_most"], listed["hits"], listed["held_back"]) == (1, 1, 999)
    assert "at most 1/s where i >= 0: truth_mode" in status
    assert "truth_mode: at most 1/s, 999 events held back" in status


def test_trace_says_what_was_held_back(target: Callable, tmp_path: Path) -> None:
    program = target("truth_keys", "2")
    program.ask("resume")
    path = str(tmp_path / "trace.jsonl")
    done = cli("trace", program.pid, "truth_key", "--at-most", "10/s", "-o", path, "-d", "0.3s")
    lines = cli("trace", program.pid, "truth_key", "--at-most=10", "--json", "-d", "0.3s").stdout
    program.ask("pause")
    summary = json.loads(lines.splitlines()[-1])["summary"]
    (marker,) = json.loads(cli("read", path, "--stats", "--json").stdout)["markers"]

    assert "events held back (--at-most)" in done.stderr
    assert 0 < summary["events"] <= most_in(5, 10)
    assert (summary["lost"], summary["held_back"] > 1000) == (0, True)
    assert (marker["at_most"], marker["sample"]) == (10, None)
    assert "at most 10/s: truth_key" in cli("read", path, "--stats").stdout


# ---- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "rate"), [("on", "0"), ("on", "-5/s"), ("trace", "1.5/s"), ("trace", "20M/s")]
)
def test_wrong_rate_is_one_sentence(target: Callable, command: str, rate: str) -> None:
    done = cli(command, target("truth_modes-jump").pid, "truth_mode", f"--at-most={rate}")

    assert done.returncode == 2
    assert f"'{rate}' is not a rate such as 1000/s or 10k/s, from 1 to 10000000" in done.stderr


def test_process_without_a_clock_has_no_rate(target: Callable) -> None:
    program = target("truth_modes-jump")
    with markerjit.attach(program.pid) as session:
        session.on("truth_mode")
        session.off("truth_mode")
    change_facts(program.pid, "cpu_flags", lambda flags: flags & ~4)
    change_facts(program.pid, "clock", lambda address: 0)
    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.Unsupported, match="no clock that we know"):
            session.on("truth_mode", at_most=5)

        assert session.statistics("truth_mode")[0].mode is None
