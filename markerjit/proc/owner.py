"""The identity of a controller, by which another controller can later tell whether it still runs.

A pid alone is reused. Together with the start time of its process it is unique within its pid
namespace until the next boot. Field 22 of /proc/PID/stat, proc_pid_stat(5).
"""

from __future__ import annotations

import os
from functools import cache

from markerjit.abi import OwnerEntry
from markerjit.errors import MarkerError
from markerjit.memory import stat_fields
from markerjit.tuples import NamedTuple

_STATE, _STARTED = 0, 19  # of the fields behind the name


class Owner(NamedTuple):
    """A controller: its pid, the namespace of that pid, and its start time.

    `pid_namespace` is the inode of the namespace; `started` is in clock ticks since boot.
    """

    pid: int
    pid_namespace: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid}"

    def entry(self) -> OwnerEntry:
        """The entry of the arena for this owner."""
        return OwnerEntry(*self)


NOBODY = Owner(0, 0, 0)


def from_entry(entry: OwnerEntry) -> Owner:
    """The owner in an entry of the arena."""
    return Owner(entry.pid, entry.pid_namespace, entry.started)


def ourselves() -> Owner:
    """This process. Raises MarkerError where its start time cannot be read.

    Other controllers would take an owner without a start time for gone.
    """
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
    """Whether the controller has certainly ended.

    False where that cannot be determined: it is of another pid namespace, /proc hides it (hidepid),
    or we have no free descriptor.
    """
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
    """Whether the process runs but /proc does not show it (hidepid)."""
    if os.path.exists(f"/proc/{pid}/stat"):
        return False
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):  # a pid in the arena may be out of range
        return False
    except OSError:
        return True
    return True


def _namespace() -> int:
    """The inode of our pid namespace; 0 on a kernel without pid namespaces."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino & 0xFFFFFFFF
    except FileNotFoundError:
        return 0


def _started(pid: int) -> int | None:
    """The start time of a process; None if it has ended or is a zombie. Raises OSError."""
    try:
        fields = stat_fields(f"/proc/{pid}")
    except (FileNotFoundError, ProcessLookupError):
        return None
    if len(fields) <= _STARTED or fields[_STATE] in (b"Z", b"X"):
        return None
    return int(fields[_STARTED])
