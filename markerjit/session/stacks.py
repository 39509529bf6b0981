"""The stacks of a process's threads, at one moment or again and again.

The threads are stopped while their registers and stacks are copied. Frames are found afterwards, by
the unwind tables of what the process has mapped, and get their names. Nothing in the process
changes.
"""

from __future__ import annotations

import time
from typing import Self

from markerjit.arguments import check_flag, check_int, check_pid, check_seconds
from markerjit.calls.samples import SampledTree, StackSamples
from markerjit.errors import NoSuchProcess, Refused, TargetGone, Unsupported
from markerjit.printable import counted
from markerjit.remote.stacks import StackCopy, copy_stacks
from markerjit.session.target import Target
from markerjit.session.turn import Turns
from markerjit.tuples import NamedTuple, brief
from markerjit.unwind.frames import Frame
from markerjit.unwind.names import FrameNames
from markerjit.unwind.objects import ProcessCode
from markerjit.unwind.walk import DEPTH, MAX_DEPTH, Registers, StackEnd, walk

MOST_SAMPLES = 1 << 24
_MOST_TID = 1 << 22
"""PID_MAX_LIMIT of the kernel."""


class ThreadStack(NamedTuple):
    """The stack of a thread.

    frames  the innermost first
    end     why there are no more: nothing has called the last one; or no table has its code, or
            what stands on the stack cannot be, or it is deeper
    call    the number of the system call that it was in; None outside of one
    """

    tid: int
    name: str
    frames: tuple[Frame, ...]
    end: StackEnd
    call: int | None

    def __repr__(self) -> str:
        return brief(self)


class Stacks(NamedTuple):
    """The stacks of a process's threads, by thread; and for how long a thread may have been stopped
    for them, in nanoseconds."""

    pid: int
    command: str
    threads: tuple[ThreadStack, ...]
    stood_ns: int

    def __repr__(self) -> str:
        return f"<Stacks of process {self.pid}: {counted(len(self.threads), 'thread')}>"


def stacks_of_process(pid: int, *, tid: int | None = None, depth: int = DEPTH) -> Stacks:
    """The stacks of all threads of another process, or of one, of at most `depth` frames each.

    Raises what attaching raises; Unsupported for our own process; Refused if there is no such
    thread, if one cannot be stopped now, and while another controller is at work.
    """
    _check(pid, tid, depth)
    with _Looker(pid) as looker:
        return looker.look(tid, depth)


def sample_stacks(
    pid: int, *, count: int = 100, every: float = 0.01, tid: int | None = None, depth: int = DEPTH,
    running: bool = False,
) -> StackSamples:  # fmt: skip
    """The stacks of all threads of another process, or of one, at `count` moments, `every` so many
    seconds; at fewer if the process ends before. A moment at which it cannot be stopped, or at
    which another controller is at work, is counted as missed. `running` leaves out threads that are
    in a system call. Raises what `stacks_of_process` raises."""
    check_flag("running", running)
    _check(pid, tid, depth)
    check_int("count", count, 1, MOST_SAMPLES)
    check_seconds("every", every)
    tree = SampledTree()
    began, looks, missed, stood, ended = time.monotonic(), 0, 0, [0], False
    with _Looker(pid) as looker:
        for number in range(count):
            time.sleep(max(0.0, began + number * every - time.monotonic()))
            try:
                stacks = looker.look(tid, depth)
            except (TargetGone, NoSuchProcess):
                if not looks:
                    raise
                ended = True
                break
            except Refused as refusal:
                if not refusal.try_again:
                    raise
                missed += 1
                continue
            looks += 1
            stood.append(stacks.stood_ns)
            for thread in stacks.threads:
                if thread.call is None or not running:
                    tree.add(_names_of(thread))
        seconds = time.monotonic() - began
        return StackSamples(
            seconds, looks, missed, tree.stacks, sum(stood), max(stood), tree.nodes, ended,
            pid, looker.command,
        )  # fmt: skip


def _check(pid: object, tid: object, depth: object) -> None:
    check_pid(pid)
    if tid is not None:
        check_int("tid", tid, 1, _MOST_TID)
    check_int("depth", depth, 1, MAX_DEPTH)


class _Looker:
    """Looks at the stacks of a process. What is known of its code is kept for as long as nothing is
    mapped or unmapped."""

    def __init__(self, pid: int) -> None:
        """Raises what attaching raises, and Unsupported for our own process."""
        self._target = Target(pid)
        self.command = self._target.command
        self._turns = Turns(self._target)
        self._known: tuple[str, ProcessCode, FrameNames] | None = None
        if self._target.own:
            self._target.close()
            raise Unsupported("the stacks of our own process cannot be copied: it would stop us")

    def look(self, tid: int | None, depth: int) -> Stacks:
        """The stacks as they are now. Raises as `stacks_of_process`."""
        target = self._target
        with self._turns.take() as turn:
            copies = copy_stacks(turn.native_target(), tid)
        with target.memory.watched(), target.known():
            code, names = self._of_code()
            threads = (_stack(target.pid, code, names, copy, depth) for copy in copies.threads)
            threads_by_tid = tuple(sorted(threads, key=lambda thread: thread.tid))
        return Stacks(target.pid, target.command, threads_by_tid, copies.stood_ns)

    def _of_code(self) -> tuple[ProcessCode, FrameNames]:
        seen = self._target.seen
        if self._known is None or self._known[0] != seen.maps_text:
            code = ProcessCode(self._target.memory.read, seen.maps)
            self._known = seen.maps_text, code, FrameNames(self._target.pid, code)
        return self._known[1:]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._target.close()


def _names_of(thread: ThreadStack) -> list[str]:
    """The stack of a thread as samples have it, the first caller first."""
    names = [frame.label for frame in reversed(thread.frames)]
    return [thread.name, *([thread.end] if thread.end else []), *names]


def _stack(
    pid: int, code: ProcessCode, names: FrameNames, copy: StackCopy, depth: int
) -> ThreadStack:
    stack = walk(code, copy.word, Registers(copy.rip, copy.rsp, copy.rbp), depth)
    frames = tuple(
        names.frame(address, exact=exact)
        for address, exact in zip(stack.addresses, stack.exact, strict=True)
    )
    end = stack.end
    if end is StackEnd.DAMAGED and not copy.is_whole:
        end = StackEnd.DEEPER
    return ThreadStack(copy.tid, _name(pid, copy.tid), frames, end, copy.call)


def _name(pid: int, tid: int) -> str:
    """What a thread is called; "" where it has ended since."""
    try:
        with open(f"/proc/{pid}/task/{tid}/comm", "rb") as file:
            return file.read().rstrip(b"\n").decode(errors="replace")
    except OSError:
        return ""
