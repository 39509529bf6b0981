"""Putting the runtime into a process, and its SIGTRAP handler: what needs a thread of the target.

All is looked up and built before a thread is borrowed: once to make the memfd, and when that has
been sized and filled, once to map it. What was done before a call failed is taken back. The
runtime's code is written through the memfd before anything can run it.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import time
from collections.abc import Sequence

import markerjit.abi as abi
from markerjit.abi import CODE_SIZE, CONTROL, PAGE, Control, Geometry
from markerjit.arena.arena import Arena, fnv1a
from markerjit.arena.find import Unfinished, is_memfd, memfd_at, open_descriptor
from markerjit.arena.store import FileStore
from markerjit.errors import MarkerError, NotPermitted, Refused, Unsupported
from markerjit.memory import Mapping, Memory, read_maps
from markerjit.model import RemoteAddress
from markerjit.proc.owner import ourselves
from markerjit.proc.permission import read_status, tid_inside, why_not
from markerjit.remote.calls import (
    SYS_CLOSE,
    SYS_FCNTL,
    SYS_MADVISE,
    SYS_MEMFD_CREATE,
    SYS_MMAP,
    SYS_MUNMAP,
    SYS_RT_SIGACTION,
    Call,
    Caller,
    CallFailed,
    Result,
    Thread,
)
from markerjit.remote.native import package_file

DEFAULT_RING_SIZE = 1 << 20
RING_ROOM = 16 << 20
"""Addresses of each ring, so that it can grow. They cost memory only where all is locked."""
MAX_MARKERS = 1 << 14
MAX_SITES = 1 << 18
MAX_EDITS = 1 << 19

_PROT_READ, _PROT_WRITE, _PROT_EXEC = 1, 2, 4
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS = 1, 2, 0x10, 0x20
_MFD_CLOEXEC = 1
_F_DUPFD_CLOEXEC = 1030
_MADV_DONTDUMP, _MADV_WIPEONFORK = 16, 18

# The memfd takes a number near the end of the table of descriptors, out of the program's way. Not
# behind its end: to enlarge a table that threads share the kernel waits for all CPUs, and the
# target's thread with it, 10 to 20 ms (expand_fdtable in fs/file.c).
_SLOTS_BELOW_END = 8

_SIGTRAP = 5
_SIGACTION_SIZE = 32
_SA_SIGINFO, _SA_RESTORER, _SA_ONSTACK, _SA_RESTART = 4, 0x04000000, 0x08000000, 0x10000000
# SIGTRAP is not blocked while it is handled: a signal handler may interrupt ours and come to a
# breakpoint itself, and the kernel kills a process whose blocked SIGTRAP it has to deliver.
_SA_NODEFER = 0x40000000
_TRAP_FLAGS = _SA_SIGINFO | _SA_RESTORER | _SA_ONSTACK | _SA_RESTART | _SA_NODEFER

# Where thread libraries keep the thread id, tried first: glibc 2.36, musl 1.2.
_KNOWN_TID_OFFSETS = (0x2D0, 0x30)
_TCB_SIZE = 0x1000
_SEARCHED = 16  # threads


def create_arena(
    pid: int,
    memory: Memory,
    caller: Caller,
    owner: RemoteAddress,
    *,
    maps: Sequence[Mapping],
    ring_size: int = DEFAULT_RING_SIZE,
    own_rings: bool = True,
) -> Arena:
    """Put an arena with the runtime into a process that has none.

    `owner` is the address of the string "markerjit" in the target, for the memfd's name, so that
    nothing has to be written anywhere before the arena is there. `maps` are those of the process.
    Without `own_rings` nobody writes
    to a CPU's own ring, also where threads have restartable sequences. Raises CallFailed (memory,
    descriptors), and what stopping can raise; the target is then as it was.
    """
    with open(package_file("runtime.bin"), "rb") as file:
        code = file.read()
    geometry = _geometry(ring_size)
    descriptor, threads = _make_memfd(pid, caller, owner)
    undo: list[Call] = []
    with contextlib.ExitStack() as failing:
        failing.callback(_undo_all, pid, caller, descriptor, undo)
        store = _open_memfd(pid, descriptor)
        failing.callback(store.close)
        # By us and not by the target, which its limit of file sizes would kill (RLIMIT_FSIZE).
        store.resize(geometry.size)
        store.write(0, code)
        base = _map(caller, descriptor, geometry.size)
        undo.append(_unmap(base, geometry.size))
        control = _control(geometry, code, base)
        control.tid_offset = find_tid_offset(memory, pid, threads[:_SEARCHED])
        control.rseq_offset = find_rseq_offset(memory, threads) if own_rings else 0
        control.pid = tid_inside(pid, pid)
        control.clock = find_clock(memory, maps)
        store.write(geometry.heads, _heads(geometry, base))
        # The magic last: until then nobody takes it for an arena.
        magic = Control.magic.size
        store.write(CONTROL + magic, bytes(control)[magic:])
        memory.write(RemoteAddress(base + abi.ALIVE), geometry.cpus.to_bytes(8, "little"))
        if memory.read(base, len(code)) != code:
            raise MarkerError("the runtime did not arrive in the target as it was written")
        store.write(CONTROL, bytes(control)[:magic])
        arena = Arena(pid, base, store, geometry.size)
        failing.pop_all()  # nothing failed
        return arena


def _is_ours(path: str) -> bool:
    """Is this descriptor our memfd? A program may have closed it, and opened its own file."""
    try:
        return is_memfd(os.readlink(path))
    except OSError:
        return False


def _open_memfd(pid: int, descriptor: int) -> FileStore:
    """The new memfd. Raises Refused when the program has closed it, NotPermitted."""
    try:
        opened = open_descriptor(pid, descriptor)
        if _is_ours(f"/proc/self/fd/{opened}") and not os.fstat(opened).st_size:
            return FileStore(opened)
        os.close(opened)
    except FileNotFoundError:
        pass
    except PermissionError:
        raise NotPermitted(why_not(pid)) from None
    raise Refused(
        f"process {pid} closed a descriptor that was made for the runtime; try again",
        try_again=True,
    )


def _undo_all(pid: int, caller: Caller, descriptor: int, calls: Sequence[Call]) -> None:
    _undo(caller, [*calls, *_close(pid, [descriptor])])


def _undo(caller: Caller, calls: Sequence[Call]) -> None:
    with contextlib.suppress(MarkerError):  # the first error is the one to be told
        if calls:
            caller.run_alone(calls)


def _close(pid: int, descriptors: Sequence[int]) -> list[Call]:
    """Calls that close those which are of a memfd of ours, if they still are when all stand."""
    files = ((number, memfd_at(pid, number)) for number in descriptors)
    return [Call("close", SYS_CLOSE, (number,), file) for number, file in files if file]


def _unmap(start: int, size: int) -> Call:
    return Call("munmap", SYS_MUNMAP, (start, size))


def _make_memfd(pid: int, caller: Caller, name: RemoteAddress) -> tuple[int, list[Thread]]:
    """A memfd in the target: its descriptor, of a number out of the way where one can be had; and
    some of the target's threads.

    Alone, because a thread that closes descriptors which it does not know, and opens its own, could
    give another file the number that is closed here.
    """
    high = max(read_status(pid).descriptor_slots - _SLOTS_BELOW_END, 0)
    calls = [
        Call("memfd_create", SYS_MEMFD_CREATE, (name, _MFD_CLOEXEC)),
        Call("fcntl(F_DUPFD)", SYS_FCNTL, (Result(0), _F_DUPFD_CLOEXEC, high)),
        Call("close", SYS_CLOSE, (Result(0),)),
    ]
    try:
        results, threads = caller.run_alone(calls)
    except CallFailed as failed:
        if failed.call is calls[1]:  # the limit of descriptors was lowered below `high`
            return failed.results[0], caller.run_alone([])[1]
        # A close that fails has closed all the same: only the copy is left.
        _undo(caller, _close(pid, failed.results[1:]))
        raise
    return results[1], threads


def _map(caller: Caller, descriptor: int, size: int) -> RemoteAddress:
    """Map the arena, and in it the page that tells a fork's child. Raises CallFailed, undone."""
    read_write, read_exec = _PROT_READ | _PROT_WRITE, _PROT_READ | _PROT_EXEC
    fixed_shared = _MAP_SHARED | _MAP_FIXED
    private = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_FIXED
    alive = Result(0, abi.ALIVE)
    calls = [
        Call("mmap", SYS_MMAP, (0, size, read_write, _MAP_SHARED, descriptor, 0)),
        # Not by mprotect, which a program may have forbidden itself (PR_SET_MDWE).
        Call("mmap", SYS_MMAP, (Result(0), CODE_SIZE, read_exec, fixed_shared, descriptor, 0)),
        Call("mmap", SYS_MMAP, (alive, PAGE, read_write, private, -1, 0)),
        Call("madvise", SYS_MADVISE, (alive, PAGE, _MADV_WIPEONFORK)),
        # A core dump would have all of it, also rooms of rings that nobody ever used.
        Call("madvise", SYS_MADVISE, (Result(0), size, _MADV_DONTDUMP)),
    ]
    try:
        return RemoteAddress(caller.run(calls)[0])
    except CallFailed as failed:
        if failed.results:
            _undo(caller, [_unmap(failed.results[0], size)])
        raise


