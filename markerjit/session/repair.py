"""Repairing what a controller left that died in the middle: `markerjit repair PID`.

    0  a thread that was borrowed, and still waits in its call, is sent back
    1  the journal: the change is finished or taken back (unfinished.py); but not one that a live
       controller has paused
    2  the rings: a reader that is gone, or has not renewed its lease, loses its probes; so does one
       of an aggregate that is gone; and markers whose deadline has passed are switched off
    3  heads that no site explains (strays.py) are closed where their slots prove that they are
       ours; entries of heads whose code is gone are forgotten; all others are left alone and named
    4  an arena that was never finished is unmapped, and its descriptor closed

All under the target's lock, by the same transactions as every switch, so that being killed here
changes nothing: the journal stays open until its last byte is repaired.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from markerjit.arena.create import remove_unfinished
from markerjit.arena.find import find_unfinished
from markerjit.arena.patches import PatchKind
from markerjit.arguments import check_pid
from markerjit.errors import MarkerError
from markerjit.model import Change, Seccomp
from markerjit.patch.plan import Plan
from markerjit.patch.protocol import Context, Refusal, plan_change
from markerjit.printable import counted
from markerjit.proc.owner import Owner
from markerjit.quiesce.strategies import default_strategy
from markerjit.remote.left import LeftThread, find_left, send_home
from markerjit.session.strays import Remedy, StrayHead, find_strays
from markerjit.session.switch import Switcher
from markerjit.session.target import Target, as_seccomp
from markerjit.session.turn import Turn
from markerjit.session.unfinished import FINISHED, NOTHING, ROLLED_BACK
from markerjit.tuples import NamedTuple, brief
from markerjit.x86.forms import is_breakpoint


class Repaired(NamedTuple):
    """The result of a repair.

    journal       "nothing", "finished" (it was complete) or "rolled back"
    owner, since  the controller that left it open, or None; and its start (CLOCK_REALTIME, s)
    places        how many places the journal had, and `written` how many were repaired
    left_alone    why places were not touched, a line each
    switched_off  markers that recorded for a reader that is gone
    removed       arenas that were never finished
    closed        stray heads that were closed
    forgotten     stray heads whose code is gone, and whose entries are, too
    sent_back     threads that still waited in a system call for the controller that is gone
    overdue       markers whose time was over, and which are off now
    """

    journal: str
    owner: Owner | None
    since: int
    places: int
    written: int
    left_alone: tuple[str, ...]
    switched_off: tuple[str, ...]
    removed: int
    closed: int = 0
    forgotten: int = 0
    sent_back: tuple[LeftThread, ...] = ()
    overdue: tuple[str, ...] = ()

    def __repr__(self) -> str:
        return brief(self)

    @property
    def anything(self) -> bool:
        """Whether anything had to be repaired."""
        numbers = self.removed + self.closed + self.forgotten + len(self.sent_back)
        return self.journal != NOTHING or bool(self.switched_off or self.overdue) or numbers > 0

    def sentences(self) -> Iterator[str]:
        """The repairs, one line each; none where there was nothing to repair."""
        for thread in self.sent_back:
            yield (
                f"thread {thread.tid} still waited in system call {thread.call} for a controller "
                "that is gone; it goes back to its own code"
            )
        if self.journal == FINISHED:
            yield f"a change that {self.owner} began was complete; it stands"
        if self.journal == ROLLED_BACK:
            yield (
                f"a change of {counted(self.places, 'place')} that {self.owner} began was taken "
                f"back: {self.written} had to be repaired"
            )
        yield from (f"left alone: {reason}" for reason in self.left_alone)
        if self.switched_off:
            names = ", ".join(self.switched_off)
            yield f"switched off, since their reader is gone: {names}"
        if self.overdue:
            yield f"switched off, since their time was over: {', '.join(self.overdue)}"
        if self.closed:
            yield f"{counted(self.closed, 'stray head')} closed"
        if self.forgotten:
            yield f"{counted(self.forgotten, 'stray head')} forgotten, whose code is gone"
        if self.removed:
            yield f"{counted(self.removed, 'unfinished arena')} removed"


def repair(pid: int, *, seccomp: Seccomp | str = "read") -> Repaired:
    """Repair what a controller left in a process. Does nothing if there is nothing to repair.

    `seccomp` is as for `attach`. Raises what attaching and stopping raise; nothing was then
    changed.
    """
    check_pid(pid)
    with closing(Target(pid, seccomp=as_seccomp(seccomp))) as target:
        switcher = Switcher(target)
        with switcher.turn(repairing=True) as turn:
            back, away = _send_back(turn)
            settled = switcher.settle(turn)
            names = switcher.switch_off_for_the_gone(turn) + switcher.free_aggregates(turn)
            overdue = switcher.switch_off_overdue(turn)
            closed, forgotten, strays = _repair_strays(turn, switcher)
            removed, kept = _remove_unfinished(turn)
        return Repaired(
            *settled._replace(left_alone=(*away, *settled.left_alone, *strays, *kept)),
            switched_off=tuple(names), removed=removed, closed=closed, forgotten=forgotten,
            sent_back=tuple(back), overdue=tuple(overdue),
        )  # fmt: skip


# ---- 0: a thread that is not back ----------------------------------------------------------------


def _send_back(turn: Turn) -> tuple[list[LeftThread], list[str]]:
    """The thread that was sent back, and why another was not."""
    target = turn.target
    arena = turn.seen.arena
    left = find_left(target.pid, target.memory, arena.scratch) if arena else None
    if left is None or target.own:
        return [], []
    try:
        send_home(turn.native_target(), left)
    except MarkerError as error:
        if target.memory.is_gone():
            raise
        return [], [f"thread {left.tid} is still in system call {left.call}: {error}"]
    return [left], []


# ---- 3: stray heads ------------------------------------------------------------------------------


def _repair_strays(turn: Turn, switcher: Switcher) -> tuple[int, int, list[str]]:
    """How many were closed, how many forgotten, and why others were left alone."""
    target = turn.target
    closed, forgotten, left_alone = 0, 0, []
    kept: set[int] = set()
    for head, arena, entry in find_strays(target.pid, target.memory, turn.seen):
        if head.remedy is Remedy.FORGET:
            arena.patches.forget([head.address])
            forgotten += 1
            continue
        reason = head.advice if head.remedy is Remedy.LEAVE else None
        if entry.kind == PatchKind.HOLE and entry.slot in kept:
            reason = reason or "a head that leads there is left alone"
        try:
            reason = reason or _close(turn, switcher, head)
        except MarkerError as error:
            if target.memory.is_gone():
                raise
            reason = str(error)  # the repairs made so far have to be reported
        if reason:
            left_alone.append(f"{head.sentence}; {reason}")
            kept.add(int(entry.slot))
        else:
            arena.patches.mark(removed=[head.address])
            closed += 1
    return closed, forgotten, left_alone


def _close(turn: Turn, switcher: Switcher, head: StrayHead) -> str | None:
    """Put the old bytes back by a plan as of any switch. The reason if no protocol does."""
    assert head.now is not None
    own = turn.target.own
    strategy = default_strategy(own=own)
    change = Change(head.address, head.now, head.before, "stray head", code=True)
    edits = plan_change(change, Context(strategy, own, handler=is_breakpoint(head.now)))
    if isinstance(edits, Refusal):
        return edits.sentence
    plan = Plan("close a stray head", edits, strategy)
    switcher.planner.refuse_shared(plan)
    switcher.apply_plan(turn, plan)
    return None


# ---- 4: arenas that were never finished ----------------------------------------------------------


def _remove_unfinished(turn: Turn) -> tuple[int, list[str]]:
    """How many were removed, and why others were not."""
    target = turn.target
    removed, kept = 0, []
    for unfinished in find_unfinished(target.pid, target.memory, turn.seen.maps):
        try:
            remove_unfinished(turn.caller(), unfinished)
            removed += 1
        except MarkerError as error:
            if target.memory.is_gone():
                raise
            # The repairs made so far have to be reported.
            kept.append(f"an unfinished arena: {error}")
    return removed, kept
