"""Functions of a running program, replaced as a whole by others in C, and reverted."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.probes.loaded import MOST_REPLACING
from markerjit.remote.references import mentioned
from tests.support.commands import cli, facts, one_line, python
from tests.support.compilers import CXX_COMPILERS
from tests.support.processes import text_of
from tests.support.timing import Limited, wait_until

pytestmark = pytest.mark.live

PROGRAM = "truth_replaced"
NEW = """
#include <markerjit/probe.h>

MJ_COUNTER(calls);

long better(long n) {
    mj_count(&calls);
    return markerjit_original(better)(n) + 1000;
}

long other(long n) { return 7 * n; }

double mixed(double x, int n, const char *text, long more, double last) {
    return x * 100 + n + text[0] + (double)more + last;
}

long many(long a, long b, long c, long d, long e, long f, long g, long h) {
    return markerjit_original(many)(h, g, f, e, d, c, b, a) + h * 100;
}

long deep(long n) { return n > 2 ? 500 : markerjit_original(deep)(n) * 10; }

long spun(long n) { return markerjit_original(spun)(n) + 1; }
"""


@pytest.fixture
def new(tmp_path: Path, needs_tool: Callable) -> Callable[[str], str]:
    """`FILE.c:function` of a function of NEW."""
    needs_tool("gcc", "gcc")
    (tmp_path / "new.c").write_text(NEW)
    return lambda function: f"{tmp_path}/new.c:{function}"


def test_a_function_is_another_one_and_itself_again(target: Callable, new: Callable) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)

    with markerjit.attach(program.pid) as session:
        session.replace("func:square", new("better"))
        better = program.ask("run 5")
        session.revert("func:square")
        reverted = program.ask("run 5")
        between = text_of(program.pid)
        session.replace("func:square", new("other"))
        other = program.ask("run 5")
        session.revert("func:square")

    assert (better["square"], reverted["square"], other["square"]) == (1025, 25, 35)
    assert other["squares"] == 2  # the old one was not executed for the third answer
    assert between == text_of(program.pid) == before


def test_calls_of_the_new_function_are_hits(target: Callable, new: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        session.replace("func:square", new("better"))
        before = session.statistics("func:square")[0].hits
        first = program.ask("run 5")["squares"]
        executed = program.ask("run 5")["squares"] - first
        (during,) = session.statistics("func:square")
        session.revert("func:square")

    assert before == 0
    assert during.hits == 2 * executed > 0
    assert during.lost == 0


def test_code_that_nothing_leads_to_any_more_is_given_back(
    target: Callable, tmp_path: Path
) -> None:
    program = target(PROGRAM)
    file = tmp_path / "new.c"
    most = MOST_REPLACING + 2

    with markerjit.attach(program.pid) as session:
        for number in range(2 * most):
            file.write_text(f"long other(long n) {{ return {number} + n; }}\n")
            session.replace("func:square", f"{file}:other")
            assert program.ask("run 5")["square"] == number + 5
            session.revert("func:square")
        units = session._target.seen.arena.units.all()

    assert len(units) <= most


def is_mentioned(session: markerjit.Session, address: int) -> bool:
    """Whether the memory of the process has an address in the code here."""
    with session._switcher.turn() as turn:
        return mentioned(turn.native_target(), [(address, 16)])[0]


def test_code_stays_while_a_thread_or_a_pointer_leads_there(
    target: Callable, tmp_path: Path
) -> None:
    """A function may stand on a stack that no thread runs on, or its address in the program."""
    program = target(PROGRAM)
    file = tmp_path / "new.c"

    with markerjit.attach(program.pid) as session:
        file.write_text("long other(long n) { return n + 1; }\n")
        session.replace("func:square", f"{file}:other")
        arena = session._target.seen.arena
        (unit,) = arena.units.all()
        address = arena.base + unit.code.start
        session.revert("func:square")
        assert not is_mentioned(session, address)
        program.ask(f"keep {address + 8}")

        assert is_mentioned(session, address)


@pytest.mark.parametrize(
    ("function", "old", "replaced"),
    [
        # 0.5 + 5 + 4 letters; 50 + 5 + 't' + 7 + 8
        ("mixed", 9, 50 + 5 + ord("t") + 15),
        ("many", 5 + 35, 40 + 800),
        ("deep", 5, 500),
    ],
)
def test_arguments_of_every_kind_arrive_and_results_come_back(
    target: Callable, new: Callable, function: str, old: int, replaced: int
) -> None:
    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session:
        before = program.ask("run 5")[function]
        session.replace(f"func:{PROGRAM}:{function}", new(function))
        during = program.ask("run 5")[function]
        session.revert(f"func:{PROGRAM}:{function}")

    assert (before, during) == (old, replaced)
    assert program.ask("run 5")[function] == old


def test_recursion_of_the_old_function_comes_to_the_new_one(
    target: Callable, new: Callable
) -> None:
    """deep(2) of the old one calls deep(1), which is the new one: ten times as much each time."""
    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session:
        session.replace(f"func:{PROGRAM}:deep", new("deep"))
        results = [program.ask(f"run {n}")["deep"] for n in range(4)]
        session.revert(f"func:{PROGRAM}:deep")

    assert results == [0, 10, 110, 500]


@pytest.mark.parametrize("times", [3, pytest.param(30, marks=pytest.mark.long)])
def test_replaced_and_reverted_again_and_again_under_load(
    target: Callable, new: Callable, times: int
) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)
    program.command("resume")

    with markerjit.attach(program.pid) as session:
        for _ in range(times):
            session.replace(f"func:{PROGRAM}:spun", new("spun"))
            session.revert(f"func:{PROGRAM}:spun")
        session.replace(f"func:{PROGRAM}:spun", new("spun"))
        start = program.ask("counts")["changed"]
        wait_until(lambda: program.ask("counts")["changed"] > start + 1000, "calls")
        session.revert(f"func:{PROGRAM}:spun")
        program.command("pause")
        end = program.ask("counts")

    assert end["wrong"] == 0
    assert end["changed"] > 1000
    assert text_of(program.pid) == before


def test_another_controller_sees_it_and_reverts_it(target: Callable, new: Callable) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)

    replaced = cli("replace", program.pid, "func:square", new("better"))
    answer = program.ask("run 5")["square"]
    (status,) = facts("status", program.pid)["markers"]
    on = cli("on", program.pid, "func:square")
    trace = cli("trace", program.pid, "func:square", "-d", "1")
    explained = cli("explain", program.pid, "func:square").stdout
    still = program.ask("run 5")["square"]
    reverted = cli("replace", program.pid, "func:square", "--revert")

    assert (replaced.returncode, reverted.returncode) == (0, 0)
    assert "replaced by new.c:better" in replaced.stdout
    assert (status["name"], status["probe"]) == ("func:square", "replaced by new.c:better")
    for refused in (on, trace):
        one_line(refused, r"func:square is replaced by new\.c:better; revert that first")
    assert answer == still == 1025
    assert "new.c:better replaces the function" in explained
    assert "func:square is replaced by new.c:better; revert that first" in explained
    assert program.ask("run 5")["square"] == 25
    assert text_of(program.pid) == before


def test_off_reverts_and_a_marker_that_is_on_is_not_replaced(
    target: Callable, new: Callable
) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.enable("func:square")
        with pytest.raises(markerjit.Refused, match="func:square is on; switch that off first"):
            session.replace("func:square", new("better"))
        session.disable("func:square")
        session.replace("func:square", new("better"))
        session.disable("func:*")
        with pytest.raises(markerjit.Refused, match="does not name a replaced function"):
            session.revert("func:square")

    assert program.ask("run 5")["square"] == 25
    assert text_of(program.pid) == before


def test_the_child_of_a_fork_has_the_old_function(target: Callable, new: Callable) -> None:
    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session:
        session.replace("func:square", new("better"))
        child = program.command("fork 5")
        parent = program.ask("run 5")
        session.revert("func:square")

    assert child.startswith("child square=25 ")
    assert parent["square"] == 1025


def test_a_controller_that_is_killed_leaves_what_another_one_reverts(
    target: Callable, new: Callable
) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)
    script = (
        "import markerjit, os, signal\n"
        f"session = markerjit.attach({program.pid})\n"
        f"session.replace('func:square', {new('better')!r})\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )

    done = python(script)
    assert done.returncode == -signal.SIGKILL
    assert program.ask("run 5")["square"] == 1025
    assert cli("repair", program.pid).returncode == 0
    assert program.ask("run 5")["square"] == 1025
    cli("replace", program.pid, "func:square", "--revert")

    assert program.ask("run 5")["square"] == 25
    assert text_of(program.pid) == before


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("func:endless", "better"), "jumps back to its own start"),
        (("func:squar", "better"), "no function matches 'func:squar'; did you mean func:square"),
        (("func:square:return", "better"), "the name of one function"),
        (("truth_*", "better"), "the name of one function"),
        (("func:square@main", "better"), "a function without a caller"),
        (("func:s*@truth_replaced", "better"), "functions (truth_replaced+"),
        (("func:square", "worse"), "there is no function worse"),
        (("func:square", "no name"), "; it must be FILE.c:function"),
        (("func:square", ""), "give FILE:FUNCTION, or --revert"),
    ],
)
def test_what_cannot_be_replaced_is_refused_and_nothing_is_touched(
    target: Callable, new: Callable, arguments: tuple[str, str], says: str
) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)
    name, function = arguments

    refused = cli("replace", program.pid, name, *([new(function)] if function else []))

    one_line(refused, re.escape(says))
    assert text_of(program.pid) == before
    assert program.ask("run 5")["square"] == 25


THROWING = r"""
#include <cstdio>
#include <stdexcept>
#include <unistd.h>
extern "C" __attribute__((noinline, noclone, noipa)) long thrower(long n) {
    __asm__ volatile("lea 8(%0), %0; lea -8(%0), %0" : "+r"(n)); // room for a jump
    if (n % 2)
        throw std::runtime_error("odd");
    return n * 2;
}
int main() {
    char line[64];
    printf("ready\n");
    fflush(stdout);
    while (fgets(line, sizeof(line), stdin)) {
        long n = 0;
        sscanf(line, "%ld", &n);
        try {
            printf("%ld\n", thrower(n));
        } catch (const std::exception &error) {
            printf("caught %s\n", error.what());
        }
        fflush(stdout);
    }
}
"""
PASSED_ON = """
#include <markerjit/probe.h>
long passed_on(long n) { return markerjit_original(passed_on)(n + 1); }
long quiet(long n) { return n % 2 ? -1 : markerjit_original(quiet)(n) + 5; }
"""


def test_an_exception_passes_where_the_call_of_the_old_function_is_the_last(
    tmp_path: Path, needs_tool: Callable
) -> None:
    needs_tool("g++", "g++")
    (tmp_path / "throwing.cc").write_text(THROWING)
    (tmp_path / "new.c").write_text(PASSED_ON)
    path = CXX_COMPILERS[0].build(tmp_path / "throwing", "-O2", tmp_path / "throwing.cc")
    with Limited([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout

        def ask(number: int) -> str:
            print(number, file=program.stdin, flush=True)
            return program.stdout.readline().strip()

        assert program.stdout.readline() == "ready\n"
        before = text_of(program.pid)
        with markerjit.attach(program.pid) as session:
            session.replace("func:thrower", f"{tmp_path}/new.c:passed_on")
            passed_on = [ask(number) for number in range(4)]
            session.replace("func:thrower", f"{tmp_path}/new.c:quiet")
            quiet = [ask(number) for number in range(4)]
            session.revert("func:thrower")
            old = [ask(number) for number in range(4)]
        after = text_of(program.pid)
        program.stdin.close()
        assert program.wait() == 0

    assert passed_on == ["caught odd", "4", "caught odd", "8"]
    assert quiet == ["5", "-1", "9", "-1"]
    assert old == ["0", "caught odd", "4", "caught odd"]
    assert after == before


def test_a_probe_that_is_no_replacement_has_no_original(
    target: Callable, tmp_path: Path, needs_tool: Callable
) -> None:
    needs_tool("gcc", "gcc")
    (tmp_path / "probe.c").write_text(
        "#include <markerjit/probe.h>\n"
        "void f(struct mj_slot *slot, ...) { markerjit_original(f)(slot); }\n"
    )
    program = target(PROGRAM)
    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.MarkerError, match="markerjit_original"),
    ):
        session.enable("func:square", probe=f"{tmp_path}/probe.c:f")
    assert os.path.exists(f"/proc/{program.pid}")
