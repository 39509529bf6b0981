"""The registers and stacks of a process's threads, copied while they stand for a moment (copies.c).

What this does not do: find frames in them (unwind/walk.py), or ask whether the process may be
stopped.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Sequence

from markerjit.errors import MemoryFault, NoSuchProcess, Refused
from markerjit.memory.base import is_ending
from markerjit.model import RemoteAddress
from markerjit.remote import native
from markerjit.remote.outcome import explain_failure
from markerjit.tuples import NamedTuple

_WORD = 8
_MOST = 1 << 18
"""Bytes of a stack: hundreds of frames."""
_MORE = 16
"""Threads that may be created while we count the existing ones."""
_TRIES = 5


class StackCopy(NamedTuple):
    """A thread as it was at a moment: registers, the number of the system call that it was in (None
    outside of one), and pieces of memory with their addresses."""

    tid: int
    rip: int
    rsp: int
    rbp: int
    call: int | None
    pieces: tuple[tuple[int, bytes], ...]

    def word(self, address: int) -> int:
        """The 8 bytes at an address of its stacks. Raises MemoryFault where they were not copied:
        no memory was there, or the stack is deeper than that."""
        for start, content in self.pieces:
            at = address - start
            if 0 <= at <= len(content) - _WORD:
                return int.from_bytes(content[at : at + _WORD], "little")
        raise MemoryFault(RemoteAddress(address), _WORD, "read", "it was not copied with the stack")

    @property
    def is_whole(self) -> bool:
        """Whether no piece was cut because it had no end."""
        return all(len(content) < _MOST for _, content in self.pieces)


class Copies(NamedTuple):
    """The threads, and the time from the first one's stop until all ran again, in nanoseconds."""

    threads: tuple[StackCopy, ...]
    stood_ns: int


def copy_stacks(target: native.NativeTarget, tid: int | None = None) -> Copies:
    """The stacks of all threads of another process, or of one.

    Raises NoSuchProcess, and MarkerError where a thread cannot be stopped now; Refused where there
    is no such thread, or where the process made threads faster than we counted them.
    """
    tasks = _tasks(target.pid)
    if tid is not None and tid not in tasks:
        raise _no_thread(target.pid, tid)
    expected = 1 if tid is not None else len(tasks) + _MORE
    for _ in range(_TRIES):
        report = native.Report()
        stacks = (native.CopiedStack * expected)()
        count = ctypes.c_uint32(expected)
        with mmap.mmap(-1, expected * _MOST) as memory:
            address = ctypes.addressof(view := ctypes.c_char.from_buffer(memory))
            room = native.StackRoom(address, len(memory), _MOST)
            status = native.library().mj_copy_stacks(target, tid or 0, stacks, count, room, report)
            del view
            if status == native.GONE and tid is not None and not is_ending(target.pid):
                raise _no_thread(target.pid, tid)
            if status != native.OK:
                raise explain_failure(target.pid, status, report)
            if count.value <= expected:
                threads = tuple(_copy(stack, memory) for stack in stacks[: count.value])
                stood_ns = report.stop_ns + report.held_ns + report.resume_ns
                return Copies(tuple(each for each in threads if each.rsp), stood_ns)
        expected = 2 * count.value
    raise Refused(f"process {target.pid} keeps making threads; try again", try_again=True)


def _no_thread(pid: int, tid: int) -> Refused:
    return Refused(f"process {pid} has no thread {tid}; ls /proc/{pid}/task shows those it has")


def _tasks(pid: int) -> Sequence[int]:
    try:
        return [int(name) for name in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        raise NoSuchProcess(pid) from None


def _copy(stack: native.CopiedStack, memory: mmap.mmap) -> StackCopy:
    pieces = tuple(
        (piece.address, memory[piece.offset : piece.offset + piece.size])
        for piece in stack.pieces[: stack.count]
    )
    call = stack.call if stack.call >= 0 else None
    return StackCopy(stack.tid, stack.rip, stack.rsp, stack.rbp, call, pieces)
