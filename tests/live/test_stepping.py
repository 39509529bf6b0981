"""Switches stage by stage, with threads that run between the stages, and owners that go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import markerjit
from markerjit.arena import journal
from tests.support.commands import cli, python_started
from tests.support.programs import Target
from tests.support.timing import wait_until

ROOT = Path(__file__).resolve().parents[2]
LOOP = "truth_loop"

OWNER = """
    import sys, markerjit
    pid, on, mode, stages = int(sys.argv[1]), sys.argv[2] == "on", sys.argv[3], int(sys.argv[4])
    with markerjit.attach(pid) as session:
        with session.stepping("truth_loop", on=on, mode=mode or None) as stepper:
            for _ in range(stages):
                stepper.step()
            print("paused", flush=True)
            sys.stdin.read()
"""


def heads(session: markerjit.Session) -> list[bytes]:
    return [session.read(site.address, len(site.form.head)) for site in session.sites(LOOP)]


def status_of(session: markerjit.Session) -> markerjit.MarkerStatus:
    (marker,) = session.statistics(LOOP)
    return marker


def hits_in_a_while(session: markerjit.Session, program: Target) -> tuple[int, int]:
    """The hits of our probe and the program's own turns, from one standstill to another."""
    turns, hits = program.ask("pause")[LOOP], status_of(session).total
    program.command("resume")
    wait_until(lambda: program.ask("counts")[LOOP] > turns + 20, "threads to turn")
    turns = program.ask("pause")[LOOP] - turns
    return status_of(session).total - hits, turns


