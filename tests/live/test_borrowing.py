"""Threads that are borrowed while the process around them is disturbed, or was mistaken."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import markerjit
from markerjit.memory import ProcessMemory, read_maps
from markerjit.remote import native
from markerjit.remote.calls import BorrowedThread, Call
from markerjit.remote.gadgets import find_gadgets
from tests.support.processes import state_of
from tests.support.timing import joined, wait_until

pytestmark = pytest.mark.user

SYS_GETPID = 39
GETPID = Call("getpid", SYS_GETPID, ())


def native_target(memory: ProcessMemory) -> native.NativeTarget:
    gadgets = find_gadgets(memory.read, read_maps(memory.pid))
    return native.NativeTarget(memory.pid, memory.pidfd, memory.fileno(), 0, *gadgets)


@pytest.mark.parametrize("alone", [False, True])
def test_job_control_in_the_middle_ends_no_borrowing(target: Callable, alone: bool) -> None:
    program = target("truth_threads", "2", "--rate", "100")
    ended = threading.Event()

    def stop_and_go() -> None:
        while not ended.is_set():
            os.kill(program.pid, signal.SIGTSTP)
            time.sleep(0.0005)
            os.kill(program.pid, signal.SIGCONT)
            time.sleep(0.0005)

    disturbing = threading.Thread(target=stop_and_go)
    with ProcessMemory(program.pid) as memory:
        caller = BorrowedThread(native_target(memory))
        made = refused = 0
        disturbing.start()
        try:
            while made < 50 and refused < 5_000:
                try:
                    done = caller.run_alone([GETPID])[0] if alone else caller.run([GETPID])
                    assert done == [program.pid]
                    made += 1
                except markerjit.Refused as no:  # it stood still just then
                    assert no.try_again
                    refused += 1
        finally:
            ended.set()
            joined(disturbing)
    os.kill(program.pid, signal.SIGCONT)

    assert made == 50
    assert program.ask("counts")["threads"] == 2


@pytest.fixture
def inside(target: Callable) -> Iterator[tuple[ProcessMemory, Callable[[], int]]]:
    """A process whose only thread is inside a restartable sequence; how often that was aborted."""
    program = target("truth_sequence")
    address = int(program.ready["aborted"], 16)
    with ProcessMemory(program.pid) as memory:
        yield memory, lambda: int.from_bytes(memory.read(address, 8), "little")


def test_a_thread_inside_a_restartable_sequence_is_borrowed_and_goes_on_at_its_abort(
    inside: tuple[ProcessMemory, Callable[[], int]],
) -> None:
    memory, aborted = inside
    caller = BorrowedThread(native_target(memory))

    for _ in range(20):
        before = aborted()
        assert caller.run([GETPID]) == [memory.pid]
        wait_until(lambda: aborted() > before, "the abort")  # noqa: B023  (within the round)


@pytest.mark.parametrize("quiesce", ["stop", "membarrier"])
def test_a_program_that_is_always_in_a_sequence_is_switched(
    inside: tuple[ProcessMemory, Callable[[], int]], quiesce: str
) -> None:
    memory, aborted = inside

    with markerjit.attach(memory.pid) as session:
        for _ in range(20):
            session.enable("truth_sequence", quiesce=quiesce)
            session.disable("truth_sequence", quiesce=quiesce)
    assert aborted() > 0


def test_a_process_that_was_stopped_meanwhile_stays_so(target: Callable) -> None:
    program = target("truth_threads", "1")

    with markerjit.attach(program.pid) as session:
        session.enable("*")
        os.kill(program.pid, signal.SIGSTOP)
        session.disable("*")

        # A thread that is let go is woken, and goes back into the stop by itself: ptrace(2).
        wait_until(lambda: state_of(program.pid) == "T", "the stop")
    os.kill(program.pid, signal.SIGCONT)
    assert program.ask("counts")["threads"] == 1
