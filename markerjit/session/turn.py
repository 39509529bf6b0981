"""A turn: the target's lock, held. All that changes a process takes one.

A turn is got from `Turns.take`, which in this order

    1  takes the lock, or refuses: one controller at a time changes a process
    2  looks anew, since objects may have come or gone before we had the lock
    3  asks whether the process may be stopped. Not before 1: another controller's stop would look
       like a debugger
    4  refuses an open journal. It belongs to a controller that is gone, and until then the
       content of the code is unknown. A repair takes its turn in spite of that. A change that is
       made in stages is refused while its controller has a lease, and is over afterwards

What was seen in step 2 is `Turn.seen`. A turn that is over refuses to be used.

What this does not do: decide what is changed (switch.py, recording.py, repair.py).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from markerjit.arena.journal import Journal
from markerjit.errors import ChangeFailed, MarkerError, NoSuchProcess, Refused, TargetGone
from markerjit.proc.permission import (
    check_before_borrowing,
    check_before_stopping,
    check_before_writing,
)
from markerjit.remote import native
from markerjit.remote.filters import Filters, NeededCall
from markerjit.session.target import Seen, Target

if TYPE_CHECKING:  # most switches borrow no thread
    from markerjit.remote.calls import Caller
    from markerjit.remote.gadgets import Gadgets
    from markerjit.remote.mappings import Mappings

_ASK_AGAIN_S = 1.0
_LOOKS_BEFORE_MAPPINGS = 2
"""They are asked twice the first time, and pay for that later. Many sessions switch on, and off."""


def _needed() -> tuple[NeededCall, ...]:
    from markerjit.arena.needed import NEEDED  # asked for where a thread is under filters

    return NEEDED


class Turn:
    """The right to change a process, until it ends. Made by `Turns.take` alone. `left_paused` says
    that a change was paused and not taken up again: it has to be settled first (unfinished.py)."""

    def __init__(
        self,
        target: Target,
        gadgets: Callable[[], Gadgets],
        filters: Filters,
        *,
        left_paused: bool = False,
        is_registered: bool = False,
    ) -> None:
        self.left_paused = left_paused
        self._is_registered = is_registered
        self._target = target
        self._gadgets = gadgets
        self._filters = filters
        self._over = False

    def check(self) -> None:
        """Raise RuntimeError when the turn is over; everything here does."""
        if self._over:
            raise RuntimeError(f"a turn of process {self._target.pid} is used after its end")

    @property
    def target(self) -> Target:
        """The process."""
        self.check()
        return self._target

    @property
    def seen(self) -> Seen:
        """The look from the start of the turn, with the arena, if one was made since."""
        return self.target.seen

    def native_target(self, mapped: bytes = b"", *, borrowing: bool = False) -> native.NativeTarget:
        """The process as the native part needs it, with the lines of /proc/PID/maps that have to be
        the same still; `borrowing` where a thread of it may be needed.

        Raises Refused and Unsupported where no thread can be borrowed.
        """
        target = self.target
        process = native.NativeTarget(
            pid=target.pid,
            pidfd=target.memory.pidfd,
            mem_fd=target.memory.fileno(),
            mapped=mapped,
            mapped_size=len(mapped),
        )
        arena = target.seen.arena
        if arena and not target.own:
            process.scratch = arena.scratch
            process.rseq_offset = int(arena.facts.rseq_offset)
            if arena.is_current:
                slots = arena.geometry.slots
                process.slots, process.slots_size = arena.base + slots.offset, slots.size
        if borrowing and not target.own:
            check_before_borrowing(target.pid)
            # All threads, however lately they were asked: a filter would kill the borrowed one.
            self._filters.check(set())
            process.syscall_ret, process.sigreturn, process.pop_rax_ret = self._gadgets()
            process.is_registered = self._is_registered
        self._filters.tell(process)
        return process

    def caller(self) -> Caller:
        """A thread that makes system calls in the process."""
        from markerjit.remote.calls import BorrowedThread, OwnThread

        if self.target.own:
            return OwnThread()
        return BorrowedThread(self.native_target(borrowing=True))

    def end(self) -> None:
        """From now on it refuses to be used."""
        self._over = True


class Turns:
    """The turns of one target, one after the other; with what may be kept from one to the next.
    `loads` says which objects our own process had loaded before the look of the last one, and
    `is_registered` that another one has registered for fences: it stays so as long as it runs its
    program."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._filters = Filters(target.pid, _needed, trust=target.trusts_filters)
        self._asked: set[int] = set()
        self._asked_at = 0.0
        self._gadgets: tuple[str, Gadgets] | None = None
        self._mappings: Mappings | None = None
        self._looks = 0
        self.loads = b""
        self.is_registered = False

    @contextmanager
    def take(self, *, repairing: bool = False, stepping: bool = False) -> Iterator[Turn]:
        """A turn, which ends with the context; `stepping` for the next step of a paused change,
        whose journal the caller judges itself. Raises Refused while another controller has its
        turn, or for an open journal; NotPermitted, Unsupported, TargetGone."""
        target = self._target
        target.check_open()
        with target.memory.watched(), target.memory.locked() as locked:
            if not locked:
                raise self._taken()
            self.loads = native.own_loads() if target.own else b""
            target.look(self._mappings)
            self._looks += 1
            if self._looks == _LOOKS_BEFORE_MAPPINGS:
                from markerjit.remote.mappings import Mappings

                self._mappings = Mappings(target.pid)
            target.refuse_unknown_runtime()
            with target.known():
                self._check_threads()
            left_paused = not stepping and self._judge_journal(repairing=repairing)
            turn = Turn(
                target, self.gadgets, self._filters,
                left_paused=left_paused, is_registered=self.is_registered,
            )  # fmt: skip
            try:
                with self._explained():
                    yield turn
            finally:
                turn.end()

    def gadgets(self) -> Gadgets:
        """Instructions of the process that a borrowed thread is sent to; looked for again when
        anything was mapped or unmapped."""
        seen = self._target.seen
        if self._gadgets is None or self._gadgets[0] is not seen.maps_text:
            from markerjit.remote.gadgets import find_gadgets

            self._gadgets = (seen.maps_text, find_gadgets(self._target.memory.read, seen.maps))
        return self._gadgets[1]

    @contextmanager
    def _explained(self) -> Iterator[None]:
        """Within, an error that comes of an object's being loaded or unloaded says so.

        The look from the start of the turn is out of date then, and an address may be anything: not
        mapped (MemoryFault), other code (UnexpectedBytes), or of no marker (Refused).
        """
        try:
            yield
        except NoSuchProcess:
            # There is no /proc/PID now, and there was when the turn began.
            raise TargetGone(self._target.pid) from None
        except (TargetGone, ChangeFailed):
            # These say what has become of the process, and another look would not change that. A
            # failed rollback has to be reported in any case.
            raise
        except MarkerError as error:
            if isinstance(error, Refused) and error.try_again:
                raise  # It gives the same advice, and a better reason.
            if self._target.own:
                # The objects that came are our own imports (numpy, capstone), and no reason.
                raise
            if not self._target.files_changed():
                raise
            raise Refused(
                f"an object of process {self._target.pid} was loaded or unloaded just now "
                f"({error}); try again",
                try_again=True,
            ) from None

    def _taken(self) -> Refused:
        if self._target.memory.is_locked_elsewhere():
            return Refused(
                f"another thread uses this session of process {self._target.pid}; open a session "
                "for each thread",
                try_again=True,
            )
        arena = self._target.seen.arena
        writer = Journal(arena).owner() if arena else None
        return Refused(
            f"{writer or 'another controller'} is switching markers of process "
            f"{self._target.pid}; try again",
            try_again=True,
        )

    def _judge_journal(self, *, repairing: bool) -> bool:
        """Refuse a journal that is open. Whether one is left of a change that was paused."""
        arena = self._target.seen.arena
        left = Journal(arena).left() if arena else None
        if left and left.pause:
            if not left.pause.over:
                raise Refused(
                    f"{left.owner} changes process {self._target.pid} in stages, and its lease has "
                    f"{left.pause.left_s:.0f} s left; try again",
                    try_again=True,
                )
            return True
        if left and not repairing:
            raise Refused(
                f"{left.owner} began a change of process {self._target.pid} and did not finish it; "
                f"run markerjit repair {self._target.pid}"
            )
        return False

    def _check_threads(self) -> None:
        """May the process be stopped, and each of its threads? Threads that were asked less than a
        second ago are not asked again: with hundreds it would take longer than the stop. Our own
        process is never stopped."""
        if not self._target.own:
            pid = self._target.pid
            check_before_stopping(pid, is_followed=native.is_followed(pid))
        check_before_writing(self._target.pid)
        self._target.memory.check_writable()
        self.check_filters()

    @property
    def has_filters(self) -> bool:
        """Whether a thread was under filters when they were asked last."""
        return bool(self._filters.allowed)

    def check_filters(self) -> None:
        """Ask each thread for filters, as `take` does. Raises what that raises for them."""
        if self._target.own:
            return
        now = time.monotonic()
        if now - self._asked_at > _ASK_AGAIN_S:
            self._asked.clear()
            self._asked_at = now
        self._filters.check(self._asked)
