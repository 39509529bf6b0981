"""The control groups of a process: whether it is frozen, and how much memory they leave it.

Supports both versions of cgroups(7), as they are mounted here. A group that our mounts do not show
(a container sees only its own) is skipped, and counts as neither freezing nor limiting.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cache, lru_cache

from markerjit.errors import refuse_own_shortage
from markerjit.memory.stat import read_proc
from markerjit.tuples import NamedTuple

_GROUPS = 64
"""The number of texts that are kept parsed."""


class MemoryLeft(NamedTuple):
    """The memory that the tightest group of a process leaves it, and its limit, in bytes."""

    left: int
    limit: int


class Group(NamedTuple):
    """A control group. `controllers` is "" for version 2."""

    controllers: str
    path: str


class Mount(NamedTuple):
    """A mount of a hierarchy: the part of it that is mounted, and where. `controllers` has the
    options of the mount, and is None for version 2."""

    root: str
    point: str
    controllers: tuple[str, ...] | None


def groups_of(text: str) -> tuple[Group, ...]:
    """The groups of /proc/PID/cgroup. Lines that make no sense are left out."""
    parts = (line.split(":", 2) for line in text.splitlines())
    return tuple(Group(part[1], part[2]) for part in parts if len(part) == 3)


def mounts_of(mountinfo: str) -> Iterator[Mount]:
    """The mounts of control groups in the text of /proc/PID/mountinfo, proc(5)."""
    for line in mountinfo.splitlines():
        mount, _, rest = line.partition(" - ")
        if not rest.startswith("cgroup"):
            continue
        root, point = mount.split(" ")[3:5]
        kind, _, options = rest.split(" ", 2)
        yield Mount(root, point, tuple(options.split(",")) if kind == "cgroup" else None)


def frozen_by(pid: int) -> int:
    """The version of the freezer that froze the process, 1 or 2; 0 where it is not frozen.

    Under version 1 ptrace can stop no thread, as in uninterruptible sleep. Under version 2 a thread
    stops, but a borrowed one does not run until the group is thawed.
    """
    old, new = _freezers(_read(f"/proc/{pid}/cgroup"))
    if old and _read(f"{old}/freezer.state").startswith("F"):  # FREEZING, FROZEN; else THAWED
        return 1
    return 2 if new and "frozen 1" in _read(f"{new}/cgroup.events") else 0


@lru_cache(_GROUPS)
def _freezers(text: str) -> tuple[str, str]:
    """The folders of the group that may freeze a process, of versions 1 and 2, in the text of
    /proc/PID/cgroup; "" where there is none. The processes of a fleet mostly share a group."""
    groups = groups_of(text)
    old, new = (next(iter(_folders(groups, controller)), "") for controller in ("freezer", ""))
    return old, new


def memory_left(pid: int) -> MemoryLeft | None:
    """The memory that the groups of a process leave it; None where none of them has a limit.

    Page cache that can be dropped counts as free, as in `docker stats`.
    """
    groups = groups_of(_read(f"/proc/{pid}/cgroup"))
    limited = [
        *_memory(_folders(groups, ""), "memory.max", "memory.current", "inactive_file"),
        *_memory(
            _folders(groups, "memory"),
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ]
    return min(limited, default=None)


def _memory(folders: list[str], limit: str, usage: str, droppable: str) -> Iterator[MemoryLeft]:
    for folder in folders:
        allowed, used = _read(f"{folder}/{limit}").strip(), _read(f"{folder}/{usage}").strip()
        if not allowed.isdigit() or not used.isdigit() or int(allowed) >= 1 << 60:
            continue  # "max", or the number that means no limit in version 1
        statistics = dict(
            line.split(" ", 1) for line in _read(f"{folder}/memory.stat").splitlines()
        )
        cached = int(statistics.get(droppable, "0"))
        yield MemoryLeft(int(allowed) - int(used) + cached, int(allowed))


def _folders(groups: Sequence[Group], controller: str) -> list[str]:
    """The folders of the group of this controller and of those above it, innermost first; "" is
    version 2."""
    for controllers, path in groups:
        if controller not in controllers.split(","):
            continue
        for root, point, mounted in _mounts():
            is_its = controller in mounted if mounted is not None else not controller
            if is_its and (path == root or path.startswith(root.rstrip("/") + "/")):
                return list(_upwards(point, path[len(root.rstrip("/")) :]))
    return []


def _upwards(mount: str, path: str) -> Iterator[str]:
    while path.strip("/"):
        yield mount + path
        path = os.path.dirname(path)
    yield mount


@cache
def _mounts() -> Sequence[Mount]:
    """As they are here. They are read once: each switch asks, and hierarchies are mounted when a
    system starts."""
    return tuple(mounts_of(_read("/proc/self/mountinfo")))


def _read(path: str) -> str:
    try:
        return os.fsdecode(read_proc(path))  # each switch asks for three of these
    except OSError as error:
        refuse_own_shortage(error)
        return ""
