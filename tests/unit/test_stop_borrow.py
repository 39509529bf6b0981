"""Which thread is borrowed, from where it calls, and who stands still meanwhile."""

from __future__ import annotations

import os

import pytest

from markerjit.quiesce import native
from tests.unit.test_stop import (
    SYS_GETPID,
    WAITS,
    Start,
    program,  # noqa: F401  (a fixture)
    start,  # noqa: F401  (a fixture)
)

SYSCALL_RET = b"\x0f\x05\xc3"

pytestmark = pytest.mark.live


@pytest.mark.parametrize("call", ["read", "nanosleep", "futex", "spin"])
def test_a_thread_that_meets_a_fault_for_us_goes_on_where_it_was(
    start: Start,  # noqa: F811
    call: str,
) -> None:
    """Code that can be read but not run is as good as code that has been unloaded since."""
    child = start(call)
    os.pwrite(child.memory, SYSCALL_RET, child.data)
    child.target.syscall_ret = child.data

    assert child.borrow((SYS_GETPID,)) == native.FAULTED
    assert child.report.tid == child.pid
    child.end_wait(call)

    assert child.result() == WAITS[call]
