"""Which thread is borrowed, from where it calls, and who stands still meanwhile."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from markerjit.remote import native
from tests.support.children import RUNNING, SYS_GETPID, WAITS, Start, Waiting, word

SYS_MEMFD_CREATE = 319
SYSCALL_RET = b"\x0f\x05\xc3"

pytestmark = pytest.mark.live


@pytest.mark.parametrize("call", ["read", "nanosleep", "futex", "spin"])
def test_a_thread_that_meets_a_fault_for_us_goes_on_where_it_was(
    start: Start,
    call: str,
) -> None:
    """Code that can be read but not run is as good as code that has been unloaded since."""
    child = start(call)
    os.pwrite(child.memory, SYSCALL_RET, child.data)
    child.target.syscall_ret = child.data

    assert child.borrow((SYS_GETPID,)) == native.FAULTED
    assert child.report.tid == child.pid
    child.wait_state("R" if call in RUNNING else "S")
    child.end_wait(call)

    assert child.result() == WAITS[call]


# ---- who stands still meanwhile ------------------------------------------------------------------


def test_others_run_while_a_thread_is_borrowed_on_the_scratch(start: Start) -> None:
    child = start("futex")

    assert child.borrow((SYS_GETPID,)) == native.OK
    assert child.report.threads == 1


def test_all_stand_where_that_is_asked_for_and_are_listed(start: Start) -> None:
    child = start("futex")

    assert child.borrow((SYS_GETPID,), alone=True) == native.OK
    assert child.report.threads == 2
    assert child.results == [child.pid]


def without_scratch(child: Waiting) -> None:
    child.target.scratch = 0


def with_the_scratch_of_a_controller_that_was_killed(child: Waiting) -> None:
    """Its thread may still be on its way back."""
    os.pwrite(child.memory, child.pid.to_bytes(8, "little"), child.target.scratch)


@pytest.mark.parametrize(
    "prepare", [without_scratch, with_the_scratch_of_a_controller_that_was_killed]
)
@pytest.mark.parametrize("quiescence", [0, native.MEMBARRIER])
def test_all_stand_while_a_frame_is_on_a_stack(
    start: Start,
    prepare: Callable[[Waiting], None],
    quiescence: int,
) -> None:
    """Of a coroutine, say, whose stack the next thread would go on with."""
    child = start("futex")
    prepare(child)

    if quiescence:
        assert child.write((child.data, word(1), word(9)), quiescence=quiescence) == native.OK
    else:
        assert child.borrow((SYS_GETPID,)) == native.OK
    assert (child.report.threads, child.report.borrowed) == (2, 1)
    child.wait_state("S")
    child.end_wait("futex")

    assert child.result() == WAITS["futex"]


# ---- what a call points to -----------------------------------------------------------------------


def memfd_create(name: bytes) -> native.NativeCall:
    call = native.NativeCall(number=SYS_MEMFD_CREATE, text_arg=1)
    call.refs[:] = [-1] * 6
    call.text[: len(name)] = name
    return call


@pytest.mark.parametrize("prepare", [lambda child: None, without_scratch])
def test_a_call_may_point_to_text_that_is_there_for_it_alone(
    start: Start, prepare: Callable[[Waiting], None]
) -> None:
    """Of the longest, in two calls of one list; below the stack nothing is left of it."""
    child = start("read")
    prepare(child)
    names = [b"first\0", b"x" * (native.CALL_TEXT - 1)]
    below = child.stack_below()

    assert child.borrow_prepared([memfd_create(name) for name in names]) == native.OK

    links = [os.readlink(f"/proc/{child.pid}/fd/{number}") for number in child.results]
    assert links == [f"/memfd:{name.rstrip(bytes(1)).decode()} (deleted)" for name in names]
    if not child.target.scratch:
        assert child.stack_below() == below
