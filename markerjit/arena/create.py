"""Putting the runtime into a process, which needs a thread of it.

Everything is looked up before a thread is borrowed, once: it makes the memfd, which we size in
between, and maps it. If a call fails, the calls before it are undone. Then the memfd is filled, its
magic last: until then no controller takes it for an arena, and nothing leads into its code.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import time
from collections.abc import Sequence
from functools import lru_cache

import markerjit.abi as abi
from markerjit.abi import CODE_SIZE, CONTROL, Control, Geometry, Sizes, lay_out
from markerjit.arena.arena import Arena
from markerjit.arena.facts import (
    cpu_flags,
    find_clock,
    find_rseq_offset,
    find_tid_offset,
    possible_cpus,
)
from markerjit.arena.find import Unfinished, memfd_at
from markerjit.arena.hashes import image_id
from markerjit.arena.needed import UNLOCKED
from markerjit.arena.store import FileStore, reason
from markerjit.errors import (
    MarkerError,
    NotPermitted,
    Refused,
    Unsupported,
    refuse_own_shortage,
)
from markerjit.memory import Mapping, Memory
from markerjit.model import RemoteAddress
from markerjit.proc.owner import ourselves
from markerjit.proc.permission import read_status, tid_inside, why_not
from markerjit.remote.calls import (
    SYS_CLOSE,
    SYS_FCNTL,
    SYS_MADVISE,
    SYS_MEMFD_CREATE,
    SYS_MMAP,
    SYS_MPROTECT,
    SYS_MUNLOCK,
    SYS_MUNMAP,
    Call,
    Caller,
    CallFailed,
    Result,
    Text,
    Thread,
    grow_memfd,
)
from markerjit.remote.filters import Filters
from markerjit.remote.native import package_file
from markerjit.tuples import NamedTuple

DEFAULT_RING_SIZE = 1 << 20
RING_ROOM = 16 << 20
"""Addresses of each ring, so that it can grow. They cost memory only where all is locked."""
MAX_MARKERS = 1 << 17
"""Enough for every function of a large binary to be a marker. The counters take 4 MiB of addresses
for each CPU, an eighth of what its rings take. They take memory only where they are used, or where
all memory is locked."""
MAX_PATCHES = 1 << 19
MAX_EDITS = 1 << 19

AGGREGATE_PAGES = 1024
"""Room for aggregates for each ring: 4 MiB of addresses, a quarter of the ring's."""
BLOCK_PAGES = 40960
"""Further room for aggregates: 160 MiB of addresses, for the blocks of an allocator."""

_PROT_NONE, _PROT_READ, _PROT_WRITE, _PROT_EXEC = 0, 1, 2, 4
_MAP_SHARED, _MAP_PRIVATE, _MAP_FIXED, _MAP_ANONYMOUS = 1, 2, 0x10, 0x20
_MFD_CLOEXEC = 1
_NAME = abi.NAME + b"\0"
_F_DUPFD_CLOEXEC = 1030
_MADV_DONTDUMP, _MADV_WIPEONFORK = 16, 18
_SEARCHED = 16  # threads

# The memfd takes a number near the end of the table of descriptors, out of the program's way. Not
# behind its end: to enlarge a table that threads share the kernel waits for all CPUs, and the
# target's thread with it, 10 to 20 ms (expand_fdtable in fs/file.c).
_SLOTS_BELOW_END = 8


def create_arena(
    pid: int,
    memory: Memory,
    caller: Caller,
    *,
    maps: Sequence[Mapping],
    ring_size: int = DEFAULT_RING_SIZE,
    own_rings: bool = True,
) -> Arena:
    """Put an arena with the runtime into a process that has none.

    `maps` are those of the process. Without `own_rings` no thread writes to a CPU's own ring, even
    where threads have restartable sequences. Raises CallFailed (memory, descriptors), and what
    stopping can raise; the target is then as it was.
    """
    with open(package_file("runtime.bin"), "rb") as file:
        code = file.read()
    geometry = _geometry(ring_size)
    status = read_status(pid)
    unlocked = status.locks_memory and _may_unlock(pid)
    made = make_mapping(pid, caller, geometry, status.descriptor_slots, unlocked=unlocked)
    base = made.base
    with contextlib.ExitStack() as failing:
        failing.callback(_undo, pid, caller, [made.descriptor], base, geometry.size)
        store = FileStore(made.own)
        failing.callback(store.close)
        store.write(0, code)
        control = _control(geometry, code, base)
        control.tid_offset = find_tid_offset(memory, pid, made.threads[:_SEARCHED])
        control.rseq_offset = find_rseq_offset(memory, made.threads) if own_rings else 0
        control.pid = tid_inside(pid, pid)
        control.clock = find_clock(memory, maps)
        store.write(geometry.head_offset(0), _heads(geometry, base))
        # The magic last: until then no controller takes it for an arena.
        magic = Control.magic.size
        store.write(CONTROL + magic, bytes(control)[magic:])
        memory.write(RemoteAddress(base + abi.ALIVE), geometry.cpus.to_bytes(8, "little"))
        if memory.read(base, len(code)) != code:
            raise MarkerError("the runtime did not arrive in the target as it was written")
        store.write(CONTROL, bytes(control)[:magic])
        arena = Arena(pid, base, store, geometry.size)
        failing.pop_all()  # nothing failed
        return arena