@contextmanager
def owner(program: Target, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A controller that has paused."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    controller = python_started(textwrap.dedent(OWNER), program.pid, *arguments, **pipes)
    try:
        assert controller.stdout
        assert controller.stdout.readline() == "paused\n"
        yield controller
    finally:
        controller.kill()
        controller.communicate()


@pytest.mark.parametrize("quiesce", ["stop", "membarrier"])
def test_threads_run_through_every_state_and_what_is_open_counts(
    target: Callable, quiesce: str
) -> None:
    program = target("truth_threads", "2", "--rate", "1000")

    with markerjit.attach(program.pid) as session:
        before, seen = heads(session), []
        for mode, on in (("int3", True), ("jump", True), ("int3", True), (None, False)):
            with session.stepping(LOOP, on=on, mode=mode, quiesce=quiesce) as stepper:
                while stepper.step():
                    hits, turns = hits_in_a_while(session, program)
                    is_open = status_of(session).mode is not None
                    assert hits == (turns if is_open else 0)
                    assert turns > 0
                    seen.append(heads(session)[0].hex())
                    program.command("resume")
        assert heads(session) == before

    assert seen == [
        "eb05", "eb05", "cc05",  # data, probe, breakpoint
        "cc00", "eb00",  # the tail behind the breakpoint, the first byte
        "cc00", "cc05",
        "eb05",
    ]  # fmt: skip


def test_a_switch_that_is_not_finished_is_taken_back(target: Callable) -> None:
    program = target("truth_threads", "2")

    with markerjit.attach(program.pid) as session:
        before = heads(session)
        for stages in range(3):
            with session.stepping(LOOP) as stepper:
                for _ in range(stages):
                    stepper.step()
                assert not stepper.is_finished
            assert heads(session) == before
            assert session.arena().writer is None  # type: ignore[union-attr]
        with session.stepping(LOOP) as stepper:
            stepper.finish()
        assert status_of(session).mode is markerjit.Mode.JUMP
        assert status_of(session).by == os.getpid()


def test_the_steps_are_those_of_the_plan_and_what_is_so_already_has_none(target: Callable) -> None:
    program = target("truth_threads", "1")

    with markerjit.attach(program.pid) as session:
        with session.stepping(LOOP) as stepper:
            assert [step.verb for step in stepper.made] == ["enter", "journal"]
            ahead = stepper.ahead
            assert stepper.step() == ahead
            assert stepper.made[-len(ahead) :] == ahead
            stepper.finish()
            assert stepper.ahead == ()
            assert stepper.step() == ()
        with session.stepping(LOOP) as stepper:
            assert stepper.is_finished
            assert stepper.step() == ()
        assert status_of(session).mode


def test_others_are_refused_while_the_lease_lasts_and_status_says_so(target: Callable) -> None:
    program = target("truth_threads", "1")

    with owner(program, "on", "jump", "1") as other:
        with markerjit.attach(program.pid) as session:
            status = session.arena()
            assert status and status.pause and status.writer
            assert status.writer.pid == other.pid
            assert (status.abandoned, status.to_mend) == (False, None)
            with pytest.raises(markerjit.Refused, match=f"{other.pid} changes process") as refused:
                session.disable("*")
            assert refused.value.try_again
        with pytest.raises(markerjit.Refused, match="in stages"):
            markerjit.repair(program.pid)
        shown = cli("status", str(program.pid))
        assert f"in stages: a change by process {other.pid}, paused" in shown.stdout
        arena = json.loads(cli("status", str(program.pid), "--json").stdout)["arena"]
        assert 0 < arena["paused_s"] <= 60
        assert arena["to_mend"] is None


WAYS = [
    *(("on", "int3", stages) for stages in range(3)),
    *(("on", "jump", stages) for stages in range(3)),
]


@pytest.mark.product
@pytest.mark.parametrize(("on", "mode", "stages"), WAYS)
@pytest.mark.parametrize("healer", ["repair", "on"])
def test_an_owner_that_is_killed_between_stages_is_healed(
    target: Callable, on: str, mode: str, stages: int, healer: str
) -> None:
    program = target("truth_threads", "2", "--rate", "1000")
    with markerjit.attach(program.pid) as session:
        before = heads(session)
    with owner(program, on, mode, str(stages)) as other:
        other.send_signal(signal.SIGKILL)
        other.wait()

    with markerjit.attach(program.pid) as session:
        turns = program.ask("counts")[LOOP]
        wait_until(lambda: program.ask("counts")[LOOP] > turns, "threads to turn")
        status = session.arena()
        assert status and status.abandoned
        assert "is gone and left a change half done" in str(status.to_mend)
        if healer == "repair":
            assert markerjit.repair(program.pid).journal == "rolled back"
            assert heads(session) == before
        session.enable(LOOP)
        hits, turns = hits_in_a_while(session, program)
        assert hits == turns
        session.disable(LOOP)
        assert heads(session) == before
        assert session.arena().to_mend is None  # type: ignore[union-attr]


def test_a_lease_that_ends_lets_others_switch_and_the_owner_is_told(
    target: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = target("truth_threads", "1")
    with markerjit.attach(program.pid) as session, session.stepping(LOOP) as stepper:
        stepper.step()
        with monkeypatch.context() as late:
            now = journal.time.monotonic()
            late.setattr(journal.time, "monotonic", lambda: now + 61)
            with markerjit.attach(program.pid) as other:
                other.enable(LOOP, mode="int3")

        with pytest.raises(markerjit.Refused, match="was taken back"):
            stepper.step()
        with pytest.raises(markerjit.Refused, match="was taken back"):
            stepper.step()

    with markerjit.attach(program.pid) as session:
        assert status_of(session).mode is markerjit.Mode.INT3


def test_a_process_that_ends_between_stages_ends_the_stepping(target: Callable) -> None:
    program = target("truth_threads", "1", may_die=True)

    with markerjit.attach(program.pid) as session, session.stepping(LOOP) as stepper:
        stepper.step()
        program.process.kill()
        program.process.wait()

        with pytest.raises(markerjit.TargetGone):
            stepper.step()


def test_bytes_of_another_tool_refuse_the_next_stage_and_are_left_alone(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "100")

    with markerjit.attach(program.pid) as session:
        session.enable(LOOP, mode="int3")
        (site,) = session.sites(LOOP)
        with session.stepping(LOOP, mode="jump") as stepper:
            stepper.step()
            with open(f"/proc/{program.pid}/mem", "r+b", buffering=0) as memory:
                memory.seek(site.address + 1)
                memory.write(b"\x77")  # behind the breakpoint, where nothing is executed
            with pytest.raises(markerjit.UnexpectedBytes, match="holds 77, expected 00"):
                stepper.step()
            assert heads(session) == [b"\xcc\x77"]
            (reason,) = stepper.take_back()
        assert reason == f"{site.address + 1:#x} holds 77, not ours"
        assert heads(session) == [b"\xcc\x77"]


def test_a_slot_that_decides_cannot_be_switched_in_stages(target: Callable) -> None:
    program = target("kvserver-pointer")

    with (
        markerjit.attach(program.pid) as session,
        pytest.raises(markerjit.Refused, match="cannot be made in stages"),
        session.stepping("kv_hit") as stepper,
    ):
        stepper.step()


# ---- a fork between stages -----------------------------------------------------------------------


@contextmanager
def held_child(program: Target) -> Iterator[int]:
    """A child of truth_fork that waits, so that it can be looked at; killed at the end."""
    assert program.process.stdin
    program.process.stdin.write(b"fork 10 600000\n")
    program.process.stdin.flush()
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children")
    wait_until(lambda: children.read_text(), "a child of the program")
    child = int(children.read_text())
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        assert program.read_line() == f"forked pid={child} status={signal.SIGKILL}"


PAUSES = [
    ("", "int3", 1, "eb05"),
    ("", "int3", 2, "eb05"),
    ("int3", "jump", 0, "cc05"),
    ("int3", "jump", 1, "cc00"),
]


@pytest.mark.parametrize(("before", "mode", "stages", "head"), PAUSES)
def test_a_child_that_is_forked_between_stages_runs_and_has_no_journal(
    target: Callable, before: str, mode: str, stages: int, head: str
) -> None:
    program, name = target("truth_fork"), "truth_child"

    with markerjit.attach(program.pid) as session:
        (site,) = session.sites(name)
        if before:
            session.enable(name, mode=before)
        with session.stepping(name, mode=mode) as stepper:
            for _ in range(stages):
                stepper.step()
            assert program.command("fork 10").endswith(" status=0")
            with held_child(program) as child, markerjit.attach(child) as of_child:
                assert of_child.read(site.address, 2).hex() == head
                assert of_child.arena() is None
                assert not markerjit.repair(child).anything
                of_child.disable(name)
                assert of_child.read(site.address, 2) == site.form.head
            assert session.read(site.address, 2).hex() == head
            stepper.finish()
        assert program.command("fork 10").endswith(" status=0")
        assert program.ask("counts")[name] == 20
        (marker,) = session.statistics(name)
        assert (marker.mode, marker.total) == (markerjit.Mode(mode), 0)  # a child counts nothing
        assert session.arena().to_mend is None  # type: ignore[union-attr]
