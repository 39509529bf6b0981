"""The arguments of a function's entry, and how long it took, in the events of its exits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit.patch.request import Request
from markerjit.session import carrying
from markerjit.session.switch import Switcher
from markerjit.session.turn import Turn
from tests.support import answering
from tests.support.code_bytes import code_of
from tests.support.commands import cli, facts, running
from tests.support.compilers import Compiler
from tests.support.processes import resident_kb, text_of
from tests.support.programs import Target
from tests.support.timing import Limited, wait_until
from tests.support.usdt import debian

pytestmark = pytest.mark.live

RETURNS, STACKS = "truth_returns", "truth_stacks"
TURNS = 60


def name_of(program: str, function: str) -> str:
    return f"func:{program}:{function}:return"


def returned(program: Target, function: str, turns: int = TURNS) -> tuple[list[dict], int]:
    """The fields of the events of some turns, and how many returns gave none."""
    name = name_of(program.path.name, function)
    with markerjit.attach(program.pid) as session:
        with session.trace(name) as stream:
            program.ask(f"run {turns}")
            events = [dict(event.fields) for event in stream.drain()]
        return events, stream.unmatched


def argument(event: dict, number: int = 0) -> int:
    """An argument of the entry, which has the name of the source where that can be read."""
    names = ("n", "d") if "n" in event else ("arg0", "arg1")
    return int(event[names[number]])


def values(events: Sequence[dict]) -> list[tuple[int, int]]:
    """The first argument, and what was returned for it."""
    return [(argument(event), event["ret"]) for event in events]


# ---- the right arguments -------------------------------------------------------------------------


def test_a_return_has_the_arguments_of_its_own_entry(target: Callable) -> None:
    program = target(RETURNS)

    events, unmatched = returned(program, "rare")

    assert values(events) == [(n, n - n % 2) for n in range(TURNS)]
    assert all(0 <= event["dur"] < 10**9 for event in events)
    assert unmatched == 0


def test_each_level_of_a_recursion_has_its_own_arguments_and_time(
    target: Callable,
) -> None:
    program = target(RETURNS)

    events, _ = returned(program, "deep")

    expected = [n for turn in range(TURNS) for n in range(turn % 7 + 1)]
    assert values(events) == [(n, n * (n + 1) // 2) for n in expected]
    assert all(
        outer["dur"] >= inner["dur"]
        for inner, outer in pairwise(events) if argument(outer)
    )  # fmt: skip


def test_what_longjmp_left_behind_is_nobodys(target: Callable) -> None:
    program = target(RETURNS)

    events, unmatched = returned(program, "thrown")

    assert values(events) == [(n, n) for n in range(0, TURNS, 2)]
    assert unmatched == 0


def test_a_tail_call_has_the_arguments_and_the_time_up_to_the_jump(
    target: Callable,
) -> None:
    program = target(RETURNS)

    events, _ = returned(program, "perhaps")

    left = [("tail" in event, event["arg0"]) for event in events]
    assert left == [(n % 2 == 0, n % 2) for n in range(TURNS)]
    assert all(event["dur"] >= 0 for event in events)


def test_contexts_that_take_turns_have_their_own_arguments(target: Callable) -> None:
    program = target(STACKS)

    events, unmatched = returned(program, "held")

    assert len(events) == 4 * TURNS
    assert all(ret == n * 11 for n, ret in values(events))
    assert unmatched == 0


def test_a_handler_on_a_stack_of_its_own_has_its_own_arguments(
    target: Callable,
) -> None:
    program = target(STACKS)

    events, unmatched = returned(program, "nested")

    assert all(ret == n * 13 for n, ret in values(events))
    inner = [n for n, _ in values(events) if n >= 1000]
    outer = [n for n, _ in values(events) if n < 1000]
    assert inner == [n + 1000 for n in range(TURNS) if (n + 1000) % 3]
    assert outer == [n for n in range(TURNS) if (n + 1000) % 3]
    assert unmatched == 0


def test_threads_at_all_depths_have_their_own_arguments(target: Callable) -> None:
    program = target(STACKS)

    events, unmatched = returned(program, "waited")

    assert sorted(values(events)) == [(n, n * 17) for n in range(6 * TURNS)]
    assert unmatched == 0


def test_a_function_in_which_vfork_makes_a_child_has_its_arguments(
    target: Callable,
) -> None:
    program = target(STACKS)

    events, unmatched = returned(program, "replied", 10)

    assert values(events) == [(n, n * 19) for n in range(10)]
    assert unmatched == 0


def test_variadic_functions_and_hidden_pointers_are_as_their_registers_are(
    target: Callable,
) -> None:
    program = target(STACKS)

    added, _ = returned(program, "summed", 5)
    tripled, _ = returned(program, "tripled", 5)

    assert [argument(event) for event in added] == [3] * 5
    assert [event["ret"] for event in added] == [3 * n + 3 for n in range(5)]
    # Memory for the structure comes before the argument, and is returned.
    if "n" in tripled[0]:
        assert [event["n"] for event in tripled] == list(range(5, 10))
    else:
        assert all(event["rax"] == event["arg0"] for event in tripled)


def test_arguments_behind_floats_are_kept_as_their_types_say(target: Callable) -> None:
    pytest.importorskip("drgn", reason="drgn is not installed: pip install 'markerjit[debug]'")
    program = target(STACKS)

    events, _ = returned(program, "halved", 5)

    assert [(event["d"], event["n"], event["ret"]) for event in events] == [
        (float(n), n, n // 2) for n in range(5)
    ]


def test_a_jump_to_its_own_start_is_a_call_with_the_new_arguments(
    target: Callable,
) -> None:
    program = target(STACKS)

    events, _ = returned(program, "again", 5)

    assert values(events) == [(0, 0)] * 5


def test_threads_at_full_speed_never_get_the_arguments_of_another_call(
    target: Callable,
) -> None:
    program = target(RETURNS)
    before = code_of(program)

    with (
        markerjit.attach(program.pid) as session,
        session.trace(name_of(RETURNS, "spun"), limit=5000) as stream,
    ):
        program.command("resume")
        events = [dict(event.fields) for event in stream]
        program.command("pause")

    assert len(events) == 5000
    assert [each for each in values(events) if each[1] != each[0] * 3] == []
    assert code_of(program) == before


# ---- calls that are under way --------------------------------------------------------------------


def test_a_call_that_had_begun_before_gives_no_event_and_is_counted(
    target: Callable,
) -> None:
    program = target(RETURNS)
    name = name_of(RETURNS, "slow")
    program.ask("enter 7")

    with markerjit.attach(program.pid) as session, session.trace(name) as stream:
        program.ask("release")
        (during,) = [marker for marker in session.status(name) if "ret" in marker.format]
        program.ask("enter 8")
        program.ask("release")
        events = [dict(event.fields) for event in stream.drain()]

    assert values(events) == [(8, 40)]
    assert events[0]["dur"] >= 20_000_000  # `enter` waits that long
    assert (during.unmatched, stream.unmatched) == (1, 1)


def test_a_plan_looks_once_at_the_entries_that_it_needs(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target(RETURNS)
    name = name_of(RETURNS, "slow")
    real = carrying._carried
    looks: list[object] = []

    def noted(*arguments: Any) -> Any:
        looks.append(arguments)
        return real(*arguments)

    with markerjit.attach(program.pid) as session:
        session.on(name)
        session.off(name)
        monkeypatch.setattr(carrying, "_carried", noted)
        session.plan(name, probe="record")

    assert len(looks) == 1


@pytest.mark.parametrize("how", ["trace", "aggregate"])
def test_an_end_that_is_tried_again_counts_such_calls_once_and_nobody_has_taken_them(
    target: Callable, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    program = target(RETURNS)
    names = [name_of(RETURNS, "slow"), name_of(RETURNS, "rare")]
    real = Switcher.switch
    refused: list[Request] = []

    def refuse_once(self: Switcher, turn: Turn, sites: Any, request: Request, **more: Any) -> Any:
        if not request.on and not refused:
            refused.append(request)
            raise markerjit.Refused("a thread waits in the kernel", try_again=True)
        return real(self, turn, sites, request, **more)

    with markerjit.attach(program.pid) as session:
        session.on(names[1])  # counts, and does so again afterwards
        program.ask("enter 7")
        name = ",".join(names)
        made = session.trace(name) if how == "trace" else session.aggregate(name, by="dur")
        with made as stream:
            program.ask("release")
            monkeypatch.setattr(Switcher, "switch", refuse_once)
        modes = {each.name.split(":")[-2]: each.mode for each in session.status(name)}
    taken = stream.statistics().taken if how == "trace" else stream.taken

    assert refused
    assert stream.unmatched == 1
    assert taken == ()
    assert modes["slow"] is None and modes["rare"] is not None


def test_a_latency_says_how_many_returns_it_could_not_look_at(target: Callable) -> None:
    program = target(RETURNS)
    begin, end = f"func:{RETURNS}:rare", name_of(RETURNS, "slow")
    program.ask("enter 7")

    with markerjit.attach(program.pid) as session:
        with session.latency(begin, end, by="tid > 0", end_by="dur >= 0") as latency:
            program.ask("release")
            during = latency.unmatched
        answer = latency.read()

    assert (during, latency.unmatched) == (0, 1)
    assert (answer.pairs, answer.alone) == (0, 0)


def is_added_up(program: Target, *names: str) -> bool:
    with markerjit.View(program.pid) as view:
        return all(any(each.aggregate for each in view.status(name)) for name in names)


def test_the_command_latency_says_so_too(target: Callable) -> None:
    program = target(RETURNS)
    begin, end = f"func:{RETURNS}:rare", name_of(RETURNS, "slow")
    words = [begin, end, "--by", "tid > 0", "--end-by", "dur >= 0"]
    for more in ((), ("--json",)):
        program.ask("enter 7")
        with running("latency", program.pid, *words, *more, stderr=None) as process:
            try:
                wait_until(
                    lambda: process.poll() is not None or is_added_up(program, begin, end),
                    "both are on",
                )
                program.ask("release")
            finally:
                process.send_signal(signal.SIGTERM)
            printed = process.communicate()[0].splitlines()
        if more:
            assert json.loads(printed[-1])["unmatched"]["unseen"] == 1
        else:
            assert printed[-1] == "1 return gave no event: its entry was not seen"


def test_what_was_kept_before_off_and_on_is_not_taken(target: Callable) -> None:
    program = target(RETURNS)
    name = name_of(RETURNS, "slow")

    with markerjit.attach(program.pid) as session:
        with session.trace(name) as first:
            program.ask("enter 7")
        with session.trace(name) as second:
            program.ask("release")
            events = list(second.drain())

    assert first.unmatched == 0
    assert events == []
    assert second.unmatched == 1


def test_a_number_of_tokens_that_the_program_wrote_over_ours_does_no_harm(
    target: Callable,
) -> None:
    program = target(RETURNS)
    name = name_of(RETURNS, "rare")
    with markerjit.attach(program.pid) as session:
        with session.trace(name):
            pass
        arena = session._target.seen.arena
        assert arena is not None
        arena.control.write("stash_tokens", (1 << 64) - 1)
        with session.trace(name) as stream:
            program.ask("run 10")
            events = list(stream.drain())

    assert len(events) == 10


def test_a_return_that_is_selected_alone_needs_no_entry(target: Callable) -> None:
    program = target(RETURNS)
    name = name_of(RETURNS, "slow")
    program.ask("enter 7")

    with (
        markerjit.attach(program.pid) as session,
        session.trace(name, fields=["ret"]) as stream,
    ):
        program.ask("release")
        events = [dict(event.fields) for event in stream.drain()]

    assert events == [{"ret": 35}]
    assert stream.unmatched == 0


# ---- entries that are open for exits -------------------------------------------------------------


def states_of(session: markerjit.Session, function: str) -> tuple[bool, bool, bool]:
    """Whether the entry is on; whether its code is open; and whether its exits are on."""
    (entry,) = session.states(session.sites(f"func:{function}"))
    exits = session.states(session.sites(f"func:{function}:return"))
    return (
        entry.mode is not None,
        entry.code_mode is not None,
        all(leaving.mode for leaving in exits),
    )


def test_an_entry_is_open_as_long_as_its_exits_need_it_or_it_is_on_itself(
    target: Callable,
) -> None:
    program = target(RETURNS)
    before = code_of(program)
    name = name_of(RETURNS, "rare")

    with markerjit.attach(program.pid) as session:
        session.on(name)
        counting = states_of(session, "rare")
        session.off(name)
        with session.trace(name) as stream:
            tracing = states_of(session, "rare")
            session.on("func:rare")
            both = states_of(session, "rare")
            program.ask("run 3")
            session.off("func:rare")
            still = states_of(session, "rare")
            program.ask("run 3")
            events = [dict(event.fields) for event in stream.drain()]
        (entry,) = session.status("func:rare")
        after = states_of(session, "rare")

    assert counting == (False, False, True)
    assert tracing == (False, True, True)
    assert both == (True, True, True)
    assert still == (False, True, True)
    assert after == (False, False, False)
    assert [event["arg0"] for event in events] == list(range(6))
    assert entry.hits == 3
    assert code_of(program) == before


def test_an_entry_that_is_on_stays_on_when_its_exits_need_it_no_more(
    target: Callable,
) -> None:
    program = target(RETURNS)
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        session.on("func:rare")
        for _ in range(3):
            with session.trace(name_of(RETURNS, "rare")):
                program.ask("run 2")
        program.ask("run 1")
        (entry,) = session.status("func:rare")
        session.off("func:rare")
        off = states_of(session, "rare")

    assert entry.hits == 7
    assert off == (False, False, False)
    assert code_of(program) == before


def test_entries_and_exits_by_breakpoints_are_opened_and_closed_alike(
    target: Callable,
) -> None:
    program = target(RETURNS)
    before = code_of(program)
    name = name_of(RETURNS, "rare")

    with markerjit.attach(program.pid) as session:
        for _ in range(2):
            with session.trace(name, mode="int3") as stream:
                tracing = states_of(session, "rare")
                first = program.ask("counts")["turns"]
                program.ask("run 20")
                events = [dict(event.fields) for event in stream.drain()]
            assert values(events) == [(n, n - n % 2) for n in range(first, first + 20)]
            assert tracing == (False, True, True)
            assert code_of(program) == before


def test_markers_that_only_counted_count_again_without_their_entries(
    target: Callable,
) -> None:
    program = target(RETURNS)
    name = name_of(RETURNS, "rare")

    with markerjit.attach(program.pid) as session:
        session.on(name)
        with session.trace(name):
            program.ask("run 2")
            tracing = states_of(session, "rare")
        program.ask("run 3")
        counting = states_of(session, "rare")
        (leaving,) = session.status(name)
        session.off(name)

    assert (tracing, counting) == ((False, True, True), (False, False, True))
    assert leaving.hits == 5


# ---- questions -----------------------------------------------------------------------------------


def test_questions_and_statistics_are_about_the_time_and_the_arguments(
    target: Callable,
) -> None:
    program = target(RETURNS)
    program.ask("run 1")

    name, where = name_of(RETURNS, "rare"), "arg0 % 5 == 0 and dur < 1e9"
    with (
        markerjit.attach(program.pid) as session,
        session.trace(name, where=where) as stream,
    ):
        program.ask("run 20")
        chosen = [event.fields["arg0"] for event in stream.drain()]

    assert chosen == [5, 10, 15, 20]


def test_slow_pairs_that_end_at_a_return_have_its_time_and_arguments(target: Callable) -> None:
    program = target(RETURNS)
    entry = f"func:{RETURNS}:rare"

    with (
        markerjit.attach(program.pid) as session,
        session.latency(entry, f"{entry}:return", by="tid", slower=1e-9) as latency,
    ):
        program.ask("run 20")
        ends = [pair.end.fields for pair in latency.slow()]

    assert [argument(end) for end in ends] == list(range(20))
    assert all(end["dur"] > 0 for end in ends)


LOCKED = r"""
#include <sys/mman.h>
#include <unistd.h>

