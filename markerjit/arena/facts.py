"""Facts about a process and its machine that the runtime is told: where threads have their ids and
their areas for restartable sequences, the clock of the vDSO, and what the processor can do.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import markerjit.abi as abi
from markerjit.abi import PAGE
from markerjit.errors import MarkerError, Unsupported
from markerjit.memory import Mapping, Memory, read_maps, stat_fields
from markerjit.model import RemoteAddress
from markerjit.proc.permission import tid_inside
from markerjit.ring.counter import time_to_use
from markerjit.ring.types import Time

if TYPE_CHECKING:
    from markerjit.remote.calls import Thread

# Where thread libraries keep the thread id, tried first: glibc 2.36, musl 1.2.
_KNOWN_TID_OFFSETS = (0x2D0, 0x30)
_TCB_SIZE = 0x1000
_START_BRK = 44  # of the fields behind the name


def find_tid_offset(memory: Memory, pid: int, threads: Sequence[Thread]) -> int:
    """Where, from its fs base, every thread has its own id; -1 when there is no such place.

    Threads that have ended meanwhile have no id. A thread knows itself by the number that it has in
    its own pid namespace.
    """
    candidates = [
        (thread, _tid_offsets(memory, thread, tid_inside(pid, thread.tid))) for thread in threads
    ]
    existing = {
        thread.tid for thread in threads if os.path.exists(f"/proc/{pid}/task/{thread.tid}")
    }
    common: set[int] | None = None
    for thread, offsets in candidates:
        if thread.tid not in existing:
            continue
        if not thread.fs_base:
            return -1
        common = offsets if common is None else common & offsets
    for known in _KNOWN_TID_OFFSETS:
        if common and known in common:
            return known
    return min(common) if common else -1


def find_rseq_offset(memory: Memory, threads: Sequence[Thread]) -> int:
    """Where, from its fs base, every thread has its struct rseq; 0 where that is not so: what a
    thread has there instead is not to be written.

    A thread that was just born has not told the kernel yet, and comes to no marker before it has.
    It is known by its control block, whose first and third words are its own address (tcbhead_t).
    """
    offsets = {thread.rseq - thread.fs_base for thread in threads if thread.rseq}
    others = [thread for thread in threads if not thread.rseq]
    # One that was made by clone(2) alone has there what is another's.
    alone = len({thread.fs_base for thread in threads}) < len(threads)
    if alone or len(offsets) != 1 or not all(_is_glibc_thread(memory, thread) for thread in others):
        return 0
    offset = offsets.pop()
    return offset if abs(offset) < _TCB_SIZE and not offset % 32 else 0


def _is_glibc_thread(memory: Memory, thread: Thread) -> bool:
    with contextlib.suppress(MarkerError):
        block = memory.read(thread.fs_base, 24)
        own = thread.fs_base.to_bytes(8, "little")
        return block[:8] == block[16:] == own
    return False


def find_clock(memory: Memory, maps: Sequence[Mapping]) -> RemoteAddress:
    """The vDSO's clock_gettime in the target, which has the same vDSO as we; 0 where it has not."""
    (content, function), theirs = _own_vdso(), _vdso(maps)
    if theirs is None or theirs.size != len(content):
        return RemoteAddress(0)
    same = memory.read(theirs.start, theirs.size) == content
    return RemoteAddress(theirs.start + function if same else 0)


@cache
def _own_vdso() -> tuple[bytes, int]:
    """The bytes of our own vDSO, and where in it clock_gettime is; no bytes where there is none."""
    ours = _vdso(read_maps("self"))
    try:
        function = ctypes.cast(ctypes.CDLL("linux-vdso.so.1").__vdso_clock_gettime, ctypes.c_void_p)
    except (OSError, AttributeError):
        return b"", 0
    if ours is None or not function.value:
        return b"", 0
    return ctypes.string_at(ours.start, ours.size), function.value - ours.start


def _vdso(maps: Sequence[Mapping]) -> Mapping | None:
    return next((mapping for mapping in maps if mapping.path == "[vdso]"), None)


def _tid_offsets(memory: Memory, thread: Thread, tid: int) -> set[int]:
    block = b""
    with contextlib.suppress(MarkerError):
        to_page_end = -thread.fs_base % PAGE or PAGE
        block = memory.read(thread.fs_base, to_page_end)
        block += memory.read(RemoteAddress(thread.fs_base + to_page_end), PAGE)
    pattern = tid.to_bytes(4, "little")
    offsets: set[int] = set()
    at = block.find(pattern, 0, _TCB_SIZE)
    while at >= 0:
        if not at % 4:
            offsets.add(at)
        at = block.find(pattern, at + 1, _TCB_SIZE)
    return offsets


def heap_start(pid: int) -> int:
    """Where the heap of a process begins, which may have no byte yet; 0 where that is not told.
    Field 47 of /proc/PID/stat, proc_pid_stat(5)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(stat_fields(f"/proc/{pid}")[_START_BRK])
    return 0


@cache
def possible_cpus() -> int:
    """How many CPU numbers there can be: /sys/devices/system/cpu/possible, such as 0-127."""
    try:
        with open("/sys/devices/system/cpu/possible", encoding="ascii") as file:
            last = file.read().strip().split(",")[-1].split("-")[-1]
        return int(last) + 1
    except (OSError, ValueError) as error:
        raise Unsupported(f"cannot find out how many CPUs there are: {error}") from None


@cache
def cpu_flags() -> int:
    """MJ_CPU_* of this machine, for which a fleet asks once for each process."""
    known = {
        "rdpid": abi.CPU_RDPID,
        "rtm": abi.CPU_RTM,
        "ospke": abi.CPU_PKU,
        "xsave": abi.CPU_XSAVE,
    }
    flags = abi.CPU_TSC if time_to_use(None) is Time.TSC else 0
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                return flags + sum(known.get(flag, 0) for flag in line.split())
    return flags
