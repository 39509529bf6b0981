"""Applying a plan: the only module that writes into a target's code.

Comparing, writing, synchronising, reading back and taking back are one native call, so that nothing
in Python can fail while threads stand still. Before it, the edits are in the target's journal;
after it, when everything is written or everything is as it was, the journal is empty again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext

from markerjit.arena.journal import Journal
from markerjit.arena.pack import as_native, pack
from markerjit.errors import UnexpectedBytes
from markerjit.model import Edit
from markerjit.patch.plan import Plan
from markerjit.patch.switchable import LeftOut
from markerjit.proc.priority import raised_priority
from markerjit.remote import native
from markerjit.remote.outcome import explain_failure
from markerjit.tuples import NamedTuple, brief
from markerjit.x86.forms import is_breakpoint


class Applied(NamedTuple):
    """How long it took to apply the plan, in nanoseconds; zeros where no thread was stopped.

    stop    until all threads stood        held    while they stood
    resume  until the last one ran again   threads how many were stopped
    written how many places were changed
    left_out  markers that matched and were left as they were, with the reason
    taken   markers that were taken from a trace, by force
    ended   markers that a flight recorder has kept until now
    """

    written: int
    threads: int
    stop: int
    held: int
    resume: int
    left_out: tuple[LeftOut, ...] = ()
    taken: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return brief(self)


NOTHING = Applied(0, 0, 0, 0, 0)


Copies = Callable[[Edit], Mapping[int, int]]
"""A function that returns, for the instructions inside an edit, where a thread that is there may go
on instead."""


def no_copies(edit: Edit) -> Mapping[int, int]:
    """None: nothing inside the edit was copied."""
    return {}


def apply(
    plan: Plan,
    target: native.NativeTarget,
    journal: Journal | None,
    packed: bytearray | None = None,
    changes: int | None = None,
    copies: Copies = no_copies,
) -> Applied:
    """Write a plan, all of it or nothing. `packed` are its edits, if they were packed before, and
    `changes` is the number of edits that change something. `copies` is called when a thread stays
    inside an edit.

    Without an arena there is no journal. Then every edit must be one byte or a pointer, so that any
    subset of the edits is a safe state.

    Raises UnexpectedBytes, Refused (try again), NotPermitted, NotVerified, ChangeFailed,
    TargetGone; the target is then as it was before. NotRolledBack is the one exception: the journal
    stays open, for `markerjit repair`.
    """
    if plan.needs_runtime:
        raise ValueError("a plan without the runtime's addresses cannot be applied")
    if not plan.edits:
        return NOTHING._replace(left_out=plan.left_out)
    if packed is None:
        packed = pack(plan.edits)
    report = native.Report()
    status = _apply_journalled(plan, target, journal, packed, report)
    known: dict[int, int] = {}
    while status == native.IN_SPAN:
        of_edit = copies(plan.edits[report.index])
        if of_edit.keys() <= known.keys():
            break
        known.update(of_edit)
        target.moves = (native.Move * len(known))(*(native.Move(*each) for each in known.items()))
        target.move_count = len(known)
        status = _apply_journalled(plan, target, journal, packed, report)
    if status == native.UNEXPECTED:
        wrong = plan.edits[report.index]
        actual = bytes(report.found)[: len(wrong.old)]
        raise UnexpectedBytes(
            wrong.address, actual, wrong.old, wrong.what,
            is_breakpoint=wrong.code and is_breakpoint(actual),
        )  # fmt: skip
    if status != native.OK:
        raise explain_failure(target.pid, status, report)
    stopped = report.threads if plan.strategy.stops else 0
    written = plan.changes if changes is None else changes
    if not stopped:
        return NOTHING._replace(written=written, left_out=plan.left_out)
    return Applied(
        written, stopped, report.stop_ns, report.held_ns, report.resume_ns, plan.left_out
    )


def _needs_threads(plan: Plan, target: native.NativeTarget) -> bool:
    """Whether threads of another process are stopped, or wait for a borrowed thread."""
    return (plan.strategy.stops or plan.strategy.borrows) and target.pid != os.getpid()


def _apply_journalled(
    plan: Plan,
    target: native.NativeTarget,
    journal: Journal | None,
    packed: bytearray,
    report: native.Report,
) -> int:
    status: int | None = None
    try:
        if journal:
            journal.open(packed)
        with raised_priority() if _needs_threads(plan, target) else nullcontext():
            done = int(
                native.library().mj_apply(
                    target, plan.strategy.number, as_native(packed), len(plan.edits), report
                )
            )
        if journal and done == native.OK:
            journal.note_breakpoints([address for address, _ in plan.traps], plan.untraps)
        status = done
        return status
    finally:
        # If we are interrupted here the outcome is unknown. The journal stays open, so the next
        # controller checks.
        if journal and status not in (None, native.NOT_UNDONE, native.GONE):
            journal.close()
