"""Parts of the arena, and the free room between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from markerjit.tuples import NamedTuple


class Extent(NamedTuple):
    """Bytes of the arena from `start` up to `end`, offsets."""

    start: int
    end: int


def gaps(room: Extent, taken: Iterable[Extent]) -> Iterator[Extent]:
    """The parts of the room that are not taken, in order. The taken extents may overlap, lie
    elsewhere, or make no sense."""
    at = room.start
    for start, end in sorted(taken):
        if end <= max(at, start) or start >= room.end:
            continue
        if start > at:
            yield Extent(at, start)
        at = end
    if at < room.end:
        yield Extent(at, room.end)
