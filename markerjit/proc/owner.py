"""Who a controller is, so that another one can tell later whether it still runs.

A pid alone is given away again; with the moment of its start it is unique until the machine is
booted again, within its pid namespace. Field 22 of /proc/PID/stat, proc_pid_stat(5).
"""

from __future__ import annotations

import os
from functools import cache
from typing import NamedTuple

from markerjit.abi import OwnerEntry
from markerjit.errors import MarkerError

_STATE, _STARTED = 0, 19  # of the fields behind the name


class Owner(NamedTuple):
    """A controller: its pid, the pid namespace in which that counts, when it started (clock ticks
    after boot)."""

    pid: int
    pid_namespace: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid}"

    def entry(self) -> OwnerEntry:
        """As the arena has it."""
        return OwnerEntry(*self)


NOBODY = Owner(0, 0, 0)


def from_entry(entry: OwnerEntry) -> Owner:
    """From the arena."""
    return Owner(entry.pid, entry.pid_namespace, entry.started)


def ourselves() -> Owner:
    """This process. Raises MarkerError where that cannot be found out: others would take a
    controller that does not know its own start for gone."""
    return _process(os.getpid())


@cache  # by pid, because a fork's child is another controller
def _process(pid: int) -> Owner:
    try:
        started = _started(pid)
    except OSError as error:
        raise MarkerError(f"cannot read our own /proc/{pid}/stat: {error.strerror}") from None
    if started is None:
        raise MarkerError(f"our own /proc/{pid}/stat is not there; is /proc another namespace's?")
    return Owner(pid, _namespace(), started)


def is_gone(owner: Owner) -> bool:
    """Whether it certainly runs no more. False where we cannot know: of another pid namespace, or
    when we cannot look (no free descriptor, hidepid)."""
    if not owner.pid:
        return True
    if owner.pid_namespace != _namespace():
        return False
    try:
        started = _started(owner.pid)
    except OSError:
        return False
    if started is None and _is_hidden(owner.pid):
        return False
    return started != owner.started


def _is_hidden(pid: int) -> bool:
    """Whether it runs, and /proc does not tell us of it (hidepid)."""
    if os.path.exists(f"/proc/{pid}/stat"):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # the arena's word is wider than a pid
        return False
    except OSError:
        return True
    return True


def _namespace() -> int:
    """Its number as the arena has it; 0 on a kernel without pid namespaces."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino & 0xFFFFFFFF
    except FileNotFoundError:
        return 0


def _started(pid: int) -> int | None:
    """None for a process that has ended, a zombie too. Raises OSError where that is not known."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            text = file.read()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text[text.rfind(b")") + 2 :].split()
    if len(fields) <= _STARTED or fields[_STATE] in (b"Z", b"X"):
        return None
    return int(fields[_STARTED])