class Made(NamedTuple):
    """A memfd in the target that is mapped there, as large as an arena and empty.

    descriptor  the target's own, and `own` is ours
    base        where it is mapped
    threads     some threads of the target, as they were then
    """

    descriptor: int
    own: int
    base: RemoteAddress
    threads: list[Thread]


def _undo(
    pid: int, caller: Caller, descriptors: Sequence[int], base: RemoteAddress, size: int
) -> None:
    calls = [_unmap(base, size)] if base else []
    with contextlib.suppress(MarkerError):  # the first error is the one to be told
        calls += _close(pid, descriptors)
        if calls:
            caller.run_alone(calls)


def _close(pid: int, descriptors: Sequence[int]) -> list[Call]:
    """Calls that close the descriptors that are of a memfd of ours, if they still are when all
    threads are stopped."""
    files = ((number, memfd_at(pid, number)) for number in descriptors)
    return [Call("close", SYS_CLOSE, (number,), file) for number, file in files if file]


def _unmap(start: int, size: int) -> Call:
    return Call("munmap", SYS_MUNMAP, (start, size))


def _may_unlock(pid: int) -> bool:
    """Whether no filter forbids the calls for memory that is not locked. Where one does, the arena
    is locked like all that the process maps."""
    try:
        Filters(pid, lambda: UNLOCKED).check(set())
    except Unsupported:
        return False
    return True


def make_mapping(
    pid: int, caller: Caller, geometry: Geometry, slots: int, *, unlocked: bool
) -> Made:
    """A memfd in the target, whose table of descriptors has so many slots, of a number out of the
    way where one can be had; mapped as an arena is. `unlocked` as in `_mapping`.

    All in one stop, because a thread that closes descriptors which it does not know, and opens its
    own, could give another file the number of ours. Raises what `create_arena` raises, undone.
    """
    high = max(slots - _SLOTS_BELOW_END, 0)
    create = Call("memfd_create", SYS_MEMFD_CREATE, (Text(_NAME), _MFD_CLOEXEC))
    away = (
        Call("fcntl(F_DUPFD)", SYS_FCNTL, (Result(0), _F_DUPFD_CLOEXEC, high)),
        Call("close", SYS_CLOSE, (Result(0),)),
    )
    try:
        return _made_by(pid, caller, geometry, [create, *away], unlocked=unlocked)
    except CallFailed as failed:
        if failed.call is not away[0]:
            raise
    # the limit of descriptors was lowered below `high`
    return _made_by(pid, caller, geometry, [create], unlocked=unlocked)


def _made_by(
    pid: int, caller: Caller, geometry: Geometry, makes: Sequence[Call], *, unlocked: bool
) -> Made:
    """What `make_mapping` makes, by these calls that make a memfd; the second of them, or else the
    first, gives its descriptor."""
    descriptor = Result(min(len(makes) - 1, 1))
    grown, mapped = len(makes), len(makes) + 1
    size = geometry.size
    maps = _mapping(descriptor, mapped, geometry, unlocked=unlocked)
    try:
        results, threads = caller.run_alone([*makes, grow_memfd(descriptor, size), *maps])
    except CallFailed as failed:
        done = failed.results
        base = RemoteAddress(done[mapped] if len(done) > mapped else 0)
        # A close that fails has closed all the same: of two descriptors only the copy is left.
        _undo(pid, caller, done[: descriptor.of + 1][-1:], base, size)
        if len(done) > grown:
            os.close(done[grown])
        if len(done) == grown:
            raise _why_not_grown(pid, size, failed) from None
        raise
    return Made(results[descriptor.of], results[grown], RemoteAddress(results[mapped]), threads)


