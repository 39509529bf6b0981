"""A process that was made up, which records into an arena, and time that a test moves.

The rings are an arena's bytes in a list; the counter runs at three ticks a nanosecond.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from markerjit.abi import FILLER, PAGE, Count, MarkerEntry
from markerjit.arena.store import MemoryStore
from markerjit.elf import parse_format
from markerjit.events.feed import Feed
from markerjit.events.stream import EventStream
from markerjit.model import CType, Event, TypeClass
from markerjit.ring.types import RecordType, Time
from tests.support.heads import head_of
from tests.support.made_arena import SparseMemory, geometry_of, make_arena

GEOMETRY = geometry_of(cpus=3, ring_size=8 * PAGE)
INT = CType(TypeClass.SIGNED, 4)
CHARS = CType(TypeClass.CHARS, 8)
MINUTE_NS = 60_000_000_000
WALL_NS = 1_700_000_000_000_000_000
TICKS_PER_NS = 3


def types_of(time: Time = Time.TSC) -> dict[int, RecordType]:
    return {
        1: RecordType(1, "get", "n %d", parse_format("n %d", (INT,)), time=time),
        2: RecordType(2, "put", "", (), time=time),
        3: RecordType(3, "text", "s %s", parse_format("s %s", (CHARS,)), time=time),
    }


class FakeTime:
    """The module `time` and clock_pair(). Time passes when a test says so, or sleeps."""

    def __init__(self) -> None:
        self.now_ns = MINUTE_NS
        self.slept: list[float] = []

    def pair(self) -> tuple[int, int]:
        return self.tsc(), self.now_ns

    def tsc(self) -> int:
        return TICKS_PER_NS * self.now_ns + 7

    def pass_ns(self, nanoseconds: int) -> None:
        self.now_ns += nanoseconds

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.pass_ns(round(seconds * 1e9))

    def monotonic_ns(self) -> int:
        return self.now_ns

    def time_ns(self) -> int:
        return WALL_NS + self.now_ns


class Target:
    """A process that records into an arena: each ring by its own rules, never full."""

    def __init__(self) -> None:
        self.arena = make_arena(GEOMETRY)
        self.store = self.arena.store
        for marker, type_ in types_of().items():
            entry = MarkerEntry(id=marker, size=type_.size, name_hash=marker)
            self.store.write(GEOMETRY.marker_offset(marker), bytes(entry))
        self.arena.control.write("markers_used", 4)

    def end(self) -> None:
        """It ends, and its arena is out of reach."""
        assert isinstance(self.store, MemoryStore)
        memory: Any = self.store._memory
        assert isinstance(memory, SparseMemory)
        memory.gone = True

    def lose(self, marker: int, count: int, *, ring: int = 0) -> None:
        place = GEOMETRY.count_offset(ring, marker)
        was = Count.from_buffer_copy(self.store.read(place, 16))
        self.store.write(place, bytes(Count(passed=was.passed, lost=was.lost + count)))

    def record(
        self, cpu: int, time: int, marker: int = 1, payload: bytes | None = None,
        *, shared: bool = False,
    ) -> None:  # fmt: skip
        """Append a record. `payload` is by default the number that the time ends with."""
        if payload is None:
            payload = struct.pack("<q", time % 1000) if marker == 1 else b""
        words = 2 + len(payload) // 8
        record = struct.pack("<IIQ", head_of(marker, words), 50 + cpu, time) + payload
        ring = GEOMETRY.cpus * shared + cpu
        head = GEOMETRY.head_offset(ring)
        position = int.from_bytes(self.store.read(head, 8), "little")
        if shared:
            record = (position << 16 | words + 1).to_bytes(8, "little") + record
        left = PAGE - position % PAGE
        if left < len(record):
            assert not shared
            self._put(ring, position, struct.pack("<II", head_of(FILLER, left // 8), 0))
            position += left
        self._put(ring, position, record)
        self.store.write(head, (position + len(record)).to_bytes(8, "little"))

    def _put(self, ring: int, position: int, data: bytes) -> None:
        self.store.write(GEOMETRY.ring_offset(ring) + position % GEOMETRY.ring_size, data)


def open_feed(
    target: Target, *, types: Mapping[int, RecordType] | None = None, **options: Any
) -> Feed:
    """A feed of these types, by default all of the target's."""
    options.setdefault("alive", lambda: True)
    return Feed(target.arena, types_of() if types is None else types, **options)


def open_stream(
    target: Target, *, time: Time = Time.TSC, poll_s: float = 0.02, **options: Any
) -> EventStream:
    """A stream of a feed with these options."""
    return EventStream(open_feed(target, types=types_of(time), **options), poll_s=poll_s)


def numbers(events: Iterable[Event]) -> list[int]:
    return [int(event.fields["n"]) for event in events]  # type: ignore[arg-type]
