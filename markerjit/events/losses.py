"""Events that were lost because their ring was full, as the arena counts them."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress

import markerjit.abi as abi
from markerjit.arena.arena import Arena
from markerjit.errors import TargetGone
from markerjit.ring.clock import NS
from markerjit.ring.types import RecordType

_INTERVAL_NS = NS // 4

Losses = Counter[tuple[int, str]]
"""Numbers of lost events, by CPU and marker."""


def losses(arena: Arena, types: Mapping[int, RecordType]) -> Losses:
    """All losses of these types. Those of a CPU are the losses of both of its rings."""
    return _losses(arena, types, lambda entry, lost: lost)


def losses_before(arena: Arena, types: Mapping[int, RecordType]) -> Losses:
    """The losses from before the markers were last switched on."""
    return _losses(arena, types, _from_first)


class LossCount:
    """The losses since a stream began. `since_on` counts from where the markers were switched on,
    for a stream that resumes."""

    def __init__(
        self, arena: Arena, types: Mapping[int, RecordType], *, since_on: bool = False
    ) -> None:
        self._arena = arena
        self._types = types
        self._now = losses(arena, types)
        self._before = losses_before(arena, types) if since_on else self._now
        self._read_at = 0

    def update(self) -> None:
        """Read the counters. They stay as they were when the target has ended."""
        with suppress(TargetGone):
            self._now = losses(self._arena, self._types)
            self._read_at = time.monotonic_ns()

    def update_when_due(self) -> None:
        """Read the counters, but only a few times a second."""
        if time.monotonic_ns() - self._read_at > _INTERVAL_NS:
            self.update()

    def by_marker(self) -> dict[tuple[int, str], int]:
        """The losses by (CPU, marker), without zeros."""
        return dict(self._now - self._before)


def _losses(
    arena: Arena,
    types: Mapping[int, RecordType],
    counted: Callable[[abi.MarkerEntry, Sequence[int]], Iterable[int]],
) -> Losses:
    total: Losses = Counter()
    for id, lost in arena.counters.lost_by_ring(types).items():
        if not any(lost):  # the usual case, of thousands
            continue
        for ring, count in enumerate(counted(arena.markers.entry(id), lost)):
            total[ring % arena.geometry.cpus, types[id].marker] += count
    return total


def _from_first(entry: abi.MarkerEntry, lost: Sequence[int]) -> Iterable[int]:
    """The entry has only the sum over all rings, so it is taken from the first rings that have lost
    so many."""
    remaining = int(entry.lost_before)
    for count in lost:
        before = min(remaining, count)
        remaining -= before
        yield before
