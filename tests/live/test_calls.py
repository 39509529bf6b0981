"""Every call of a running program's functions: counts that the program knows, times, files."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import markerjit
from markerjit.abi import ISLANDS_SIZE, PAGE, IslandEntry
from markerjit.arena import islands
from markerjit.errors import Refused
from markerjit.session import stubs
from tests.support.call_graphs import calls_of, edges, followed, function
from tests.support.code_bytes import code_of
from tests.support.commands import cli, facts, one_line, running
from tests.support.compilers import Compiler
from tests.support.markers import has_arena
from tests.support.processes import text_of
from tests.support.programs import Target
from tests.support.terminals import in_terminal, screen_of
from tests.support.timing import Limited, Wait, wait_until
from tests.support.trace_processor import TraceProcessor
from tests.support.usdt import debian

pytestmark = pytest.mark.live

PROGRAM = "truth_calls"
_PAUSE_S = 0.01
NO_SPACE = os.strerror(errno.ENOSPC)
KNOWN = (
    "leaf", "twice", "deep", "even", "odd", "handed", "catcher", "middle", "thrower", "after",
    "outer",
)  # fmt: skip


THROWING = r"""
#include <cstdio>

static unsigned long caught, returned;

extern "C" __attribute__((noinline)) long inner(long n) {
    if (n % 3 == 0)
        throw n;
    asm volatile("" : "+r"(n));
    return n * 7 / 3 + n;
}

extern "C" __attribute__((noinline)) long handled(long n) {
    asm volatile("" : "+r"(n));
    return n * 9 / 3 + 1;
}

extern "C" __attribute__((noinline)) long outer(long n) {
    long value = inner(n);
    asm volatile("" : "+r"(value));
    return value * 5 / 3 + 1;
}

extern "C" __attribute__((noinline)) void attempt(long n) {
    try {
        outer(n);
        returned++;
    } catch (long) {
        caught += handled(n) != 0;
    }
}

