"""Other processes that may execute the code in an arena.

The arena is a shared mapping, so the child of a fork has it too. The child has slots of its own,
which may still hold a probe that the parent's slots have lost, and its only thread may be inside
that probe. A process that was made with CLONE_VM and is not a thread shares all of its parent's
memory, including slots and counters. What is true of the parent is true of such a process.

A sharer is a descendant, so it was started when the arena was there or later. All such processes
are looked at. One that may not be looked at counts as a sharer, unless it has ended, the size of
its code shows that it executes another file, or its parents show that it is no descendant. Any
counts where /proc hides processes from us.

What the size of the code shows: it is the size in the file that a process executes, and anybody may
read it. A fork keeps it. A process that executes a file loses its mappings. So a process with
another size does not share the arena. Only prctl(PR_SET_MM) changes it otherwise, which programs
use to put a saved process in place of their own.

What another user id does not show: a process may have given up its rights after it made a child,
and newuidmap gives other ids to the child of an ordinary user.

What parents show: the parent of a descendant is a descendant, the process itself, or the one that
orphans were given to. That is an ancestor of the process, or the first process of a pid namespace.
So a process is no descendant if one of its parents is none of these and is older than the arena.
Ancestors are read before: a process never gains another one.

Why no process is missed: a process that does not share the arena never begins to, so each is looked
at once. A process that vanishes before that may have left children behind, so all pids are listed
again until no new one has vanished. If pids have wrapped around meanwhile, a new process may have a
pid that was seen already, so the search starts again.

Authority: proc(5), kcmp(2), proc_loadavg(5) (its last field is the number that was given last),
proc_pid_statm(5) (its field "text" is that size), task_statm in fs/proc/task_mmu.c, find_new_reaper
in kernel/exit.c, user_namespaces(7).
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Collection

from markerjit.errors import MarkerError, refuse_own_shortage
from markerjit.memory import Mapping, has_ended, parse_maps, stat_fields
from markerjit.memory.stat import read_proc
from markerjit.proc.permission import (
    CAP_SYS_PTRACE,
    has_capability,
    in_user_namespace,
    tid_inside,
)
from markerjit.tuples import NamedTuple

_PARENT, _STARTED = 1, 19  # of the fields behind the name
_TEXT = 3  # of the fields of statm
_SYS_KCMP, _KCMP_VM = 312, 1
_LOOKS, _LISTS = 5, 100
_NEVER = 1 << 64


class Sharer(NamedTuple):
    """A process that may execute code in the arena of another; `why` is a sentence."""

    pid: int
    why: str


class _Vanished(Exception):
    """A process ended while it was looked at."""


def find_sharer(pid: int, piece: Mapping, since: int = 0) -> Sharer | None:
    """A process other than `pid` that may have the file of a mapping mapped, in memory of its own;
    None if there is certainly none.

    `since` is when the file was made or earlier (clock ticks after boot); the start of `pid` is
    another such moment.
    """
    try:
        started = _started(pid)
    except _Vanished:
        started = None
    if started is None:
        return Sharer(pid, f"it is not known when process {pid} was started")
    if _is_hidden():
        return Sharer(0, "/proc hides processes from us (hidepid), of which one may be its child")
    for _ in range(_LOOKS):
        first = _last_number()
        try:
            sharer = _look_at_all(pid, piece, max(started, since))
        except _Vanished:
            continue
        last = _last_number()
        if sharer or (first is not None and last is not None and first <= last):
            return sharer
    return Sharer(0, f"processes come and go all the time, and one may be a child of {pid}")


def share_memory(pid: int, other: int) -> bool:
    """Whether two processes certainly have one and the same memory (CLONE_VM)."""
    libc = ctypes.CDLL(None)
    zero = ctypes.c_ulong(0)
    result = libc.syscall(
        ctypes.c_long(_SYS_KCMP), ctypes.c_int(pid), ctypes.c_int(other),
        ctypes.c_int(_KCMP_VM), zero, zero,
    )  # fmt: skip
    return bool(result == 0)


def _look_at_all(pid: int, piece: Mapping, since: int) -> Sharer | None:
    """Raises _Vanished where new processes vanish all the time."""
    ancestors = _parents(pid)
    seen = {pid}
    for _ in range(_LISTS):
        vanished = False
        for other in (int(name) for name in os.listdir("/proc") if name.isdigit()):
            if other in seen:
                continue
            seen.add(other)
            try:
                sharer = _look(pid, other, piece, since, ancestors)
            except _Vanished:
                vanished = True
                continue
            if sharer:
                return sharer
        if not vanished:
            return None
    raise _Vanished


def _look(
    pid: int, other: int, piece: Mapping, since: int, ancestors: Collection[int] | None
) -> Sharer | None:
    started = _started(other)
    if started is not None and started < since:
        return None
    maps = _maps(other) if started is not None else None
    if maps is None:
        if has_ended(other) or _executes_another_file(pid, other):
            return None
        if ancestors is not None and _is_no_descendant(pid, other, since, ancestors):
            return None
        return Sharer(other, f"process {other} may not be looked at, and may be its child")
    same = any((mapping.inode, mapping.device) == (piece.inode, piece.device) for mapping in maps)
    if same and not share_memory(pid, other):
        return Sharer(other, f"process {other} is a child that may still run it")
    return None


def _executes_another_file(pid: int, other: int) -> bool:
    """Whether the programs of two processes are certainly not the same."""
    sizes = _code_pages(pid), _code_pages(other)
    return all(sizes) and sizes[0] != sizes[1]


def _code_pages(pid: int) -> int:
    """The size of the code of the file that a process executes, in pages; 0 where that is not told,
    as of one whose first thread has ended. Raises _Vanished where the process is not there."""
    try:
        return int(read_proc(f"/proc/{pid}/statm").split()[_TEXT])
    except OSError as error:
        _check_forbidden(error)
    except (ValueError, IndexError):
        pass
    return 0


def _is_no_descendant(pid: int, other: int, since: int, ancestors: Collection[int]) -> bool:
    """Whether a process was certainly not started by `pid` or by a descendant of it since then."""
    parents = _parents(other)
    for parent, started in (parents or {}).items():
        if parent == pid or parent in ancestors:
            return False
        if started < since:
            return tid_inside(parent, parent) != 1
    return False


def _parents(pid: int) -> dict[int, int] | None:
    """When the parent of a process was started, and its parent, and so on; None where that changes
    all the time. Raises _Vanished where the process is not there."""
    for _ in range(_LISTS):
        parents: dict[int, int] = {}
        try:
            child, youngest = pid, _NEVER
            while child:
                fields = stat_fields(f"/proc/{child}")
                parent, started = int(fields[_PARENT]), int(fields[_STARTED])
                if started > youngest:  # another process with the number of one that has ended
                    break
                if child != pid:
                    parents[child] = started
                child, youngest = parent, started
            else:
                return parents
        except OSError as error:
            refuse_own_shortage(error)
            _started(pid)  # raises where it was not a parent that is gone
        except (ValueError, IndexError):
            return None
    return None


def _maps(pid: int) -> tuple[Mapping, ...] | None:
    """What is mapped; None where that may not be seen. The first thread of a process may have ended
    while others run, and has no memory then."""
    try:
        tids = sorted(os.listdir(f"/proc/{pid}/task"), key=int)
    except OSError as error:
        _check_forbidden(error)
        return None
    for tid in tids:
        try:
            with open(f"/proc/{pid}/task/{tid}/maps", "rb", buffering=0) as file:
                text = file.readall()
        except ProcessLookupError:  # a newer kernel, of what has no memory
            continue
        except FileNotFoundError:
            raise _Vanished from None
        except OSError as error:
            _check_forbidden(error)
            return None
        if text:
            try:
                return parse_maps(os.fsdecode(text))
            except MarkerError:
                return None
    return ()


def _check_forbidden(error: OSError) -> None:
    """Raises what is said about a process that is not there, or about us without descriptors."""
    refuse_own_shortage(error)
    if isinstance(error, (FileNotFoundError, ProcessLookupError)):
        raise _Vanished from None


def _started(pid: int) -> int | None:
    """When a process was started, also one that has ended; None where that may not be seen."""
    try:
        return int(stat_fields(f"/proc/{pid}")[_STARTED])
    except OSError as error:
        _check_forbidden(error)
    except (ValueError, IndexError):
        pass
    return None


def _last_number() -> int | None:
    """The number that a process or thread was given last."""
    try:
        with open("/proc/loadavg", "rb", buffering=0) as file:
            return int(file.read().split()[-1])
    except (OSError, ValueError, IndexError):
        return None


def _is_hidden() -> bool:
    """Whether /proc may leave out processes: also where that is not known."""
    if has_capability(CAP_SYS_PTRACE) and not in_user_namespace():
        return False
    try:
        with open("/proc/self/mountinfo", "rb", buffering=0) as file:
            lines = file.readall().splitlines()
    except OSError:
        return True
    mounts = [line for line in lines if line.split()[4:5] == [b"/proc"]]
    options = mounts[-1].split()[-1].split(b",") if mounts else [b"hidepid="]
    return any(
        option.startswith(b"hidepid=") and option[8:] not in (b"0", b"off") for option in options
    )
