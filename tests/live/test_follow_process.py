"""What else a program may do while we are attached: start threads in a storm, wait in all system
calls that wait, close what is not its own, give up its rights, end and be followed by another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import markerjit
from markerjit import Mode
from tests.support.choice import spacing
from tests.support.commands import ENVIRONMENT, cli
from tests.support.native_calls import BORROW, WRITE, just_after, just_before
from tests.support.processes import text_of
from tests.support.timing import HANG_S, Limited, wait_until, within

pytestmark = pytest.mark.also_user

MODES = [Mode.JUMP, Mode.INT3]
in_both_modes = pytest.mark.parametrize("mode", MODES)
NOBODY = 65534


# ---- threads ------------------------------------------------------------------------------------


@in_both_modes
def test_threads_that_are_born_while_others_are_stopped_run_the_right_code(
    target: Callable, mode: Mode
) -> None:
    program = target("truth_storm", "3")
    text = text_of(program.pid)

    program.command("resume")
    with markerjit.attach(program.pid) as session:
        for turn in range(100 // spacing(3)):
            session.enable("*", mode=mode, probe=("count", "record")[turn % 2])
            session.disable("*")
        session.enable("*", mode=mode)
        before = program.ask("counts")["births"]
        wait_until(lambda: program.ask("counts")["births"] > before + 50, "births")
        counts = program.ask("pause")
        session.disable("*")
        (status,) = session.statistics()

    assert status.total == counts["evaluated"] > 0
    assert counts["births"] > 100 // spacing(2)
    assert text_of(program.pid) == text


@pytest.mark.user
@in_both_modes
def test_storm_of_births_is_traced_to_the_last_thread(target: Callable, mode: Mode) -> None:
    program = target("truth_storm", "3")

    program.command("resume")
    with markerjit.attach(program.pid, ring_size=4 << 20) as session:
        with session.trace("*", mode=mode) as stream:
            before = program.ask("counts")["births"]
            wait_until(lambda: program.ask("counts")["births"] > before + 300, "births")
            counts = program.ask("pause")
        events = stream.drain()
        (status,) = session.statistics()

    assert len(events) + status.lost == status.total == counts["evaluated"]
    children = {event.tid for event in events if event.fields["who"]}
    parents = {event.tid for event in events if not event.fields["who"]}
    assert len(parents) == 3
    assert not children & parents
    assert program.pid not in children | parents


def test_calls_that_wait_are_not_interrupted_by_hundreds_of_switches(target: Callable) -> None:
    program = target("truth_waits")

    with markerjit.attach(program.pid) as session:
        for turn in range(150):
            session.enable("*", mode=MODES[turn % 2])
            if turn % 10 == 0:
                program.command("poke")
            session.disable("*")

    counts = program.ask("counts")
    assert counts.pop("turns") > 200
    assert counts == {}, "these saw EINTR"


# ---- descriptors --------------------------------------------------------------------------------


def descriptor_slots(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("FDSize:")[1].split()[0])


@pytest.mark.user
@in_both_modes
def test_program_that_closes_what_it_does_not_know_is_traced_on(
    target: Callable, mode: Mode
) -> None:
    program = target("truth_process")
    text = text_of(program.pid)

    program.command("close")
    with markerjit.attach(program.pid) as session:
        with session.trace("*", mode=mode) as stream:
            program.command("pass 10")
            program.command("close")
            program.command("pass 10")
        assert len(stream.drain()) == 20
    with markerjit.attach(program.pid) as session:  # now the arena is read through its memory
        assert session.statistics()[0].total == 20
        with session.trace("*", mode=mode) as stream:
            program.command("pass 10")
            program.command("own 0")
        assert len(stream.drain()) == 10
        session.enable("*", mode=mode)
        program.command("pass 5")
        session.disable("*")
        assert session.statistics()[0].total == program.ask("counts")["evaluated"] == 35

    assert program.ask("look")["changed"] == 0
    assert text_of(program.pid) == text


@pytest.mark.parametrize("then", ["close", "own"])
def test_program_that_closes_our_descriptor_at_once_keeps_its_own_files(
    target: Callable, monkeypatch: pytest.MonkeyPatch, then: str
) -> None:
    """The arena is made in one stop. From then on we have a descriptor of our own."""
    program = target("truth_process")
    text = text_of(program.pid)
    slots = descriptor_slots(program.pid)
    # ours takes the number eight below the end of the table, where `own` puts one of the program's
    command = "close" if then == "close" else f"own {slots - 8}"

    with markerjit.attach(program.pid) as session:
        answers: list[object] = []
        just_after(monkeypatch, BORROW, lambda: answers.append(program.command(command)))
        session.enable("*")
        assert len(answers) == 1
        program.command("pass 3")
        session.disable("*")
        assert session.statistics()[0].total == 3
    if then == "own":
        assert program.ask("look")["changed"] == 0
    assert text_of(program.pid) == text


def test_program_that_closes_in_a_loop_keeps_its_own_files(target: Callable) -> None:
    done = 0

    for _ in range(10):
        program = target("truth_process")
        program.command(f"close-loop {descriptor_slots(program.pid) - 8}")
        with markerjit.attach(program.pid) as session:
            for _ in range(5):
                try:
                    session.enable("*")
                    session.disable("*")
                except markerjit.MarkerError:
                    pass
        assert program.ask("close-end")["changed"] == 0
        with markerjit.attach(program.pid) as session:
            session.enable("*")
            before = session.statistics()[0].total
            program.command("pass 10")
            done += session.statistics()[0].total - before

    assert done == 100


def test_program_that_closed_our_descriptor_records_in_other_ways_too(
    target: Callable, tmp_path: Path
) -> None:
    """Its memory alone takes no code: where a marker would get a recorder, mj_record does it."""
    program = target("truth_process")
    source = tmp_path / "passed.c"
    source.write_text("#include <markerjit/probe.h>\nvoid passed(struct mj_slot *slot, ...) {}\n")
    with markerjit.attach(program.pid) as session, session.trace("*"):
        program.command("pass 1")
    program.command("close")

    with markerjit.attach(program.pid) as session:
        with session.trace("*", time="none", thread_id=False) as stream:
            program.command("pass 10")
        assert len(stream.drain()) == 10
        probe = markerjit.compile_probe(source, "passed")
        with pytest.raises(markerjit.Refused, match="has closed its descriptor"):
            session.enable("*", probe=probe)
        assert not any(marker.mode for marker in session.statistics())


# ---- rights -------------------------------------------------------------------------------------


@pytest.mark.user
@in_both_modes
def test_program_that_is_not_to_be_dumped_is_traced_by_root(target: Callable, mode: Mode) -> None:
    if os.getuid():
        pytest.skip("needs root")
    program = target("truth_process")

    program.command("dumpable 0")
    with markerjit.attach(program.pid) as session:
        with session.trace("*", mode=mode) as stream:
            program.command("pass 10")
        assert len(stream.drain()) == 10
        session.enable("*", mode=mode)
        assert program.ask("become 65534")["ok"] == 1
        program.command("pass 5")
        session.disable("*")
        assert session.statistics()[0].total == 15


# It becomes nobody once it has imported all: nobody may be unable to read this Python.
AS_NOBODY = """
import contextlib, io, os, sys, markerjit.cli.main as main
with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
    for command in ("list", "on", "off"):
        main.run([command, sys.argv[1], "*"])
    main.run(["trace", str(2**22 + 1), "*"])
