"""Calls of functions by their callers: each call counted, its arguments, and off again."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

import markerjit
from markerjit import Mode
from tests.support.choice import spacing
from tests.support.commands import cli, facts, one_line
from tests.support.processes import text_of

pytestmark = pytest.mark.live

PROGRAM = "truth_call_sites"
TURNS = 100
PER_TURN = {
    "call:direct->leaf": 2, "call:stacked->wide": 1, "call:plt->getenv": 1, "call:slot->rand_r": 1,
    "call:handed->leaf": 1, "call:passed->rand_r": 1, "call:deep->deep": 3,
}  # fmt: skip
"""Calls that each turn makes."""
ON_A_CONDITION = ("call:near->leaf", "call:brief->close_by")
"""Jumps that every other turn takes."""
ALL = ",".join((*PER_TURN, *ON_A_CONDITION, "call:spun->leaf"))


def named(pattern: str) -> str:
    """Those of the program, and not of its libraries."""
    return ",".join(name.replace("->", f"@{PROGRAM}->") for name in pattern.split(","))


def test_every_call_is_counted_and_off_again_byte_for_byte(target: Callable) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)

    with markerjit.attach(program.pid) as session:
        session.enable(named(ALL))
        answer = program.ask(f"run {TURNS}")
        status = {each.name: each for each in session.statistics("call:*->*")}
        opened = text_of(program.pid)
        session.disable("call:*->*")
        program.ask("run 10")
        off = {each.name: (each.mode, each.total) for each in session.statistics("call:*->*")}

    assert {name: each.hits for name, each in status.items()} == {
        **{name: count * TURNS for name, count in PER_TURN.items()},
        **dict.fromkeys(ON_A_CONDITION, TURNS // 2),
        "call:spun->leaf": 0,
    }
    assert (answer["direct"], answer["jumped"]) == (TURNS, TURNS // 2)
    assert {name for name, each in status.items() if each.mode is not Mode.JUMP} <= set(
        ON_A_CONDITION
    )
    assert len(status["call:direct->leaf"].sites) == 2
    assert opened != before
    assert off == {name: (None, each.hits) for name, each in status.items()}
    assert text_of(program.pid) == before


def test_events_have_the_arguments_of_the_function_that_is_called(target: Callable) -> None:
    program = target(PROGRAM)
    names = "call:direct->leaf,call:handed->leaf,call:slot->rand_r,call:passed->rand_r"

    with markerjit.attach(program.pid) as session, session.trace(named(names)) as stream:
        program.ask("run 5")
        events = list(stream.drain())

    def of(name: str) -> list[object]:
        """The first arguments."""
        return [next(iter(event.fields.values())) for event in events if event.name == name]

    both = [value for n in range(5) for value in (n, n + 1)]
    assert of("call:direct->leaf") == both
    assert of("call:handed->leaf") == [3 * n for n in range(5)]
    seeds = set(of("call:slot->rand_r"))
    assert seeds == set(of("call:passed->rand_r"))
    assert len(seeds) == 1


def test_arguments_on_the_stack_are_those_that_the_function_finds(target: Callable) -> None:
    pytest.importorskip("drgn", reason="drgn is not installed: pip install 'markerjit[debug]'")
    program = target(PROGRAM)

    with (
        markerjit.attach(program.pid) as session,
        session.trace(named("call:stacked->wide")) as stream,
    ):
        program.ask("run 4")
        events = [event.fields for event in stream.drain()]

    assert events == [
        {"a": n, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6, "g": n * 7, "h": -8} for n in range(4)
    ]


def test_a_question_is_asked_of_a_call(target: Callable) -> None:
    program = target(PROGRAM)
    field = facts("list", program.path, "call:deep->deep")["functions"][0]["fields"][0]["name"]

    with (
        markerjit.attach(program.pid) as session,
        session.trace(named("call:deep->deep"), where=f"{field} == 1") as stream,
    ):
        program.ask("run 10")
        events = list(stream.drain())

    assert len(events) == 10
    assert {event.fields[field] for event in events} == {1}


def test_calls_of_threads_at_full_speed_are_switched_again_and_again(target: Callable) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)
    spun = named("call:spun->leaf")
    program.command("resume")

    with markerjit.attach(program.pid) as session:
        for _ in range(100 // spacing(3)):
            session.enable(spun)
            session.disable(spun)
        program.command("pause")
        start = program.ask("counts")["spun"]
        session.enable(spun)
        program.command("resume")
        while program.ask("counts")["spun"] < start + 1000:
            pass
        program.command("pause")
        (status,) = session.statistics(spun)
        end = program.ask("counts")["spun"]
        session.disable(spun)

    assert status.hits == end - start
    assert text_of(program.pid) == before


def test_another_controller_finds_calls_and_switches_them_off(target: Callable) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)

    on = cli("on", program.pid, named(ALL))
    program.ask("run 10")
    status = {each["name"]: each for each in facts("status", program.pid)["markers"]}
    listed = cli("list", program.pid, "call:handed->leaf")
    explained = cli("explain", program.pid, "call:direct->leaf")
    off = cli("off", program.pid, "call:*->*")

    assert (on.returncode, off.returncode) == (0, 0)
    assert {name: status[name]["hits"] for name in PER_TURN} == {
        name: count * 10 for name, count in PER_TURN.items()
    }
    assert re.search(r"call:handed->leaf +on \(jump\) +\S+ \(tail call\)", listed.stdout)
    assert "call:direct->leaf" in explained.stdout
    assert text_of(program.pid) == before


def test_the_child_of_a_fork_goes_on_with_calls_open(target: Callable) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)

    with markerjit.attach(program.pid) as session:
        session.enable(named(ALL))
        assert program.ask("fork 20")["direct"] == 0
        session.disable("call:*->*")

    assert text_of(program.pid) == before


def test_a_call_and_its_function_are_on_together(target: Callable) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)

    with markerjit.attach(program.pid) as session:
        session.enable(f"func:{PROGRAM}:leaf,{named('call:direct->leaf')}")
        answer = program.ask("run 10")
        hits = {each.name: each.hits for each in session.statistics("func:*,call:*->*")}
        session.disable("func:*,call:*->*")

    assert hits == {"func:leaf": answer["leaf"], "call:direct->leaf": 20}
    assert text_of(program.pid) == before


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("call:direct->leav", "did you mean call:direct->leaf"),
        ("call:dirrect->leaf", "did you mean call:direct->leaf"),
        ("call:pointed->leaf", "no such call is in the code"),
        ("call:direct", "call:CALLER->CALLEE"),
    ],
)
def test_what_is_no_call_is_refused_and_nothing_is_touched(
    target: Callable, name: str, says: str
) -> None:
    program = target(PROGRAM)
    before = text_of(program.pid)

    refused = cli("on", program.pid, name)

    one_line(refused, re.escape(says))
    assert text_of(program.pid) == before


def test_an_instruction_in_the_place_of_an_open_call_is_refused(target: Callable) -> None:
    program = target(PROGRAM)
    with markerjit.attach(program.pid) as session:
        session.enable("call:stacked->wide")
        (site,) = session.sites("call:stacked->wide")

        with pytest.raises(markerjit.Refused, match="call:stacked->wide is there already"):
            session.enable(f"insn:{PROGRAM}+{site.offset:#x}")
        session.disable("call:stacked->wide")


def test_a_breakpoint_in_the_place_of_a_call_is_refused(target: Callable) -> None:
    """Nothing would push where the call returns to."""
    program = target(PROGRAM)
    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.Refused),
    ):
        session.enable("call:stacked->wide", mode=Mode.INT3)