__attribute__((noinline)) char passed(char c) {
    __asm__ volatile("" : "+r"(c));
    return c;
}

int main(void) {
    if (mlockall(MCL_CURRENT | MCL_FUTURE) || write(1, "r", 1) < 0)
        return 1;
    for (char c; read(0, &c, 1) == 1;) {
        const char back = passed(c);
        if (write(1, &back, 1) < 0)
            return 2;
    }
}
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may lock so much memory")
def test_a_process_that_locks_its_memory_gets_no_page_of_an_arena_too_early(tmp_path: Path) -> None:
    source, path = tmp_path / "locked.c", tmp_path / "locked"
    source.write_text(LOCKED)
    made = Compiler("gcc").run("-O2", source, "-o", path)
    assert made.returncode == 0, made.stderr

    with (
        answering.started(path) as program,
        markerjit.attach(program.pid, breakpoints=True) as session,
    ):
        before = resident_kb(program.pid)
        session.enable("func:locked:passed")
        with session.trace("func:locked:passed:return") as stream:
            assert program.answers()
            (event,) = stream.drain()
        grown_kb = resident_kb(program.pid) - before

    assert (event.fields["arg0"], event.fields["ret"]) == (ord("?"), ord("?"))
    assert grown_kb < 64 << 10


def test_a_child_of_a_fork_has_no_stash_and_runs_as_ever(target: Callable) -> None:
    program = target(RETURNS)

    with (
        markerjit.attach(program.pid) as session,
        session.trace(name_of(RETURNS, "passed")) as stream,
    ):
        program.ask("fork 100")  # which checks what the child got
        events = list(stream.drain())

    assert events == []


