"""An arena with the real runtime in the test's own process, and slots to call its probes through.

It is laid out as abi.h says, by the test and not by the code under test (patch/inject.py), and
nothing is patched: a "marker" is a slot, and hitting it is a call of the slot's probe.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
from collections.abc import Sequence
from pathlib import Path

from markerjit.memory import ProcessMemory
from markerjit.model import RemoteAddress
from markerjit.patch.arena import Arena, MemoryStore
from markerjit.patch.inject import find_tid_offset
from markerjit.quiesce.calls import Thread
from markerjit.quiesce.native import package_file
from markerjit.ring import layout
from markerjit.ring.layout import CONTROL, Control, Geometry
from markerjit.ring.reader import Record, RingReader

MADV_WIPEONFORK = 18
PARTS = ("markers", "counts", "sites", "journal_edits", "ring")
SYS_ARCH_PRCTL, ARCH_GET_FS = 158, 0x1003


class OwnMemory:
    """One mapping of this process, without the way through /proc."""

    def __init__(self, mapping: mmap.mmap) -> None:
        self._mapping = mapping
        self._start = address_of(mapping)

    def read(self, address: RemoteAddress, size: int) -> bytes:
        data = self._mapping[address - self._start : address - self._start + size]
        assert len(data) == size
        return data

    def write(self, address: RemoteAddress, data: bytes) -> None:
        self._mapping[address - self._start : address - self._start + len(data)] = data


class Slot(ctypes.Structure):
    """struct mj_slot."""

    _fields_ = [(name, ctypes.c_uint64) for name in ("probe", "data", "entered", "left")]

    def hit(self, *args: object) -> None:
        """Call the probe as a marker's body does. Arguments are ctypes values."""
        ctypes.CFUNCTYPE(None)(self.probe)(ctypes.byref(self), *args)


class OwnArena:
    """`store`, `geometry` and `arena` as a controller has them; `slot()` makes a marker."""

    def __init__(self, geometry: Geometry, **control: int) -> None:
        access = mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC
        memory = mmap.mmap(-1, geometry.size, flags=mmap.MAP_SHARED, prot=access)
        self.alive = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE)
        self.alive.madvise(MADV_WIPEONFORK)
        self.alive[0] = 1
        self.base = RemoteAddress(address_of(memory))
        self.geometry = geometry
        self.store = MemoryStore(OwnMemory(memory), self.base)
        code = Path(package_file("runtime.bin")).read_bytes()
        self.store.write(0, code)
        numbers = {
            "magic": layout.MAGIC,
            "version": layout.VERSION,
            "cpu_flags": layout.CPU_RDPID if " rdpid" in Path("/proc/cpuinfo").read_text() else 0,
            "runtime_id": fnv1a(code),
            "arena_size": geometry.size,
            "alive": address_of(self.alive),
            "tid_offset": own_tid_offset(),
            **{name: getattr(geometry, name) for name in Geometry._fields},
            **{n: getattr(geometry, n) for n in PARTS},
            "ring_stride": geometry.ring_stride,
            **control,
        }
        self.store.write(CONTROL, bytes(Control(**numbers)))
        self.arena = Arena(os.getpid(), self.base, self.store, geometry.size)
        self.readers = [RingReader(self.store, geometry, cpu) for cpu in range(geometry.rings)]

    def slot(
        self,
        ops: Sequence[int],
        limits: Sequence[int] = (),
        *,
        name: str = "m",
        count: bool = False,
    ) -> Slot:
        """A slot whose probe records (or only counts) arguments taken with these operations."""
        arena = self.arena
        padded = (*limits, *[0] * (len(ops) - len(limits)))
        marker = arena.find_marker(name, f"{name} {list(ops)} {padded}", bytes(ops), padded)
        probe = arena.count_probe if count else arena.record_probe
        return Slot(probe=probe, data=arena.entry_address(marker))

    def records(self) -> list[Record]:
        """All that is committed, ring by ring."""
        return [record for reader in self.readers for record in reader.poll()]


def address_of(memory: mmap.mmap) -> int:
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 & (1 << 64) - 1
    return value


def own_tid_offset() -> int:
    base = ctypes.c_uint64()
    ctypes.CDLL(None).syscall(SYS_ARCH_PRCTL, ARCH_GET_FS, ctypes.byref(base))
    thread = Thread(threading.get_native_id(), RemoteAddress(base.value))
    with ProcessMemory(os.getpid()) as memory:
        return find_tid_offset(memory, os.getpid(), [thread])
