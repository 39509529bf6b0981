"""Applying a plan: the only module that writes into a target's code.

The strategies of quiescence, by name:

    stop        every thread of another process is stopped (ptrace) from before the old bytes are
                compared until the new ones are read back. A stopped thread has left user code by
                an interrupt, and returns to it by iret, which serialises: it cannot run old bytes
    membarrier  our own process: one-byte edits and aligned words, each a single store, then
                membarrier(PRIVATE_EXPEDITED_SYNC_CORE), after which every core that runs one of
                our threads has serialised (membarrier(2))

Comparing, writing, reading back and taking back are one native call, so that nothing in Python can
fail while threads stand still.
"""

from __future__ import annotations

import os
from typing import NamedTuple

from markerjit.errors import UnexpectedBytes
from markerjit.patch.plan import Plan
from markerjit.quiesce import native
from markerjit.quiesce.outcome import explain_failure

STOP = "stop"
MEMBARRIER = "membarrier"

EXPLAINED = {
    STOP: "stop every thread of the process (ptrace), new ones too, until none is new",
    MEMBARRIER: "store each edit at once, then fence every core (membarrier SYNC_CORE)",
}


class Applied(NamedTuple):
    """What applying took, in nanoseconds; zeros where nobody was stopped.

    stop    until all threads stood        held    while they stood
    resume  until the last one ran again   threads how many were stopped
    written how many edits the plan had
    """

    written: int
    threads: int
    stop: int
    held: int
    resume: int


def strategy_for(pid: int) -> str:
    """The strategy for a process: we cannot stop ourselves."""
    return MEMBARRIER if pid == os.getpid() else STOP


def apply(plan: Plan, pid: int, mem_fd: int) -> Applied:
    """Write a plan, all of it or nothing.

    Raises UnexpectedBytes, Refused (try again), NotPermitted, TargetGone; the target is then as it
    was before. MarkerError with "COULD NOT be rolled back" is the one exception, and names the
    edit.
    """
    if plan.needs_runtime:
        raise ValueError("a plan without the runtime's addresses cannot be applied")
    edits = (native.NativeEdit * len(plan.edits))()
    for slot, edit in zip(edits, plan.edits, strict=True):
        slot.address = edit.address
        slot.size = len(edit.new)
        slot.old_bytes[: len(edit.old)] = edit.old
        slot.new_bytes[: len(edit.new)] = edit.new
    report = native.Report()
    if not plan.edits:
        return Applied(0, 0, 0, 0, 0)
    if strategy_for(pid) == MEMBARRIER:
        status = native.library().mj_write_own(mem_fd, edits, len(edits), report)
    else:
        status = native.library().mj_write_stopped(pid, mem_fd, edits, len(edits), report)
    if status == native.UNEXPECTED:
        wrong = plan.edits[report.index]
        found = bytes(report.found)[: len(wrong.old)]
        raise UnexpectedBytes(wrong.address, found, wrong.old, wrong.what)
    if status != native.OK:
        raise explain_failure(pid, status, report)
    return Applied(
        len(plan.edits), report.threads, report.stop_ns, report.held_ns, report.resume_ns
    )
