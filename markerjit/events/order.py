"""Columns of records on their way out of a stream: kept back until nothing earlier can come, then
ready to be handed out a slice at a time.

numpy is imported when the first columns come.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from markerjit.ring.batch import Columns

if TYPE_CHECKING:
    from markerjit.ring.columns import Slices

_FAR = 1 << 32
"""In ticks or nanoseconds; seconds in any case. A record whose time is so much later than now is
from another clock, as in a time namespace, or is nonsense. It is not kept back."""


class KeptBack:
    """Columns that are kept back, by type."""

    def __init__(self) -> None:
        self._parts: dict[int, list[Columns]] = {}

    def add(self, columns: Iterable[Columns]) -> None:
        """Keep these columns."""
        for part in columns:
            self._parts.setdefault(part.type.id, []).append(part)

    def release(self, until: int | None) -> list[Columns]:
        """The records before `until`, a Columns for each type; None: all of them. The rest stays
        here."""
        if not self._parts:
            return []
        from markerjit.ring.columns import merge, take

        released = []
        for marker, parts in list(self._parts.items()):
            now = merge(parts)
            del self._parts[marker]
            if until is not None:
                now, later = take(now, until)
                later, never = take(later, until + _FAR)
                now = merge([now, never]) if len(never.time) else now
                if len(later.time):
                    self._parts[marker] = [later]
            if len(now.time):
                released.append(now)
        return released


class Ready:
    """Columns that are in order; its length is the number of records. Those of a later `add` come
    behind those of an earlier one."""

    def __init__(self) -> None:
        self._slices: list[Slices] = []

    def __len__(self) -> int:
        return sum(map(len, self._slices))

    def add(self, columns: Sequence[Columns]) -> None:
        """Columns of several types, whose records have one order."""
        if columns:
            from markerjit.ring.columns import Slices

            self._slices.append(Slices(columns))

    def due(self, most: int) -> int | None:
        """The time up to which `most` records are ready, as recorded; None where no more than that
        are ready."""
        if len(self) <= most:
            return None
        first = self._slices[0]
        return first.time(min(most, len(first)) - 1)

    def take(self, most: int | None) -> list[Columns]:
        """The next `most` records, or fewer. None: all that one `add` has brought."""
        if not self._slices:
            return []
        first = self._slices[0]
        columns = first.take(len(first) if most is None else most)
        if not len(first):
            self._slices.pop(0)
        return columns

    def take_each(self, most: int | None, until: int | None) -> Iterator[list[Columns]]:
        """The next `most` records, none later than `until`, a list for each `add`. None: no
        limit."""
        remaining = len(self) if most is None else most
        while self._slices and remaining:
            first = self._slices[0]
            count = min(len(first), remaining)
            if until is not None:
                count = min(count, first.count_until(until))
            if count:
                remaining -= count
                yield first.take(count)
            if len(first):
                return
            self._slices.pop(0)
