"""Signals of the program's own: markers in its handlers, threads that stand in one, and a program
that uses SIGTRAP itself."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest

import markerjit
from markerjit import Mode
from tests.support.choice import spacing
from tests.support.processes import text_of
from tests.support.timing import wait_until

MODES = [Mode.JUMP, Mode.INT3]
in_both_modes = pytest.mark.parametrize("mode", MODES)


def hits(session: markerjit.Session) -> dict[str, int]:
    return {statistic.name: statistic.total for statistic in session.statistics()}


# ---- in the middle of a handler ----------------------------------------------------------------


@in_both_modes
def test_nested_handlers_are_seen_to_the_last_one(target: Callable, mode: Mode) -> None:
    program = target("truth_handlers")

    with markerjit.attach(program.pid, ring_size=16 << 20) as session:
        with session.trace("truth_handler", mode=mode) as stream:
            program.command("resume")
            wait_until(lambda: program.ask("counts")["handler"] > 2000, "signals")
            counts = program.ask("pause")
        events = stream.drain()

        assert len(events) + stream.statistics().lost == counts["handler_evaluated"]
        assert counts["handler"] == counts["handler_evaluated"] == hits(session)["truth_handler"]
    seen = {(event.fields["signal"], event.fields["depth"]) for event in events}
    assert seen == {
        (signal.SIGUSR1, 0),
        *((signal.SIGUSR2, depth) for depth in (1, 2, 3)),
        (signal.SIGRTMIN, 0),
    }
    assert sorted(event.fields["n"] for event in events) == [event.fields["n"] for event in events]


@in_both_modes
def test_markers_in_nested_handlers_are_switched_while_these_run(
    target: Callable, mode: Mode
) -> None:
    program = target("truth_handlers")
    text = text_of(program.pid)

    program.command("resume")
    with markerjit.attach(program.pid) as session:
        for turn in range(100 // spacing(3)):
            session.enable("*", mode=mode, probe=("count", "record")[turn % 2])
            session.disable("truth_*" if turn % 2 else "truth_handler")
        before = program.ask("counts")
        session.enable("*", mode=mode)
        wait_until(
            lambda: program.ask("counts")["handler_evaluated"] > before["handler_evaluated"],
            "more signals",
        )
        counts = program.ask("pause")
        session.disable("*")

        assert hits(session) == {
            "truth_main": counts["main_evaluated"],
            "truth_handler": counts["handler_evaluated"],
        }
    assert counts["main_evaluated"] > 0
    assert text_of(program.pid) == text


@in_both_modes
@pytest.mark.parametrize("how", ["spin", "read", "sleep"])
def test_thread_that_stands_in_a_handler_goes_on_in_it(
    target: Callable, how: str, mode: Mode
) -> None:
    program = target("truth_handlers")
    text = text_of(program.pid)

    # the runtime is put in, by a borrowed thread, and all is switched with the thread in there
    program.command(f"hold {how}")
    with markerjit.attach(program.pid) as session:
        for _ in range(20):
            session.enable("truth_handler", mode=mode, probe="record")
            session.disable("truth_handler")
        session.enable("truth_handler", mode=mode)
        counts = program.ask("release")
        assert hits(session)["truth_handler"] == counts["handler_evaluated"] == 1
        program.command(f"hold {how}")  # it comes by an open site this time,
        session.disable("*")  # and leaves by a closed one
        counts = program.ask("release")

        assert hits(session)["truth_handler"] == counts["handler_evaluated"] == 2
    assert (counts["handler"], counts["eintr"]) == (4, 0)
    assert text_of(program.pid) == text


# ---- SIGTRAP ------------------------------------------------------------------------------------


@in_both_modes
def test_program_gets_the_traps_and_signals_that_are_its_own(target: Callable, mode: Mode) -> None:
    program = target("truth_traps", "--own")

    with markerjit.attach(program.pid) as session:
        for turn in range(20):
            session.enable("truth_traps", mode=mode, probe=("count", "record")[turn % 2])
            program.command("raise")
            program.command("int3")
            program.command("pass 1")
            session.disable("truth_traps")
            program.command("raise")
            program.command("int3")
        counts = program.ask("counts")

    assert (counts["sent"], counts["trapped"], counts["wrong"]) == (40, 40, 0)
    assert counts["evaluated"] >= 20


@pytest.mark.parametrize("option", ["--own", "--ignore"])
def test_sigtrap_that_is_sent_comes_as_ever_while_a_breakpoint_is_passed(
    target: Callable, option: str
) -> None:
    program = target("truth_traps", option)
    times = 200 // spacing(4)

    with markerjit.attach(program.pid) as session:
        session.enable("truth_traps", mode=Mode.INT3)
        for _ in range(times):
            program.command("raise")
            program.command("pass 1")
        counts = program.ask("counts")

    assert counts["sent"] == (times if option == "--own" else 0)
    assert counts["wrong"] == 0
    assert counts["evaluated"] >= times


@pytest.mark.parametrize("command", ["raise", "int3"])
def test_program_without_a_handler_dies_of_its_own_sigtrap_as_ever(
    target: Callable, command: str
) -> None:
    program = target("truth_traps", may_die=True)

    with markerjit.attach(program.pid) as session:
        session.enable("truth_traps", mode=Mode.INT3)
        wait_until(lambda: session.statistics()[0].total > 100, "breakpoints")
        program.process.stdin.write(f"{command}\n".encode())
        program.process.stdin.flush()

        assert program.wait() == -signal.SIGTRAP


@pytest.mark.product
@pytest.mark.parametrize("how", ["sigwait", "sigtimedwait", "signalfd", "ppoll"])
@pytest.mark.parametrize("block", [[], ["--block"]], ids=["one thread blocks it", "all block it"])
def test_thread_that_waits_for_sigtrap_gets_it_and_breakpoints_are_refused(
    target: Callable, how: str, block: list[str]
) -> None:
    program = target("truth_traps", f"--{how}", *block)
    text = text_of(program.pid)
    sends = ["wait", "raise"] if block and how != "ppoll" else ["wait"]

    with markerjit.attach(program.pid) as session:
        with pytest.raises(markerjit.Refused, match=r"thread \d+ blocks SIGTRAP.*use the mode"):
            session.enable("truth_traps", mode=Mode.INT3)
        assert text_of(program.pid) == text
        for turn in range(100 // spacing(4)):
            session.enable("truth_traps")
            if turn % 5 == 0:
                for command in sends:
                    program.command(command)
            session.disable("truth_traps")
        counts = program.ask("counts")

    assert counts["waited"] == 20 // spacing(4) * len(sends)
    assert counts["eintr"] == 0
    assert text_of(program.pid) == text
