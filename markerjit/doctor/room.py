"""Whether a process has room for the arena: its limits, mappings, descriptors and memory.

This is checked only while there is no arena. Where there is a wall, a system call of `on` would
fail in the target, and `on` would undo the steps before it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from markerjit.abi import PAGE
from markerjit.arena.create import arena_size
from markerjit.doctor.finding import GOOD, WALL, WARNING, Finding
from markerjit.doctor.text import text_of
from markerjit.errors import Unsupported, refuse_own_shortage
from markerjit.memory import Mapping
from markerjit.proc.cgroup import memory_left

_NEW_MAPPINGS = 3
"""Lines of /proc/PID/maps: the arena's code, its data, and the page that tells a fork's child."""


def examine_room(pid: int, maps: tuple[Mapping, ...]) -> Iterator[Finding]:
    """Walls and warnings, or one good finding. There is none where the size of the arena is not
    known, which is a wall of the machine."""
    try:
        arena_size()
    except Unsupported:
        return
    findings = [*_limits(pid, maps), *_memory(pid)]
    yield from findings
    if not findings:
        yield Finding(GOOD, "room", f"for {arena_size() >> 10} KiB, one descriptor")


def _limits(pid: int, maps: tuple[Mapping, ...]) -> Iterator[Finding]:
    limits = _soft_limits(pid)
    space, data = limits.get("Max address space"), limits.get("Max data size")
    files = limits.get("Max open files")
    used, size = sum(mapping.size for mapping in maps if mapping.path != "[vsyscall]"), arena_size()
    if space is not None and used + size > space:
        yield Finding(
            WALL,
            "room",
            f"RLIMIT_AS allows {space >> 10} KiB of addresses, {used >> 10} are used and "
            f"{size >> 10} needed",
            f"prlimit --pid {pid} --as={used + 2 * size}",
        )
    held = _data_size(pid)
    if data is not None and held + PAGE > data:
        yield Finding(
            WALL,
            "room",
            f"RLIMIT_DATA allows {data >> 10} KiB of private memory, and all is used",
            f"prlimit --pid {pid} --data={held + (1 << 20)}",
        )
    if files is not None:
        lowest = _lowest_free_descriptor(pid)
        if lowest >= files:
            yield Finding(
                WALL,
                "room",
                f"RLIMIT_NOFILE allows {files} descriptors, and all are used",
                f"prlimit --pid {pid} --nofile={lowest + 8}",
            )
    most = _number("/proc/sys/vm/max_map_count", " ")
    if most is not None and len(maps) + _NEW_MAPPINGS > most:
        yield Finding(
            WALL,
            "room",
            f"vm.max_map_count allows {most} mappings, and {len(maps)} are there",
            f"sudo sysctl vm.max_map_count={most + 1024}",
        )


def _memory(pid: int) -> Iterator[Finding]:
    size = arena_size()
    memory = memory_left(pid)
    if memory and memory.left < size:
        yield Finding(
            WARNING,
            "memory",
            f"its control group has {max(memory.left, 0) >> 10} KiB left of {memory.limit >> 10}: "
            f"the rings take up to {size >> 10}, and the kernel might end the process",
            "raise the group's limit (memory.max), or count instead of recording",
        )
    facts = dict(line.split(":", 1) for line in text_of("/proc/meminfo").splitlines())
    limit, used = (int(facts.get(name, "0").split()[0]) for name in ("CommitLimit", "Committed_AS"))
    if _number("/proc/sys/vm/overcommit_memory", " ") == 2 and used + (size >> 10) > limit:
        yield Finding(
            WARNING,
            "memory",
            f"vm.overcommit_memory is 2, and {used} KiB of {limit} are promised already",
            "end something, or sudo sysctl vm.overcommit_ratio to a higher number",
        )


def _soft_limits(pid: int) -> dict[str, int]:
    """/proc/PID/limits without those that are unlimited: name, soft, hard, unit in columns."""
    limits = {}
    for line in text_of(f"/proc/{pid}/limits").splitlines()[1:]:
        name, soft, hard = line[:26].strip(), line[26:47].strip(), line[47:68].strip()
        if name == "Max data size" and soft == "0":  # the kernel takes the hard one: mm/mmap.c
            soft = hard
        if soft.isdigit():
            limits[name] = int(soft)
    return limits


def _data_size(pid: int) -> int:
    for line in text_of(f"/proc/{pid}/status").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0


def _lowest_free_descriptor(pid: int) -> int:
    try:
        used = set(map(int, os.listdir(f"/proc/{pid}/fd")))
    except OSError as error:
        refuse_own_shortage(error)
        return 0
    return next(number for number in range(len(used) + 1) if number not in used)


def _number(path: str, separator: str) -> int | None:
    """The last number of a file such as `0-127`."""
    text = text_of(path).strip().split(",")[-1].split(separator)[-1]
    return int(text) if text.isdigit() else None
