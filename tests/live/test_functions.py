"""Functions of programs that nobody prepared: counted, traced, and off again byte for byte."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest

import markerjit
from markerjit import Mode
from tests.support.c_probes import values
from tests.support.choice import spacing
from tests.support.code_bytes import code_of
from tests.support.commands import ENVIRONMENT, cli, facts, one_line, running
from tests.support.timing import HANG_S, Limited, wait_until
from tests.support.usdt import DEBIAN, debian

pytestmark = pytest.mark.live

PROGRAM = "truth_functions"
BY_JUMP = ("turn", "landing", "brief", "again", "thrown", "handle", "spun", "passed")
COUNTED = """
#include <markerjit/probe.h>

MJ_COUNTER(turns);
MJ_COUNTER(sum);

void count(struct mj_slot *slot, unsigned long i, unsigned long text, unsigned long square,
           unsigned long arg3, unsigned long arg4, unsigned long arg5) {
    mj_count(&turns);
    mj_add(&sum, square - i * i);
}
"""

READER = """
import mmap, os, sys

path = next(line.split()[-1] for line in open("/proc/self/maps") if "/libc.so" in line)
with open(path, "rb") as file:
    data = mmap.mmap(file.fileno(), 0, mmap.MAP_PRIVATE, mmap.PROT_READ)
print("ready", flush=True)
for line in sys.stdin:
    print(os.getppid(), flush=True)
"""
"""A program that has a library's file mapped once more, as data."""


def name_of(function: str) -> str:
    return f"func:{PROGRAM}:{function}"


@pytest.mark.pythons
def test_every_entry_is_counted_and_off_again_byte_for_byte(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        for name in (*BY_JUMP, "looping"):
            session.enable(name_of(name))
        program.ask("run 100")
        on = {
            statistic.name: (statistic.mode, statistic.hits)
            for statistic in session.statistics("func:*")
        }
        opened = code_of(program)
        session.disable("func:*")
        program.ask("run 10")
        off = {
            statistic.name: (statistic.mode, statistic.total)
            for statistic in session.statistics("func:*")
        }

    assert on == {
        **{f"func:{name}": (Mode.JUMP, 100) for name in BY_JUMP},
        "func:again": (Mode.JUMP, 1000),
        "func:looping": (Mode.JUMP, 100),
        **{f"func:{name}": (Mode.JUMP, 0) for name in ("spun", "passed")},
    }
    assert opened != before
    assert off == {name: (None, hits) for name, (_, hits) in on.items()}
    assert code_of(program) == before


@pytest.mark.pythons
@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_events_have_the_arguments(target: Callable, mode: Mode) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        session.trace(name_of("turn"), mode=mode) as stream,
    ):
        program.ask("run 100")
        events = list(stream.drain())

    assert [event.name for event in events] == ["func:turn"] * 100
    for i, event in enumerate(events):
        assert [*event.fields] == [f"arg{number}" for number in range(6)]
        assert (event.fields["arg0"], event.fields["arg2"]) == (i, i * i)
    with markerjit.View(program.pid) as view:
        for event, text in zip(events, (b"even\0", b"odd\0") * 50, strict=True):
            assert view.read(event.fields["arg1"], len(text)) == text


