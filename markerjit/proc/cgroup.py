"""What a process's control groups say about it: is it frozen, how much memory may it still have.

Both versions of cgroups(7), as they are mounted here. A group that our mounts do not show (a
container sees only its own) is passed over: then nothing is known, and nothing is said.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

from markerjit.errors import refuse_own_shortage


class MemoryLeft(NamedTuple):
    """What the tightest of a process's memory groups allows, in bytes."""

    left: int
    limit: int


def frozen_by(pid: int) -> int:
    """The version of the freezer that holds the process, 1 or 2; 0 where none does.

    Version 1 lets ptrace stop nothing, as if the thread slept uninterruptibly. In version 2 a
    thread stops, and a borrowed one then waits until the group is thawed.
    """
    for folder in _folders(pid, "freezer")[:1]:
        if _read(f"{folder}/freezer.state").startswith("F"):  # FREEZING, FROZEN; else THAWED
            return 1
    for folder in _folders(pid, "")[:1]:
        if "frozen 1" in _read(f"{folder}/cgroup.events"):
            return 2
    return 0


def memory_left(pid: int) -> MemoryLeft | None:
    """How much memory the process's groups leave it; None where none of them has a limit.

    The page cache that could be dropped counts as left, as `docker stats` does it.
    """
    found = [
        *_memory(_folders(pid, ""), "memory.max", "memory.current", "inactive_file"),
        *_memory(
            _folders(pid, "memory"),
            "memory.limit_in_bytes",
            "memory.usage_in_bytes",
            "total_inactive_file",
        ),
    ]
    return min(found, default=None)


def _memory(folders: list[str], limit: str, usage: str, droppable: str) -> Iterator[MemoryLeft]:
    for folder in folders:
        allowed, used = _read(f"{folder}/{limit}").strip(), _read(f"{folder}/{usage}").strip()
        if not allowed.isdigit() or not used.isdigit() or int(allowed) >= 1 << 60:
            continue  # "max", or version 1's number for none
        statistics = dict(
            line.split(" ", 1) for line in _read(f"{folder}/memory.stat").splitlines()
        )
        cached = int(statistics.get(droppable, "0"))
        yield MemoryLeft(int(allowed) - int(used) + cached, int(allowed))


def _folders(pid: int, controller: str) -> list[str]:
    """The process's group and those above it, innermost first; "" is version 2."""
    for line in _read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller not in controllers.split(","):
            continue
        for root, mount in _mounts(controller):
            if path == root or path.startswith(root.rstrip("/") + "/"):
                return list(_upwards(mount, path[len(root.rstrip("/")) :]))
    return []


def _upwards(mount: str, path: str) -> Iterator[str]:
    while path.strip("/"):
        yield mount + path
        path = os.path.dirname(path)
    yield mount


def _mounts(controller: str) -> Iterator[tuple[str, str]]:
    """(what of the hierarchy is mounted, where), from /proc/self/mountinfo; proc(5)."""
    for line in _read("/proc/self/mountinfo").splitlines():
        mount, _, kind = line.partition(" - ")
        root, where = mount.split(" ")[3:5]
        name, _, options = kind.split(" ", 2)
        if name == ("cgroup" if controller else "cgroup2") and (
            not controller or controller in options.split(",")
        ):
            yield root, where


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError as error:
        refuse_own_shortage(error)
        return ""
