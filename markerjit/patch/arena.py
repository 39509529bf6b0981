"""The arena: the memory that the runtime and its controllers share inside the target.

It is a memfd that the target itself makes, at our request, and maps; abi.h says what stands
where. The target's descriptor of it is moved out of the way of the low numbers, and may be closed
by the program without harm: then we read through /proc/PID/mem instead.

What this does not do: make an arena (inject.py), decide which probe goes where (session.py), or
write code of the program (apply.py).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import struct
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from markerjit.errors import MarkerError, Refused
from markerjit.memory import Mapping, Memory
from markerjit.model import Mode, RemoteAddress
from markerjit.quiesce.owner import Owner, from_entry
from markerjit.ring import layout
from markerjit.ring.layout import CONTROL, SCRATCH, Control, MarkerEntry
from markerjit.ring.reader import Store

MAPPING_PATH = "/memfd:markerjit"

_MODES = tuple(Mode)
_PUNCH_HOLE, _KEEP_SIZE = 2, 1  # fallocate(2)
_ENTRY = struct.Struct("<QQQ")  # struct mj_trap_site behind its address

Probes = frozenset[int]
"""Addresses of probes that are ours."""


class FileStore:
    """The arena through a descriptor of the memfd. It outlives the target."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes."""
        data = os.pread(self._descriptor, size, offset)
        if len(data) != size:
            raise MarkerError(f"the arena ends at {offset + len(data):#x}; was it truncated?")
        return data

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`."""
        os.pwrite(self._descriptor, data, offset)

    def resize(self, size: int) -> None:
        """Make the memfd this large."""
        os.ftruncate(self._descriptor, size)

    def release(self, offset: int, size: int) -> None:
        """Give the memory of these bytes back; they read as zeros. Where that cannot be done it is
        not: nobody needs it."""
        libc = ctypes.CDLL(None)
        length, start = ctypes.c_int64(size), ctypes.c_int64(offset)
        libc.fallocate(self._descriptor, _PUNCH_HOLE | _KEEP_SIZE, start, length)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self._descriptor)


class MemoryStore:
    """The arena through the target's memory, where its descriptor is gone."""

    def __init__(self, memory: Memory, base: RemoteAddress) -> None:
        self._memory = memory
        self._base = base

    def read(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes."""
        return self._memory.read(RemoteAddress(self._base + offset), size)

    def write(self, offset: int, data: bytes) -> None:
        """All of `data`."""
        self._memory.write(RemoteAddress(self._base + offset), data)

    def release(self, offset: int, size: int) -> None:
        """Not possible from here."""

    def close(self) -> None:
        """Nothing to close: the memory is not ours."""


class Counted(NamedTuple):
    """A marker's counters over all CPUs: executions of its probe, and those not recorded."""

    hits: int
    lost: int


class Arena:
    """An arena that exists. `base` is where the target has it."""

    def __init__(
        self, pid: int, base: RemoteAddress, store: FileStore | MemoryStore, mapped_size: int
    ) -> None:
        self.pid = pid
        self.base = base
        self.store: Store = store
        self.release = store.release
        self._close = store.close
        self._ids: dict[str, int] = {}
        head = store.read(CONTROL, ctypes.sizeof(Control))
        self.control, self.geometry = layout.checked_control(head, mapped_size)
        self.entry = layout.Entry.from_buffer_copy(store.read(0, ctypes.sizeof(layout.Entry)))

    def close(self) -> None:
        """Let go of it; it stays in the target for the next controller."""
        self._close()

    @property
    def record_probe(self) -> RemoteAddress:
        """The probe that records."""
        return RemoteAddress(self.base + self.entry.record)

    @property
    def count_probe(self) -> RemoteAddress:
        """The probe that only counts."""
        return RemoteAddress(self.base + self.entry.count)

    def entries(self) -> Iterator[MarkerEntry]:
        """The markers that the runtime has been told of, in the order of their ids."""
        size = ctypes.sizeof(MarkerEntry)
        used = min(self._used(), self.geometry.max_markers)
        table = self.store.read(self.geometry.markers, used * size)
        for index in range(used):
            yield MarkerEntry.from_buffer_copy(table, index * size)

    def entry_address(self, marker: int) -> RemoteAddress:
        """Where the target has a marker's entry: the data of its slot."""
        return RemoteAddress(self.base + self.geometry.marker_offset(marker))

    def known_marker(self, signature: str, ops: bytes) -> int | None:
        """The id of the marker with this signature; None when the runtime was not told of it."""
        known = self._ids.get(signature)
        if known is not None:
            return known
        name_hash = fnv1a(signature.encode())
        for entry in self.entries():
            if entry.name_hash == name_hash and bytes(entry.ops)[: entry.argc] == ops:
                return self._ids.setdefault(signature, int(entry.id))
        return None

    def find_marker(self, name: str, signature: str, ops: bytes, limits: Sequence[int]) -> int:
        """The same, and the runtime is told of it when it is new: for who holds the target's lock.

        An entry never changes what it describes: a thread may be reading it. Raises Refused when
        the table is full.
        """
        known = self.known_marker(signature, ops)
        if known is not None:
            return known
        name_hash = fnv1a(signature.encode())
        marker = self._used()
        if marker >= self.geometry.max_markers:
            raise Refused(f"the arena has room for {self.geometry.max_markers} markers")
        entry = MarkerEntry(name_hash=name_hash, id=marker, argc=len(ops), name=name.encode()[:63])
        entry.ops[: len(ops)] = ops
        entry.limits[: len(limits)] = limits
        self.store.write(self.geometry.marker_offset(marker), bytes(entry))
        self.write_control("markers_used", marker + 1)
        return self._ids.setdefault(signature, marker)

    def note_switched(self, marker: int, mode: Mode | None) -> None:
        """Write down that a marker was switched, when and by whom, for `status`."""
        offset = self.geometry.marker_offset(marker)
        since, by = (int(time.time()), os.getpid()) if mode else (0, 0)
        self.store.write(offset + MarkerEntry.since.offset, struct.pack("<QI", since, by))
        number = _MODES.index(mode) + 1 if mode else 0
        self.store.write(offset + MarkerEntry.mode.offset, bytes([number]))

    def counted(self, marker: int) -> Counted:
        """A marker's counters, added up."""
        hits = lost = 0
        for ring in range(self.geometry.rings):
            data = self.store.read(
                self.geometry.count_offset(ring, marker), ctypes.sizeof(layout.Count)
            )
            count = layout.Count.from_buffer_copy(data)
            hits += count.hits
            lost += count.lost
        return Counted(hits, lost)

    def add_traps(self, traps: Sequence[tuple[RemoteAddress, RemoteAddress]]) -> None:
        """Tell the SIGTRAP handler where breakpoints lead. Entries stay: see trap.c.

        Raises Refused when the table is full.
        """
        for address, body in traps:
            for offset, found in self._trap_places(address):
                if found in (0, address):
                    # The body first: the handler believes an entry once its address is there.
                    self.store.write(offset + 8, _ENTRY.pack(body, 0, 0))
                    self.store.write(offset, int(address).to_bytes(8, "little"))
                    break
            else:
                raise Refused(f"the arena has room for {self.geometry.max_sites // 2} breakpoints")

    def forget_traps(self, addresses: Sequence[RemoteAddress]) -> None:
        """The code there is gone, and a breakpoint in what comes in its place is not ours.

        In this process: the child of a fork shares the table and may still have the code. So the
        entry stays, and says that it holds for others only.
        """
        for address in addresses:
            for offset, found in self._trap_places(address):
                if found == address:
                    self.store.write(offset + layout.TrapSite.gone.offset, b"\x01")
                if found in (0, address):
                    break

    def _trap_places(self, address: RemoteAddress) -> Iterator[tuple[int, int]]:
        """Where an address may stand in the table, in the order in which trap.c looks, and which
        address does."""
        mask = self.geometry.max_sites - 1
        at = (address * 0x9E3779B97F4A7C15 % (1 << 64) >> 32) & mask
        for tried in range(self.geometry.max_sites // 2):
            place = at + tried & mask
            offset = self.geometry.sites + place * ctypes.sizeof(layout.TrapSite)
            yield offset, int.from_bytes(self.store.read(offset, 8), "little")

    @property
    def scratch(self) -> RemoteAddress:
        """Where a borrowed thread's way back is kept."""
        return RemoteAddress(self.base + SCRATCH)

    @property
    def owner(self) -> Owner:
        """Who put the arena here."""
        return from_entry(self.control.owner)

    @property
    def trap_installed(self) -> bool:
        """Whether the runtime's handler has ever been the action for SIGTRAP."""
        return bool(self.current().trap_installed)

    def write_control(self, field: str, value: int) -> None:
        """Set a number of the control block."""
        place = getattr(Control, field)
        self.store.write(CONTROL + place.offset, value.to_bytes(place.size, "little"))

    def current(self) -> Control:
        """The control block as it is now; `control` is as it was when we came."""
        return Control.from_buffer_copy(self.store.read(CONTROL, ctypes.sizeof(Control)))

    def _used(self) -> int:
        return int(self.current().markers_used)


def fnv1a(data: bytes) -> int:
    """The 64-bit FNV-1a hash. Never 0, which means a free entry."""
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % (1 << 64)
    return value or 1


def find_arenas(pid: int, memory: Memory, maps: Sequence[Mapping]) -> tuple[Arena | None, Probes]:
    """The arena that a process has, or None, and the probes of all arenas that are mapped.

    The child of a fork inherits its parent's mapping, which records nothing there: it is not the
    child's arena, but its probes may still be in the child's slots. Raises Unsupported for an arena
    that is not as it should be.
    """
    own: Arena | None = None
    probes: set[int] = set()
    for start, size, inode in _mapped(maps):
        descriptor = _find_descriptor(pid, inode)
        store = MemoryStore(memory, start) if descriptor is None else FileStore(descriptor)
        try:
            if not any(store.read(CONTROL, Control.magic.size)):  # one in the making, or never made
                store.close()
                continue
            arena = Arena(pid, start, store, size)
        except BaseException:
            store.close()
            raise
        probes |= {arena.record_probe, arena.count_probe}
        if own is None and _is_alive(memory, arena):
            own = arena
        else:
            arena.close()
    return own, frozenset(probes)


class Unfinished(NamedTuple):
    """What a controller left that died while it made an arena: what is mapped (or 0, 0), with the
    page behind it, and the target's descriptors of the memfd."""

    start: RemoteAddress
    size: int
    descriptors: tuple[int, ...]


def find_unfinished(pid: int, memory: Memory, maps: Sequence[Mapping]) -> list[Unfinished]:
    """Memfds of ours without an arena in them. For who holds the target's lock: otherwise somebody
    may be at work on one.

    A controller has descriptors of other processes' arenas, which are not its own and not mapped:
    in a process that has the helper library loaded, only what is mapped counts.
    """
    found = []
    mapped = {inode: (start, size) for start, size, inode in _mapped(maps)}
    open_ones = _descriptors(pid)
    is_controller = any(one.path.endswith("/libmjstop.so") for one in maps)
    for inode in mapped if is_controller else {*mapped, *open_ones}:
        start, size = mapped.get(inode, (RemoteAddress(0), 0))
        numbers = tuple(open_ones.get(inode, ()))
        if start:
            if any(memory.read(RemoteAddress(start + CONTROL), Control.magic.size)):
                continue
            # The page behind it is there already, or still a part of the mapping.
            size = max(size, *(_size(pid, number) + layout.PAGE for number in numbers), 0)
        elif any(_has_magic(pid, number) for number in numbers):
            continue
        found.append(Unfinished(start, size, numbers))
    return found


def _size(pid: int, number: int) -> int:
    with contextlib.suppress(OSError):
        return os.stat(f"/proc/{pid}/fd/{number}").st_size
    return 0


def _has_magic(pid: int, number: int) -> bool:
    """Also where that cannot be known: then it is left alone."""
    try:
        descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return True
    try:
        return any(os.pread(descriptor, Control.magic.size, CONTROL))
    finally:
        os.close(descriptor)


def is_memfd(link: str) -> bool:
    """Whether a link of /proc/PID/fd names a memfd of ours."""
    return link.removesuffix(" (deleted)") == MAPPING_PATH


def is_arena(mapping: Mapping) -> bool:
    """Whether this is a piece of an arena, finished or not."""
    return mapping.path == MAPPING_PATH


def _mapped(maps: Sequence[Mapping]) -> Iterator[tuple[RemoteAddress, int, int]]:
    """Start, size and inode of each arena's mapping, whose protection differs by part."""
    for first in maps:
        if is_arena(first) and not first.offset:
            end = max(piece.end for piece in maps if is_arena(piece) and piece.inode == first.inode)
            yield first.start, end - first.start, first.inode


def _is_alive(memory: Memory, arena: Arena) -> bool:
    return any(memory.read(RemoteAddress(arena.control.alive), 8))


def _find_descriptor(pid: int, inode: int) -> int | None:
    """Our own descriptor of the target's memfd, if the target has it still."""
    for number in _descriptors(pid).get(inode, ()):
        with contextlib.suppress(OSError):
            descriptor = os.open(f"/proc/{pid}/fd/{number}", os.O_RDWR | os.O_CLOEXEC)
            if os.fstat(descriptor).st_ino == inode:
                return descriptor
            os.close(descriptor)  # the program has put a file of its own there since
    return None


def _descriptors(pid: int) -> dict[int, list[int]]:
    """The target's descriptors of memfds of ours, by inode."""
    directory = f"/proc/{pid}/fd"
    found: dict[int, list[int]] = {}
    with contextlib.suppress(OSError):
        for name in os.listdir(directory):
            path = f"{directory}/{name}"
            with contextlib.suppress(OSError):
                if is_memfd(os.readlink(path)):
                    found.setdefault(os.stat(path).st_ino, []).append(int(name))
    return found