def remove_unfinished(caller: Caller, left: Unfinished) -> None:
    """Take away what a controller left that died while it made an arena.

    A descriptor that the program has closed since we looked, or given to a file of its own, is left
    alone. What is mapped is not looked at again: a program unmaps only what it has mapped.
    """
    calls = [Call("close", SYS_CLOSE, (number,), file) for number, file in left.descriptors]
    if left.start:
        calls.insert(0, _unmap(left.start, left.size))
    caller.run_alone(calls)


def _control(geometry: Geometry, code: bytes, base: RemoteAddress) -> Control:
    entry = abi.Entry.from_buffer_copy(code)
    return Control(
        magic=abi.MAGIC,
        version=abi.VERSION,
        cpu_flags=_cpu_flags(),
        runtime_id=fnv1a(code),
        arena_size=geometry.size,
        cpus=geometry.cpus,
        ring_size=geometry.ring_size,
        max_markers=geometry.max_markers,
        max_sites=geometry.max_sites,
        max_edits=geometry.max_edits,
        markers=geometry.markers,
        counts=geometry.counts,
        sites=geometry.sites,
        journal_edits=geometry.journal_edits,
        heads=geometry.heads,
        commits=geometry.commits,
        ring=geometry.ring,
        ring_stride=geometry.ring_stride,
        code_used=abi.RUNTIME_SIZE,
        sequences=(abi.Restartable * abi.SEQUENCES)(
            *(
                abi.Restartable(0, 0, base + one.start, one.end - one.start, base + one.abort)
                for one in entry.sequences
            )
        ),
        owner=ourselves().entry(),
        owner_since=int(time.time()),
    )


