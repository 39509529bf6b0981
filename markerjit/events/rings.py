"""All rings of an arena, read together: each CPU's own, and the shared ones.

Records of markers that are not asked for are left out: one that was switched off a moment ago may
still deliver some. numpy is imported at the first look at records, not when rings are started.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

import markerjit.abi as abi
from markerjit.arena.arena import Arena
from markerjit.ring.batch import Columns, Packet
from markerjit.ring.drain import RingDrain
from markerjit.ring.raw import Span, always
from markerjit.ring.reader import SharedRing
from markerjit.ring.types import FILLER, WORD, RecordType

if TYPE_CHECKING:
    from markerjit.ring.batch import Array
    from markerjit.ring.walk import Walked

_AT_ONCE = 64 << 20


class Found(NamedTuple):
    """What a poll found: packets and columns where they were asked for, and how many records."""

    packets: list[Packet]
    columns: list[Columns]
    records: int


class _Tables(NamedTuple):
    """By the id of a marker that the runtime knows.

    used        so many it knew
    least       the least words of a record
    wanted      whether it is asked for
    counted     whether the runtime counts its executions, and not who takes the records out
    """

    used: int
    least: Array
    wanted: Array
    counted: Array


class Rings:
    """`types` are those that are wanted; `left_out` records were of others. `is_ours` says whether
    nobody else reads the rings by now: after that nothing is taken out of them, nor given back."""

    def __init__(
        self,
        arena: Arena,
        types: Mapping[int, RecordType],
        *,
        is_ours: Callable[[], bool] = always,
    ) -> None:
        self.left_out = 0
        self._bad = 0
        self._arena = arena
        self._types = types
        geometry, store = arena.geometry, arena.store
        cpus, self._sizes = range(geometry.cpus), arena.ring_sizes()
        self._own = [
            RingDrain(
                store, geometry.head_offset(cpu), geometry.ring_offset(cpu), self._sizes[cpu],
                cpu, cpu, is_ours=is_ours,
            )
            for cpu in cpus
        ]  # fmt: skip
        self._shared = [
            SharedRing(store, geometry, cpu, self._sizes[geometry.cpus + cpu], is_ours=is_ours)
            for cpu in cpus
        ]
        self._all: list[RingDrain | SharedRing] = [*self._own, *self._shared]
        self._records = dict.fromkeys(range(geometry.rings), 0)
        self._known: _Tables | None = None

    @property
    def damaged(self) -> int:
        """How often a ring made no sense."""
        return sum(ring.damaged for ring in self._all)

    @property
    def bad(self) -> int:
        """How many records did not fit their marker, or made no sense."""
        return self._bad + sum(ring.bad for ring in self._shared)

    def start(self, *, overwrite: bool = False) -> None:
        """Forget what is in the rings, but count it; with `overwrite` they keep the newest, and
        nobody reads."""
        for ring in self._all:
            left = ring.unread()
            for walked in self._left(ring, left):
                self._note_delivered(walked.counts())
            ring.start(left.end, overwrite=overwrite)

    def resume(self) -> None:
        """Go on where an earlier reader stopped."""
        for ring in self._all:
            ring.resume()

    def unread(self) -> int:
        """Bytes that an earlier reader left in the rings; none where nobody was to read."""
        return sum(self._unread(ring) for ring in range(self._arena.geometry.rings))

    def waiting(self) -> dict[int, int]:
        """Records that are still to be taken out, by marker; only of what is counted then."""
        if not self.unread():
            return {}
        found: dict[int, int] = {}
        for ring in self._all:
            for walked in self._left(ring, ring.unread()):
                for marker, count in walked.counts().items():
                    if not self._tables().counted[marker]:
                        found[marker] = found.get(marker, 0) + count
        return found

    def _unread(self, ring: int) -> int:
        offset, size = self._arena.geometry.head_offset(ring), self._sizes[ring]
        head = abi.Head.from_buffer_copy(self._arena.store.read(offset, abi.RING_HEAD_SIZE))
        left: int = (head.head + size - head.limit) % (1 << 64)
        return left if left <= size else 0

    def poll(
        self,
        *,
        packets: bool = False,
        columns: bool = True,
        last: bool = False,
        enough: Callable[[], bool] = lambda: False,
    ) -> Found:
        """All that is recorded now, taken out; with `last` also what is behind a record that does
        not come to its end. What has not been looked at when that is `enough` stays there. The
        columns of one type may come in several parts."""
        walks = self._taken(last=last, enough=enough)
        return self._found(walks, packets=packets, columns=columns, taken=True)

    def picture(self, *, packets: bool = False, columns: bool = True) -> Found:
        """All that is in rings that are overwritten; nothing is taken out."""
        from markerjit.ring.columns import merge_types

        walks = self._pictures()
        found = self._found(walks, packets=packets, columns=columns, taken=False)
        return found._replace(columns=merge_types(found.columns))

    def _pictures(self) -> Iterator[Walked]:
        """Rings are copied one right after the other, so that they are of one moment, as far as
        that takes little memory: then it is looked what of it are records."""
        copied: list[tuple[RingDrain | SharedRing, tuple[int, bytes]]] = []
        size = 0
        for ring in self._all:
            piece = ring.picture()
            copied.append((ring, piece))
            size += len(piece[1])
            if size > _AT_ONCE or ring is self._all[-1]:
                for one, piece in copied:
                    if piece[1]:
                        yield one.walk(piece, self._tables().least)
                copied.clear()
                size = 0

    def _taken(self, *, last: bool, enough: Callable[[], bool]) -> Iterator[Walked]:
        """One after the other: what is made of it is made while it is in a cache."""
        for ring in self._all:
            for piece in ring.take(last=last) if isinstance(ring, SharedRing) else ring.take():
                yield ring.walk(piece, self._tables().least)
                if enough():
                    return

    def _left(self, ring: RingDrain | SharedRing, span: Span) -> Iterator[Walked]:
        """What is in a span of a ring. Mostly that is nothing, and nothing is imported for it."""
        for piece in ring.pieces(span):
            yield ring.walk(piece, self._tables().least)

    def _note_delivered(self, counts: Mapping[int, int]) -> None:
        """These records were taken out: executions that the runtime has not counted itself."""
        for marker, count in counts.items():
            if not self._tables().counted[marker]:
                self._arena.note_delivered(marker, count)

    def _found(
        self, walks: Iterable[Walked], *, packets: bool, columns: bool, taken: bool
    ) -> Found:
        from markerjit.ring.decode import columns_of
        from markerjit.ring.walk import packet

        as_recorded: list[Packet] = []
        decoded: list[Columns] = []
        records = 0
        for each in walks:
            counts = each.counts()
            if taken:
                self._note_delivered(counts)
            walked = self._numbered(self._only(each, counts))
            if not len(walked.starts):
                continue
            records += len(walked.starts)
            if packets:
                as_recorded.append(packet(walked))
            if columns:
                found, bad = columns_of([walked], self._types)
                self._bad += bad
                decoded += found
        return Found(as_recorded, decoded, records)

    def _only(self, walked: Walked, counts: Mapping[int, int]) -> Walked:
        """Without records of other markers."""
        if counts.keys() <= self._types.keys():
            return walked
        wanted = self._tables().wanted[walked.markers]
        self.left_out += int((~wanted).sum())
        return walked._replace(starts=walked.starts[wanted], markers=walked.markers[wanted])

    def _numbered(self, walked: Walked) -> Walked:
        """With the number that its first record has among those that were wanted of its ring."""
        first = self._records[walked.ring]
        self._records[walked.ring] += len(walked.starts)
        return walked._replace(first=first)

    def _tables(self) -> _Tables:
        """To be asked for when the bytes are there: who has recorded was known before."""
        used = self._arena.markers_used
        if self._known is None or self._known.used != used:
            import numpy as np

            from markerjit.ring.walk import least_words

            least = least_words(self._types)
            wanted, counted = np.zeros(len(least), np.bool_), np.zeros(len(least), np.bool_)
            wanted[list(self._types)] = True
            for entry in self._arena.entries():
                counted[entry.id] = bool(entry.counted)
                # What it says of types of ours is not believed.
                if entry.id not in self._types and entry.id != FILLER:
                    least[entry.id] = max(1, entry.size // WORD)
            self._known = _Tables(used, least, wanted, counted)
        return self._known


def is_recorded_into(arena: Arena) -> bool:
    """Whether a marker is on with a recorder that is counted: all but those of a probe in C."""
    return any(one.since and one.counted for one in arena.entries())


def is_flying(arena: Arena) -> bool:
    """Whether a flight recorder is on, so that the rings are not to be touched."""
    return arena.is_overwritten() and is_recorded_into(arena)
