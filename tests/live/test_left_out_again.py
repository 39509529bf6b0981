"""What a switch leaves out is left out in the short way, too, where the reason lasts; and where it
does not, it is asked for each time."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit import Reason
from markerjit.remote.mappings import Mappings
from tests.support.code_bytes import code_of

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        Mappings(os.getpid()).now() is None, reason="needs a kernel that tells mappings (6.11)"
    ),
]

HOLES, RETURNS = "truth_holes", "truth_returns"
OPENED = ("first", "second", "third")


def of(program: str, *functions: str, behind: str = "") -> str:
    return ",".join(f"func:{program}:{each}{behind}" for each in functions)


def names(left_out: tuple[markerjit.LeftOut, ...]) -> set[str]:
    return {each.marker for each in left_out}


def write_code(pid: int, address: int, code: bytes) -> bytes:
    """Write it as a debugger does. The result is what stood there."""
    with Path(f"/proc/{pid}/mem").open("r+b", buffering=0) as memory:
        memory.seek(address)
        before = memory.read(len(code))
        memory.seek(address)
        memory.write(code)
    return before


def test_what_needs_a_breakpoint_is_left_out_without_asking_again(
    target: Callable, asked: list[str]
) -> None:
    program = target(HOLES)
    before = code_of(program)
    pattern = of(HOLES, *OPENED, "alone")
    seen = []
    with markerjit.attach(program.pid) as session:
        for number in range(6):
            if number == 1:
                asked.clear()
            if number == 3:
                assert "look" not in asked
                asked.clear()
            on = session.on(pattern)
            program.ask(f"run {number}")
            hits = {status.hits for status in session.status(of(HOLES, *OPENED), look=False)}
            off = session.off(pattern)
            seen.append((hits, [(each.marker, each.reason) for each in on.left_out], off.left_out))
            assert code_of(program) == before

    alone = [("func:alone", Reason.NEEDS_BREAKPOINT)]
    assert seen == [({number}, alone, ()) for number in range(6)]
    assert not asked


def test_a_function_some_of_whose_exits_are_closed_stays_off_without_asking_again(
    target: Callable, asked: list[str]
) -> None:
    """Some exits have a stub, and stay off with the others."""
    program = target(RETURNS)
    pattern = of(RETURNS, "*", behind=":return")
    with markerjit.attach(program.pid) as session:
        for number in range(5):
            if number == 3:
                asked.clear()
            on = session.on(pattern)
            assert on.left_out and all(each.lasts for each in on.left_out)
            program.ask("run 10")
            session.off(pattern)

    assert not asked


def test_what_the_bytes_of_another_site_keep_closed_is_opened_when_that_is_off(
    target: Callable,
) -> None:
    program = target(RETURNS)
    pattern = of(RETURNS, "single", "brief", behind=":return")
    with markerjit.attach(program.pid, breakpoints=True) as session:
        session.on("func:single")
        for _ in range(4):
            on = session.on(pattern)
            assert names(on.left_out) == {"func:single:return"}
            session.off(pattern)
        session.off("func:single")

        assert not session.on(pattern).left_out

        program.ask("run 10")
        hits = {status.name: status.hits for status in session.status(pattern)}
        session.off(pattern)

    assert hits["func:single:return"] == 10


def test_a_breakpoint_that_another_controller_has_put_is_seen_and_may_come_again(
    target: Callable, asked: list[str]
) -> None:
    program = target(HOLES)
    pattern = of(HOLES, *OPENED, "alone")
    with markerjit.attach(program.pid) as session:
        for _ in range(4):
            assert names(session.on(pattern).left_out) == {"func:alone"}
            session.off(pattern)
        with markerjit.attach(program.pid, breakpoints=True) as other:
            other.on(of(HOLES, "alone"))

        assert not session.on(pattern).left_out  # it is on already

        program.ask("run 5")
        assert {status.hits for status in session.status(pattern)} == {5}
        session.off(pattern)
        for _ in range(4):
            asked.clear()
            assert names(session.on(pattern).left_out) == {"func:alone"}
            assert "plan" in asked
            session.off(pattern)


def test_what_another_tool_has_changed_is_opened_when_that_is_gone(target: Callable) -> None:
    program = target(HOLES)
    pattern = of(HOLES, *OPENED)
    with markerjit.attach(program.pid) as session:
        (second,) = session.sites(of(HOLES, "second"))
        before = write_code(program.pid, second.address, b"\xcc")
        for _ in range(4):
            assert names(session.on(pattern).left_out) == {"func:second"}
            session.off(pattern)
        write_code(program.pid, second.address, before)

        assert not session.on(pattern).left_out

        program.ask("run 10")
        assert {status.hits for status in session.status(pattern)} == {10}
        session.off(pattern)


def test_a_thread_that_blocks_a_signal_is_looked_for_each_time(
    target: Callable, asked: list[str]
) -> None:
    program = target(HOLES)
    pattern = of(HOLES, "first", "alone")
    with markerjit.attach(program.pid, breakpoints=True) as session:
        session.on(pattern)
        session.off(pattern)
        program.ask("block")
        for number in range(5):
            if number == 3:
                asked.clear()
            assert names(session.on(pattern).left_out) == {"func:alone"}
            session.off(pattern)

    assert asked.count("plan") >= 2
