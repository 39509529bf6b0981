"""Latencies that are divided by what their begins say, against a program that measures for itself
how long things took, by the path that began them."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import StackEnd, WalkedStack
from markerjit.abi import CPU_RTM
from tests.support.commands import cli, one_line, running
from tests.support.markers import wait_until_on

pytestmark = pytest.mark.live

OPENED, CLOSED = "func:truth_paths:opened", "func:truth_paths:closed"
PATHS = ("read", "write", "both")
TURNS = 50


def check_row(row: markerjit.LatencyRow, truth: dict[str, int], *paths: str) -> None:
    """The number is what the program has counted, and the time between what it measured inside and
    outside."""
    assert row.calls == sum(truth[path] for path in paths)
    assert row.sum_ns >= sum(truth[f"{path}_least"] for path in paths)
    assert row.sum_ns <= sum(truth[f"{path}_most"] for path in paths)
    assert row.longest_ns is not None and row.longest_ns * row.calls >= row.sum_ns


def measured(
    program: Any, begin: str, end: str, **options: Any
) -> tuple[markerjit.Latencies, dict[str, int]]:
    """A latency of some turns, and what the program has measured meanwhile."""
    with markerjit.attach(program.pid) as session:
        with session.latency(begin, end, **options) as latency:
            program.ask(f"run {TURNS}")
        return latency.read(), program.ask("tell")


def functions(stack: Any) -> list[str]:
    assert isinstance(stack, WalkedStack)
    return [frame.function for frame in stack.frames if frame.function]


def test_pairs_are_divided_by_the_caller_of_their_begin(target: Callable) -> None:
    answer, truth = measured(target("truth_paths", "2"), OPENED, CLOSED, per="caller")

    rows = {str(row.names[0]).split("+")[0]: row for row in answer.rows}
    assert set(rows) == {"by_read", "by_write"}
    check_row(rows["by_read"], truth, "read")
    check_row(rows["by_write"], truth, "write", "both")
    assert answer.pairs == 2 * 3 * TURNS and answer.undivided == 0
    assert (answer.alone, answer.waiting, answer.replaced) == (0, 0, 0)


@pytest.mark.parametrize(
    ("begin", "end"), [(OPENED, CLOSED), ("truth_opened", "truth_closed"), (OPENED, "truth_closed")]
)
def test_pairs_are_divided_by_the_stack_of_their_begin(
    target: Callable, begin: str, end: str
) -> None:
    answer, truth = measured(target("truth_paths", "2"), begin, end, per="stack")

    rows = {tuple(functions(row.key[0])[1:3]): row for row in answer.rows}
    assert {row.key[0].end for row in answer.rows} == {StackEnd.OUTERMOST}
    assert len(answer.rows) == 3
    check_row(rows["by_read", "turn"], truth, "read")
    check_row(rows["by_write", "turn"], truth, "write")
    check_row(rows["by_write", "by_both"], truth, "both")


@pytest.mark.parametrize("way", ["RTM", "kernel"])
def test_pairs_are_divided_by_fields_texts_and_memory(target: Callable, way: str) -> None:
    """With memory transactions, and as on a processor that has none."""
    program = target("truth_paths", "2")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_opened")
        session.disable("truth_opened")
        control = session._target.seen.arena.control
        flags = control.now().cpu_flags
        if way == "kernel":
            control.write("cpu_flags", flags & ~CPU_RTM)
        elif not flags & CPU_RTM:
            pytest.skip("this processor has no memory transactions (RTM)")
        with session.latency("truth_opened", "truth_closed", per="path, name[:3]") as latency:
            program.ask(f"run {TURNS}")
        with session.latency(OPENED, CLOSED, per="u32(thing)") as other:
            program.ask(f"run {TURNS}")
    rows = {row.key: row for row in latency.read().rows}
    numbers = {row.key: row.calls for row in other.read().rows}

    assert {key: row.calls for key, row in rows.items()} == {
        (path, name[:3]): 2 * TURNS for path, name in enumerate(PATHS)
    }
    assert numbers == {(path,): 2 * TURNS for path in range(3)}


def test_a_key_that_pairs_and_one_that_divides_are_two(target: Callable) -> None:
    answer, truth = measured(
        target("truth_paths", "4"), "truth_opened", "truth_closed", by="tid, path", per="path"
    )

    for row in answer.rows:
        check_row(row, truth, PATHS[row.key[0]])  # type: ignore[index]
    assert len(answer.rows) == 3


def test_pairs_without_room_for_their_key_are_in_no_row_and_in_the_sum(target: Callable) -> None:
    answer, truth = measured(
        target("truth_paths", "1"), "truth_opened", "truth_closed", per="path", keys=2
    )

    assert sorted(row.calls for row in answer.rows) == [TURNS, TURNS]
    assert (answer.pairs, answer.undivided) == (3 * TURNS, TURNS)
    assert sum(truth[f"{path}_least"] for path in PATHS) <= answer.sum_ns


def test_intervals_of_rows_add_up(target: Callable) -> None:
    program = target("truth_paths", "1")
    with (
        markerjit.attach(program.pid) as session,
        session.latency("truth_opened", "truth_closed", per="path") as latency,
    ):
        program.ask("run 3")
        first = latency.take()
        program.ask("run 4")
        second = latency.take()
        whole = latency.read()

    assert {row.key: row.calls for row in first.rows} == {(path,): 3 for path in range(3)}
    assert {row.key: row.calls for row in second.rows} == {(path,): 4 for path in range(3)}
    assert {row.longest_ns for row in second.rows} == {None}
    sums = {row.key: row.sum_ns for row in whole.rows}
    for row in first.rows:
        later = next(other for other in second.rows if other.key == row.key)
        assert row.sum_ns + later.sum_ns == sums[row.key]


def test_slow_pairs_are_shown_beside_the_rows(target: Callable) -> None:
    program = target("truth_paths", "1")
    with markerjit.attach(program.pid) as session:
        with session.latency("truth_opened", "truth_closed", per="path", slower=0) as latency:
            program.ask("run 2")
        pairs, rows = latency.slow(), latency.read().rows

    assert [pair.begin.fields["path"] for pair in pairs] == [0, 1, 2] * 2
    assert [pair.key for pair in pairs] == [(0,), (1,), (2,)] * 2
    for row in rows:
        times = [pair.took_ns for pair in pairs if pair.begin.fields["path"] == row.key[0]]
        assert row.sum_ns == sum(times) and row.longest_ns == max(times)


def while_it_measures(program: Any, *arguments: object) -> str:
    with running("latency", program.pid, *arguments) as process:
        wait_until_on(program.pid, lambda: "latency from" in cli("status", program.pid).stdout)
        program.ask(f"run {TURNS}")
        process.send_signal(signal.SIGINT)
        printed, _ = process.communicate()
    assert process.returncode == 0
    return printed


def test_the_command_prints_a_table_and_a_document(target: Callable) -> None:
    program = target("truth_paths", "1")

    table = while_it_measures(program, OPENED, CLOSED, "--per", "caller").splitlines()
    document = json.loads(
        while_it_measures(program, "truth_opened", "truth_closed", "--per", "path", "--json")
    )

    assert table[0].split()[:3] == ["CALLER", "PAIRS", "TOTAL"]
    assert table[1].startswith("by_write+0x") and table[1].split()[1] == str(2 * TURNS)
    assert table[2].startswith("by_read+0x") and table[2].split()[1] == str(TURNS)
    assert table[3:] == [f"{3 * TURNS} pairs of 2 keys"]
    assert (document["by"], document["per"], document["undivided"]) == ("tid", "path", 0)
    assert sorted((row["key"], row["pairs"]) for row in document["rows"]) == [
        ([path], TURNS) for path in range(3)
    ]


def test_slow_pairs_of_the_command_name_what_divides_them(target: Callable) -> None:
    program = target("truth_paths", "1")
    divided = (OPENED, CLOSED, "--slower", "0.001us", "--per")

    lines = while_it_measures(program, *divided, "caller").splitlines()
    stacks = while_it_measures(program, *divided, "stack(2)").splitlines()
    printed = while_it_measures(program, *divided, "caller", "--json").splitlines()

    *slow, whole = map(json.loads, printed)
    pairs = [document["slow"] for document in slow]
    rows = {tuple(row["key"]): row for row in whole["rows"]}
    assert sum("  [by_write+0x" in line for line in lines) == 2 * TURNS
    assert "  [opened]  " in stacks[0]
    assert stacks[1].startswith("    opened")
    assert stacks[2].startswith("    by_read+0x")
    assert len(pairs) == 3 * TURNS
    assert all(pair["names"] == rows[tuple(pair["key"])]["names"] for pair in pairs)


def test_the_command_draws_the_times_of_stacks(target: Callable, tmp_path: Path) -> None:
    program = target("truth_paths", "1")
    picture = tmp_path / "times.folded"

    printed = while_it_measures(program, OPENED, CLOSED, "--per", "stack", "--json", "-o", picture)

    sums = {
        tuple(frame["function"] for frame in row["key"][0]["frames"][2::-1]): row["sum_ns"]
        for row in json.loads(printed)["rows"]
    }
    lines = [line.rsplit(" ", 1) for line in picture.read_text().splitlines()]
    assert {tuple(path.split(";")[-3:]): int(weight) for path, weight in lines} == sums
    assert len(sums) == 3


def test_what_does_not_go_together_is_refused(target: Callable, tmp_path: Path) -> None:
    program = target("truth_paths", "1")
    pair = ("latency", program.pid, "truth_opened", "truth_closed")

    one_line(cli("latency", program.pid, OPENED, "--per", "stack"), "write --by 'stack'")
    one_line(cli(*pair, "--keys", "8"), "--keys has room for keys of --per")
    one_line(cli(*pair, "-o", tmp_path / "a.svg"), "-o writes stacks; add --per stack")
    by_stack = cli(*pair, "--by", "stack")
    assert by_stack.returncode == 1
    assert "--per stack (per=) divides the times by the stack of the begin" in by_stack.stderr
    one_line(
        cli(*pair, "--per", "path", "--keys", "900k"),
        "begins and 1048576 keys take .*--room or --keys",
    )
