"""A sample of the events, chosen in the process: as many as were asked for, whatever the rhythm of
the program, and it is said that it is a sample."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import markerjit
from tests.support.commands import cli, facts, one_line
from tests.support.keys import forbid_sequences, run_for_a_while, truth_of
from tests.support.processes import text_of

pytestmark = pytest.mark.live

TURNS = 200_000
SIGMAS = 7
"""That far from the expected number a true sample is once in 10 ** 11 times."""


def is_sample(hits: int, events: int, part: float) -> bool:
    """Whether so many hits may be a part of so many events, chosen at random."""
    spread = (events * part * (1 - part)) ** 0.5
    return abs(hits - events * part) <= SIGMAS * spread


def numbers_of(stream: markerjit.EventStream) -> list[int]:
    return [event.fields["i"] for event in stream.drain()]  # type: ignore[misc]


@pytest.fixture(params=["restartable", "atomic"])
def program(request: pytest.FixtureRequest, target: Callable) -> Any:
    """A program whose threads have restartable sequences, or none that we know of."""
    process = target("truth_modes-jump")
    if request.param == "atomic":
        with markerjit.attach(process.pid) as session:
            session.on("truth_mode")
            session.off("truth_mode")
        forbid_sequences(process.pid)
    return process


@pytest.mark.parametrize(("sample", "part"), [("1/100", 0.01), ("1/3", 1 / 3), ("9/10", 0.9)])
def test_that_part_is_counted(program: Any, sample: str, part: float) -> None:
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.on("truth_mode", sample=sample)
        answer = program.ask(f"run {TURNS}")
        (marker,) = session.statistics("truth_mode")
        session.off("truth_mode")

    assert answer["evaluated"] == TURNS
    assert (marker.sample, marker.where, marker.probe) == (sample, None, "count")
    assert is_sample(marker.hits, TURNS, part)
    assert marker.lost == 0
    assert text_of(program.pid) == before


def test_all_of_them_are_a_sample_too(program: Any) -> None:
    with markerjit.attach(program.pid) as session:
        session.on("truth_mode", sample="5/5")
        program.ask("run 1000")

        assert session.statistics("truth_mode")[0].hits == 1000


def test_condition_comes_before_the_sample(program: Any) -> None:
    """A part of those that meet it, and not those of a part that meet it."""
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_mode", where="i % 4 == 1", sample="1/2") as stream,
    ):
        program.ask(f"run {TURNS}")
        numbers = numbers_of(stream)

    assert {number % 4 for number in numbers} == {1}
    assert is_sample(len(numbers), TURNS // 4, 1 / 2)


@pytest.mark.product
@pytest.mark.parametrize("period", [2, 10, 64, 100])
def test_rhythm_of_the_program_is_not_that_of_the_sample(program: Any, period: int) -> None:
    """Every phase of a period is chosen as often: by chi-square, whose spread is known."""
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_mode", sample="1/10") as stream,
    ):
        program.ask(f"run {TURNS}")
        numbers = numbers_of(stream)
    phases = Counter(number % period for number in numbers)
    expected = len(numbers) / period
    chi_square = sum((phases[phase] - expected) ** 2 / expected for phase in range(period))

    assert len(phases) == period
    assert chi_square < period - 1 + SIGMAS * (2 * period) ** 0.5 + 2 * SIGMAS


def test_distances_between_events_are_those_of_chance(program: Any) -> None:
    """Not of a counter: the next event is taken as often as any other."""
    with (
        markerjit.attach(program.pid) as session,
        session.trace("truth_mode", sample="1/4") as stream,
    ):
        program.ask(f"run {TURNS}")
        numbers = numbers_of(stream)
    gaps = Counter(after - before for before, after in pairwise(numbers))

    for gap in range(1, 9):
        assert is_sample(gaps[gap], len(numbers) - 1, 1 / 4 * (3 / 4) ** (gap - 1))


@pytest.mark.parametrize("sequences", [True, False], ids=["restartable", "atomic"])
def test_threads_and_signals_have_their_part(
    target: Callable, tmp_path: Path, sequences: bool
) -> None:
    """More threads than CPUs, a handler that interrupts the code, and children that count for
    nothing."""
    program = target("truth_keys", "4", "--timer", "--keys", "4")
    with markerjit.attach(program.pid) as session:
        session.on("truth_key")
        session.off("truth_key")
    if not sequences:
        forbid_sequences(program.pid)
    before = sum(key.count for key in truth_of(program, tmp_path).values())
    with markerjit.attach(program.pid) as session:
        session.on("truth_key", sample="1/10")
        run_for_a_while(program, 0.3)
        program.ask("fork 1000")
        (marker,) = session.statistics("truth_key")
        hits = marker.hits
        session.off("truth_key")
    executions = sum(key.count for key in truth_of(program, tmp_path).values()) - before

    assert executions > 1000
    assert is_sample(hits, executions, 1 / 10)


def test_aggregate_after_a_sample_is_not_disturbed(target: Callable, tmp_path: Path) -> None:
    """Both use words of the same table, for different entries."""
    program = target("truth_keys", "2", "--keys", "10")
    with markerjit.attach(program.pid) as session:
        session.on("truth_key", sample="1/2")
        with session.aggregate("truth_plain", "count()", by="number") as adding:
            run_for_a_while(program)
        session.off("truth_key")
    truth = truth_of(program, tmp_path)

    assert {row.key[0]: row.events for row in adding.read().rows} == {
        key: seen.count for key, seen in truth.items()
    }


@pytest.mark.parametrize(
    ("program", "name"), [("truth_functions", "func:turn"), ("truth_usdt", "truth:turn")]
)
def test_functions_and_usdt_probes_have_samples(target: Callable, program: str, name: str) -> None:
    process = target(program)
    with markerjit.attach(process.pid) as session:
        session.on(name, sample="1/5", where="arg0 % 2 == 0")
        process.ask("run 10000")
        (marker,) = session.statistics(name)
        session.off(name)

    assert (marker.sample, marker.where) == ("1/5", "arg0 % 2 == 0")
    assert is_sample(marker.hits, 5000, 1 / 5)


# ---- it is said ----------------------------------------------------------------------------------


def test_another_controller_sees_the_sample(program: Any) -> None:
    pid = str(program.pid)
    done = cli("on", pid, "truth_mode", "--sample", "1/20", "--where", "i > 5")
    (listed,) = facts("list", pid, "truth_mode")["markers"]
    status = cli("status", pid).stdout

    assert "truth_mode: on (jump, count) sample 1/20 where i > 5" in done.stdout
    assert (listed["sample"], listed["where"]) == ("1/20", "i > 5")
    assert "sample 1/20 where i > 5: truth_mode" in status

    assert "sample 1/20 where i > 5" in cli("explain", pid, "truth_mode").stdout


@pytest.mark.parametrize("suffix", ["ctf", "ctf2", "jsonl", "parquet", "arrow", "pftrace", "json"])
def test_trace_says_that_it_is_a_sample(target: Callable, tmp_path: Path, suffix: str) -> None:
    program = target("truth_modes-jump")
    path = str(tmp_path / f"trace.{suffix}")
    with markerjit.attach(program.pid) as session:
        from markerjit.session.to_file import write_events  # the public way waits for an end

        with session.trace("truth_mode", sample="1/100", duration=0.2) as stream:
            program.ask("run 5000")
            write_events(session._target, stream, path, exact=False, force=False)
    trace = markerjit.open_trace(path)
    shown = cli("read", path, "--stats").stdout
    (marker,) = json.loads(cli("read", path, "--stats", "--json").stdout)["markers"]

    assert [str(kind.brakes.sample) for kind in trace.info.types] == ["1/100"]
    assert "sampled 1/100: truth_mode; the numbers are of what was recorded" in shown
    assert marker["sample"] == "1/100"


def test_marker_that_was_sampled_counts_so_again_after_a_trace(program: Any) -> None:
    with markerjit.attach(program.pid) as session:
        session.on("truth_mode", sample="1/10")
        with session.trace("truth_mode", sample="1/2") as stream:
            program.ask("run 1000")
        traced = len(list(stream.drain()))
        program.ask(f"run {TURNS}")
        (marker,) = session.statistics("truth_mode")
        session.off("truth_mode")

    assert is_sample(traced, 1000, 1 / 2)
    assert marker.sample == "1/10"
    assert is_sample(marker.hits - traced, TURNS, 1 / 10)


# ---- refused -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "part"),
    [("on", "0/100"), ("on", "3/2"), ("trace", "1/0"), ("trace", "-5/s"), ("flight", "1%")],
)
def test_wrong_part_is_one_sentence(target: Callable, command: str, part: str) -> None:
    pid = target("truth_modes-jump").pid
    words = ("flight", "start") if command == "flight" else (command,)
    done = cli(*words, pid, "truth_mode", f"--sample={part}")

    assert done.returncode == 2
    assert f"'{part}' is not a share such as 1/100, above 0 and at most 1" in done.stderr


def test_probe_in_c_and_aggregates_have_no_sample(target: Callable) -> None:
    program = target("truth_modes-jump")
    pid = str(program.pid)
    in_c = cli("on", pid, "truth_mode", "--sample", "1/2", "--probe", "x.c:f")
    counted = cli("count", pid, "truth_mode", "--sample", "1/2")

    one_line(in_c, "a probe in C chooses what it emits; leave out --sample")
    assert counted.returncode == 2
    assert "--sample" in counted.stderr
    with markerjit.attach(program.pid) as session:
        for value in ("3/2", 0.5, ("1", "2")):
            with pytest.raises(markerjit.BadArgument):
                session.on("truth_mode", sample=value)  # type: ignore[arg-type]
        assert session.statistics("truth_mode")[0].mode is None
