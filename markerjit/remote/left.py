"""A borrowed thread whose controller was killed, and which has not returned yet.

The thread finishes its system call and finds its own way back (decision 0008). This module finds a
thread that still waits in the call, and sends it back. It leaves a running thread alone, because
that is already on its way.
"""

from __future__ import annotations

from contextlib import suppress

from markerjit.abi import SCRATCH_SIZE
from markerjit.errors import MarkerError
from markerjit.memory import Memory, has_ended
from markerjit.model import RemoteAddress
from markerjit.remote import native
from markerjit.remote.outcome import explain_failure
from markerjit.tuples import NamedTuple

_WORD = 8


class LeftThread(NamedTuple):
    """A thread that waits in a call whose controller is gone: the thread's id, and the number of
    the system call."""

    tid: int
    call: int


def find_left(pid: int, memory: Memory, scratch: RemoteAddress) -> LeftThread | None:
    """The thread that the scratch memory belongs to, if it waits in the kernel on a stack in that
    memory."""
    with suppress(MarkerError, OSError, ValueError):
        tid = int.from_bytes(memory.read(scratch, _WORD), "little")
        if not tid:
            return None
        with open(f"/proc/{pid}/task/{tid}/syscall", encoding="ascii") as file:
            call, *_, stack_pointer, _ = file.read().split()  # ValueError: "running"
        if int(call) >= 0 and 0 <= int(stack_pointer, 16) - scratch < SCRATCH_SIZE:
            return LeftThread(tid, int(call))
    return None


def send_home(target: native.NativeTarget, left: LeftThread) -> None:
    """Interrupt the call that a thread was left in. Does nothing for a thread that has ended.

    Raises Refused where the thread cannot be interrupted, NotPermitted and TargetGone.
    """
    report = native.Report()
    status = native.library().mj_send_home(target, left.tid, report)
    alone = status == native.GONE and not has_ended(target.pid)
    if status != native.OK and not alone:
        raise explain_failure(target.pid, status, report)
