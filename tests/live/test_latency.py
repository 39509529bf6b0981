"""Latencies: pairs that are made in a process, against a program that counts for itself."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.abi import AGGREGATES
from markerjit.arena.aggregates import Aggregates
from markerjit.ring.types import Time
from markerjit.session.clock import EarlyClock
from tests.support.commands import cli, one_line, running
from tests.support.markers import wait_until_on
from tests.support.processes import text_of
from tests.support.timing import wait_until

pytestmark = pytest.mark.live


def counts_of(program: Any) -> dict[str, int]:
    """What the program counted, while it stands still."""
    counts: dict[str, int] = program.ask("tell")
    return counts


def run_for_a_while(program: Any, enough: Callable[[], bool]) -> None:
    program.ask("resume")
    wait_until(enough, "pairs were made")
    program.ask("pause")


def check_numbers(answer: markerjit.Latencies, truth: dict[str, int]) -> None:
    assert answer.begins == truth["begins"]
    assert answer.ends == truth["ends"]
    assert answer.pairs == truth["pairs"]
    assert answer.replaced == truth["replaced"]
    assert (answer.full, answer.long, answer.unreadable, answer.forgotten) == (0, 0, 0, 0)


@pytest.mark.parametrize(
    ("arguments", "by"),
    [(("1",), "tid"), (("4",), "tid"), (("4", "--timer"), "who"), (("2",), "who % 2, tid")],
)
def test_each_begin_and_each_end_is_in_one_number(
    target: Callable, arguments: tuple[str, ...], by: str
) -> None:
    program = target("truth_pairs", *arguments)
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        with session.latency("truth_begin", "truth_end", by=by) as latency:
            run_for_a_while(program, lambda: latency.read().pairs > 20_000)
            during = latency.read()
        after = latency.read()
    truth = counts_of(program)

    assert after == during
    check_numbers(after, truth)
    assert after.longest_ns is not None and after.longest_ns <= after.sum_ns
    assert text_of(program.pid) == before


def test_begin_and_end_of_two_threads_meet_by_their_key(target: Callable) -> None:
    program = target("truth_pairs", "3", "--handed")
    with (
        markerjit.attach(program.pid) as session,
        session.latency("truth_begin", "truth_end", by="id") as latency,
    ):
        run_for_a_while(program, lambda: latency.read().pairs > 5_000)
    answer, truth = latency.read(), counts_of(program)

    assert (answer.pairs, answer.alone) == (truth["ends"], 0)
    assert answer.begins == truth["begins"]
    assert answer.waiting == truth["begins"] - truth["ends"] <= 3


def test_child_of_a_fork_pairs_nothing(target: Callable) -> None:
    program = target("truth_pairs", "1")
    with (
        markerjit.attach(program.pid) as session,
        session.latency("truth_begin", "truth_end") as latency,
    ):
        run_for_a_while(program, lambda: latency.read().pairs > 1000)
        program.ask("fork 1000")

    check_numbers(latency.read(), counts_of(program))


def test_slow_pairs_are_handed_out_with_both_ends(target: Callable) -> None:
    program = target("truth_pairs", "1")
    with (
        markerjit.attach(program.pid) as session,
        session.latency("truth_begin", "truth_end", by="id", slower=0.3) as latency,
    ):
        program.ask("slow 300")
        first = latency.slow()
        program.ask("slow 1")
        program.ask("slow 300")
    (pair,) = first
    (last,) = latency.slow()

    assert pair.took_ns >= 300_000_000
    assert pair.begin.name == "truth_begin"
    assert pair.begin.fields == {"who": 99, "id": 7, "text": "slow", "half": -1.5}
    assert pair.end.fields == {"who": 99, "id": 7, "status": -3}
    assert pair.begin.tid == pair.end.tid == program.pid
    assert last.time > pair.time + pair.took_ns
    assert latency.read().pairs == 3
    assert latency.slow() == []


def test_slow_pair_that_was_written_over_is_counted(target: Callable) -> None:
    program = target("truth_pairs", "1")
    with (
        markerjit.attach(program.pid) as session,
        session.latency("truth_begin", "truth_end", by="id", slower=0.3) as latency,
    ):
        program.ask("slow 300")
        aggregate = latency._source.aggregate
        row = latency._source._arena.store.read(aggregate.slow, 8 * aggregate.size.slow_words)
        ends = row[:24] + row[32:40] + row[24:32] + row[40:]  # each end in the place of the other
        latency._source._arena.store.write(aggregate.slow, ends)
        assert latency.slow() == []

    assert latency.bad_pairs == 1


def test_memory_that_is_anothers_by_now_is_not_read_and_not_written(target: Callable) -> None:
    program = target("truth_pairs", "1")
    with markerjit.attach(program.pid) as session:
        with session.latency("truth_begin", "truth_end", by="id", slower=0.3) as latency:
            source = latency._source
            aggregates, ours = source._arena.aggregates, source.aggregate
            aggregates.free(ours.ticket)
            aggregates.reclaim(lambda ticket: False)
            other = aggregates.make(ours.size)
            assert other.extent == ours.extent
            aggregates._write(other.ticket, "slow_head", 1)
            for read in (latency.read, latency.take, latency.slow):
                with pytest.raises(markerjit.Refused, match="the aggregate is gone"):
                    read()

        assert aggregates._table.read(other.ticket % AGGREGATES).slow_read == 0
        assert aggregates.find(other.ticket)
        aggregates.free(other.ticket)


@pytest.mark.parametrize("option", ["by", "end_by", "per"])
@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_key_is_refused(target: Callable, option: str, text: str) -> None:
    program = target("truth_pairs", "1")
    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.BadQuestion, match="an expression is empty"),
    ):
        session.latency("truth_begin", "truth_end", **{option: text})  # type: ignore[arg-type]


def test_nobody_waits_for_the_clocks_to_move(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_pairs", "1")
    locked: list[bool] = []

    with markerjit.attach(program.pid) as session:
        monkeypatch.setattr(EarlyClock, "pair", lambda self: None)
        monkeypatch.setattr("markerjit.session.pair_clock.time_to_use", lambda name: Time.TSC)
        monkeypatch.setattr(
            "markerjit.session.pair_clock.sleep",
            lambda seconds: locked.append(session._target.memory.is_locked()),
        )
        with session.latency("truth_begin", "truth_end"):
            pass

    assert locked == [False]


def test_memory_is_given_back_under_the_lock_of_the_target(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_pairs", "1")
    locked: list[bool] = []
    real = Aggregates.free

    with markerjit.attach(program.pid) as session:

        def noted(self: Aggregates, ticket: int) -> None:
            locked.append(session._target.memory.is_locked())
            real(self, ticket)

        monkeypatch.setattr(Aggregates, "free", noted)
        with session.latency("truth_begin", "truth_end"):
            pass

    assert locked == [True]


def test_intervals_add_up_to_all(target: Callable) -> None:
    program = target("truth_pairs", "1")
    with (
        markerjit.attach(program.pid) as session,
        session.latency("truth_begin", "truth_end") as latency,
    ):
        run_for_a_while(program, lambda: latency.read().pairs > 1000)
        first = latency.take()
        run_for_a_while(program, lambda: latency.read().pairs > 2 * first.pairs)
        second = latency.take()

    assert first.pairs + second.pairs == latency.read().pairs
    assert first.sum_ns + second.sum_ns == latency.read().sum_ns
    assert second.longest_ns is None


def test_marker_that_counted_before_counts_again(target: Callable) -> None:
    program = target("truth_pairs", "1")
    with markerjit.attach(program.pid) as session:
        session.enable("truth_end", where="who < 5")
        with session.latency("truth_begin", "truth_end", by="who"):
            during = {each.name: each for each in session.statistics("truth_*")}
        after = {each.name: each for each in session.statistics("truth_*")}

    assert during["truth_begin"].aggregate == "latency from truth_begin to truth_end by who"
    assert {each.held for each in during.values()} == {"aggregate"}
    assert (after["truth_end"].probe, after["truth_end"].where) == ("count", "who < 5")
    assert after["truth_begin"].mode is None


def test_repair_switches_off_what_a_killed_controller_measures(target: Callable) -> None:
    program = target("truth_pairs", "1")
    with running("latency", program.pid, "truth_begin", "truth_end") as controller:
        wait_until_on(program.pid, lambda: cli("status", program.pid).stdout.count("on (") == 2)
        controller.kill()

    assert set(markerjit.repair(program.pid).switched_off) == {"truth_begin", "truth_end"}
    assert not markerjit.repair(program.pid).anything


def test_turn_goes_on_where_what_was_left_cannot_be_switched_off(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from markerjit.session.switch import Switcher

    program = target("truth_pairs", "1")
    with running("latency", program.pid, "truth_begin", "truth_end") as controller:
        wait_until_on(program.pid, lambda: cli("status", program.pid).stdout.count("on (") == 2)
        controller.kill()
    refused = []

    def refuse(self: Switcher, turn: object) -> None:
        refused.append(turn)
        raise markerjit.Refused("a thread waits in the kernel")

    monkeypatch.setattr(Switcher, "free_aggregates", refuse)
    with markerjit.attach(program.pid) as session:
        session.enable("truth_begin")
        (after,) = session.statistics("truth_begin")

    assert after.mode is not None
    assert refused


# ---- the command ---------------------------------------------------------------------------------


def while_it_measures(program: Any, *arguments: object, do: tuple[str, ...]) -> str:
    """The output of a command that is interrupted when the program has done something."""
    with running("latency", program.pid, *arguments, stderr=None) as process:
        try:
            wait_until_on(program.pid, lambda: cli("status", program.pid).stdout.count("on (") == 2)
            for line in do:
                program.ask(line)
        finally:
            process.send_signal(signal.SIGTERM)
        printed, _ = process.communicate()
    assert process.returncode == 0
    assert "added up" not in cli("status", program.pid).stdout
    return printed


def test_command_prints_a_picture_quantiles_and_slow_pairs(target: Callable) -> None:
    program = target("truth_pairs", "1")
    printed = while_it_measures(
        program, "truth_begin", "truth_end", "--slower", "300ms", do=("slow 300", "slow 1")
    )
    lines = printed.splitlines()

    assert re.fullmatch(
        r"\d\d:\d\d:\d\d\.\d{3}  \S+ m?s  truth_begin \d+ who=99 id=7 text=\"slow\" half=-1.5 "
        r"-> truth_end who=99 id=7 status=-3",
        lines[0],
    )
    assert "█" in printed
    assert lines[-1] == "2 pairs"
    assert "99.9 %: " in lines[-2] and "longest: " in lines[-2]
    assert all(len(line) <= 80 for line in lines[1:])


def test_command_prints_documents(target: Callable) -> None:
    program = target("truth_pairs", "1")
    printed = while_it_measures(
        program, "truth_begin", "truth_end", "--by", "id", "--slower", "300ms", "--json",
        do=("slow 300", "slow 1"),
    )  # fmt: skip
    slow, whole = map(json.loads, printed.splitlines())

    assert slow["slow"]["begin"]["fields"]["text"] == "slow"
    assert (whole["pairs"], whole["begins"], whole["ends"]) == (2, 2, 2)
    assert (whole["from"], whole["to"], whole["by"]) == ("truth_begin", "truth_end", "id")
    assert set(whole["unmatched"].values()) == {0}
    assert whole["longest_ns"] >= 300_000_000
    assert sum(bucket["number"] for bucket in whole["buckets_ns"]) == 2


def test_a_function_that_is_little_more_than_a_jump_is_said_not_to_be_timed(tmp_path: Path) -> None:
    source, path = tmp_path / "short.c", tmp_path / "short"
    source.write_text(
        "__attribute__((noipa)) int other(int n, int m) { return 3 * n + m; }\n"
        "__attribute__((noipa, aligned(4096))) int handed(int n) { return other(n, 0); }\n"
        "int main(int argc, char **argv) { (void)argv; return handed(argc) - 3; }\n"
    )
    subprocess.run(["gcc", "-O2", "-fcf-protection=none", "-o", path, source], check=True)

    refused = cli("latency", "func:short:handed", "--", path)

    one_line(refused, "calls of func:handed cannot be timed: its entry and its ends cannot be open")


def test_refusals_say_what_to_do(target: Callable) -> None:
    program = target("truth_pairs", "1")

    one_line(cli("latency", program.pid, "truth_begin", "truth_*"), "leave it out of one end")
    one_line(cli("latency", program.pid, "truth_begin", "truth_nd"), "did you mean truth_end")
    one_line(
        cli("latency", program.pid, "func:mian"), "no function matches 'func:mian'; .*func:main"
    )
    one_line(cli("latency", program.pid, "truth_begin", "truth_end", "--room", "10M"), "--room")
    one_line(cli("latency", program.pid, "truth_begin"), "func:malloc, since no end is named")
    for command in (("latency", program.pid), ("count", program.pid)):
        refused = cli(*command)
        assert refused.returncode == 2
        assert f"`markerjit list {program.pid}` shows the markers" in refused.stderr