# ---- other programs ------------------------------------------------------------------------------

THROWING = r"""
#include <cstdio>
#include <stdexcept>

extern "C" __attribute__((noinline)) long inner(long n) {
    if (n % 3 == 0)
        throw std::runtime_error("thrown");
    return n * 7;
}

extern "C" __attribute__((noinline)) long outer(long n) {
    long value = inner(n);
    asm volatile("" : "+r"(value));
    return value + 1;
}

int main() {
    char line[8];
    std::puts("ready");
    std::fflush(stdout);
    while (std::fgets(line, sizeof line, stdin)) {
        unsigned long caught = 0;
        for (long n = 0; n < 900; n++) {
            try {
                if (outer(n) != n * 7 + 1)
                    return 1;
            } catch (const std::runtime_error &) {
                caught++;
            }
        }
        std::printf("caught %lu\n", caught);
        std::fflush(stdout);
    }
}
"""


def test_exceptions_leave_arguments_that_nobody_gets(tmp_path: Path) -> None:
    source, path = tmp_path / "throwing.cc", tmp_path / "throwing"
    source.write_text(THROWING)
    made = Compiler("g++").run("-O2", source, "-o", path)
    assert made.returncode == 0, made.stderr
    with Limited([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout
        assert program.stdout.readline() == "ready\n"
        names = "func:throwing:inner:return,func:throwing:outer:return"
        attached = markerjit.attach(program.pid, breakpoints=True)
        with attached as session, session.trace(names) as stream:
            print("go", file=program.stdin, flush=True)
            answer = program.stdout.readline()
            events = list(stream.drain())
        program.stdin.close()
        assert program.wait() == 0

    assert answer == "caught 300\n"
    expected = {(name, n) for n in range(900) if n % 3 for name in ("inner", "outer")}
    got = {(e.name.split(":")[1], e.fields["arg0"]) for e in events}
    assert got == expected
    assert len(events) == len(expected)
    assert all(e.fields["ret"] == e.fields["arg0"] * 7 + ("outer" in e.name) for e in events)
    assert stream.unmatched == 0


def test_functions_of_sqlite_have_their_arguments_at_every_return_and_answer_as_before() -> None:
    python = "/usr/bin/python3.11"
    debian(python)
    script = """
import sqlite3, sys
for line in sys.stdin:
    base = sqlite3.connect(":memory:")
    base.execute("create table t (k integer primary key, v text)")
    base.executemany("insert into t values (?, ?)", ((k, str(k) * 3) for k in range(300)))
    rows = base.execute("select sum(k), count(distinct v), max(v) from t where k % 3").fetchall()
    print(rows, flush=True)
"""
    with Limited(
        [python, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin and program.stdout

        def turn() -> str:
            print("go", file=program.stdin, flush=True)
            return program.stdout.readline()

        expected = turn()
        with markerjit.attach(program.pid, ring_size=1 << 23) as session:
            before = text_of(program.pid)
            session.on("func:libsqlite3*:sqlite3_*")
            with session.trace("func:libsqlite3*:sqlite3_*:return") as stream:
                answers = [turn() for _ in range(2)]
                events = list(stream.drain())
            hits = {each.name: each.hits for each in session.status("func:libsqlite3*:sqlite3_*")}
            session.off("func:*")
            after = text_of(program.pid)
        program.stdin.close()
        assert program.wait() == 0

    assert answers == [expected] * 2
    assert after == before
    steps = [e.fields for e in events if e.name == "func:sqlite3_step:return"]
    assert len(steps) == hits["func:sqlite3_step"] >= 600
    assert all(fields["arg0"] for fields in steps)
    assert stream.unmatched == 0


# ---- what commands say ---------------------------------------------------------------------------


def test_commands_say_which_returns_gave_no_event(target: Callable) -> None:
    program = target(RETURNS)
    name = name_of(RETURNS, "slow")
    program.ask("enter 7")
    with markerjit.attach(program.pid) as session, session.trace(name):
        program.ask("release")
    shown = cli("status", program.pid, "func:slow:return")
    document = facts("status", program.pid, "func:slow:return")

    assert "func:slow:return: 1 return gave no event: its entry was not seen" in shown.stdout
    assert [marker["unmatched"] for marker in document["markers"]] == [1]


# ---- latencies of calls --------------------------------------------------------------------------


def test_the_latency_of_a_function_has_each_of_its_calls(target: Callable) -> None:
    program = target(RETURNS)
    before = text_of(program.pid)

    with markerjit.attach(program.pid) as session:
        with session.latency(f"func:{RETURNS}:deep", by="tid", slower=1e-10) as latency:
            program.ask("run 10")
            pairs = latency.slow()
        answer = latency.read()

    calls = sum(n % 7 + 1 for n in range(10))  # it calls itself
    (row,) = answer.rows
    assert (answer.pairs, row.calls, row.key) == (calls, calls, (program.pid,))
    assert answer.longest_ns is not None and 0 < answer.longest_ns <= answer.sum_ns == row.sum_ns
    given = [argument(pair.begin.fields) for pair in pairs]
    assert given == [m for n in range(10) for m in range(n % 7 + 1)]
    assert [pair.end.fields["ret"] for pair in pairs] == [n * (n + 1) // 2 for n in given]
    assert {pair.begin.name for pair in pairs} == {"func:deep"}
    assert {pair.key for pair in pairs} == {(program.pid,)}
    assert text_of(program.pid) == before


def test_functions_that_end_by_a_jump_are_named_beside_their_times(target: Callable) -> None:
    program = target(RETURNS)
    tailed, deep = (f"func:{RETURNS}:{name}" for name in ("tailed", "deep"))

    with markerjit.attach(program.pid) as session:
        with session.latency(tailed) as latency:
            program.ask("run 3")
        with session.latency(deep) as other:
            pass
    shown = cli("latency", program.pid, f"{tailed},{deep}", "-d", "0.1s")
    document = facts("latency", program.pid, tailed, "-d", "0.1s")

    sentence = "calls of func:tailed that end by a jump to another function are timed up to it"
    assert (latency.tail_jumps, other.tail_jumps) == (("func:tailed",), ())
    assert latency.read().pairs == 3
    assert shown.stdout.splitlines()[-1] == sentence
    assert document["tail_jumps"] == ["func:tailed"]
    assert sentence not in cli("latency", program.pid, deep, "-d", "0.1s").stdout


def test_the_time_of_a_call_is_that_from_its_entry_to_its_return(target: Callable) -> None:
    program = target(RETURNS)

    with markerjit.attach(program.pid) as session:
        with session.latency(f"func:{RETURNS}:slow", slower=1e-9) as latency:
            begun = time.monotonic_ns()
            program.ask("enter 7")
            entered = time.monotonic_ns()
            time.sleep(0.03)
            leaving = time.monotonic_ns()
            program.ask("release")
            wait_until(lambda: latency.read().pairs == 1, "it has returned")
            ended = time.monotonic_ns()
        (pair,) = latency.slow()
    answer = latency.read()

    assert leaving - entered <= pair.took_ns <= ended - begun
    assert begun <= pair.time <= entered
    assert answer.longest_ns == answer.sum_ns == pair.took_ns
    assert (argument(pair.begin.fields), pair.end.fields["ret"]) == (7, 35)


def test_a_glob_of_functions_is_a_table_by_name(target: Callable) -> None:
    program = target(RETURNS)

    with markerjit.attach(program.pid) as session:
        with session.latency(f"func:{RETURNS}:[dpr]*,!func:handled") as latency:
            program.ask("run 20")
        rows = {row.key[0]: row.calls for row in latency.read().rows}

    assert rows["func:rare"] == rows["func:popped"] == rows["func:perhaps"] == 20
    assert rows["func:deep"] == sum(n % 7 + 1 for n in range(20))


def run_latency(program: Target, *words: str) -> list[str]:
    """What the command prints, of 20 turns."""
    name = name_of(RETURNS, "rare")
    with running("latency", program.pid, *words, stderr=None) as process:
        try:
            wait_until(lambda: process.poll() is not None or is_added_up(program, name), "it is on")
            program.ask("run 20")
        finally:
            process.send_signal(signal.SIGTERM)
        return process.communicate()[0].splitlines()


def test_the_command_latency_times_calls(target: Callable) -> None:
    program = target(RETURNS)
    plain = run_latency(program, f"func:{RETURNS}:rare")
    table = run_latency(program, f"func:{RETURNS}:rare,func:{RETURNS}:popped")
    (document,) = map(json.loads, run_latency(program, f"func:{RETURNS}:rare", "--json"))
    slow = run_latency(program, f"func:{RETURNS}:rare", "--slower", "1us", "--where", "ret == 66")
    assert "20 calls" in plain
    assert table[0].split()[:3] == ["NAME", "CALLS", "TOTAL"]
    assert {line.split()[0]: line.split()[1] for line in table[1:3]} == {
        "func:rare": "20", "func:popped": "20",
    }  # fmt: skip
    assert table[3] == "40 calls of 2 keys"
    assert (document["pairs"], document["calls_of"], document["by"]) == (
        20, f"func:{RETURNS}:rare", None,
    )  # fmt: skip
    assert "2 calls" in slow  # of 66 and of 67


def test_calls_of_what_is_no_function_are_refused(target: Callable) -> None:
    program = target(RETURNS)
    with markerjit.attach(program.pid) as session:
        for name in ("truth_x", f"func:{RETURNS}:rare:return"):
            with pytest.raises(markerjit.BadArgument, match="a function"), session.latency(name):
                pass
        with (
            pytest.raises(markerjit.BadArgument, match="None where calls"),
            session.latency(f"func:{RETURNS}:rare", end_by="tid"),
        ):
            pass
        with (
            pytest.raises(markerjit.BadQuestion, match="did you mean"),
            session.latency(f"func:{RETURNS}:rare", by="rett"),
        ):
            pass
        with (
            pytest.raises(markerjit.Refused, match="--room"),
            session.latency(f"func:{RETURNS}:rare", by="tid", room=1 << 20),
        ):
            pass
