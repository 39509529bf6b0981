"""The memory where entries of functions keep their arguments for the exits: made when it is first
needed, and there until the process ends.

It is private memory, so a fork's child has its own. All but the first page is empty there
(MADV_WIPEONFORK): that one has the addresses of the runtime's functions, which a thread may be
about to call when a signal handler forks. A process that locks all its memory (mlockall) locks
none of this, because it would get all of it at once. A controller that dies before the control
block has its address leaves addresses that are lost, and nothing else.

What this does not do: say who keeps anything there. That is in the slots (patch/carried.py).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from markerjit.abi import CPU_TSC, PAGE, SLOT_TOKEN, STASH_SIZE, STASH_TABLE, Stash
from markerjit.arena.arena import Arena
from markerjit.elf import Read
from markerjit.errors import MemoryFault, Refused
from markerjit.memory import Mapping, Memory
from markerjit.model import RemoteAddress

if TYPE_CHECKING:  # a look makes no system call in the target
    from markerjit.remote.calls import Caller

_NOTHING, _READ_WRITE = 0, 3
_MAP_PRIVATE, _MAP_ANONYMOUS, _MAP_NORESERVE = 2, 0x20, 0x4000
_MADV_DONTDUMP, _MADV_WIPEONFORK = 16, 18
_BETWEEN_CLOCKS_S = 0.03
"""Reading both clocks takes some 0.1 us, so the factor is right to some millionths."""


def stash_of(arena: Arena, maps: Sequence[Mapping]) -> RemoteAddress:
    """Where it is; 0 where there is none, or where the process has another thing there now."""
    start = RemoteAddress(arena.control.number("stash"))
    return start if start and _is_mapped(start, maps) else RemoteAddress(0)


def make_stash(
    arena: Arena, memory: Memory, caller: Caller, maps: Sequence[Mapping]
) -> RemoteAddress:
    """The memory, made where it is not there. Raises Refused where the process has no room for it,
    or no clock; and what borrowing raises."""
    from markerjit.remote.native import clock_pair

    start = stash_of(arena, maps)
    if start:
        return start
    if not arena.facts.cpu_flags & CPU_TSC:
        raise Refused(
            "the time stamp counters of this machine's CPUs differ, so how long a function takes "
            "is not known; record what needs no entry, as with --select 'ret'"
        )
    first = clock_pair()
    start = _map(caller)
    time.sleep(_BETWEEN_CLOCKS_S)
    ticks, ns = (after - before for after, before in zip(clock_pair(), first, strict=True))
    entry = arena.entry
    ns_per_tick = (ns << 32) // ticks
    content = Stash(
        claim=arena.base + entry.stash_claim,
        find=arena.base + entry.stash_find,
        ns_per_tick=ns_per_tick,
    )
    memory.write(start, bytes(content))
    arena.control.write("ns_per_tick", ns_per_tick)
    arena.control.write("stash", start)
    return start


def is_kept(read: Read, arena: Arena, slot: RemoteAddress) -> bool:
    """Whether this is the slot of an entry of a function that keeps its arguments."""
    start = arena.control.number("stash")
    with suppress(MemoryFault):
        words = read(RemoteAddress(slot + SLOT_TOKEN), 16)
        return start != 0 and any(words[:8]) and int.from_bytes(words[8:], "little") == start
    return False


def _is_mapped(start: int, maps: Sequence[Mapping]) -> bool:
    """Whether it lies in private memory that has no file."""
    table, end = start + STASH_TABLE, start + STASH_SIZE
    return all(
        any(
            mapping.start <= first and mapping.end >= last
            and mapping.writable and not mapping.shared and not mapping.path.startswith("/")
            for mapping in maps
        )
        for first, last in ((start, table), (table, end))
    )  # fmt: skip


def _map(caller: Caller) -> RemoteAddress:
    from markerjit.remote.calls import (
        SYS_MADVISE,
        SYS_MMAP,
        SYS_MPROTECT,
        SYS_MUNLOCK,
        SYS_MUNMAP,
        Call,
        CallFailed,
        Result,
    )

    flags = _MAP_PRIVATE | _MAP_ANONYMOUS | _MAP_NORESERVE
    # A page at both ends that is nobody's: where a stack's memory touched it, a search of the stack
    # would go on in it (native/src/stop/stacks.c).
    whole, inner, table = STASH_SIZE + 2 * PAGE, Result(0, PAGE), Result(0, PAGE + STASH_TABLE)
    calls = [
        Call("mmap", SYS_MMAP, (0, whole, _NOTHING, flags, -1, 0)),
        Call("munlock", SYS_MUNLOCK, (inner, STASH_SIZE)),
        Call("mprotect", SYS_MPROTECT, (inner, STASH_SIZE, _READ_WRITE)),
        Call("madvise", SYS_MADVISE, (table, STASH_SIZE - STASH_TABLE, _MADV_WIPEONFORK)),
        Call("madvise", SYS_MADVISE, (inner, STASH_SIZE, _MADV_DONTDUMP)),
    ]
    try:
        return RemoteAddress(caller.run(calls)[0] + PAGE)
    except CallFailed as failed:
        if failed.results:
            caller.run([Call("munmap", SYS_MUNMAP, (failed.results[0], whole))])
        raise Refused(
            f"the process has no room of {STASH_SIZE >> 20} MiB of addresses to keep the arguments "
            f"of entries in: {failed}; record what needs no entry, as with --select 'ret'"
        ) from None
