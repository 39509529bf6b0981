"""Memory without a process, for tests and for trying plans.

Its edges are those of real memory: neighbouring segments read as one, and a span that leaves them
is a fault. It has no page protection.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf

from markerjit.errors import MemoryFault
from markerjit.model import RemoteAddress


class FakeMemory:
    """Memory made of segments of bytes at addresses.

    writes  every successful write, in order, as (address, data)
    """

    def __init__(self, segments: MappingOf[int, bytes] | None = None) -> None:
        self.segments: dict[RemoteAddress, bytearray] = {}
        self.writes: list[tuple[RemoteAddress, bytes]] = []
        self._faults: dict[int, str] = {}
        self._attempts = 0
        for address, content in (segments or {}).items():
            self.add(RemoteAddress(address), content)

    def add(self, address: RemoteAddress, content: bytes) -> None:
        """Map `content`. Raises ValueError where it would overlap another segment."""
        for start, segment in self.segments.items():
            if start < address + len(content) and address < start + len(segment):
                raise ValueError(f"{address:#x} overlaps the segment at {start:#x}")
        self.segments[address] = bytearray(content)

    def fail_write(self, nth: int, reason: str = "injected") -> None:
        """Make the nth write from now fail (the next one is 1). It writes nothing."""
        self._faults[self._attempts + nth] = reason

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """Exactly `size` bytes. Raises MemoryFault."""
        return b"".join(
            bytes(segment[offset : offset + count])
            for segment, offset, count in self._pieces(address, size, "read")
        )

    def write(self, address: RemoteAddress, data: bytes) -> None:
        """Write all of `data`. Raises MemoryFault, and then writes nothing."""
        self._attempts += 1
        if reason := self._faults.pop(self._attempts, ""):
            raise MemoryFault(address, len(data), "write", reason)
        done = 0
        for segment, offset, count in self._pieces(address, len(data), "write"):
            segment[offset : offset + count] = data[done : done + count]
            done += count
        self.writes.append((address, bytes(data)))

    def _pieces(
        self, address: RemoteAddress, size: int, doing: str
    ) -> list[tuple[bytearray, int, int]]:
        """(segment, offset, count) for each segment that the span touches, in order."""
        pieces: list[tuple[bytearray, int, int]] = []
        at, end = int(address), address + size
        while at < end:
            for start, segment in self.segments.items():
                if start <= at < start + len(segment):
                    count = min(end, start + len(segment)) - at
                    pieces.append((segment, at - start, count))
                    at += count
                    break
            else:
                raise MemoryFault(address, size, doing, "not mapped")
        return pieces
