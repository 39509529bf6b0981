"""The processes that a process has started, and that are there now.

Authority: /proc/PID/task/TID/children, proc_pid_children(5). It is exact only while nobody ends or
starts a process, which is enough to say that there are some.
"""

from __future__ import annotations

import os
from contextlib import suppress


def children_of(pid: int) -> set[int]:
    """The children of a process."""
    children: set[int] = set()
    with suppress(OSError):
        for tid in os.listdir(f"/proc/{pid}/task"):
            path = f"/proc/{pid}/task/{tid}/children"
            with suppress(OSError), open(path, encoding="ascii") as file:
                children.update(map(int, file.read().split()))
    return children


def workers_of(pid: int) -> list[int]:
    """The children that execute the file that the process itself executes, in order. One that may
    not be looked at is not among them."""
    workers: list[int] = []
    with suppress(OSError):
        program = os.stat(f"/proc/{pid}/exe")
        for child in sorted(children_of(pid)):
            with suppress(OSError):
                if os.path.samestat(program, os.stat(f"/proc/{child}/exe")):
                    workers.append(child)
    return workers
