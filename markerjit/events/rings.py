"""All rings of an arena, read together: the own ring of each CPU, and the shared ones.

Records of other markers than the reader's are left out: a marker that was just switched off may
still deliver some. numpy is imported when records are read, not when the rings are started.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

import markerjit.abi as abi
from markerjit.arena.arena import Arena
from markerjit.ring.batch import Columns, Packet
from markerjit.ring.drain import RingDrain
from markerjit.ring.raw import Growth, Span, always
from markerjit.ring.reader import SharedRing
from markerjit.ring.types import WORD, RecordType
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.ring.by_marker import ByMarker
    from markerjit.ring.walk import Walked

_AT_ONCE = 64 << 20


class Polled(NamedTuple):
    """The records of a poll: their number, and packets and columns where the caller wants them."""

    packets: list[Packet]
    columns: list[Columns]
    records: int


class _Tables(NamedTuple):
    """Facts about the markers that the runtime knows, by their ids.

    used        number of markers that the runtime knew
    least       the least words of a record
    selected    whether the marker is among the reader's types
    """

    used: int
    least: ByMarker
    selected: ByMarker


class Rings:
    """Takes records of these types out of the rings of an arena.

    is_ours     whether the rings are still ours. Once they are not, nothing is taken out of them or
                given back
    growth      room for rings to grow by while they are read
    left_out    number of records of other types
    """

    def __init__(
        self,
        arena: Arena,
        types: Mapping[int, RecordType],
        *,
        is_ours: Callable[[], bool] = always,
        growth: Growth | None = None,
    ) -> None:
        self.left_out = 0
        self._bad = 0
        self._arena = arena
        self._types = types
        geometry, store = arena.geometry, arena.store
        cpus, sizes = range(geometry.cpus), arena.rings.sizes()
        self._growth = growth or Growth()
        self._own = [
            RingDrain(
                store, geometry.head_offset(cpu), geometry.ring_offset(cpu), sizes[cpu],
                cpu, cpu, is_ours=is_ours, division=arena.division, growth=self._growth,
            )
            for cpu in cpus
        ]  # fmt: skip
        self._shared = [
            SharedRing(
                store, geometry, cpu, sizes[geometry.cpus + cpu],
                is_ours=is_ours, division=arena.division, growth=self._growth,
            )
            for cpu in cpus
        ]  # fmt: skip
        self._all: list[RingDrain | SharedRing] = [*self._own, *self._shared]
        self._records = dict.fromkeys(range(geometry.rings), 0)
        self._known: _Tables | None = None
        self._words: dict[int, int] = {}  # of a record at least, by marker
        self._counted: set[int] = set()  # markers whose executions the runtime counts

    @property
    def size(self) -> int:
        """Bytes of the smallest ring."""
        return min(ring.size for ring in self._all)

    @property
    def grown(self) -> int:
        """Bytes by which rings have grown since we read them."""
        return self._growth.grown

    def stop_growing(self) -> None:
        """Let no ring grow from here on."""
        self._growth.end()

    @property
    def damaged(self) -> int:
        """Number of times that a ring made no sense."""
        return sum(ring.damaged for ring in self._all)

    @property
    def bad(self) -> int:
        """Number of records that did not fit their marker, or made no sense."""
        return self._bad + sum(ring.bad for ring in self._shared)

    def start(self, *, overwrite: bool = False) -> None:
        """Count the records that are in the rings, drop them, and begin with the next. With
        `overwrite` the rings keep their newest records, and have no reader."""
        for ring in self._all:
            unread = ring.unread()
            for walked in self._walks(ring, unread):
                self._note_delivered(walked.counts())
            ring.start(unread.end, overwrite=overwrite)

    def resume(self) -> None:
        """Go on where an earlier reader stopped."""
        for ring in self._all:
            ring.resume()

    def unread(self) -> int:
        """Bytes that an earlier reader left in the rings; 0 in overwrite mode."""
        return sum(self._unread(ring) for ring in range(self._arena.geometry.rings))

    def waiting(self) -> dict[int, int]:
        """Number of records in the rings, by marker. Only of markers whose records are counted
        when they are taken out."""
        if not self.unread():
            return {}
        waiting: Counter[int] = Counter()
        for ring in self._all:
            for walked in self._walks(ring, ring.unread()):
                waiting += Counter(self._uncounted(walked.counts()))
        return dict(waiting)

    def _unread(self, ring: int) -> int:
        offset, size = self._arena.geometry.head_offset(ring), self._all[ring].size
        head = abi.Head.from_buffer_copy(self._arena.store.read(offset, abi.RING_HEAD_SIZE))
        unread: int = (head.head + size - head.limit) % (1 << 64)
        return unread if unread <= size else 0

    def poll(
        self,
        *,
        packets: bool = False,
        columns: bool = True,
        last: bool = False,
        enough: Callable[[], bool] = lambda: False,
    ) -> Polled:
        """Take out the records that are in the rings now. The columns of one type may come in
        several parts.

        last    also take the records behind one that never is completed
        enough  asked after each piece of a ring. Once it is true the rest stays in the rings
        """
        walks = self._taken(last=last, enough=enough)
        return self._polled(walks, packets=packets, columns=columns, taken=True)

    def picture(self, *, packets: bool = False, columns: bool = True) -> Polled:
        """The records that are in rings in overwrite mode. Nothing is taken out."""
        from markerjit.ring.columns import merge_types

        walks = self._pictures()
        picture = self._polled(walks, packets=packets, columns=columns, taken=False)
        return picture._replace(columns=merge_types(picture.columns))

    def _pictures(self) -> Iterator[Walked]:
        """Copies the rings one right after the other, so that the copies are of one moment, and
        then finds the records. Goes in turns where the copies would take much memory."""
        copied: list[tuple[RingDrain | SharedRing, tuple[int, bytes]]] = []
        size = 0
        for ring in self._all:
            piece = ring.picture()
            copied.append((ring, piece))
            size += len(piece[1])
            if size > _AT_ONCE or ring is self._all[-1]:
                for source, copy in copied:
                    if copy[1]:
                        yield source.walk(copy, self._tables().least)
                copied.clear()
                size = 0

    def _taken(self, *, last: bool, enough: Callable[[], bool]) -> Iterator[Walked]:
        """Takes a piece of a ring at a time: the caller decodes it while it is in a cache."""
        for ring in self._all:
            for piece in ring.take(last=last) if isinstance(ring, SharedRing) else ring.take():
                yield ring.walk(piece, self._tables().least)
                if enough():
                    return

    def _walks(self, ring: RingDrain | SharedRing, span: Span) -> Iterator[Walked]:
        """The records in a span of a ring. An empty span, the usual case, does not import numpy."""
        for piece in ring.pieces(span):
            yield ring.walk(piece, self._tables().least)

    def _note_delivered(self, counts: Mapping[int, int]) -> None:
        """Count records that were taken out, where the runtime has not counted the executions."""
        for marker, count in self._uncounted(counts).items():
            self._arena.markers.note_delivered(marker, count)

    def _uncounted(self, counts: Mapping[int, int]) -> dict[int, int]:
        """The counts of markers whose executions the runtime does not count."""
        self._tables()
        counted = self._counted
        return {marker: count for marker, count in counts.items() if marker not in counted}

    def _polled(
        self, walks: Iterable[Walked], *, packets: bool, columns: bool, taken: bool
    ) -> Polled:
        from markerjit.ring.decode import columns_of
        from markerjit.ring.walk import packet

        as_recorded: list[Packet] = []
        decoded: list[Columns] = []
        records = 0
        for each in walks:
            counts = each.counts()
            if taken:
                self._note_delivered(counts)
            walked = self._numbered(self._selected(each, counts))
            if not len(walked.starts):
                continue
            records += len(walked.starts)
            if packets:
                as_recorded.append(packet(walked))
            if columns:
                parts, bad = columns_of([walked], self._types)
                self._bad += bad
                decoded += parts
        return Polled(as_recorded, decoded, records)

    def _selected(self, walked: Walked, counts: Mapping[int, int]) -> Walked:
        """The packet without the records of other markers, which are counted."""
        if counts.keys() <= self._types.keys():
            return walked
        selected = self._tables().selected.of(walked.markers)
        self.left_out += int((~selected).sum())
        return walked._replace(starts=walked.starts[selected], markers=walked.markers[selected])

    def _numbered(self, walked: Walked) -> Walked:
        """The packet with the number of its first record, among the selected records of its
        ring."""
        first = self._records[walked.ring]
        self._records[walked.ring] += len(walked.starts)
        return walked._replace(first=first)

    def _tables(self) -> _Tables:
        """The facts about markers as of now. The caller must have the bytes already: a marker was
        known to the runtime before it recorded."""
        used = self._arena.markers.used
        if self._known is None or self._known.used != used:
            import numpy as np

            from markerjit.ring.by_marker import ByMarker
            from markerjit.ring.walk import least_words

            # An entry never becomes another marker's, so those that were read need no second look.
            first = len(self._words)
            for marker, entry in enumerate(self._arena.markers.entries(first), first):
                self._words[marker] = max(1, entry.size // WORD)
                if entry.counted:
                    self._counted.add(marker)
            # The entry of a type of ours is not believed: the target can write over it.
            least = least_words(self._types, self._words)
            selected = ByMarker(dict.fromkeys(self._types, 1), np.bool_, others=0, filler=0)
            self._known = _Tables(used, least, selected)
        return self._known
