"""A switch that is made once more in a session takes no turn, and sees what has changed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import markerjit
from markerjit.errors import NotPermitted, Refused
from markerjit.remote.mappings import Mappings
from markerjit.session.turn import Turns
from tests.support.calls import calls_of
from tests.support.timing import wait_until

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        Mappings(os.getpid()).now() is None, reason="needs a kernel that tells mappings (6.11)"
    ),
]

LOOP = "truth_loop"
SEIZE = "import ctypes, sys; ctypes.CDLL(None).ptrace(0x4206, int(sys.argv[1]), 0, 0); input()"
MOST_CALLS = 240
"""Of functions, of Python and of C, in a switch; an ordinary one that is prepared has 900."""


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[Turns]:
    """The turns that were taken."""
    taken: list[Turns] = []
    take = Turns.take

    def taking(self: Turns, **options: bool) -> object:
        taken.append(self)
        return take(self, **options)

    monkeypatch.setattr(Turns, "take", taking)
    return taken


@contextmanager
def switched_thrice(pid: int) -> Iterator[markerjit.Session]:
    with markerjit.attach(pid) as session:
        for _ in range(3):
            session.on(LOOP)
            session.off(LOOP)
        yield session


def test_it_takes_no_turn_and_does_the_same(target: Callable, turns: list[Turns]) -> None:
    program = target("truth_process")
    with markerjit.attach(program.pid) as session:
        (name,) = {marker.name for marker in session.statistics()}
        seen = []
        for number in range(6):
            if number == 3:
                turns.clear()
            session.on(name)
            program.command(f"pass {number}")
            marker = session.statistics(name, look=False)[0]
            seen.append((str(marker.mode), marker.hits))
            session.off(name)
            program.command("pass 1")
            assert not session.statistics(name, look=False)[0].mode

    assert seen == [("jump", number) for number in range(6)]
    assert not turns


def test_it_makes_few_calls(target: Callable) -> None:
    program = target("truth_threads", "1")
    with switched_thrice(program.pid) as session:
        on = calls_of(lambda: session.on(LOOP))
        off = calls_of(lambda: session.off(LOOP))

    assert max(on, off) < MOST_CALLS


def test_any_other_argument_takes_a_turn(target: Callable, turns: list[Turns]) -> None:
    program = target("truth_threads", "1")
    with switched_thrice(program.pid) as session:
        turns.clear()

        session.on(LOOP, force=True)
        session.off(LOOP, force=True)

    assert len(turns) == 2


def test_another_controller_that_records_is_in_the_way(target: Callable) -> None:
    program = target("truth_threads", "1")
    with (
        switched_thrice(program.pid) as session,
        markerjit.attach(program.pid) as other,
        other.trace(LOOP),
        pytest.raises(Refused, match="is recorded by a trace"),
    ):
        session.on(LOOP)


def test_it_waits_for_another_controller_and_sees_what_that_has_done(
    target: Callable, turns: list[Turns]
) -> None:
    program = target("truth_threads", "1")
    with switched_thrice(program.pid) as session, markerjit.attach(program.pid) as other:
        other.on("*")
        session.off(LOOP)
        assert {m.name for m in session.statistics() if not m.mode} == {LOOP}
        turns.clear()

        session.on(LOOP)

        assert len(turns) == 1
        assert all(marker.mode for marker in session.statistics())


def test_what_is_mapped_meanwhile_takes_a_turn(target: Callable, turns: list[Turns]) -> None:
    program = target("truth_dlopen")
    with markerjit.attach(program.pid) as session:
        for _ in range(3):
            session.on("truth_host")
            session.off("truth_host")
        turns.clear()
        assert program.ask(f"load {os.path.dirname(program.path)}/truth_plugin.so")["ok"] == 1

        session.on("truth_host")
        session.off("truth_host")

    assert len(turns) == 2


@pytest.mark.parametrize("switch", ["on", "off"])
def test_an_error_is_that_of_an_ordinary_switch(target: Callable, switch: str) -> None:
    program = target("truth_threads", "1")
    status = Path(f"/proc/{program.pid}/status")
    with switched_thrice(program.pid) as session:
        if switch == "off":
            session.on(LOOP)
        command = [sys.executable, "-c", SEIZE, str(program.pid)]
        with subprocess.Popen(command, stdin=subprocess.PIPE) as tracer:
            wait_until(lambda: f"TracerPid:\t{tracer.pid}" in status.read_text(), "a tracer")

            with pytest.raises(NotPermitted, match="is being traced by process"):
                getattr(session, switch)(LOOP)


def test_after_the_end_of_a_session_it_is_refused(target: Callable) -> None:
    program = target("truth_threads", "1")
    with switched_thrice(program.pid) as session:
        pass

    with pytest.raises(markerjit.MarkerError, match="attach again"):
        session.on(LOOP)
