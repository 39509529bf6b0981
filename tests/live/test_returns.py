"""Where functions are left: counted and traced in programs that nobody prepared."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode
from tests.support.commands import cli, facts, one_line
from tests.support.compilers import Compiler
from tests.support.programs import Target
from tests.support.timing import Limited
from tests.support.usdt import debian

pytestmark = pytest.mark.live

PROGRAM = "truth_returns"
TURNED = (
    *("many", "tailed", "perhaps", "counted", "emptied", "landed", "through", "deep", "popped"),
    *("rare", "thrown", "handled"),
)


def code_of(program: Target) -> bytes:
    """All bytes of the program's own code, as they are now."""
    with markerjit.View(program.pid) as view:
        spans = [
            (each.start, each.end) for each in view._target.seen.maps
            if each.executable and each.path.endswith(PROGRAM)
        ]  # fmt: skip
        return b"".join(view.read(start, end - start) for start, end in spans)


def name_of(function: str) -> str:
    return f"func:{PROGRAM}:{function}:return"


def hits_of(session: markerjit.Session, pattern: str = "func:*:return") -> dict[str, int]:
    """By the function and whether it is left by a tail call."""
    hits: dict[str, int] = {}
    for status in session.statistics(pattern):
        function = status.name.removeprefix("func:").removesuffix(":return")
        tail = "tail " if status.fields[0].name == "tail" else ""
        hits[tail + function] = status.hits
    return hits