def _heads(geometry: Geometry, base: RemoteAddress) -> bytes:
    """Of empty rings, into which may be written what fits."""
    return b"".join(
        bytes(
            abi.Head(
                data=base + geometry.ring_offset(ring),
                mask=geometry.ring_size - 1,
                limit=geometry.ring_size,
            )
        )
        for ring in range(geometry.rings)
    )


def install_trap(arena: Arena, caller: Caller) -> None:
    """Make the runtime's handler the action for SIGTRAP, keeping the old one to pass on to.

    It stays: a thread may be on its way into it at any moment. But the program may have put another
    in its place since, so it is looked at before each use. Raises Refused then: that one may pass
    on to ours, and ours to it would go round for ever.
    """
    seen = CONTROL + Control.seen_trap.offset
    old = CONTROL + Control.old_trap.offset
    caller.run([_sigaction_call(0, arena.base + seen)])
    ours = arena.base + arena.entry.trap
    found = abi.Sigaction.from_buffer_copy(arena.store.read(seen, _SIGACTION_SIZE))
    if found.handler == ours:
        arena.write_control("trap_installed", 1)  # who installed it may not have come so far
        return
    if arena.trap_installed:
        raise Refused(
            f"process {arena.pid} has put its own SIGTRAP handler in the place of ours: "
            "breakpoints would go there; use the mode that the site was compiled for"
        )
    action = abi.Sigaction(
        mask=found.mask & ~(1 << _SIGTRAP - 1) if found.handler > 1 else 0,
        handler=ours,
        flags=_TRAP_FLAGS,
        restorer=arena.base + arena.entry.restorer,
    )
    # The kernel installs the new action before it writes the old one down. A thread that traps in
    # between finds the one that we have seen; were it ours, the handler would call itself.
    arena.store.write(old, bytes(found))
    arena.store.write(seen, bytes(action))
    caller.run([_sigaction_call(arena.base + seen, arena.base + old)])
    arena.write_control("trap_installed", 1)


