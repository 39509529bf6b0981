"""Check of what is read of an arena whose control block agrees with itself and claims anything.

An input is the numbers that say how large the parts are, how many markers there are said to be, how
many edits a journal has, and where two rings' heads and limits are. All else are zeros, as in a
sparse file: what such an arena claims costs the target nothing, and must not cost us much.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, cast

from markerjit.abi import (
    CONTROL,
    JOURNAL_OPEN,
    RING_HEAD,
    RING_LIMIT,
    Control,
    Entry,
    JournalHead,
    Sizes,
    lay_out,
)
from markerjit.arena.arena import Arena
from markerjit.arena.journal import Journal
from markerjit.errors import MarkerError, Unsupported
from markerjit.model import RemoteAddress
from markerjit.probes.loaded import loaded
from markerjit.ring.drain import RingDrain
from markerjit.ring.raw import Span
from markerjit.ring.reader import SharedRing
from tests.fuzz.check_ring import control_block
from tests.fuzz.edits import Place
from tests.fuzz.harness import ACCEPTED, Harness, Seed

_NUMBERS = struct.Struct("<6Q2I4Q")
_MOST_AT_ONCE = 64 << 20
"""Bytes of one read. A journal is read whole, and may have a million edits of 48."""
_SOME, _SPAN = 3, 1 << 20
"""Pieces, and bytes of a ring, that are looked at: the others are like them."""


class _Sparse:
    """An arena in which little is written."""

    def __init__(self, words: dict[int, bytes]) -> None:
        self._words = words

    def read(self, offset: int, size: int) -> bytes:
        assert 0 <= size <= _MOST_AT_ONCE, f"a read of {size} bytes"
        for start, content in self._words.items():
            if start <= offset < start + len(content):
                return content[offset - start :][:size].ljust(size, b"\0")
        return bytes(size)

    def write(self, offset: int, data: bytes) -> None:
        for start, content in self._words.items():
            if start <= offset < start + len(content):
                at = offset - start
                self._words[start] = content[:at] + data + content[at + len(data) :]

    def release(self, offset: int, size: int) -> None:
        raise AssertionError("looking at an arena gives nothing back")

    def used(self, offset: int, size: int) -> Iterator[tuple[int, int]]:
        for start in sorted(self._words):
            if offset <= start < offset + size:
                yield start, start + len(self._words[start])

    close = release


def check_arena(data: bytes) -> str:
    """Unsupported, or what is read of it is read in pieces that we have room for."""
    numbers = _NUMBERS.unpack(data[: _NUMBERS.size].ljust(_NUMBERS.size, b"\0"))
    used, edits, *positions = numbers[6:]
    if numbers[0] > 1 << 16 or numbers[5] > 1 << 31:
        return "no such size"
    geometry = lay_out(Sizes(*numbers[:6]))
    control = Control.from_buffer_copy(control_block(geometry))
    control.markers_used = control.patches_used = control.units_used = used
    control.journal = JournalHead(state=JOURNAL_OPEN, edits=edits)
    store = _Sparse({0: bytes(ctypes.sizeof(Entry)), CONTROL: bytes(control)})
    try:
        arena = Arena(1, RemoteAddress(1 << 30), cast(Any, store), geometry.size)
    except Unsupported as error:
        assert str(error).isprintable()
        return "Unsupported"
    for ring, (head, limit) in enumerate((positions[:2], positions[2:])):
        place = geometry.head_offset(ring * geometry.cpus)
        words = bytearray(128)
        struct.pack_into("<Q", words, RING_HEAD, head)
        struct.pack_into("<Q", words, RING_LIMIT, limit)
        store._words[place] = bytes(words)
    _look(arena)
    return ACCEPTED


def _look(arena: Arena) -> None:
    _some(arena.markers.entries())
    _some(arena.patches.entries())
    _some(arena.units.all())
    _some(arena.islands.entries())
    arena.patches.at(4711)
    _some(loaded(arena))
    geometry, store = arena.geometry, arena.store
    own = RingDrain(
        store, geometry.head_offset(0), geometry.ring_offset(0), geometry.ring_size, 0, 0
    )
    shared = SharedRing(store, geometry, 0, geometry.ring_size)
    for ring in (own, shared):
        start, end = ring.unread()
        _some(ring.pieces(Span(start, min(end, start + _SPAN))))
        ring.resume()
        _some(ring.take())
    try:
        Journal(arena).left()
    except MarkerError:
        return


def _some(items: Iterable[object]) -> None:
    for _ in islice(items, _SOME):
        pass


def _seeds() -> list[Seed]:
    """A small one and one of the largest, both full."""
    small = Sizes(1, 4096, 4, 4, 4, 4096)
    large = Sizes(2, 1 << 30, 1 << 16, 1 << 20, 1 << 20, 1 << 30)
    places = [*(Place(8 * index, 8) for index in range(6)), Place(48, 4), Place(52, 4)]
    places += [Place(56 + 8 * index, 8) for index in range(4)]
    return [
        Seed(
            _NUMBERS.pack(
                *control[:6], control.max_markers, control.max_edits,
                control.ring_size, control.ring_size, control.ring_size, control.ring_size,
            ),
            places,
        )
        for control in (small, large)
    ]  # fmt: skip


HARNESSES = (Harness("arena", _seeds, check_arena, weight=2),)
