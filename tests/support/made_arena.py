"""An arena of which only the pages exist that were written: for tests without a process.

`control_block` and `heads` say what a controller puts there, apart from the code under test.
"""

from __future__ import annotations

import ctypes

import markerjit.abi as abi
from markerjit.abi import ALIVE, CONTROL, PAGE, Control, Geometry, Sizes, lay_out
from markerjit.arena.arena import Arena
from markerjit.arena.store import MemoryStore
from markerjit.errors import MemoryFault, TargetGone
from markerjit.model import RemoteAddress

BASE = RemoteAddress(0x7000_0000)
PID = 7


def geometry_of(
    *, cpus: int = 1, ring_size: int = PAGE, max_markers: int = 4, max_patches: int = 4,
    max_edits: int = 4, ring_stride: int = 0, max_callers: int = 64,
) -> Geometry:  # fmt: skip
    """Of a small arena."""
    stride = ring_stride or ring_size
    sizes = Sizes(cpus, ring_size, max_markers, max_patches, max_edits, stride)
    return lay_out(sizes._replace(max_callers=max_callers))


FULL_PAGES = geometry_of(
    cpus=2, ring_size=PAGE, max_markers=128, max_patches=256, max_edits=64, ring_stride=4 * PAGE
)
"""Every table fills its pages exactly, so that one entry more needs a page more."""


class SparseMemory:
    """Zeros from BASE on, as many as an arena has bytes, that can be read and written. With `gone`
    they cannot: the process has ended."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._pages: dict[int, bytearray] = {}
        self.gone = False

    def read(self, address: RemoteAddress, size: int) -> bytes:
        data = bytearray()
        for page, start, end in self._pieces(address, size, "read"):
            data += self._pages.get(page, bytes(PAGE))[start:end]
        return bytes(data)

    def write(self, address: RemoteAddress, data: bytes) -> None:
        at = 0
        for page, start, end in self._pieces(address, len(data), "write"):
            self._pages.setdefault(page, bytearray(PAGE))[start:end] = data[at : at + end - start]
            at += end - start

    def _pieces(self, address: int, size: int, what: str) -> list[tuple[int, int, int]]:
        """Pages, and of each which bytes."""
        if self.gone:
            raise TargetGone(PID)
        if not BASE <= address <= address + size <= BASE + self._size:
            raise MemoryFault(address, size, what, "outside of the arena")
        parts, end = [], address + size
        while address < end:
            stop = min(address // PAGE * PAGE + PAGE, end)
            page = address // PAGE * PAGE
            parts.append((page, address - page, stop - page))
            address = stop
        return parts


def control_block(geometry: Geometry, **corrupted: int) -> bytes:
    """With all numbers that are checked, and none besides."""
    facts = {
        "magic": abi.MAGIC,
        "version": abi.VERSION,
        "arena_size": geometry.size,
        "control_size": ctypes.sizeof(Control),
        "cpus": geometry.cpus,
        "ring_size": geometry.ring_size,
        "parts": geometry.table(),
    }
    return bytes(Control(**{**facts, **corrupted}))


def make_store(geometry: Geometry, kind: type[MemoryStore] = MemoryStore) -> MemoryStore:
    """A store with an arena in it: empty rings, no markers."""
    memory = SparseMemory(geometry.size)
    store = kind(memory, BASE)  # type: ignore[arg-type]
    MemoryStore.write(store, CONTROL, control_block(geometry))
    MemoryStore.write(store, ALIVE, geometry.cpus.to_bytes(8, "little"))
    for ring in range(geometry.rings):
        head = abi.Head(
            data=BASE + geometry.ring_offset(ring),
            mask=geometry.ring_size - 1,
            limit=geometry.ring_size,
        )
        MemoryStore.write(store, geometry.head_offset(ring), bytes(head))
    return store


def make_arena(geometry: Geometry = FULL_PAGES, store: MemoryStore | None = None) -> Arena:
    return Arena(PID, BASE, store or make_store(geometry), geometry.size)
