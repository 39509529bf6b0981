"""Short jumps to holes: functions whose first five bytes cannot become a jump."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import Mode, Reason
from tests.support.answering import started
from tests.support.commands import cli
from tests.support.processes import text_of
from tests.support.timing import HANG_S
from tests.support.tracing import rip_of, stop_at

pytestmark = pytest.mark.live

PADDED = ("first", "second", "third")
HOLED = (*PADDED, "last")
ALL = (*HOLED, "lost", "alone")
Text = dict[tuple[int, str], bytes]


def name_of(function: str) -> str:
    return f"func:truth_holes:{function}"


def hole_of(session: markerjit.Session, function: str) -> tuple[int, int]:
    """The first byte that a function's hole has, and the address of its long jump."""
    (site,) = session.sites(name_of(function))
    assert site.body.hole
    return site.body.hole.address, site.body.hole.address + len(site.body.hole.after) - 5


def test_every_hit_is_counted_through_holes_which_are_given_back(target: Callable) -> None:
    program = target("truth_holes")
    before = text_of(program.pid)

    with markerjit.attach(program.pid, breakpoints=True) as session:
        session.enable(",".join(map(name_of, ALL)))
        program.ask("run 100")
        on = {
            statistic.name: (statistic.mode, statistic.hits)
            for statistic in session.statistics("func:*")
        }
        opened = text_of(program.pid)
        session.disable("func:*")
        program.ask("run 10")

    assert on == {
        **{f"func:{name}": (Mode.JUMP, 100) for name in ALL},
        "func:alone": (Mode.INT3, 100),
    }
    assert opened != before
    assert text_of(program.pid) == before


def test_threads_run_through_holes_that_come_and_go(target: Callable) -> None:
    program = target("truth_holes")
    before = text_of(program.pid)
    names = ",".join(map(name_of, HOLED))
    program.command("resume")

    with markerjit.attach(program.pid) as session:
        for _ in range(100):
            session.enable(names)
            session.disable(names)
        program.command("pause")
        start = program.ask("counts")["spins"]
        session.enable(names)
        program.command("resume")
        while program.ask("counts")["spins"] < start + 1000:
            pass
        program.command("pause")
        hits = {status.hits for status in session.statistics("func:*")}
        end = program.ask("counts")["spins"]
        session.disable(names)

    assert hits == {end - start}
    assert text_of(program.pid) == before


def test_no_two_functions_share_a_hole_whoever_opens_them(target: Callable) -> None:
    program = target("truth_holes")
    before = text_of(program.pid)

    holes = set()
    for function in HOLED:
        with markerjit.attach(program.pid) as session:
            session.enable(name_of(function))
            holes.add(hole_of(session, function)[0])
    program.ask("run 10")
    with markerjit.attach(program.pid) as other:
        on = {status.name: (status.mode, status.hits) for status in other.statistics("func:*")}
        other.disable("func:*")

    assert len(holes) == len(HOLED)
    assert on == {f"func:{name}": (Mode.JUMP, 10) for name in HOLED}
    assert text_of(program.pid) == before


def test_a_function_keeps_its_hole_while_it_is_closed(target: Callable) -> None:
    program = target("truth_holes")

    with markerjit.attach(program.pid) as session:
        session.enable(name_of("first"))
        first = hole_of(session, "first")
        session.disable("func:*")
        session.enable(name_of("second"))
        second = hole_of(session, "second")
        session.enable(name_of("first"))
        program.ask("run 5")
        hits = {status.name: status.hits for status in session.statistics("func:*")}

        assert hole_of(session, "first") == first != second
    assert hits == {"func:first": 5, "func:second": 5}