int main() {
    char line[8];
    std::puts("ready");
    std::fflush(stdout);
    while (std::fgets(line, sizeof line, stdin)) {
        for (long n = 0; n < 3000; n++)
            attempt(n);
        std::printf("caught %lu returned %lu\n", caught, returned);
        std::fflush(stdout);
    }
}
"""


def test_calls_callers_and_ways_out_are_those_that_the_program_counts(
    target: Callable,
) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    with followed(program, ",".join((*KNOWN, "inner"))) as graphs:
        truth = program.ask("run 60")
    (graph,) = graphs

    assert code_of(program) == before
    assert graph.lost == 0
    calls = calls_of(graph)
    assert {name: calls[name] for name in KNOWN} == {name: truth[name] for name in KNOWN}
    among = edges(graph)
    assert among["twice", "leaf"] == 2 * truth["twice"]
    assert among["after", "leaf"] == truth["after"]
    assert among["catcher", "middle"] == truth["catcher"]
    # The entry of `after` tells that `thrower` has been left.
    assert among["catcher", "after"] == truth["after"]
    assert among["deep", "deep"] == truth["deep"] - 60
    assert among["even", "odd"] == truth["odd"]
    assert function(graph, "handed").tails == truth["handed"]
    for name in ("thrower", "middle"):
        assert function(graph, name).cut == truth["jumped"]
    assert function(graph, "outer").stopped == function(graph, "inner").stopped == 60
    assert sum(each.running for each in graph.functions) == 0
    assert all(each.own_ns >= 0 for each in graph.functions)
    whole = sum(node.total_ns for node in graph.nodes if node.parent == 0)
    assert sum(each.own_ns for each in graph.functions) == whole


SWITCHED = (
    "step", "worker", "yield", "resume", "raiser", "handler", "attempt", "rescued", "descend",
    "landing",
)  # fmt: skip


def test_stacks_that_a_thread_leaves_are_not_mixed_with_its_own(target: Callable) -> None:
    program = target("truth_stack_switches")
    before = code_of(program)

    with followed(program, ",".join(SWITCHED)) as graphs:
        for line in ("mapped 20", "heap 20", "beside 20", "beside 20", "signals 20", "by_hand 20"):
            truth = program.ask(line)
    (graph,) = graphs

    assert code_of(program) == before
    assert graph.lost == 0
    assert calls_of(graph) == {name: truth[name] for name in SWITCHED if truth[name]}
    assert {edge: calls for edge, calls in edges(graph).items() if calls} == {
        ("", "resume"): truth["resume"],
        ("resume", "step"): 2 * truth["resume"],
        ("resume", "worker"): truth["made"],
        ("worker", "step"): truth["yield"],
        ("worker", "yield"): truth["yield"],
        ("", "attempt"): truth["attempt"],
        ("attempt", "raiser"): truth["raiser"],
        ("raiser", "handler"): truth["handler"],
        ("handler", "step"): truth["handler"],
        ("raiser", "step"): truth["raiser"],
    }
    # Coroutines are dropped where they stand. Of those whose stacks were used again that is known:
    # two of the first `beside`, and of the second one.
    for name in ("worker", "yield"):
        assert function(graph, name).cut == 4
        assert function(graph, name).running == truth["made"] - 4
    others = {each.cut for each in graph.functions if each.name not in ("worker", "yield")}
    assert others == {0}
    assert all(each.own_ns >= 0 for each in graph.functions)


def test_calls_that_longjmp_has_left_are_cut_at_the_next_call(target: Callable) -> None:
    program = target("truth_stack_switches")

    with followed(program, ",".join(SWITCHED)) as graphs:
        program.ask("jumps 30")
        truth = program.ask("landings 70")
    (graph,) = graphs

    assert calls_of(graph) == {name: truth[name] for name in SWITCHED if truth[name]}
    among = edges(graph)
    assert among["attempt", "rescued"] == truth["jumped"] == 30
    assert among["landing", "rescued"] == among["landing", "descend"] == truth["landing"]
    assert among["rescued", "step"] == truth["rescued"]
    assert among["raiser", "handler"] == truth["handler"]
    assert function(graph, "descend").cut == truth["descend"]
    assert function(graph, "raiser").cut == truth["jumped"]
    # Of a handler that siglongjmp has left the next signal tells, on the same stack.
    handler = function(graph, "handler")
    assert (handler.cut, handler.running) == (truth["jumped"] - 1, 1)


def test_functions_that_cannot_be_followed_are_named_with_a_reason(
    target: Callable,
) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        graph = session.calls(f"s*,_start,@{PROGRAM}", duration=0.01)
        functions = session.functions(f"func:{PROGRAM}:s*,func:{PROGRAM}:_start").functions

    reasons = {each.name: each.kind for each in graph.not_opened}
    assert reasons["spin"] == "it never returns"
    assert {*graph.opened, *reasons} == {each.name.removeprefix("func:") for each in functions}
    assert not {*graph.opened} & {*reasons}


def test_functions_whose_stubs_have_no_room_are_refused_together(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    with markerjit.attach(program.pid) as session:
        session.on(f"func:{PROGRAM}:leaf")
        session.off()
        arena = session._target.seen.arena
        assert arena is not None
        made = arena.islands.entries()
        place = arena.geometry.islands.at(len(made))
        taken = IslandEntry(PAGE, ISLANDS_SIZE, 1, arena.geometry.islands_at)
        arena.store.write(place, bytes(taken))

        pattern = r"has 0 KiB of room for stubs in process \d+, and \d+ functions need"
        one_line(cli("calls", program.pid, "-d", "10ms"), pattern)

        assert code_of(program) == before
        assert arena.islands.entries()[:-1] == made, "no stub was made, either"
        arena.store.write(place, bytes(len(bytes(taken))))
        with session.trace_calls("*") as trace:
            assert len(trace.opened) > 10
    assert code_of(program) == before


def test_functions_for_which_room_ends_while_stubs_are_made_are_not_opened(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    place_near, made = islands.place_near, []

    def only_once(*args: object) -> int | None:
        made.append(None if made else place_near(*args))  # type: ignore[arg-type]
        return made[-1]

    with monkeypatch.context() as small:
        small.setattr(islands, "SIZE", PAGE)
        small.setattr(stubs, "_MOST_PREFERRED", 0)
        small.setattr(islands, "place_near", only_once)
        with markerjit.attach(program.pid) as session, pytest.raises(Refused, match="has no gap"):
            session.calls(duration=0.01)

    assert len(made) == 2
    assert code_of(program) == before
    with markerjit.View(program.pid) as view:
        assert not view.status()
    with followed(program, "*") as graphs:
        program.ask("run 5")
    assert calls_of(graphs[0])["leaf"]
    assert code_of(program) == before


def test_a_call_may_run_still_or_have_been_entered_before(target: Callable) -> None:
    program = target(PROGRAM)

    with followed(program, "slow,leaf") as graphs:
        program.ask("enter 1")
    with followed(program, "slow") as later:
        program.ask("release")

    slow = function(graphs[0], "slow")
    assert (slow.calls, slow.running, slow.least_ns) == (1, 1, None)
    assert slow.total_ns > 0
    assert edges(graphs[0]) == {("", "slow"): 1, ("slow", "leaf"): 1}
    slow = function(later[0], "slow")
    assert (slow.calls, slow.running, slow.without_entry) == (0, 0, 1)


def test_threads_at_full_speed_lose_nothing_where_they_wait(target: Callable) -> None:
    program = target(PROGRAM)
    start = program.ask("counts")

    with followed(program, "spun,leaf", lossless=True) as graphs:
        program.ask("resume")
        enough = start["spun"] + 2000
        wait_until(lambda: program.ask("counts")["spun"] >= enough, "2,000 calls")
        program.ask("pause")
        end = program.ask("counts")
    (graph,) = graphs

    assert graph.lost == 0
    assert graph.threads == 4
    spun = end["spun"] - start["spun"]
    assert calls_of(graph) == {"spun": spun, "leaf": spun}
    assert edges(graph) == {("", "spun"): spun, ("spun", "leaf"): spun}
    assert function(graph, "spun").cut == 0


def test_lost_events_are_counted_and_what_was_read_with_them_has_no_times(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid, ring_size=4096) as session:
        with session.trace_calls("spun,leaf", ring_growth=0) as trace:
            for _ in range(20):
                program.ask("resume")
                program.ask("pause")
                trace.poll()
        graph = trace.graph()
        hits = sum(each.hits for each in session.statistics("func:*,func:*:return"))

    assert graph.lost > 0
    assert graph.events + graph.lost == hits
    assert 0 < graph.untimed == graph.calls
    assert {each.mean_ns for each in graph.functions} == {None}
    assert {each.own_ns for each in graph.functions} == {0}
    assert {caller for caller, _ in edges(graph)} <= {"", "spun"}


def test_only_some_calls_count(target: Callable) -> None:
    program = target(PROGRAM)

    def run(**options: object) -> markerjit.CallGraph:
        with followed(program, "twice,leaf,catcher,middle", **options) as graphs:
            program.ask("run 10")
        return graphs[0]

    shallow = run(depth=1)
    below = run(below="twice")
    other = run(tids=[1])

    assert "middle" not in calls_of(shallow)
    assert calls_of(shallow)["catcher"] == 10
    assert calls_of(below) == {"twice": 10, "leaf": 20}
    assert edges(below) == {("", "twice"): 10, ("twice", "leaf"): 20}
    assert calls_of(other) == {}


def test_exceptions_cut_the_calls_that_they_leave(tmp_path: Path) -> None:
    source, path = tmp_path / "throwing.cc", tmp_path / "throwing"
    source.write_text(THROWING)
    made = Compiler("g++").run("-O2", source, "-o", path)
    assert made.returncode == 0, made.stderr
    with Limited([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout
        assert program.stdout.readline() == "ready\n"  # before that execve may not be over
        with markerjit.attach(program.pid) as session:
            with session.trace_calls("inner,outer,attempt,handled", breakpoints=True) as trace:
                print("go", file=program.stdin, flush=True)
                answer = program.stdout.readline()
            graph = trace.graph()
        program.stdin.close()
        assert program.wait() == 0

    assert answer == "caught 1000 returned 2000\n"
    assert graph.lost == 0
    assert calls_of(graph) == {"attempt": 3000, "outer": 3000, "inner": 3000, "handled": 1000}
    assert [function(graph, name).cut for name in ("attempt", "outer", "inner")] == [0, 1000, 1000]
    assert function(graph, "handled").cut == 0
    assert edges(graph) == {
        ("", "attempt"): 3000, ("attempt", "outer"): 3000, ("outer", "inner"): 3000,
        ("attempt", "handled"): 1000,
    }  # fmt: skip


def test_calls_of_python_itself_go_on_and_its_code_is_as_before(tmp_path: Path) -> None:
    python = "/usr/bin/python3.11"
    debian(python)
    script = "import sys\nfor _ in sys.stdin: print(sum(abs(-n) for n in range(500)), flush=True)"
    with Limited(
        [python, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin and program.stdout

        def turn() -> str:
            print("go", file=program.stdin, flush=True)
            return program.stdout.readline()

        expected = turn()
        with markerjit.attach(program.pid) as session:
            before = text_of(program.pid)
            with session.trace_calls("PyNumber_*,!PyNumber_Subtract") as trace:
                answers = [turn() for _ in range(2)]
            graph = trace.graph()
            hits = sum(
                each.hits for each in session.statistics("func:*")
                if not each.name.endswith(":return")
            )  # fmt: skip
            after = text_of(program.pid)
        program.stdin.close()
        assert program.wait() == 0

    assert answers == [expected] * 2
    assert after == before
    assert graph.lost == 0
    assert graph.calls == hits > 1000
    assert "PyNumber_Subtract" not in graph.opened
    assert sum(each.cut + each.running + each.without_entry for each in graph.functions) == 0


# ---- the command ---------------------------------------------------------------------------------


def ended(command: subprocess.Popen[str]) -> bool:
    return command.poll() is not None


def ask_until_the_end(program: Target, question: str, command: subprocess.Popen[str]) -> None:
    """Ask a program again and again, once a command has its arena in it. It has pauses: what it
    does is all read, and the command needs the CPU, too."""
    wait_until(lambda: has_arena(program.pid) or ended(command), "an arena")
    wait = Wait("the end of the command")
    while not ended(command):
        wait.left_s()
        program.ask(question)
        time.sleep(_PAUSE_S)


def test_the_table_the_tree_and_the_files_fit(target: Callable, tmp_path: Path) -> None:
    files = [str(tmp_path / f"calls{suffix}") for suffix in (".folded", ".pftrace")]

    shown = []
    for path in files:
        program = target(PROGRAM)
        names = ("leaf", "twice", "catcher", "middle", "thrower")
        options = ("-n", "100", "--tree", "--graph", "leaf", "-o", path)
        with running("calls", program.pid, *names, *options) as command:
            ask_until_the_end(program, "run 1", command)
            shown.append(command.communicate())

    for out, errors in shown:
        lines = out.splitlines()
        assert errors == ""
        assert lines[0].split() == [
            "CALLS",
            "TOTAL",
            "OWN",
            "MIN",
            "MEAN",
            "MAX",
            "FUNCTION",
        ]
        assert all(len(line) <= 80 for line in lines)
        assert any(line.endswith("CALLERS OF leaf") for line in lines)
        assert any("price of a call" in line for line in lines)
    chains = dict(line.rsplit(" ", 1) for line in Path(files[0]).read_text().splitlines())
    assert "twice;leaf" in chains
    judge = TraceProcessor(Path(files[1]).read_bytes())
    rows = judge.query(
        "select parent.name as caller, slice.name as callee, count() as number from slice "
        "join slice parent on slice.parent_id = parent.id group by 1, 2"
    )
    assert {"twice", "leaf"} in [{row["caller"], row["callee"]} for row in rows]


def test_the_table_is_drawn_in_its_own_place_behind_the_progress(target: Callable) -> None:
    program = target(PROGRAM)

    text = in_terminal("calls", program.pid, "leaf", "-d", "1200ms", NO_COLOR="1")

    meanwhile, *_ = text.partition("; Ctrl-C ends it")
    *_, line = screen_of(meanwhile)
    assert line.startswith("0 calls in ")
    (summary, *_) = [line for line in screen_of(text) if line]
    assert summary.startswith("0 calls of 0 functions in ")


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A directory for one page."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", disk]
    done = subprocess.run(mount, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs to mount a tmpfs: {done.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("suffix", [".html", ".pftrace"])
def test_a_full_disk_costs_the_file_and_not_the_table(
    target: Callable, full_disk: Path, suffix: str
) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    path = full_disk / f"calls{suffix}"
    if suffix == ".html":  # a page is written at once, at the end
        (full_disk / "other").write_bytes(bytes(4096))

    with running("calls", program.pid, *KNOWN, "-n", 20000, "-o", path) as command:
        ask_until_the_end(program, "run 20", command)
        out, errors = command.communicate()

    assert (command.returncode, errors) == (1, f"markerjit: cannot write {path}: {NO_SPACE}\n")
    assert re.search(r"^ *[\d,]+ .* leaf$", out, re.MULTILINE)
    assert "price of a call" in out
    assert code_of(program) == before


def test_json_has_all_that_the_text_says(target: Callable) -> None:
    program = target(PROGRAM)

    document = facts("calls", program.pid, "s*", "--in", PROGRAM, "-d", "50ms")

    assert document["pid"] == program.pid
    assert document["functions"] == []
    assert {each["name"] for each in document["not_opened"]} >= {"spin"}
    assert set(document["price"]) == {
        "event_ns",
        "call_ns",
        "all_ns",
        "cpu_s",
        "corrected",
    }


def test_a_signal_or_a_reader_that_goes_ends_it_with_all_switched_off(
    target: Callable,
) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    for number in (signal.SIGINT, signal.SIGTERM):
        with running("calls", program.pid, "leaf") as command:
            wait_until(lambda: code_of(program) != before or ended(command), "it is on")
            assert not ended(command)
            command.send_signal(number)
            out, errors = command.communicate()
        assert (command.returncode, errors) == (0, "")
        assert "1 function followed" in out
        assert code_of(program) == before


def test_what_cannot_be_followed_is_refused_in_one_line(target: Callable, tmp_path: Path) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    existing = tmp_path / "there.folded"
    existing.write_text("x")

    for arguments, pattern in (
        (["nothing_like_it"], "no function matches"),
        (["spin"], "spin: it never returns"),
        (["func:leaf:return"], "entry and exits are looked at"),
        (["truth_calls.c:7"], "calls are those of functions"),
        (["--from", "spin"], "spin cannot be followed"),
        (["--from", "nobody"], "nobody"),
        (["-o", str(existing)], "exists already"),
        (["-o", str(tmp_path / "x.gif")], "suffixes"),
        (["--in", "nothing.so"], "no function matches"),
        (["leaf", "--json", "--min", "1ms", "--tree"], "leave out --min, --tree\n"),
        (["leaf", "--json", "--graph", "leaf", "--top", "3"], "leave out --top, --graph\n"),
    ):
        one_line(cli("calls", program.pid, *arguments, "-d", "10ms"), pattern)
    assert code_of(program) == before


def test_the_end_of_the_process_is_said_behind_the_table(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    with running("calls", program.pid, "leaf") as command:
        wait_until(lambda: code_of(program) != before or ended(command), "it is on")
        assert not ended(command), command.communicate()
        program.ask("run 5")
        program.process.stdin.close()
        out, errors = command.communicate()

    assert command.returncode == 1
    assert "leaf" in out
    assert "ended" in errors
    assert json.dumps(errors).count("\\n") == 1
