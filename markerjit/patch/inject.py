"""Putting the runtime into a process, and its SIGTRAP handler: what needs a thread of the target.

All is looked up and built before a thread is borrowed; the calls are made in one stop, and what was
done before one of them failed is taken back. The runtime's code is written through the memfd before
anything can run it.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence

from markerjit.errors import MarkerError, Unsupported
from markerjit.memory import Memory
from markerjit.model import RemoteAddress
from markerjit.patch.arena import Arena, FileStore
from markerjit.quiesce.calls import (
    SYS_CLOSE,
    SYS_FCNTL,
    SYS_FTRUNCATE,
    SYS_MADVISE,
    SYS_MEMFD_CREATE,
    SYS_MMAP,
    SYS_MPROTECT,
    SYS_MUNMAP,
    SYS_RT_SIGACTION,
    Call,
    Caller,
    CallFailed,
    Result,
    Thread,
)
from markerjit.quiesce.native import package_file
from markerjit.ring import layout
from markerjit.ring.layout import CODE_SIZE, CONTROL, PAGE, Control, Geometry

DEFAULT_RING_SIZE = 1 << 20
MAX_MARKERS = 1024
MAX_SITES = 1 << 14

_PROT_READ, _PROT_WRITE, _PROT_EXEC = 1, 2, 4
_MAP_SHARED, _MAP_PRIVATE, _MAP_ANONYMOUS = 1, 2, 0x20
_MFD_CLOEXEC = 1
_F_DUPFD_CLOEXEC = 1030
_MADV_WIPEONFORK = 18
_HIGH_DESCRIPTOR = 500

_SIGTRAP = 5
_SA_SIGINFO, _SA_RESTORER, _SA_ONSTACK, _SA_RESTART = 4, 0x04000000, 0x08000000, 0x10000000

# Where thread libraries keep the thread id, tried first: glibc 2.36, musl 1.2.
_KNOWN_TID_OFFSETS = (0x2D0, 0x30)
_TCB_SIZE = 0x1000


def create_arena(
    pid: int,
    memory: Memory,
    caller: Caller,
    owner: RemoteAddress,
    *,
    ring_size: int = DEFAULT_RING_SIZE,
) -> Arena:
    """Put an arena with the runtime into a process that has none.

    `owner` is the address of the string "markerjit" in the target, for the memfd's name, so that
    nothing has to be written anywhere before the arena is there. Raises CallFailed (memory,
    descriptors), and what stopping can raise; the target is then as it was.
    """
    with open(package_file("runtime.bin"), "rb") as file:
        code = file.read()
    geometry = Geometry(_possible_cpus(), ring_size, MAX_MARKERS, MAX_SITES)
    calls = _creation_calls(owner, geometry.size)
    try:
        results, threads = caller.run(calls)
    except CallFailed as failed:
        _undo_creation(caller, failed.results, geometry.size)
        raise
    descriptor, base, alive = results[1], results[4], RemoteAddress(results[6])
    store = FileStore(os.open(f"/proc/{pid}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC))
    control = Control(
        magic=layout.MAGIC,
        version=layout.VERSION,
        cpu_flags=layout.CPU_RDPID if _has_rdpid() else 0,
        arena_size=geometry.size,
        rings=geometry.rings,
        ring_size=geometry.ring_size,
        max_markers=geometry.max_markers,
        max_sites=geometry.max_sites,
        markers=geometry.markers,
        counts=geometry.counts,
        sites=geometry.sites,
        ring=geometry.ring,
        ring_stride=geometry.ring_stride,
        alive=alive,
        tid_offset=find_tid_offset(memory, threads),
        owner_pid=os.getpid(),
        owner_since=int(time.time()),
    )
    store.write(0, code)
    store.write(CONTROL, bytes(control))
    memory.write(alive, (1).to_bytes(8, "little"))
    if memory.read(RemoteAddress(base), len(code)) != code:
        raise MarkerError("the runtime did not arrive in the target as it was written")
    return Arena(pid, RemoteAddress(base), store, geometry.size)


def install_trap(arena: Arena, caller: Caller) -> None:
    """Make the runtime's handler the action for SIGTRAP, once, keeping the old one to pass on to.

    It stays: a thread may be on its way into it at any moment.
    """
    if arena.trap_installed:
        return
    place = CONTROL + Control.old_trap.offset
    action = layout.Sigaction(
        handler=arena.base + arena.entry.trap,
        flags=_SA_SIGINFO | _SA_RESTORER | _SA_ONSTACK | _SA_RESTART,
        restorer=arena.base + arena.entry.restorer,
    )
    # The new action stands where the call puts the old one: it is read first.
    arena.store.write(place, bytes(action))
    there = arena.base + place
    caller.run([Call("rt_sigaction", SYS_RT_SIGACTION, (_SIGTRAP, there, there, 8))])
    arena.write_control("trap_installed", 1)


def _creation_calls(owner: RemoteAddress, size: int) -> list[Call]:
    read_write = _PROT_READ | _PROT_WRITE
    return [
        Call("memfd_create", SYS_MEMFD_CREATE, (owner, _MFD_CLOEXEC)),
        Call("fcntl(F_DUPFD)", SYS_FCNTL, (Result(0), _F_DUPFD_CLOEXEC, _HIGH_DESCRIPTOR)),
        Call("close", SYS_CLOSE, (Result(0),)),
        Call("ftruncate", SYS_FTRUNCATE, (Result(1), size)),
        Call("mmap", SYS_MMAP, (0, size, read_write, _MAP_SHARED, Result(1), 0)),
        Call("mprotect", SYS_MPROTECT, (Result(4), CODE_SIZE, _PROT_READ | _PROT_EXEC)),
        Call("mmap", SYS_MMAP, (0, PAGE, read_write, _MAP_PRIVATE | _MAP_ANONYMOUS, -1, 0)),
        Call("madvise", SYS_MADVISE, (Result(6), PAGE, _MADV_WIPEONFORK)),
    ]


def _undo_creation(caller: Caller, results: Sequence[int], size: int) -> None:
    """Take back what the calls did before one of them failed."""
    calls = []
    if len(results) > 6:
        calls.append(Call("munmap", SYS_MUNMAP, (results[6], PAGE)))
    if len(results) > 4:
        calls.append(Call("munmap", SYS_MUNMAP, (results[4], size)))
    if results:
        left = results[0] if len(results) == 1 else results[1]
        calls.append(Call("close", SYS_CLOSE, (left,)))
    if calls:
        caller.run(calls)


def find_tid_offset(memory: Memory, threads: Sequence[Thread]) -> int:
    """Where, from its fs base, every thread has its own id; -1 when there is no such place."""
    common: set[int] | None = None
    for thread in threads:
        if not thread.fs_base:
            return -1
        offsets = _tid_offsets(memory, thread)
        common = offsets if common is None else common & offsets
    for known in _KNOWN_TID_OFFSETS:
        if common and known in common:
            return known
    return min(common) if common else -1


def _tid_offsets(memory: Memory, thread: Thread) -> set[int]:
    block = b""
    with contextlib.suppress(MarkerError):
        to_page_end = -thread.fs_base % PAGE or PAGE
        block = memory.read(thread.fs_base, to_page_end)
        block += memory.read(RemoteAddress(thread.fs_base + to_page_end), PAGE)
    wanted = thread.tid.to_bytes(4, "little")
    limit = min(len(block), _TCB_SIZE) - 3
    return {offset for offset in range(0, limit, 4) if block[offset : offset + 4] == wanted}


def _possible_cpus() -> int:
    """How many CPU numbers there can be: /sys/devices/system/cpu/possible, such as 0-127."""
    try:
        with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
            last = file.read().strip().split(",")[-1].split("-")[-1]
        return int(last) + 1
    except (OSError, ValueError) as error:
        raise Unsupported(f"cannot find out how many CPUs there are: {error}") from None


def _has_rdpid() -> bool:
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                return " rdpid" in line
    return False
