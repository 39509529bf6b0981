"""A thread that stands inside the bytes that a jump takes, when that site is switched on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import markerjit
from markerjit.probes.stub import Stub
from markerjit.session import copies
from markerjit.x86.relocate import Unmovable
from tests.support.processes import text_of
from tests.support.programs import Target
from tests.support.tracing import rip_of, stop_at

pytestmark = pytest.mark.live

LANDING = "func:truth_functions:landing"
LEA = 4
"""Bytes of the first instruction of `landing` behind its endbr64. The jump over it ends in the next
one."""


@pytest.fixture
def program(target: Callable) -> Target:
    """The runtime is there: it cannot be put into a process that is stopped."""
    started: Target = target("truth_functions")
    with markerjit.attach(started.pid) as session:
        session.enable(LANDING)
        session.disable(LANDING)
    return started


def entry_of(program: Target) -> int:
    with markerjit.View(program.pid) as view:
        (site,) = view.sites(LANDING)
    return site.address


def test_a_thread_that_stays_inside_goes_on_in_the_stub(program: Target) -> None:
    before = text_of(program.pid)
    entry = entry_of(program)
    stop_at(program, entry + LEA, lambda: program.send("run 3"))

    with markerjit.attach(program.pid) as session:
        session.enable(LANDING)
        (site,) = session.sites(LANDING)
        copy = rip_of(program.pid)
        assert site.body.entry < copy < site.body.entry + 1024
        os.kill(program.pid, signal.SIGCONT)
        assert program.read_line().startswith("run turn=")
        # The first of the three calls had begun before it was on.
        assert session.statistics(LANDING)[0].hits == 2
        program.ask("run 5")
        assert session.statistics(LANDING)[0].hits == 7
        session.disable("func:*")

    assert text_of(program.pid) == before
    assert program.ask("run 1")


def test_a_thread_that_stays_behind_what_is_copied_is_left_there(program: Target) -> None:
    entry = entry_of(program)
    behind = entry + LEA + 3  # the ret
    stop_at(program, behind, lambda: program.send("run 1"))

    with markerjit.attach(program.pid) as session:
        session.enable(LANDING)
        assert rip_of(program.pid) == behind
        os.kill(program.pid, signal.SIGCONT)
        assert program.read_line().startswith("run turn=")
        assert session.statistics(LANDING)[0].hits == 0


def test_a_thread_inside_is_not_moved_where_the_stub_is_another_one(
    program: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, before = entry_of(program), text_of(program.pid)
    stop_at(program, entry + LEA, lambda: program.send("run 1"))
    make = copies.stub_for

    def make_another(*arguments: Any, **options: Any) -> Stub | Unmovable:
        stub = make(*arguments, **options)
        assert isinstance(stub, Stub)
        return stub._replace(code=stub.code[:-1] + bytes([stub.code[-1] ^ 1]))

    monkeypatch.setattr(copies, "stub_for", make_another)
    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.Refused, match="inside a site"),
    ):
        session.enable(LANDING)
    assert (rip_of(program.pid), text_of(program.pid)) == (entry + LEA, before)

    os.kill(program.pid, signal.SIGCONT)
    assert program.read_line().startswith("run turn=")
