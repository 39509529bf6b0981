"""Stopping and borrowing threads of real processes: afterwards nothing shows that we were there.

stop/waiting.c waits in one system call and tells how that ended. Whatever is done to it, the call
must end as if nobody had come by.
"""

from __future__ import annotations

import os
import signal
import threading

import pytest

from markerjit.remote import native
from tests.support.children import RUNNING, SYS_GETPID, SYS_GETPPID, WAITS, Start, word
from tests.support.timing import joined

SYS_CLOSE, SYS_KILL = 3, 62
TIMES = 200
EBADF = 9

pytestmark = pytest.mark.live

# ---- calls that are waited in --------------------------------------------------------------------


@pytest.mark.parametrize("call", WAITS)
def test_a_call_of_a_borrowed_thread_ends_as_if_nobody_had_come_by(start: Start, call: str) -> None:
    child = start(call)
    for _ in range(TIMES // 4 if call in RUNNING else TIMES):
        assert child.borrow((SYS_GETPID,), (SYS_GETPPID,)) == native.OK
        assert child.results == [child.pid, os.getpid()]
    silent = child.is_silent()
    child.wait_state("R" if call in RUNNING else "S")
    child.end_wait(call)

    assert child.result() == WAITS[call]
    assert silent


@pytest.mark.parametrize("call", WAITS)
def test_a_call_of_a_stopped_thread_ends_as_if_nobody_had_come_by(start: Start, call: str) -> None:
    child = start(call)
    for number in range(TIMES // 4 if call in RUNNING else TIMES):
        old, new = word(1 + number), word(2 + number)
        assert child.write((child.data, old, new)) == native.OK
    silent = child.is_silent()
    child.wait_state("R" if call in RUNNING else "S")
    child.end_wait(call)

    assert child.result() == WAITS[call]
    assert silent


# ---- signals -------------------------------------------------------------------------------------


@pytest.mark.parametrize("call", ["read", "futex"])
def test_signals_that_come_meanwhile_are_delivered_once_each(start: Start, call: str) -> None:
    """Of a real-time signal every one counts."""
    child = start(call)

    def send() -> None:
        for _ in range(TIMES):
            os.kill(child.pid, signal.SIGRTMIN)  # Popen's would wait for it, and take our stops

    sender = threading.Thread(target=send)
    sender.start()
    done = [child.borrow((SYS_GETPID,)) for _ in range(TIMES)]
    joined(sender)
    # A thread that is just about to take a signal is left alone.
    assert set(done) <= {native.OK, native.NO_THREAD}
    assert native.OK in done
    child.wait_state("S")
    child.end_wait(call)

    assert child.result() == f"{WAITS[call].split()[0]} 0 {TIMES}"


def test_signals_that_are_already_waiting_are_delivered_after_the_stop(start: Start) -> None:
    child = start("spin")
    for _ in range(20):
        assert child.write((child.data, word(1), word(1))) == native.OK
    assert child.borrow((SYS_KILL, child.pid, signal.SIGUSR1)) == native.OK  # all are blocked then

    assert child.result() == "0 0 1"


@pytest.mark.parametrize("option", ["", "block", "ignore", "catch"])
def test_what_is_done_about_sigtrap_stays_as_it_was(start: Start, option: str) -> None:
    child = start("read", *filter(None, [option]))
    before = child.signal_masks()
    for _ in range(50):
        assert child.borrow((SYS_GETPID,)) == native.OK
        assert child.write((child.data, word(1), word(1))) == native.OK
    child.wait_state("S")

    assert child.signal_masks() == before
    child.end_wait("read")
    assert child.result() == "1 0 0"


def test_a_process_stopped_by_job_control_is_not_borrowed_and_stays_stopped(start: Start) -> None:
    child = start("read")
    child.signal(signal.SIGSTOP)
    child.wait_state("T")

    assert child.borrow((SYS_GETPID,)) == native.NO_THREAD
    child.wait_state("T")
    assert child.write((child.data, word(1), word(9))) == native.OK
    child.wait_state("T")
    child.input.send(b"x")
    assert child.is_silent()
    child.signal(signal.SIGCONT)
    assert child.result() == "1 0 0"


def test_a_stop_signal_that_comes_while_a_thread_is_borrowed_stops_it_afterwards(
    start: Start,
) -> None:
    child = start("read")
    for _ in range(50):
        sender = threading.Thread(target=os.kill, args=(child.pid, signal.SIGSTOP))
        sender.start()
        assert child.borrow(*[(SYS_GETPID,)] * 20) in (native.OK, native.NO_THREAD)
        joined(sender)
        child.wait_state("T")
        child.signal(signal.SIGCONT)
        child.wait_state("S")
    child.input.send(b"x")

    assert child.result() == "1 0 0"


# ---- what cannot be done -------------------------------------------------------------------------


def test_a_thread_that_does_not_stop_in_time_is_busy_and_goes_on_later(start: Start) -> None:
    """It waits for its vfork child, which nothing interrupts. We live on meanwhile, as a session
    does: what we began must not catch it when it comes out."""
    child = start("vfork")

    assert child.write((child.data, word(1), word(2))) == native.BUSY
    assert child.report.tid == child.pid
    assert child.word(0) == word(1)
    child.input.send(b"x")

    assert child.result(3) == "1 0 0"


def test_a_process_that_has_ended_is_gone(start: Start) -> None:
    child = start("read")
    child.process.kill()
    child.wait_state("Z")

    assert child.write((child.data, word(1), word(2))) == native.GONE
    assert child.borrow((SYS_GETPID,)) == native.GONE
    child.process.wait()
    assert child.write((child.data, word(1), word(2))) == native.GONE


def test_a_call_that_fails_ends_the_list_and_says_which(start: Start) -> None:
    child = start("read")

    assert child.borrow((SYS_GETPID,), (SYS_CLOSE, 9999), (SYS_GETPID,)) == native.CALL_FAILED
    assert (child.report.index, child.report.error) == (1, EBADF)
    assert child.results[::2] == [child.pid, 0]
    child.end_wait("read")
    assert child.result() == "1 0 0"


def test_a_call_may_refer_to_the_result_of_an_earlier_one(start: Start) -> None:
    child = start("read")
    pairs = (native.NativeCall * 2)()
    pairs[0].number, pairs[1].number = SYS_GETPID, SYS_KILL
    pairs[0].refs[:], pairs[1].refs[:] = [-1] * 6, [0] + [-1] * 5

    assert child.borrow_prepared(pairs) == native.OK
    assert child.results == [child.pid, 0]


# ---- writing -------------------------------------------------------------------------------------


def test_one_wrong_byte_in_the_middle_and_nothing_is_written(start: Start) -> None:
    child = start("read")
    edits = [(child.data + 8 * n, word(1 + n), word(100 + n)) for n in range(5)]
    edits[3] = (edits[3][0], word(77), edits[3][2])

    assert child.write(*edits) == native.UNEXPECTED
    assert child.report.index == 3
    assert bytes(child.report.found)[:8] == word(4)
    assert [child.word(n) for n in range(5)] == [word(1 + n) for n in range(5)]


def test_code_can_be_written_and_runs(start: Start) -> None:
    """The loop ends in `jmp a_loop`; made to jump to itself it runs on all the same."""
    child = start("loop")
    jump = child.text + 9
    back = os.pread(child.memory, 2, jump)

    assert child.write((jump + 1, back[1:], b"\xfe")) == native.OK
    assert child.write((jump + 1, b"\xfe", back[1:])) == native.OK
    assert child.report.threads == 1


def test_a_thread_inside_an_edit_of_several_bytes_is_seen(start: Start) -> None:
    child = start("loop")
    code = os.pread(child.memory, 11, child.text)

    answers: set[int] = set()
    while native.IN_SPAN not in answers:
        answers.add(child.write((child.text, code, code)))

    assert answers <= {native.OK, native.IN_SPAN}
    assert child.report.tid == child.pid
    assert {child.write((child.text + 7, code[7:8], code[7:8])) for _ in range(20)} == {native.OK}


def test_threads_are_listed_with_their_bases(start: Start) -> None:
    child = start("futex")

    assert child.borrow(alone=True) == native.OK

    bases = {thread.tid: thread.fs_base for thread in child.threads}
    assert set(bases) == {int(tid) for tid in os.listdir(f"/proc/{child.pid}/task")}
    assert all(bases.values())