def test_a_breakpoint_needs_no_hole(target: Callable) -> None:
    program = target("truth_holes")
    before = text_of(program.pid)

    with markerjit.attach(program.pid) as session:
        session.enable(name_of("first"), mode="int3")
        by_breakpoint = text_of(program.pid)
        session.enable(name_of("first"), mode="jump")
        by_jump = text_of(program.pid)
        session.enable(name_of("first"), mode="int3")
        again = text_of(program.pid)
        program.ask("run 5")
        (first,) = session.statistics(name_of("first"))
        session.disable("func:*")

    assert changes(before, by_breakpoint) == 1 < changes(before, by_jump)
    assert again == by_breakpoint
    assert (first.mode, first.hits) == (Mode.INT3, 5)
    assert text_of(program.pid) == before


def changes(before: Text, after: Text) -> int:
    """How many bytes differ."""
    return sum(
        old != new
        for place, code in before.items()
        if code != after[place]
        for old, new in zip(code, after[place], strict=True)
    )


@pytest.mark.parametrize("function", ["first", "last"])
def test_a_thread_at_a_long_jump_goes_on_in_the_stub_when_the_hole_is_given_back(
    target: Callable, function: str
) -> None:
    program = target("truth_holes")
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.enable(name_of(function))
        jump = hole_of(session, function)[1]
        stop_at(program, jump, lambda: program.send("run 3"))

        session.disable("func:*")
        (site,) = session.sites(name_of(function))
        assert rip_of(program.pid) == site.body.entry
        os.kill(program.pid, signal.SIGCONT)

        assert program.read_line().startswith("run calls=3")
    assert text_of(program.pid) == before


def test_a_thread_among_the_instructions_that_are_lost_goes_on_in_their_copies(
    target: Callable,
) -> None:
    program = target("truth_holes")
    before = text_of(program.pid)
    with markerjit.attach(program.pid) as session:
        session.enable(name_of("last"))
        start, _ = hole_of(session, "last")
        session.disable("func:*")
        stop_at(program, start + 3, lambda: program.send("run 3"))

        session.enable(name_of("last"))
        assert rip_of(program.pid) not in range(start, start + 16)
        os.kill(program.pid, signal.SIGCONT)
        assert program.read_line().startswith("run calls=3")
        assert session.statistics(name_of("last"))[0].hits == 2
        session.disable("func:*")
    assert text_of(program.pid) == before


def test_a_hole_that_somebody_has_changed_is_left_alone_and_its_function_named(
    target: Callable,
) -> None:
    program = target("truth_holes")
    with markerjit.attach(program.pid) as session:
        session.enable(name_of("first"))
        start, jump = hole_of(session, "first")
        session.disable("func:*")
    held = text_of(program.pid)
    with open(f"/proc/{program.pid}/mem", "r+b", buffering=0) as memory:
        memory.seek(jump)
        memory.write(b"\xcc")

    refused = cli("on", program.pid, name_of("first"))

    assert refused.returncode == 1
    assert f"{start:#x}" in refused.stderr
    assert changes(held, text_of(program.pid)) == 1


def test_explain_names_the_hole(target: Callable) -> None:
    program = target("truth_holes")

    before = cli("explain", program.pid, name_of("first"))
    made = cli("explain", program.pid, name_of("last"))
    cli("on", program.pid, name_of("first"))
    after = cli("explain", program.pid, name_of("first"))
    with markerjit.attach(program.pid) as session:
        start, _ = hole_of(session, "first")

    assert "is opened by a short jump to a hole at 0x" in before.stdout
    assert "is opened by a short jump to a made hole at 0x" in made.stdout
    assert f"hole {start:#x}: c3 0f 1f 44 00 00 or c3 e9" in after.stdout
    assert "the hole: jumps to the body" in after.stdout