def _why_not_grown(pid: int, size: int, failed: CallFailed) -> MarkerError:
    """Raises MarkerError where we lack descriptors ourselves."""
    if failed.error == errno.EBADF:
        return Refused(
            f"process {pid} closed a descriptor that was made for the runtime; try again",
            try_again=True,
        )
    if failed.error in (errno.EACCES, errno.EPERM):
        return NotPermitted(why_not(pid))
    error = OSError(failed.error, os.strerror(failed.error))
    if failed.error in (errno.EMFILE, errno.ENFILE):
        refuse_own_shortage(error)
    return MarkerError(f"cannot have {size >> 10} KiB for the runtime: {reason(error)}")


def _mapping(
    descriptor: Result, first: int, geometry: Geometry, *, unlocked: bool
) -> tuple[Call, ...]:
    """Calls that map the arena, and in it the page that tells a fork's child, with what else is
    private of the process. `first` is the number of the first of them, which says where.

    A process that locks what it maps (mlockall) would get every page of the arena at once, while it
    is stopped. Pages without access are not made, and `unlocked` they stay so until they are used.
    """
    size, own = geometry.size, geometry.private_size
    read_write, read_exec = _PROT_READ | _PROT_WRITE, _PROT_READ | _PROT_EXEC
    fixed_shared = _MAP_SHARED | _MAP_FIXED
    private = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_FIXED
    base, alive = Result(first), Result(first, abi.ALIVE)
    access = _PROT_NONE if unlocked else read_write
    unlock = (
        Call("munlock", SYS_MUNLOCK, (base, size)),
        Call("mprotect", SYS_MPROTECT, (base, size, read_write)),
    )
    return (
        Call("mmap", SYS_MMAP, (0, size, access, _MAP_SHARED, descriptor, 0)),
        *(unlock if unlocked else ()),
        # Not by mprotect, which a program may have forbidden itself (PR_SET_MDWE).
        Call("mmap", SYS_MMAP, (base, CODE_SIZE, read_exec, fixed_shared, descriptor, 0)),
        Call("mmap", SYS_MMAP, (alive, own, read_write, private, -1, 0)),
        Call("madvise", SYS_MADVISE, (alive, own, _MADV_WIPEONFORK)),
        # A core dump would have all of it, including rooms of rings that were never used.
        Call("madvise", SYS_MADVISE, (base, size, _MADV_DONTDUMP)),
    )


def remove_unfinished(caller: Caller, left: Unfinished) -> None:
    """Take away what a controller left that died while it made an arena.

    A descriptor that the program has closed since we looked, or given to a file of its own, is left
    alone. Mappings are not looked at again: a program unmaps only its own.
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
        cpu_flags=cpu_flags(),
        runtime_id=image_id(code),
        control_size=ctypes.sizeof(Control),
        arena_size=geometry.size,
        cpus=geometry.cpus,
        ring_size=geometry.ring_size,
        parts=geometry.table(),
        code_used=abi.RUNTIME_SIZE,
        sequences=_sequences(base, entry.sequences),
        cell_sequences=_sequences(base, entry.cell_sequences),
        owner=ourselves().entry(),
        owner_since=int(time.time()),
    )


def _sequences(
    base: RemoteAddress, entries: ctypes.Array[abi.SequenceEntry]
) -> ctypes.Array[abi.Restartable]:
    """Restartable sequences of the runtime, as the kernel reads them."""
    return (abi.Restartable * len(entries))(
        *(
            abi.Restartable(
                0, 0, base + sequence.start, sequence.end - sequence.start, base + sequence.abort
            )
            for sequence in entries
        )
    )


def _heads(geometry: Geometry, base: RemoteAddress) -> bytes:
    """The heads of empty rings that accept records until they are full."""
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


def arena_size(ring_size: int = DEFAULT_RING_SIZE) -> int:
    """Bytes of addresses that an arena takes in a process."""
    return _geometry(ring_size).size


@lru_cache(maxsize=4)
def _geometry(ring_size: int) -> Geometry:
    stride = max(ring_size, RING_ROOM)
    cpus = possible_cpus()
    sizes = Sizes(cpus, ring_size, MAX_MARKERS, MAX_PATCHES, MAX_EDITS, stride)
    return lay_out(sizes._replace(aggregate_pages=2 * cpus * AGGREGATE_PAGES + BLOCK_PAGES))
