"""Where the threads of a process are, as far as the kernel tells without stopping them.

A thread that waits in the kernel has a known instruction pointer, proc_pid_syscall(5). One that
runs has not.

What this does not do: stop a thread to look. A position is that of a moment which has passed.
"""

from __future__ import annotations

import os

from markerjit.errors import NoSuchProcess
from markerjit.tuples import NamedTuple

_MOST = 64
_RUNNING = "running"


class ThreadPosition(NamedTuple):
    """A thread. `pc` is the address at which it continues in user space, or None where that is not
    known, because it runs or we may not ask. `call` is the number of the system call that it is in,
    None outside of one."""

    tid: int
    name: str
    runs: bool
    pc: int | None
    call: int | None


def thread_positions(pid: int) -> list[ThreadPosition]:
    """The threads, the first 64 at most, by id. Raises NoSuchProcess."""
    try:
        tids = sorted(map(int, os.listdir(f"/proc/{pid}/task")))[:_MOST]
    except OSError:
        raise NoSuchProcess(pid) from None
    positions = []
    for tid in tids:
        try:
            name = _read(f"/proc/{pid}/task/{tid}/comm")
        except OSError:  # it has ended since
            continue
        try:
            positions.append(parse_position(tid, name, _read(f"/proc/{pid}/task/{tid}/syscall")))
        except OSError:
            positions.append(ThreadPosition(tid, name, False, None, None))
    return positions


def parse_position(tid: int, name: str, line: str) -> ThreadPosition:
    """A position from the line of /proc/PID/task/TID/syscall."""
    words = line.split()
    if words[:1] == [_RUNNING] or len(words) < 3:
        return ThreadPosition(tid, name, words[:1] == [_RUNNING], None, None)
    call = int(words[0])
    return ThreadPosition(tid, name, False, int(words[-1], 16), call if call >= 0 else None)


def _read(path: str) -> str:
    with open(path, "rb", buffering=0) as file:
        return os.fsdecode(file.read()).rstrip("\n")