@pytest.fixture
def deaf(target: Callable) -> Iterator[Any]:
    """The program, all of whose threads block SIGTRAP: a breakpoint would end it."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTRAP})
    try:
        yield target("truth_holes")
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def test_a_place_that_needs_a_breakpoint_is_left_out_where_sigtrap_is_blocked(deaf: Any) -> None:
    before = text_of(deaf.pid)

    with markerjit.attach(deaf.pid, breakpoints=True) as session:
        applied = session.enable(",".join(map(name_of, ALL)))
        deaf.ask("run 100")
        hits = {state.name: state.hits for state in session.statistics("func:*")}
        with pytest.raises(markerjit.Refused, match=r"func:alone .* blocks SIGTRAP"):
            session.enable(name_of("alone"))
        session.disable("func:*")

    (left_out,) = applied.left_out
    assert left_out.marker == "func:alone"
    assert "needs a breakpoint" in left_out.sentence
    others = {f"func:{name}": 100 for name in ALL if name != "alone"}
    assert hits == {**others, "func:alone": 0}
    assert text_of(deaf.pid) == before


# ---- breakpoints that nobody asked for -----------------------------------------------------------

EVERY = "func:truth_holes:{first,second,third,las*,lost,alon*}"
Begin = Callable[[markerjit.Session], AbstractContextManager[tuple[markerjit.LeftOut, ...]]]


@contextmanager
def switched_on(session: markerjit.Session) -> Iterator[tuple[markerjit.LeftOut, ...]]:
    yield session.on(EVERY).left_out
    session.off()


@contextmanager
def kept(session: markerjit.Session) -> Iterator[tuple[markerjit.LeftOut, ...]]:
    yield session.record(EVERY).left_out
    session.off()


@contextmanager
def traced(session: markerjit.Session) -> Iterator[tuple[markerjit.LeftOut, ...]]:
    with session.trace(EVERY) as stream:
        yield stream.unswitched


@contextmanager
def added_up(session: markerjit.Session) -> Iterator[tuple[markerjit.LeftOut, ...]]:
    with session.aggregate(EVERY, by="name") as adding:
        yield adding.unswitched


@contextmanager
def timed(session: markerjit.Session) -> Iterator[tuple[markerjit.LeftOut, ...]]:
    with session.latency(EVERY) as latency:
        yield latency.unswitched


@contextmanager
def followed(session: markerjit.Session) -> Iterator[tuple[markerjit.LeftOut, ...]]:
    with session.trace_calls("las*,alon*,lost") as calls:
        needs = {each.name for each in calls.not_opened if each.kind == "needs a breakpoint"}
        reason = markerjit.Reason.NEEDS_BREAKPOINT
        yield tuple(markerjit.LeftOut(f"func:{name}", reason, "") for name in needs)


@pytest.mark.parametrize("begin", [switched_on, kept, traced, added_up, timed, followed])
def test_a_pattern_gets_no_breakpoint_into_a_program_that_blocks_all_signals_later(
    target: Callable, begin: Begin
) -> None:
    program = target("truth_holes")
    before = text_of(program.pid)

    with markerjit.attach(program.pid) as session, begin(session) as left_out:
        program.ask("block")
        calls = program.ask("run 100")["calls"]

    needing = {each.marker for each in left_out if each.reason is Reason.NEEDS_BREAKPOINT}
    assert "func:alone" in {marker.removesuffix(":return") for marker in needing}
    assert calls == 100
    assert text_of(program.pid) == before


@pytest.mark.parametrize("way", ["word", "mode"])
def test_a_breakpoint_that_was_asked_for_ends_such_a_program(target: Callable, way: str) -> None:
    """What the tests above would come to without the rule."""
    program = target("truth_holes", may_die=True)

    with markerjit.attach(program.pid, breakpoints=way == "word") as session:
        session.on(name_of("alone"), mode="int3" if way == "mode" else None)
        program.ask("block")
        program.send("run 1")
        assert program.process.wait(HANG_S) == -signal.SIGTRAP


def test_a_function_that_needs_a_breakpoint_gets_no_stub_before_that_is_asked_for(
    target: Callable,
) -> None:
    program = target("truth_holes")

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.Refused, match=r"func:alone .*; --breakpoints takes it") as no:
            session.on(name_of("alone"))
        assert not session.has_runtime
        with markerjit.attach(program.pid, breakpoints=True) as other:
            other.on(name_of("alone"))
            session.on(name_of("alone"))  # it stands already
            other.off()
        with pytest.raises(markerjit.Refused, match="--breakpoints takes it") as again:
            session.on(name_of("alone"))

    assert no.value.reason is again.value.reason is Reason.NEEDS_BREAKPOINT


def test_commands_say_in_a_line_how_many_need_a_breakpoint_and_take_them_where_asked(
    target: Callable,
) -> None:
    program = target("truth_holes")
    pair = f"{name_of('alon*')},{name_of('alone')}:return,{name_of('last')}"

    without = cli("on", program.pid, pair, "--json")
    asked = cli("on", program.pid, pair, "--breakpoints")
    program.ask("run 10")
    with markerjit.attach(program.pid) as session:
        hits = {state.name: state.hits for state in session.statistics("func:*")}
        session.off()

    (entry,) = [
        each for each in json.loads(without.stdout)["left_out"] if each["marker"] == "func:alone"
    ]
    assert entry["kind"] == str(Reason.NEEDS_BREAKPOINT)
    assert without.stderr.count("--breakpoints takes") == 1
    assert "left out" not in asked.stderr
    assert hits["func:alone"] == hits["func:last"] == 10


def test_calls_says_at_the_beginning_what_it_does_not_wait_for(target: Callable) -> None:
    program = target("truth_holes")

    done = cli("calls", program.pid, "las*", "alone", "-d", "0.1")
    both = cli("calls", program.pid, "las*", "alone", "--breakpoints", "-d", "0.1")

    sentence = "markerjit: left out: func:alone can be opened only by a breakpoint"
    assert done.stderr.startswith(sentence)
    assert "1 function followed" in done.stdout
    assert "2 functions followed" in both.stdout


def test_a_program_that_has_not_begun_gets_no_breakpoint(target: Callable) -> None:
    """It may still take SIGTRAP for itself, as vim does where it begins."""
    path = os.readlink(f"/proc/{target('truth_holes').pid}/exe")

    with markerjit.launch([path]) as program, program.attach() as session:
        applied = session.on(EVERY)
        asked = session.on(name_of("alone"), mode="int3")
        session.off()

    (left_out,) = applied.left_out
    assert (left_out.marker, asked.left_out) == ("func:alone", ())


THREADS = r"""
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>
static void *run(void *none) { return none; }
int main(void) {
    char byte = 'r';
    while (write(1, &byte, 1) == 1 && read(0, &byte, 1) == 1) {
        pthread_t thread;
        pthread_create(&thread, NULL, run, NULL);
        pthread_join(thread, NULL);
    }
}
"""


@pytest.mark.parametrize("flags", [[], ["-static-pie"]], ids=["library", "static"])
def test_what_the_c_library_executes_with_all_signals_blocked_has_no_breakpoint(
    needs_tool: Callable, tmp_path: Path, flags: list[str]
) -> None:
    """A thread begins by _setjmp, whose entry needs a breakpoint while its exit is open."""
    needs_tool("gcc", "gcc")
    path = tmp_path / "threads"
    command = ["gcc", "-O2", "-pthread", *flags, "-xc", "-", "-o", path]
    subprocess.run(command, input=THREADS.encode(), check=True)
    with started(path) as program, markerjit.attach(program.pid) as session:
        session.on("func:_setjmp:return")
        applied = session.on("func:_setjmp,func:pthread_create")
        assert program.process.stdin is not None and program.process.stdout is not None
        program.process.stdin.write(b"t")
        assert program.process.stdout.read(1) == b"t"
        session.off()

    (left_out,) = {each.marker: each.sentence for each in applied.left_out}.items()
    assert left_out[0] == "func:_setjmp"
    assert "can be opened only by a breakpoint" in left_out[1]
