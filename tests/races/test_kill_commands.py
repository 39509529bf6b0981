"""After a kill, as a user meets it: status says what was left, on refuses, repair mends."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.abi import SCRATCH_SIZE
from markerjit.arena.mapped import MAPPING_PATH
from tests.races.whereabouts import whereabouts
from tests.support.commands import cli, python
from tests.support.programs import make

pytestmark = [pytest.mark.races, pytest.mark.live]

PATIENCE_S = 60
SYS_PAUSE = 34
KILLED = "import sys; from tests.races import killed; sys.exit(killed.main())"


@pytest.fixture
def left() -> Callable[..., tuple[int, list[int]]]:
    """Leaves a process as a killed controller does; returns that controller's pid, and where the
    process's threads were."""
    make("native", "build/hooks/libmjstop.so")

    def leave(
        scenario: str, pid: int, point: str, occurrence: int, **hooks: str
    ) -> tuple[int, list[int]]:
        done = python(KILLED, scenario, pid, point, occurrence, **hooks)
        assert done.returncode == 0, done.stderr
        controller, *counters = done.stdout.split()
        return int(controller), [int(counter, 0) for counter in counters]

    return leave


def test_status_names_a_half_done_change_and_the_command_that_mends_it(target, left):
    program = target("truth_floats", "read")
    controller, _ = left("on, stop", program.pid, "written", 6)

    shown = cli("status", program.pid)

    assert shown.returncode == 0
    assert f"process {controller} is gone and left a change half done" in shown.stderr
    assert f"markerjit repair {program.pid}" in shown.stderr


def test_nothing_is_switched_on_top_of_a_half_done_change(target, left):
    program = target("truth_floats", "read")
    left("on, stop", program.pid, "written", 6)

    refused = [cli("on", program.pid, "*"), cli("off", program.pid, "*")]

    for command in refused:
        assert command.returncode == 1
        assert f"run markerjit repair {program.pid}" in command.stderr
        assert command.stderr.count("\n") == 1


def test_repair_says_whose_change_it_took_back(target, left):
    program = target("truth_floats", "read")
    controller, _ = left("on, stop", program.pid, "written", 6)

    repaired = cli("repair", program.pid)
    again = cli("repair", program.pid)

    assert repaired.returncode == again.returncode == 0
    assert f"that process {controller} began was taken back" in repaired.stdout
    assert again.stdout == f"process {program.pid} needs no repair\n"
    assert not cli("status", program.pid).stderr


def test_repair_lets_a_complete_change_stand(target, left):
    program = target("truth_floats", "read")
    left("on, stop", program.pid, "done", 1)

    repaired = cli("repair", program.pid)

    assert "was complete; it stands" in repaired.stdout
    assert "2 of 2 markers are off" not in cli("status", program.pid).stdout


def test_repair_removes_an_arena_that_was_never_finished(target, left):
    program = target("truth_floats", "read")
    left("first use, stop", program.pid, "memory: write", 1)

    repaired = cli("repair", program.pid)

    assert repaired.stdout == "1 unfinished arena removed\n"
    assert MAPPING_PATH not in Path(f"/proc/{program.pid}/maps").read_text()


def test_a_reader_that_was_killed_is_switched_off_by_the_next_command(target, left):
    program = target("truth_floats", "read")
    left("trace", program.pid, "journal: closed", 1)

    status = cli("status", program.pid)
    repaired = cli("repair", program.pid)

    assert "left its markers recording" in status.stderr
    assert "switched off, since their reader is gone" in repaired.stdout


def test_a_signal_that_came_with_the_stop_is_not_lost_by_a_kill(target, left):
    """Between being seized and being stopped a thread may come to a breakpoint: it then stands with
    a SIGTRAP to take. Without it, it would run on in the middle of an instruction."""
    program = target("truth_threads", "2", "--paused")
    with markerjit.View(program.pid) as view:
        behind = {site.address + 1 for site in view.sites()}
    with markerjit.attach(program.pid) as session:
        session.enable("*", mode=markerjit.Mode.INT3)
    program.command("resume")
    caught = 0

    for _ in range(4):
        _, counters = left(
            "int3 to jump, stop", program.pid, "stopped", 1,
            MJ_PAUSE_POINT="seized", MJ_PAUSE_US="5000",
        )  # fmt: skip
        caught += len(behind.intersection(counters))
        markerjit.repair(program.pid)

    turns = program.ask("pause")["truth_loop"]
    with markerjit.View(program.pid) as view:
        hits = {statistic.name: statistic.total for statistic in view.statistics()}["truth_loop"]
    assert caught
    assert hits == turns


