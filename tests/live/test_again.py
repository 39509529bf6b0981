"""Switches that are made again in an open session: from what was prepared, and never wrongly.

`kept` counts those that were, by the session's own memory of them.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit import Mode
from markerjit.remote.calls import SYS_RT_SIGACTION, BorrowedThread, Call
from markerjit.x86.forms import marker_form
from tests.support.code_bytes import code_of
from tests.support.timing import Limited

pytestmark = pytest.mark.also_user


def head(session: markerjit.Session) -> bytes:
    (site,) = session.sites("truth_loop")
    return session.read(site.address, len(site.form.head))


def prepared(session: markerjit.Session) -> bool:
    """Whether a switch of it was made from what was prepared."""
    return any(switch.prepared for switch in session._switcher._remembered.values())


FORM = marker_form(markerjit.Kind.JUMP, 0, 0)
DORMANT = FORM.head
JUMP = FORM.ways[Mode.JUMP]
INT3 = FORM.ways[Mode.INT3]


@pytest.mark.parametrize("quiesce", ["stop", "membarrier", "none"])
def test_switching_again_and_again_does_the_same_each_time(target: Callable, quiesce: str) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with markerjit.attach(program.pid) as session:
        for _ in range(10):
            session.enable("truth_loop", quiesce=quiesce)
            assert head(session) == JUMP
            before = session.statistics("truth_loop")[0].total
            program.ask("counts")
            session.disable("truth_loop", quiesce=quiesce)
            assert head(session) == DORMANT
            assert session.statistics("truth_loop")[0].total >= before
        assert prepared(session)  # else this has tested something else


@pytest.mark.parametrize("quiesce", ["stop", "membarrier"])
def test_a_breakpoint_in_between_is_noticed(target: Callable, quiesce: str) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_loop", mode=Mode.JUMP)
        session.disable("truth_loop", quiesce="none")
        session.enable("truth_loop", mode=Mode.JUMP, quiesce=quiesce)
        session.enable("truth_loop", mode=Mode.INT3, quiesce=quiesce)
        assert head(session) == INT3

        session.enable("truth_loop", mode=Mode.JUMP, quiesce=quiesce)
        assert head(session) == JUMP

        session.disable("truth_loop", quiesce=quiesce)
        assert head(session) == DORMANT


def test_another_session_in_between_is_noticed(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with markerjit.attach(program.pid) as session, markerjit.attach(program.pid) as other:
        for _ in range(2):
            session.enable("truth_loop")
            session.disable("truth_loop")
        other.enable("truth_loop", mode=Mode.INT3)

        session.disable("truth_loop")

        assert head(session) == DORMANT
        assert session.enable("truth_loop", mode=Mode.JUMP).written != 0
        assert other.enable("truth_loop", mode=Mode.JUMP).written == 0


SIGTRAP = 5


def test_breakpoints_take_one_stop_and_one_thread_asks_for_the_handler_in_it(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    borrowed: list[Call] = []
    borrow = BorrowedThread._borrow

    def counted(self: BorrowedThread, calls: list[Call], *args: object) -> list[int]:
        borrowed.extend(calls)
        return borrow(self, calls, *args)

    monkeypatch.setattr(BorrowedThread, "_borrow", counted)
    with markerjit.attach(program.pid) as session:
        for turn in range(5):
            session.enable("truth_loop", mode=Mode.INT3)
            assert head(session) == INT3
            before = program.ask("counts")["truth_loop"]
            assert program.ask("counts")["truth_loop"] >= before
            session.disable("truth_loop")
            assert head(session) == DORMANT
            if turn == 1:
                borrowed.clear()
        assert prepared(session)

    assert borrowed == []


def test_breakpoints_are_refused_once_the_program_has_another_handler(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    before = code_of(program)

    with markerjit.attach(program.pid) as session:
        for _ in range(3):
            session.enable("truth_loop", mode=Mode.INT3)
            session.disable("truth_loop")
        assert prepared(session)
        with session._switcher.turn() as turn:
            arena = turn.seen.arena
            assert arena
            programs_own = arena.base + arena.control.offset("old_trap")
            turn.caller().run([Call("sigaction", SYS_RT_SIGACTION, (SIGTRAP, programs_own, 0, 8))])

        for _ in range(2):
            with pytest.raises(markerjit.Refused, match="its own SIGTRAP handler"):
                session.enable("truth_loop", mode=Mode.INT3)
            assert code_of(program) == before
        session.enable("truth_loop", mode=Mode.JUMP)
        session.disable("truth_loop")

    assert code_of(program) == before
    assert program.ask("counts")["truth_loop"] > 0


LIBRARY = """
#include <markerjit/marker.h>
void lib(int i) { MARK(both, "i %d", i); MARK(both, "i %d", i); MARK(both, "i %d", i); }
"""
PROGRAM = """
#include <markerjit/marker.h>
#include <stdio.h>
#include <unistd.h>
void lib(int i);
int main(void) {
    puts("ready");
    fflush(stdout);
    for (int i = 0;; i++) {
        MARK(both, "i %d", i); MARK(both, "i %d", i); MARK(both, "i %d", i);
        lib(i);
        usleep(1000);
    }
}
"""


def test_a_marker_of_two_objects_is_switched_in_both_each_time(tmp_path: Path, repo: Path) -> None:
    """In the order of addresses one object's data lies between the code of both."""
    (tmp_path / "lib.c").write_text(LIBRARY)
    (tmp_path / "main.c").write_text(PROGRAM)
    compile_ = ["gcc", "-O1", f"-I{repo / 'native/include'}"]
    subprocess.run(
        [*compile_, "-fPIC", "-shared", "-o", "lib.so", "lib.c"], cwd=tmp_path, check=True
    )
    subprocess.run([*compile_, "-o", "main", "main.c", "./lib.so"], cwd=tmp_path, check=True)
    program = Limited([tmp_path / "main"], cwd=tmp_path, stdout=subprocess.PIPE)
    try:
        assert program.stdout
        assert program.stdout.readline() == b"ready\n"
        with markerjit.attach(program.pid) as session:
            sites = session.sites("both")
            assert len({site.object for site in sites}) == 2
            for _ in range(3):
                session.enable("both")
                assert {state.mode for state in session.states(sites)} == {Mode.JUMP}
                session.disable("both")
                assert {state.mode for state in session.states(sites)} == {None}
    finally:
        program.kill()
        program.communicate()
