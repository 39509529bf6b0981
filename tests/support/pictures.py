"""What is in a picture of a flight recorder, and whether a turn of truth_threads is missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from markerjit import Picture
from markerjit.ring.decode import decode


def in_picture(picture: Picture) -> Counter[str]:
    counts: Counter[str] = Counter()
    for columns in picture.batch.columns:
        counts[columns.type.marker] += len(columns.time)
    return counts


def rows(columns: Any) -> Iterator[tuple[int, ...]]:
    """Time and fields of each event."""
    yield from zip(
        columns.time.tolist(), *(field.tolist() for field in columns.fields.values()), strict=True
    )


def check_whole(
    picture: Picture, types: Any, until: int, rings: frozenset[int] = frozenset()
) -> frozenset[int]:
    """As far back as all rings reach, and up to when the picture was begun, no turn of a thread is
    missing. `rings` are those that had records before; returned are these and those of now."""
    packets = picture.batch.packets
    present = frozenset(packet.ring for packet in packets)
    by_ring = [
        sorted(row for columns in decode([packet], types) for row in rows(columns))
        for packet in packets
    ]
    everything = sorted(row for ring in by_ring for row in ring)
    assert everything == sorted(row for columns in picture.batch.columns for row in rows(columns))
    for columns in picture.batch.columns:
        assert columns.time.tolist() == sorted(columns.time.tolist())
    if not everything or rings - present:  # one may be overwritten whole while it is copied
        return rings | present
    # Each may have lost its older records, and on a busy machine most of them while it was copied.
    overwritten = any(kept.overwritten for kept in picture.kept.values())
    begin = max(ring[0][0] for ring in by_ring if ring) if overwritten else 0
    last: dict[int, int] = {}
    for time, i, n in everything:
        assert i in range(3)
        if begin <= time <= until:
            assert last.setdefault(i, n - 1) == n - 1, "in order, and none is missing"
            last[i] = n
    return rings | present
