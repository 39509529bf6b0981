"""The priority of the calling thread, raised for a switch where that is permitted.

Among hundreds of runnable threads, a controller waits for its turn at each step, and the process
that it has stopped waits with it. With the lowest nice value the controller goes first. Root,
CAP_SYS_NICE or a nice limit (RLIMIT_NICE) permit that value. It applies to one thread, and the
helper's thread inherits it. A real-time priority is not used: a controller that polls at such a
priority would take the CPU away from the threads that it waits for. Only while all threads are
stopped, and nothing is waited for, does the helper run SCHED_FIFO (native/src/stop/threads.c).

MARKERJIT_PRIORITY=keep in the environment leaves all priorities as they are.

What this does not do: decide how long the priority is raised. The commands raise it for their whole
run, a session only while it stops or borrows threads of another process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

VARIABLE, KEEP = "MARKERJIT_PRIORITY", "keep"
_FIRST = -20
_NICE_LIMIT_ZERO = 20
"""RLIMIT_NICE counts from 1 for nice 19 to 40 for nice -20: getrlimit(2)."""
_LONG_NS = 10_000_000_000
"""Shorter waits are not worth a report on a busy machine."""


@contextmanager
def raised_priority() -> Iterator[bool]:
    """Give the calling thread the highest priority that it may have, and restore the earlier one at
    the end, however the block ends. Yields whether that is the highest priority of all. Where
    nothing is permitted, or MARKERJIT_PRIORITY is "keep", nothing is changed.

    A session raises the priority by itself while it stops or borrows threads of another process.
    Raise it around a whole switch only in a program that has nothing more urgent to do."""
    before = os.getpriority(os.PRIO_PROCESS, 0)
    now = before if os.environ.get(VARIABLE) == KEEP else _raise(before)
    try:
        yield now == _FIRST
    finally:
        if now != before:
            os.setpriority(os.PRIO_PROCESS, 0, before)


def _raise(before: int) -> int:
    """The nice value that the thread has now."""
    if before <= _FIRST or _set(_FIRST):
        return _FIRST
    nice = _permitted()
    return nice if nice < before and _set(nice) else before


def _set(nice: int) -> bool:
    """Whether it is permitted, by the kernel and by a seccomp filter of ours."""
    try:
        os.setpriority(os.PRIO_PROCESS, 0, nice)
    except OSError:
        return False
    return True


def _permitted() -> int:
    """The least nice value that the limit allows, of /proc/self/limits."""
    try:
        with open("/proc/self/limits", encoding="utf-8", errors="replace") as lines:
            limit = next(line.split()[3] for line in lines if line.startswith("Max nice priority"))
        return _FIRST if limit == "unlimited" else max(_FIRST, _NICE_LIMIT_ZERO - int(limit))
    except (OSError, LookupError, ValueError, StopIteration):
        return _NICE_LIMIT_ZERO  # nothing


def reason_for_waiting() -> str | None:
    """The sentence that says how long this process has waited for a CPU since its start, and what
    helps where `raised_priority` was not permitted. None below ten seconds, and where the kernel
    does not say (CONFIG_SCHED_INFO)."""
    try:
        with open("/proc/self/schedstat", "rb", buffering=0) as file:
            ran_ns, waited_ns = map(int, file.read().split()[:2])
    except (OSError, ValueError):
        return None
    if waited_ns < _LONG_NS:
        return None
    asked = f"{VARIABLE}={KEEP} is set; without it, " if os.environ.get(VARIABLE) == KEEP else ""
    return (
        f"markerjit ran for {ran_ns / 1e9:.1f} s and waited {waited_ns / 1e9:.1f} s for its turn "
        f"on a CPU; {asked}as root, with CAP_SYS_NICE or with a nice limit (ulimit -e 40) it goes "
        "first"
    )
