"""Memory without a process, for tests and for trying plans.

It does what real memory does at the edges: neighbouring segments read as one, a span that leaves
them is a fault. It does not know about page protection.
"""

from __future__ import annotations

from collections.abc import Mapping as MappingOf

from markerjit.errors import MemoryFault
from markerjit.model import RemoteAddress


class FakeMemory:
    """Segments of bytes at addresses.

    writes  every write that succeeded, in order, as (address, data)
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
        """Let the nth write from now fail (the next one is 1). It writes nothing."""
        self._faults[self._attempts + nth] = reason

    def read(self, address: RemoteAddress, size: int) -> bytes:
        """Exactly `size` bytes, or MemoryFault."""
        return b"".join(
            bytes(segment[offset : offset + count])
            for segment, offset, count in self._pieces(address, size, "read")
        )

    def write(self, address: RemoteAddress, data: bytes) -> None:
        """All of `data`, or MemoryFault and nothing."""
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
        here, end = int(address), address + size
        while here < end:
            for start, segment in self.segments.items():
                if start <= here < start + len(segment):
                    count = min(end, start + len(segment)) - here
                    pieces.append((segment, here - start, count))
                    here += count
                    break
            else:
                raise MemoryFault(address, size, doing, "not mapped")
        return pieces