def test_every_exit_is_counted_and_off_again_byte_for_byte(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        for function in TURNED:
            session.enable(name_of(function))
        program.ask("run 210")
        hits = hits_of(session)
        session.disable("func:*:return")
        program.ask("run 7")
        after = hits_of(session)

    turns = 210
    assert hits == {
        "many": turns * 3 + turns // 2,  # of `tailed`, `through`, and of `perhaps` for 0
        "tail tailed": turns, "perhaps": turns // 2, "tail perhaps": turns // 2,
        "counted": turns // 2, "tail counted": turns // 2,
        "emptied": turns // 2, "tail emptied": turns // 2, "landed": turns,
        "tail through": turns, "deep": turns * 4, "popped": turns, "rare": turns,
        "thrown": turns // 2, "handled": turns,
    }  # fmt: skip
    assert after == hits
    assert code_of(program) == before


def test_events_have_the_value_that_is_returned(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session, session.trace(name_of("rare")) as stream:
        program.ask("run 100")
        events = list(stream.drain())

    assert [event.fields["ret"] for event in events] == [n - n % 2 for n in range(100)]
    assert all(event.fields["rax"] == event.fields["ret"] for event in events)


def test_a_tail_call_has_its_target_in_place_of_a_value(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        (many,) = session.functions(f"func:{PROGRAM}:many").functions
        for function in ("tailed", "perhaps", "through"):
            with session.trace(name_of(function)) as stream:
                program.ask("run 1")
                program.ask("run 1")
                tails = [e.fields for e in stream.drain() if "tail" in e.fields]
            assert {fields["tail"] for fields in tails} == {many.site.address}
            assert all("ret" not in fields for fields in tails)


def test_a_tail_call_has_the_first_argument_of_the_function_that_it_jumps_to(
    target: Callable,
) -> None:
    program = target(PROGRAM)

    names = f"{name_of('tailed')},{name_of('through')}"
    with markerjit.attach(program.pid) as session, session.trace(names, fields="first") as stream:
        program.ask("run 20")
        firsts = [event.fields["first"] for event in stream.drain()]

    assert sorted(firsts) == sorted([*range(20), *range(20)])


def test_returns_and_tail_calls_have_the_caller_of_the_entry(target: Callable) -> None:
    program = target(PROGRAM)
    functions = [f"func:{PROGRAM}:{name}" for name in ("many", "tailed", "perhaps", "deep")]
    names = ",".join([*functions, *(f"{name}:return" for name in functions)])

    with (
        markerjit.attach(program.pid) as session,
        session.trace(names, select='caller, dur=dur if has("dur") else 0') as stream,
    ):
        program.ask("run 50")
        events = list(stream.drain())

    open_calls: list[int] = []
    for event in events:
        if not event.name.endswith(":return"):
            open_calls.append(event.fields["caller"])
        else:
            assert event.fields["caller"] == open_calls.pop(), event
    assert len(events) > 400
    assert not open_calls


def test_a_condition_asks_for_the_value_and_leaves_tail_calls_out(target: Callable) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        session.trace(name_of("perhaps"), where="ret == 2") as stream,
    ):
        program.ask("run 10")
        events = list(stream.drain())

    assert [event.fields["ret"] for event in events] == [2] * 5


def test_exits_under_threads_at_full_speed_are_switched_again_and_again(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    program.command("resume")

    with markerjit.attach(program.pid) as session:
        for _ in range(50):
            session.enable(name_of("spun"))
            session.disable(name_of("spun"))
        program.command("pause")
        start = program.ask("counts")["spun"]
        session.enable(name_of("spun"))
        program.command("resume")
        while program.ask("counts")["spun"] < start + 1000:
            pass
        program.command("pause")
        hits = hits_of(session)
        end = program.ask("counts")["spun"]
        session.disable("func:*:return")

    assert hits["spun"] == end - start
    assert code_of(program) == before


def test_entry_and_exit_of_a_short_function_are_on_in_turn_or_as_far_as_both_are_safe(
    target: Callable,
) -> None:
    program = target(PROGRAM)
    before = code_of(program)

    with markerjit.attach(program.pid, breakpoints=True) as session:
        session.enable(name_of("brief"))
        program.ask("run 10")
        session.enable("func:brief")  # by a breakpoint: a jump needs the bytes of the exit
        program.ask("run 10")
        session.disable(name_of("brief"))
        program.ask("run 10")
        entered = {statistic.name: statistic.hits for statistic in session.statistics("func:brief")}
        left = hits_of(session)
        session.disable("func:brief")

        session.enable("func:single")
        with pytest.raises(markerjit.Refused, match="its entry or another site is on"):
            session.enable(name_of("single"))
        program.ask("run 10")
        session.disable("func:single")
        session.enable(name_of("single"))
        program.ask("run 10")
        single = hits_of(session)["single"]
        session.disable(name_of("single"))

    assert entered == {"func:brief": 20}
    assert left == {"brief": 20}
    assert single == 10
    assert code_of(program) == before


def test_another_controller_switches_off_what_one_has_left_on(target: Callable) -> None:
    program = target(PROGRAM)
    before = code_of(program)
    with markerjit.attach(program.pid) as session:
        for function in ("rare", "perhaps"):
            session.enable(name_of(function))

    with markerjit.attach(program.pid) as other:
        on = {statistic.name for statistic in other.statistics() if statistic.mode}
        other.disable("func:*:return")

    assert on == {"func:rare:return", "func:perhaps:return"}
    assert code_of(program) == before


def test_child_of_a_fork_returns_as_ever_and_records_nothing(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session, session.trace(name_of("passed")) as stream:
        program.ask("fork 100")
        events = list(stream.drain())

    assert events == []


THROWING = r"""
#include <cstdio>
#include <stdexcept>

static unsigned long caught, returned;

extern "C" __attribute__((noinline)) long inner(long n) {
    if (n % 3 == 0)
        throw std::runtime_error("thrown");
    return n;
}

extern "C" __attribute__((noinline)) long outer(long n) {
    long value = inner(n);
    asm volatile("" : "+r"(value));
    return value + 1;
}

int main() {
    char line[8];
    while (std::fgets(line, sizeof line, stdin)) {
        for (long n = 0; n < 3000; n++) {
            try {
                if (outer(n) != n + 1)
                    return 1;
                returned++;
            } catch (const std::runtime_error &) {
                caught++;
            }
        }
        std::printf("caught %lu returned %lu\n", caught, returned);
        std::fflush(stdout);
    }
}
"""


def test_exceptions_pass_through_functions_whose_exits_are_on(tmp_path: Path) -> None:
    folder = tmp_path
    source, path = folder / "throwing.cc", folder / "throwing"
    source.write_text(THROWING)
    made = Compiler("g++").run("-O2", source, "-o", path)
    assert made.returncode == 0, made.stderr
    with Limited([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdin and program.stdout

        def turn() -> str:
            print("go", file=program.stdin, flush=True)
            return program.stdout.readline()

        assert turn() == "caught 1000 returned 2000\n"
        with markerjit.attach(program.pid, breakpoints=True) as session:
            for function in ("inner", "outer"):
                session.enable(f"func:throwing:{function}")
                session.enable(f"func:throwing:{function}:return")
            answer = turn()
            entered = {statistic.name: statistic.hits for statistic in session.statistics("func:*")}
            left = hits_of(session)
            session.disable("func:*:return")
            session.disable("func:*")
        assert turn() == "caught 3000 returned 6000\n"
        program.stdin.close()
        assert program.wait() == 0

    assert answer == "caught 2000 returned 4000\n"
    assert entered == {"func:inner": 3000, "func:outer": 3000}
    assert left == {"inner": 2000, "outer": 2000}


NUMBERS = """
import sys
for line in sys.stdin:
    numbers = [abs(-n) + n % 7 - n // 3 for n in range(1000)]
    n = 9
    numbers += [int(n / 2), ~n & n ^ 5 | 1, pow(n, 2, 11), n << 2 >> 1]
    numbers += [round(abs(complex(3, 4))), len("x" * 5), [1, 2] * 2 == [1, 2, 1, 2]]
    print(sum(numbers), flush=True)
"""


def test_functions_of_python_are_left_as_often_as_entered_and_are_as_before_afterwards() -> None:
    python = "/usr/bin/python3.11"
    debian(python)
    with Limited(
        [python, "-c", NUMBERS],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as program:  # fmt: skip
        assert program.stdin and program.stdout

        def turn() -> str:
            print("go", file=program.stdin, flush=True)
            return program.stdout.readline()

        expected = turn()
        with markerjit.attach(program.pid) as session:
            spans = [
                (each.start, each.end - each.start) for each in session._target.seen.maps
                if each.executable and each.path == python
            ]  # fmt: skip
            before = [session.read(*span) for span in spans]
            session.enable("func:python3.11:PyNumber_*:return")
            session.enable("func:python3.11:PyNumber_*")
            answers = [turn() for _ in range(3)]
            entered = {
                statistic.name.removeprefix("func:"): statistic.hits
                for statistic in session.statistics("func:*")
                if statistic.mode
            }  # fmt: skip
            on = {
                statistic.name
                for statistic in session.statistics("func:*:return")
                if statistic.mode
            }
            left = hits_of(session)
            session.disable("func:*")
            session.disable("func:*:return")
            after = [session.read(*span) for span in spans]
        program.stdin.close()
        assert program.wait() == 0

    assert answers == [expected] * 3
    assert sum(entered.values()) >= 1000
    assert len(on) > 20
    for name in on:
        function = name.removeprefix("func:").removesuffix(":return")
        exits = left.get(function, 0) + left.get(f"tail {function}", 0)
        assert (function, exits) == (function, entered[function])
    assert after == before


# ---- what commands say ---------------------------------------------------------------------------


def test_list_shows_the_exits_and_how_each_is_opened(target: Callable) -> None:
    program = target(PROGRAM)
    cli("on", program.pid, name_of("rare"))

    listed = cli("list", program.pid, name_of("rare"))
    document = facts("list", program.pid, name_of("*"))
    of_file = facts("list", program.path, "func:*:return")
    mixed = cli("list", program.pid, "func:rare,func:rare:return")

    header, row = listed.stdout.splitlines()
    assert header.split() == ["FUNCTION", "STATE", "ENTRY", "EXITS"]
    assert row.split()[:3] == ["func:rare:return", "on", "(jump)"]
    assert row.endswith("2 by jump into padding")
    by_name = {each["name"]: each for each in document["functions"]}
    assert len(by_name["func:many:return"]["exits"]) == 3
    assert by_name["func:slow:return"]["exits"][0]["tail"] is False
    assert by_name["func:_start:return"]["exits"] == []
    assert "no unwind table has it" in by_name["func:_init:return"]["problem"]
    for name, function in by_name.items():
        same = next(each for each in of_file["functions"] if each["name"] == name)
        assert same["exits"] == function["exits"]
    one_line(mixed, "not listed together")


def test_an_entry_is_opened_rather_than_an_exit_with_the_same_bytes(target: Callable) -> None:
    program, other = target(PROGRAM), target(PROGRAM)
    both = f"func:brief,{name_of('brief')}"

    switched = cli("on", program.pid, both)
    by_breakpoint = cli("on", other.pid, both, "--breakpoints")
    program.ask("run 30")
    other.ask("run 30")

    assert switched.stdout.splitlines()[:2] == [
        "func:brief: on (jump, count), 1 site", "func:brief:return: off, 1 site",
    ]  # fmt: skip
    assert "another site that is asked for, or a marker, has the same bytes" in switched.stderr
    assert by_breakpoint.stdout.splitlines()[:2] == [
        "func:brief: on (int3, count), 1 site", "func:brief:return: on (jump, count), 1 site",
    ]  # fmt: skip
    hits = [facts("status", each.pid, both)["markers"] for each in (program, other)]
    assert [[each["hits"] for each in markers] for markers in hits] == [[30, 0], [30, 30]]


def test_an_entry_whose_bytes_an_open_exit_has_is_off_and_not_altered(target: Callable) -> None:
    program = target(PROGRAM)
    both = f"func:brief,{name_of('brief')}"
    cli("on", program.pid, name_of("brief"))

    switched = cli("on", program.pid, both)
    known = json.loads(cli("on", program.pid, both, "--json").stdout)

    assert switched.stdout.splitlines()[:2] == [
        "func:brief: off, 1 site", "func:brief:return: on (jump, count), 1 site",
    ]  # fmt: skip
    assert "can be opened only by a breakpoint" in switched.stderr
    assert [each["sites"][0]["altered"] for each in known["markers"]] == [None, None]


def test_a_function_that_never_returns_is_refused_and_nothing_is_touched(target: Callable) -> None:
    program = target(PROGRAM)

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.Refused, match="never returns"):
            session.enable(name_of("spin"))
        with pytest.raises(markerjit.UnknownMarker, match="func:many"):
            session.enable("func:manny:return")
        assert not session.has_runtime


def test_explain_shows_the_code_of_an_exit_before_and_after(target: Callable) -> None:
    program = target(PROGRAM)

    before = cli("explain", program.pid, name_of("rare"))
    cli("on", program.pid, name_of("rare"))
    after = cli("explain", program.pid, name_of("rare"))

    assert before.returncode == after.returncode == 0, (before.stderr, after.stderr)
    assert "is opened by a jump over" in before.stdout
    assert "now       on (jump)" in after.stdout


@pytest.mark.parametrize("mode", [Mode.JUMP, Mode.INT3])
def test_a_breakpoint_finds_the_value_as_a_jump_does(target: Callable, mode: Mode) -> None:
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        session.trace(name_of("deep"), mode=mode) as stream,
    ):
        program.ask("run 7")
        events = list(stream.drain())

    values = [event.fields["ret"] for event in events]
    assert values == [n * (n + 1) // 2 for depth in range(7) for n in range(depth + 1)]