def _sigaction_call(new: int, old: int) -> Call:
    return Call("rt_sigaction", SYS_RT_SIGACTION, (_SIGTRAP, new, old, 8))


def arena_size(ring_size: int = DEFAULT_RING_SIZE) -> int:
    """Bytes of addresses that an arena takes in a process."""
    return _geometry(ring_size).size


def _geometry(ring_size: int) -> Geometry:
    stride = max(ring_size, RING_ROOM)
    return Geometry(_possible_cpus(), ring_size, MAX_MARKERS, MAX_SITES, MAX_EDITS, stride)


def find_tid_offset(memory: Memory, pid: int, threads: Sequence[Thread]) -> int:
    """Where, from its fs base, every thread has its own id; -1 when there is no such place.

    Threads that have ended meanwhile have no id. A thread knows itself by the number that it has in
    its own pid namespace.
    """
    found = [
        (thread, _tid_offsets(memory, thread, tid_inside(pid, thread.tid))) for thread in threads
    ]
    there = {thread.tid for thread in threads if os.path.exists(f"/proc/{pid}/task/{thread.tid}")}
    common: set[int] | None = None
    for thread, offsets in found:
        if thread.tid not in there:
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
    if alone or len(offsets) != 1 or not all(_is_glibc_thread(memory, one) for one in others):
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
    ours, theirs = _vdso(read_maps(os.getpid())), _vdso(maps)
    try:
        function = ctypes.cast(ctypes.CDLL("linux-vdso.so.1").__vdso_clock_gettime, ctypes.c_void_p)
    except (OSError, AttributeError):
        return RemoteAddress(0)
    if ours is None or theirs is None or not function.value:
        return RemoteAddress(0)
    same = memory.read(theirs.start, theirs.end - theirs.start) == ctypes.string_at(
        ours.start, ours.end - ours.start
    )
    return RemoteAddress(theirs.start + function.value - ours.start if same else 0)


def _vdso(maps: Sequence[Mapping]) -> Mapping | None:
    return next((mapping for mapping in maps if mapping.path == "[vdso]"), None)


def _tid_offsets(memory: Memory, thread: Thread, tid: int) -> set[int]:
    block = b""
    with contextlib.suppress(MarkerError):
        to_page_end = -thread.fs_base % PAGE or PAGE
        block = memory.read(thread.fs_base, to_page_end)
        block += memory.read(RemoteAddress(thread.fs_base + to_page_end), PAGE)
    wanted = tid.to_bytes(4, "little")
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


def _cpu_flags() -> int:
    """MJ_CPU_* of this machine."""
    known = {"rdpid": abi.CPU_RDPID, "rtm": abi.CPU_RTM}
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        for line in file:
            if line.startswith("flags"):
                return sum(known.get(flag, 0) for flag in line.split())
    return 0