def test_function_that_runs_at_full_speed_is_switched_again_and_again(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    program.command("resume")

    with markerjit.attach(program.pid) as session:
        for _ in range(100 // spacing(3)):
            session.enable("func:spun")
            session.disable("func:spun")
        program.command("pause")
        start = program.ask("counts")["spin"]
        session.enable("func:spun")
        program.command("resume")
        while program.ask("counts")["spin"] < start + 1000:
            pass
        program.command("pause")
        (spun,) = session.statistics("func:spun")
        end = program.ask("counts")["spin"]
        session.disable("func:spun")

    assert spun.hits == end - start
    assert code_of(program) == before


def test_a_file_that_is_mapped_as_data_has_no_functions_there() -> None:
    command = [sys.executable, "-S", "-c", READER]
    pipe = subprocess.PIPE
    with Limited(command, stdin=pipe, stdout=pipe, text=True) as reader:
        assert reader.stdin and reader.stdout
        assert reader.stdout.readline() == "ready\n"
        with markerjit.attach(reader.pid) as session:
            (function,) = session.functions("func:libc.so*:getppid").functions
            session.on(function.name)
            for _ in range(3):
                print(file=reader.stdin, flush=True)
                assert reader.stdout.readline()
            (counted,) = session.status()
            session.off()
        reader.stdin.close()

    assert (counted.name, len(counted.sites), counted.hits) == ("func:getppid", 1, 3)
    assert reader.returncode == 0


def test_another_controller_switches_off_what_one_has_left_on(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    with markerjit.attach(program.pid) as session:
        session.enable(name_of("t*n"))
        session.enable(name_of("looping"))

    with markerjit.attach(program.pid) as other:
        assert {statistic.name for statistic in other.statistics() if statistic.mode} == {
            "func:turn", "func:thrown", "func:looping",
        }  # fmt: skip
        other.disable("func:*")

    assert code_of(program) == before


def test_a_function_is_one_whichever_of_its_names_is_given(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        session.enable("func:turned")
        program.ask("run 3")
        session.enable("func:turn")
        (status,) = session.statistics("func:turned")
        session.disable("func:turned")
        (off,) = session.statistics("func:turn")

    assert (status.name, status.mode, status.hits) == ("func:turn", Mode.JUMP, 3)
    assert off.mode is None


def test_an_endbr64_stays_where_indirect_calls_land(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        session.enable("func:landing")
        (site,) = session.sites("func:landing")
        code = session.read(site.address - 4, 5)

    assert code == b"\xf3\x0f\x1e\xfa\xe9"


def test_child_of_a_fork_runs_on_and_records_nothing(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session, session.trace("func:passed") as stream:
        answer = program.ask("fork 100")
        events = list(stream.drain())

    assert answer["children"] == 1
    assert events == []


def test_probe_in_c_gets_the_six_registers(target: Callable, probe: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        session.enable("func:turn", probe=probe(COUNTED, "count"))
        program.ask("run 10")
        counted = values(program.pid)
        session.disable("func:turn")

    assert (counted["turns"], counted["sum"]) == (10, 0)


def test_unknown_function_is_named_with_its_nearest_and_nothing_is_touched(
    target: Callable,
) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.UnknownMarker, match="func:turn"):
            session.enable("func:turm")
        with pytest.raises(markerjit.UnknownMarker, match="func:turn"):
            session.disable("func:turm")
        with pytest.raises(markerjit.Unsupported, match="IFUNC"):
            session.enable("func:memcpy")
        with pytest.raises(markerjit.Unsupported, match="in stages"), session.stepping("func:turn"):
            pass
        assert not session.has_runtime


def test_threads_that_run_take_a_breakpoint_and_no_jump(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    program.command("resume")

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.Refused, match="threads run"):
            session.enable("func:spun", quiesce="membarrier")
        session.enable("func:spun", quiesce="membarrier", mode="int3")
        program.command("pause")
        (spun,) = session.statistics("func:spun")
        session.disable("func:spun", quiesce="membarrier")

    assert spun.mode is Mode.INT3
    assert code_of(program) == before


def test_our_own_process_is_refused() -> None:
    """In a process without what tests import, whose functions take seconds to find."""
    program = """
import markerjit, os
with markerjit.attach(os.getpid()) as session:
    try:
        session.enable("func:malloc")
    except markerjit.Refused as refused:
        print(refused)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=HANG_S, check=True,
    )  # fmt: skip

    assert "own process" in done.stdout


# ---- what commands say ---------------------------------------------------------------------------


def test_list_shows_functions_and_how_they_are_on(target: Callable) -> None:
    program = target(PROGRAM)
    cli("on", program.pid, "func:turn")

    listed = cli("list", program.pid, name_of("t*n"))
    document = facts("list", program.pid, name_of("t*n"))
    of_file = facts("list", program.path, "func:t*n")
    wrong = cli("list", program.path, "func:nothing_like_it")

    assert [line.split()[:3] for line in listed.stdout.splitlines()] == [
        ["FUNCTION", "STATE", "ENTRY"], ["func:turn", "on", "(jump)"],
        ["func:thrown", "off", of_file["functions"][1]["source"]],
    ]  # fmt: skip
    assert {each["name"]: each["mode"] for each in document["functions"]} == {
        "func:turn": "jump", "func:thrown": None,
    }  # fmt: skip
    assert [each["offset"] for each in of_file["functions"]] == [
        each["offset"] for each in document["functions"]
    ]
    one_line(wrong, "no function matches")


def test_explain_says_how_a_function_would_be_opened_and_then_how_it_is(target: Callable) -> None:
    program = target(PROGRAM)

    before = cli("explain", program.pid, "func:turn")
    cli("on", program.pid, "func:turn")
    after = cli("explain", program.pid, "func:turn")

    assert before.returncode == after.returncode == 0
    for shown in (before, after):  # the head ends inside of its instruction
        assert "f0 48 83 05" in shown.stdout.partition("dormant")[2]
        assert "lock add qword ptr [rip" in shown.stdout
    assert "is opened by a jump over f0 48 83 05" in before.stdout
    assert "in turn+0x0" in before.stdout
    assert "now       on (jump)" in after.stdout


def test_a_trace_is_printed_and_leaves_the_program_as_it_was(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    with running("trace", program.pid, "func:turn", "--json") as tracer:
        wait_until(
            lambda: tracer.poll() is not None or code_of(program) != before, "the function on"
        )
        program.ask("run 5")
        assert tracer.stdout
        lines = [tracer.stdout.readline() for _ in range(5)]
        tracer.terminate()
        assert tracer.wait() == 0

    assert all('"func:turn"' in line for line in lines)
    assert code_of(program) == before


REPEATING = """
import sys
for line in sys.stdin:
    for each in range(1000):
        float("1.5")
    print(line, end="", flush=True)
"""


@pytest.mark.parametrize(
    ("command", "line", "name", "least"),
    [
        (["/usr/bin/python3.11", "-c", REPEATING], "once", "func:PyFloat_FromString", 1000),
        (["/bin/bash", "-s"], "for n in {1..100}; do x=$n; done; echo once", "func:xmalloc", 100),
    ],
    ids=["python3", "bash"],
)
def test_programs_of_debian_are_counted_and_go_on(
    command: list[str], line: str, name: str, least: int
) -> None:
    if command[0] in DEBIAN:
        debian(command[0])
    with Limited(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout

        def ask() -> str:
            print(line, file=program.stdin, flush=True)
            return program.stdout.readline()

        assert ask() == "once\n"
        with markerjit.attach(program.pid) as session:
            session.enable(name)
            answers = [ask() for _ in range(3)]
            (on,) = session.statistics(name)
            session.disable(name)
        answers.append(ask())
        program.stdin.close()
        assert program.wait() == 0

    assert answers == ["once\n"] * 4
    assert on.hits >= 3 * least


def test_child_of_a_fork_is_switched_by_itself(target: Callable) -> None:
    """What it has inherited is found by its parent's table, of which it has a descriptor, too."""
    program = target("truth_usdt")

    with markerjit.attach(program.pid) as session:
        session.enable("func:turn")
        child = int(program.command("child").removeprefix("ready pid="))
        with markerjit.attach(child) as other:
            (inherited,) = other.statistics("func:turn")
            with other.trace("func:turn") as stream:
                program.ask("run 20")
                events = list(stream.drain())
            (off,) = other.statistics("func:turn")
        program.command("quit")
        program.ask("run 7")
        (parents,) = session.statistics("func:turn")
        session.disable("func:turn")

    assert (inherited.mode, off.mode) == (Mode.JUMP, None)
    assert len(events) == 20
    assert parents.hits == 7


def test_a_pattern_that_is_off_again_is_of_what_was_opened_since(target: Callable) -> None:
    """A session remembers its switches. A function that got its stub since is none of them."""
    program = target(PROGRAM)
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        session.on(name_of("turn"))
        session.off(f"func:{PROGRAM}:*")
        session.on(name_of("landing"))
        session.on(name_of("turn"))
        session.off(f"func:{PROGRAM}:*")
        on = [marker.name for marker in session.status() if marker.on]

    assert on == []
    assert code_of(program) == before


@pytest.mark.pythons
def test_there_is_a_plan_once_a_function_has_been_on_and_before_how_it_would_be(
    target: Callable,
) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    name = name_of("turn")

    with markerjit.attach(program.pid) as session:
        for function in (name, f"{name}:return"):
            with pytest.raises(
                markerjit.Refused, match=r"opened by .*there is a plan once it has"
            ) as refused:
                session.plan(function)
            assert refused.value.reason is markerjit.Reason.NO_STUB
        assert not session.has_runtime and code_of(program) == before
        session.on(name)
        assert not session.plan(name).changes
        assert session.plan(name, on=False).changes
        session.off(name)
        assert session.plan(name).changes


def test_everything_is_off_again_whatever_is_on(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        for functions in (["turn"], ["landing", "brief"], ["turn", "again"]):
            for function in functions:
                session.on(name_of(function))
            assert sum(marker.on for marker in session.status()) == len(functions)
            with pytest.raises(markerjit.NoMarkers, match=f"markerjit off {program.pid} without"):
                session.off("*")
            session.off()
            assert code_of(program) == before
        with pytest.raises(markerjit.NoMarkers, match="nothing is on"):
            session.off()
