"""The heads of an arena's rings: how large the rings are, and whether they are overwritten."""

from __future__ import annotations

import markerjit.abi as abi
from markerjit.abi import Geometry
from markerjit.arena.control import ControlBlock
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.errors import Refused
from markerjit.ring.raw import Growth


class RingHeads:
    """The rings of an arena. `geometry` changes with their size."""

    def __init__(
        self,
        pid: int,
        store: FileStore | MemoryStore,
        control: ControlBlock,
        geometry: Geometry,
    ) -> None:
        self.geometry = geometry
        self._pid = pid
        self._store = store
        self._control = control

    def resize(self, size: int) -> None:
        """Use so many bytes of each ring from now on, and give back the memory of what is behind
        them; their content is lost. The caller must hold the lock, and nothing may record or read.
        Raises Refused when the arena has no room for that."""
        if size > self.geometry.ring_stride:
            room = self.geometry.ring_stride >> 20
            raise Refused(
                f"the runtime in process {self._pid} has room for {room} MiB a CPU; restart the "
                "process to have more"
            )
        before = self.sizes()
        self.geometry = self.geometry._replace(ring_size=size)
        self._control.write("ring_size", size)
        for cpu in range(self.geometry.cpus):
            self._begin_lap(cpu, size)
        for ring in range(self.geometry.rings):
            place = self.geometry.head_offset(ring)
            end = int.from_bytes(self._store.read(place, 8), "little") + size
            self._store.write(place + abi.RING_MASK, (size - 1).to_bytes(8, "little"))
            self._store.write(place + abi.RING_LIMIT, (end % (1 << 64)).to_bytes(8, "little"))
            if before[ring] > size:
                self._store.release(self.geometry.ring_offset(ring) + size, before[ring] - size)

    @property
    def first_size(self) -> int:
        """Bytes of each ring before any grew."""
        size = self._control.number("ring_size")
        return size if self._fits(size) else self.geometry.ring_size

    def growth(self, most: int) -> Growth:
        """Room for the rings to grow by, so that they have grown by no more than `most` bytes in
        all. There is no room where the memory could not be given back."""
        grown = sum(max(size - self.first_size, 0) for size in self.sizes())
        room = max(most - grown, 0) if self._store.gives_back else 0
        return Growth(room, self.geometry.ring_stride)

    def sizes(self) -> list[int]:
        """How many bytes of each ring are used now: another controller may have changed it, and may
        have died over it."""
        sizes = []
        for ring in range(self.geometry.rings):
            place = self.geometry.head_offset(ring) + abi.RING_MASK
            size = int.from_bytes(self._store.read(place, 8), "little") + 1
            sizes.append(size if self._fits(size) else self.geometry.ring_size)
        return sizes

    def _fits(self, size: int) -> bool:
        return abi.PAGE <= size <= self.geometry.ring_stride and size & size - 1 == 0

    def are_overwritten(self) -> bool:
        """Whether the rings are a flight recorder's: without a reader, and the newest is kept."""
        offset = self.geometry.head_offset(0) + abi.RING_LIMIT
        return self._store.read(offset, 8) == abi.NO_LIMIT.to_bytes(8, "little")

    def _begin_lap(self, cpu: int, size: int) -> None:
        """Put the head of a shared ring to the begin of a lap, as rings are now. Never back: commit
        words of that position would be there already."""
        offset = self.geometry.head_offset(self.geometry.cpus + cpu)
        laps = -(-int.from_bytes(self._store.read(offset, 8), "little") // size)
        sums = (laps * abi.PAGE % (1 << 64)).to_bytes(8, "little") * (size // abi.PAGE)
        self._store.write(self.geometry.sums_offset(cpu), sums)
        self._store.write(offset, (laps * size % (1 << 64)).to_bytes(8, "little"))
