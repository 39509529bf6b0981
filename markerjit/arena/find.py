"""Finding the arenas of a process, and what controllers left that died while they made one."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING

import markerjit.abi as abi
from markerjit.abi import CONTROL, Control
from markerjit.arena.arena import Arena
from markerjit.arena.islands import Process
from markerjit.arena.mapped import MAPPING_PATH, Arenas, Probes, mapped_arenas, places_of
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.errors import MarkerError, NoSuchProcess, TargetGone, refuse_own_shortage
from markerjit.memory import FileId, Mapping, Memory, file_at, read_maps
from markerjit.model import RemoteAddress
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.remote.calls import Caller


def find_arenas(
    pid: int, memory: Memory, maps: Sequence[Mapping], known: Sequence[Arena] = ()
) -> Arenas:
    """The arenas of a process. Those that are `known` stay open, and are not opened again.

    The child of a fork inherits its parent's mapping, which records nothing there: it is not the
    child's arena, but its probes may still be in the child's slots.

    An arena that is not as it should be is the problem of the probes: the markers of the program
    can be looked at without it. Raises TargetGone, and MarkerError when we have no descriptors.
    """
    alive: list[Arena] = []
    bases: list[RemoteAddress] = []
    unknown: list[RemoteAddress] = []
    problem: MarkerError | None = None
    unfinished = False
    by_base = {arena.base: arena for arena in known}
    with contextlib.ExitStack() as failing:
        for start, size, inode in mapped_arenas(maps):
            if start in by_base:
                bases.append(start)
                alive.append(by_base[start])
                continue
            descriptor = _find_descriptor(pid, inode)
            store = MemoryStore(memory, start) if descriptor is None else FileStore(descriptor)
            with contextlib.ExitStack() as open_store:
                open_store.callback(store.close)
                try:
                    if not any(store.read(CONTROL, Control.magic.size)):
                        unfinished = True
                        continue
                    arena = Arena(pid, start, store, size)
                except (TargetGone, NoSuchProcess):
                    raise
                except MarkerError as error:
                    problem = error
                    bases.append(start)
                    unknown.append(start)
                    continue
                bases.append(start)
                if _is_alive(memory, arena):
                    alive.append(arena)
                    failing.push(open_store.pop_all())
        failing.pop_all()  # nothing failed
    alive.sort(key=_rank)
    own, beside = (alive[0], tuple(alive[1:])) if alive else (None, ())
    probes = Probes(bases, unknown, problem).with_islands_of(maps)
    return Arenas(own, beside, probes, unfinished, places_of(maps))


def _rank(arena: Arena) -> tuple[bool, int]:
    """Ours first, then the latest."""
    return not arena.is_current, -arena.version


class Descriptor(NamedTuple):
    """A descriptor of the target, and the memfd that it was of when we looked."""

    number: int
    file: FileId


def inherited_arenas(
    pid: int, memory: Memory, maps: Sequence[Mapping], own: Collection[RemoteAddress]
) -> list[Arena]:
    """The arenas of a process's ancestors, which it has mapped since a fork: for reading. `own` are
    the addresses of the others. They need not be closed. Raises Unsupported for an arena that is
    not as it should be."""
    inherited = []
    for start, size, inode in mapped_arenas(maps):
        store = MemoryStore(memory, start, partial(_find_descriptor, pid, inode))
        if start not in own and any(store.read(CONTROL, Control.magic.size)):
            inherited.append(Arena(pid, start, store, size))
    return inherited


class Unfinished(NamedTuple):
    """The remains of a controller that died while it made an arena: the mapping (or 0, 0), and the
    target's descriptors of the memfd."""

    start: RemoteAddress
    size: int
    descriptors: tuple[Descriptor, ...]


def find_unfinished(pid: int, memory: Memory, maps: Sequence[Mapping]) -> list[Unfinished]:
    """Memfds of ours without an arena in them. The caller must hold the target's lock: otherwise
    another controller may be at work on one.

    A controller has descriptors of other processes' arenas, which are not its own and not mapped:
    in a process that has the helper library loaded, only what is mapped counts.
    """
    unfinished = []
    mapped = {inode: (start, size) for start, size, inode in mapped_arenas(maps)}
    open_ones = _descriptors(pid)
    is_controller = any(mapping.path.endswith("/libmjstop.so") for mapping in maps)
    for inode in mapped if is_controller else {*mapped, *open_ones}:
        start, size = mapped.get(inode, (RemoteAddress(0), 0))
        descriptors = tuple(open_ones.get(inode, ()))
        if start:
            if any(memory.read(RemoteAddress(start + CONTROL), Control.magic.size)):
                continue
        elif any(_has_magic(pid, descriptor.number) for descriptor in descriptors):
            continue
        unfinished.append(Unfinished(start, size, descriptors))
    return unfinished


def _has_magic(pid: int, number: int) -> bool:
    """Also where that cannot be known: then it is left alone."""
    try:
        descriptor = open_descriptor(pid, number, os.O_RDONLY)
    except OSError:
        return True
    try:
        return any(os.pread(descriptor, Control.magic.size, CONTROL))
    finally:
        os.close(descriptor)


def open_descriptor(pid: int, number: int, access: int = os.O_RDWR) -> int:
    """Open for ourselves what a descriptor of the target is of. That may be another file by now:
    so nothing is waited for, and no terminal becomes ours. Raises OSError."""
    flags = access | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
    return os.open(f"/proc/{pid}/fd/{number}", flags)


def memfd_at(pid: int, number: int) -> FileId | None:
    """The memfd of ours that a descriptor of the target is of; None if it is of another file, or
    closed."""
    path = f"/proc/{pid}/fd/{number}"
    with contextlib.suppress(OSError):
        if is_memfd(os.readlink(path)):
            return file_at(path)
    return None


def is_memfd(link: str) -> bool:
    """Whether a link of /proc/PID/fd names a memfd of ours."""
    return link.removesuffix(" (deleted)") == MAPPING_PATH


def process_of(arena: Arena, caller: Caller) -> Process:
    """The facts of the target that are needed to make an island. Raises what reading /proc
    raises."""
    from markerjit.arena.facts import heap_start  # few arenas get an island

    maps = read_maps(arena.pid)
    inode = next((mapping.inode for mapping in maps if mapping.start == arena.base), 0)
    descriptors = _descriptors(arena.pid).get(inode, ())
    number = descriptors[0].number if descriptors else None
    return Process(partial(read_maps, arena.pid), caller, number, heap_start(arena.pid))


def _is_alive(memory: Memory, arena: Arena) -> bool:
    return any(memory.read(RemoteAddress(arena.base + abi.ALIVE), 8))


def _find_descriptor(pid: int, inode: int) -> int | None:
    """Our own descriptor of the target's memfd, if the target has it still."""
    for number, _ in _descriptors(pid).get(inode, ()):
        try:
            descriptor = open_descriptor(pid, number)
        except OSError as error:
            refuse_own_shortage(error)
            continue
        if os.fstat(descriptor).st_ino == inode:
            return descriptor
        os.close(descriptor)  # the program has put a file of its own there since
    return None


def _descriptors(pid: int) -> dict[int, list[Descriptor]]:
    """The target's descriptors of memfds of ours, by inode; none where we may not look."""
    descriptors: dict[int, list[Descriptor]] = {}
    try:
        names = os.listdir(f"/proc/{pid}/fd")
    except OSError as error:
        refuse_own_shortage(error)
        return descriptors
    for name in names:
        file = memfd_at(pid, int(name))
        if file:
            descriptors.setdefault(file.inode, []).append(Descriptor(int(name), file))
    return descriptors