def test_a_later_borrowing_leaves_the_frame_of_a_killed_one_alone(target, left):
    """Its thread may not be back yet, and would go on with the registers of another one."""
    program = target("truth_floats", "read")
    left("jump to int3, membarrier", program.pid, "borrow: exit", 1)

    with markerjit.attach(program.pid) as session:
        scratch = session._target.seen.arena.scratch
        frame = session.read(scratch, SCRATCH_SIZE)
        session.disable("*", quiesce="membarrier")
        later = session.read(scratch, SCRATCH_SIZE)

    assert int.from_bytes(frame[:8], "little") == program.pid  # the first thread's
    assert later == frame
    assert program.ask("counts")["registers"] == 0


def blocks_all(pid: int) -> bool:
    """Whether the first thread blocks a signal that nobody blocks."""
    status = Path(f"/proc/{pid}/task/{pid}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk")]
    return bool(int(mask, 16) >> (signal.SIGUSR2 - 1) & 1)


def wait_until_it_sleeps_in(pid: int, call: int) -> None:
    deadline = time.monotonic() + PATIENCE_S
    path = Path(f"/proc/{pid}/task/{pid}/syscall")
    while path.read_text().split()[0] != str(call):
        assert time.monotonic() < deadline, whereabouts(pid, pid)


def rounds_go_on(program, kind: str) -> bool:
    start = program.ask("counts")[kind]
    deadline = time.monotonic() + PATIENCE_S
    while program.ask("counts")[kind] < start + 3:
        if time.monotonic() > deadline:
            return False
    return True


@pytest.mark.product
@pytest.mark.parametrize("occurrence", [1, 3])  # without an open journal, and with one
@pytest.mark.parametrize("kind", ["epoll", "futex", "nanosleep", "ppoll"])
def test_repair_sends_a_thread_back_whose_call_does_not_end(target, left, kind, occurrence):
    """It stands on its frame, with all signals blocked, for as long as the call takes."""
    program = target("truth_floats", kind)
    left("jump to int3, membarrier", program.pid, "borrow: entry", occurrence, MJ_LASTS="1")
    wait_until_it_sleeps_in(program.pid, SYS_PAUSE)
    assert blocks_all(program.pid)

    repaired = markerjit.repair(program.pid)

    assert repaired.sent_back == ((program.pid, SYS_PAUSE),)
    assert rounds_go_on(program, kind), whereabouts(program.pid, program.pid)
    assert not blocks_all(program.pid)
    assert not markerjit.repair(program.pid).anything
    counts = program.ask("counts")
    assert {key: counts[key] for key in ("registers", "masks", "eintr", "odd")} == {
        "registers": 0, "masks": 0, "eintr": 0, "odd": 0,
    }  # fmt: skip


def test_a_switch_sends_back_a_thread_whose_call_does_not_end(target, left):
    """Any stop does; a thread that is on the scratch is not borrowed."""
    program = target("truth_floats", "epoll")
    left("jump to int3, membarrier", program.pid, "borrow: entry", 1, MJ_LASTS="1")
    wait_until_it_sleeps_in(program.pid, SYS_PAUSE)

    with markerjit.attach(program.pid) as session:
        session.disable("*", quiesce="stop")

    assert rounds_go_on(program, "epoll"), whereabouts(program.pid, program.pid)
    assert not blocks_all(program.pid)
    assert not markerjit.repair(program.pid).anything


def test_a_thread_that_is_back_is_not_sent_back(target, left):
    program = target("truth_floats", "epoll")
    left("jump to int3, membarrier", program.pid, "borrow: entry", 3)
    assert rounds_go_on(program, "epoll"), whereabouts(program.pid, program.pid)

    repaired = markerjit.repair(program.pid)

    assert repaired.journal == "rolled back"
    assert not repaired.sent_back