os.setgroups([]), os.setresgid(*[65534] * 3), os.setresuid(*[65534] * 3)
main.main(sys.argv[2:])
"""


def by_a_user(rehearsal: int, *args: object) -> subprocess.CompletedProcess[str]:
    """A command, as nobody where we are root."""
    if os.getuid():
        return cli(*args)
    return subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(rehearsal), *map(str, args)],
        env=ENVIRONMENT, capture_output=True, text=True, timeout=HANG_S, check=False,
    )  # fmt: skip


@pytest.mark.user
def test_user_is_told_why_a_program_of_its_own_may_not_be_looked_at(target: Callable) -> None:
    program, rehearsal = target("truth_process"), target("truth_process")

    if os.getuid():
        program.command("dumpable 0")
    else:
        assert program.ask("become 65534")["ok"] == 1  # by which it is not to be dumped, setuid(2)
    for action in ("list", "on", "trace"):
        done = by_a_user(rehearsal.pid, action, program.pid, "*")
        assert (done.returncode, done.stdout) == (1, ""), done
        (line,) = done.stderr.splitlines()
        assert f"process {program.pid}" in line
        assert "made itself untraceable (PR_SET_DUMPABLE" in line
        assert line.endswith("run markerjit with sudo")
    assert program.ask("dumpable 1")["ok"] == 1  # as it would be had nobody started it
    assert by_a_user(rehearsal.pid, "list", program.pid, "*").returncode == 0


# ---- the same number ----------------------------------------------------------------------------


def end_and_be_followed(target: Callable, program: Any, *command: object) -> Any:
    """Another program, of the same pid. `program` must have been started with may_die=True."""
    if program.process.poll() is None:
        program.process.kill()
        program.wait()
    heir = target("truth_heir", str(program.pid), *map(str, command))
    assert int(heir.ready["pid"]) == program.pid
    return heir


@pytest.fixture
def chosen_pids(build: Path) -> None:
    """Skips where the kernel does not let us choose the id of a process."""
    with Limited(["true"]) as gone:
        gone.wait()
    done = subprocess.run([build / "truth_heir", str(gone.pid), "/bin/true"], check=False)
    if done.returncode == 125:
        pytest.skip("needs clone3 with set_tid (CAP_CHECKPOINT_RESTORE)")


@pytest.mark.parametrize("what", ["enable", "disable", "trace", "statistics", "stream"])
def test_program_that_has_the_pid_of_one_that_ended_is_not_taken_for_it(
    target: Callable, build: Path, chosen_pids: None, what: str
) -> None:
    program = target("truth_threads", "1", "--rate", "100", may_die=True)

    with markerjit.attach(program.pid) as session, session.trace("truth_birth") as stream:
        heir = end_and_be_followed(target, program, build / "truth_threads", "1", "--rate", "100")
        text = text_of(program.pid)
        if what == "stream":
            within(20, lambda: list(stream))
            assert stream.target_ended
        else:
            with pytest.raises(markerjit.MarkerError, match=rf"process {program.pid} "):
                if what == "trace":
                    with session.trace("truth_loop"):
                        pass
                elif what == "statistics":
                    session.statistics()
                else:
                    getattr(session, what)("truth_loop")

    assert text_of(program.pid) == text
    assert "memfd:markerjit" not in Path(f"/proc/{program.pid}/maps").read_text()
    with markerjit.attach(program.pid) as session:  # and by the number it is the heir
        session.enable("truth_loop")
        wait_until(lambda: session.statistics("truth_loop")[0].total > 0, "hits")
        session.disable("truth_loop")
    assert heir.ask("counts")["truth_loop"] > 0


@pytest.mark.user
@pytest.mark.parametrize("call", [WRITE, BORROW])
def test_heir_to_the_pid_is_not_touched_when_it_comes_between_plan_and_write(
    target: Callable,
    build: Path,
    monkeypatch: pytest.MonkeyPatch,
    chosen_pids: None,
    call: str,
) -> None:
    program = target("truth_threads", "1", "--rate", "100", may_die=True)
    heirs: list[Any] = []
    text: dict[tuple[int, str], bytes] = {}

    def inherit() -> None:
        heirs.append(
            end_and_be_followed(target, program, build / "truth_threads", "1", "--rate", "100")
        )
        text.update(text_of(program.pid))

    with markerjit.attach(program.pid) as session:
        if call == WRITE:
            session.enable("truth_birth")
        just_before(monkeypatch, call, inherit)
        with pytest.raises(markerjit.MarkerError, match=rf"process {program.pid} "):
            within(20, lambda: session.enable("truth_*"))

    assert text_of(program.pid) == text
    assert "memfd:markerjit" not in Path(f"/proc/{program.pid}/maps").read_text()
    assert heirs[0].ask("counts")["threads"] == 1
