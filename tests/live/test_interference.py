"""What comes in between: signals to the controller, a second trace, a plan to be looked at."""

from __future__ import annotations

import select
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import markerjit
from markerjit.abi import CONTROL, Control
from tests.support.commands import python_started
from tests.support.timing import Wait

pytestmark = pytest.mark.live

SHAKEN = """
import signal, sys, markerjit
seen = []
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, lambda *_: seen.append(1))
print("ready", flush=True)
with markerjit.attach(int(sys.argv[1])) as session:
    for _ in range(30):
        session.enable("truth_loop", mode=markerjit.Mode.INT3)
        session.disable("truth_loop")
print(len(seen), flush=True)
sys.stdin.read()  # when Python ends, it takes its handlers away
"""


def test_signals_to_the_controller_do_not_reach_a_borrowed_thread(target: Callable) -> None:
    """A wait that they ended would leave the thread with our registers: it died of SIGSEGV."""
    for _ in range(4):
        program = target("truth_threads", "2", "--rate", "2000")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with python_started(SHAKEN, program.pid, **pipes) as controller:
            assert controller.stdin is not None
            assert controller.stdout is not None
            assert controller.stdout.readline() == "ready\n"

            wait = Wait("the end of its switches")
            while select.select([controller.stdout], [], [], 0.0002)[0] == []:
                wait.left_s()
                controller.send_signal(signal.SIGUSR1)
                controller.send_signal(signal.SIGUSR2)

            assert int(controller.stdout.readline()) > 0
            controller.stdin.close()
        assert controller.returncode == 0
        assert program.ask("counts")["truth_loop"] > 0  # and it answers


def test_second_trace_of_one_process_is_refused(target: Callable) -> None:
    program = target("truth_threads", "2", "--rate", "2000")

    with markerjit.attach(program.pid) as session, session.trace("truth_loop"):
        with (
            pytest.raises(markerjit.Refused, match="is tracing"),
            session.trace("truth_birth"),
        ):
            pass

        assert {statistic.name: statistic.probe for statistic in session.statistics()}[
            "truth_loop"
        ] == "record"


def test_plan_that_is_only_looked_at_tells_the_runtime_nothing(target: Callable) -> None:
    program = target("truth_threads", "1", "--rate", "100")

    with markerjit.attach(program.pid) as session:
        session.enable("truth_birth")
        before = [bytes(entry) for entry in session._target.seen.arena.markers.entries()]
        session.plan("*")

        assert [bytes(entry) for entry in session._target.seen.arena.markers.entries()] == before


@pytest.mark.parametrize("ring_size", [0, 1000, 1024, 3 << 20, 1 << 31])
def test_ring_of_an_impossible_size_is_refused_before_anything_is_touched(
    target: Callable, ring_size: int
) -> None:
    program = target("truth_threads", "1", "--rate", "100")

    with pytest.raises(ValueError, match="power of two"):
        markerjit.attach(program.pid, ring_size=ring_size)

    with markerjit.View(program.pid) as view:
        assert not view.has_runtime


def test_an_arena_that_was_only_mapped_when_we_came_is_found_when_it_is_made(
    target: Callable,
) -> None:
    program = target("truth_threads", "1")

    with markerjit.attach(program.pid) as first:
        first.enable("truth_loop")
        arena = first._target.seen.arena
        assert arena
        made = arena.store.read(CONTROL, Control.magic.size)
        arena.store.write(CONTROL, bytes(len(made)))  # as before the last step of making it
        with markerjit.attach(program.pid) as second:
            before = second.has_runtime
            arena.store.write(CONTROL, made)
            second.disable("truth_loop")
            after = second.has_runtime
        maps = Path(f"/proc/{program.pid}/maps").read_text()

    assert (before, after) == (False, True)
    assert len({line.split()[4] for line in maps.splitlines() if "memfd:markerjit" in line}) == 1
