"""Entries of a table of the arena, whatever their size in the arena's version."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Generic, TypeVar

from markerjit.abi import Part
from markerjit.arena.versions import converted
from markerjit.ring.raw import Store

T = TypeVar("T", bound=ctypes.Structure)

_AT_ONCE = 4096
"""Entries that are read to look at a word of each."""
_NUMBERS = {1: "B", 2: "H", 4: "I", 8: "Q"}


class Table(Generic[T]):
    """A part of the arena whose entries we know as `kind`, and which has them as `stored`. The two
    differ in version 4 only; otherwise one is as long as the other, or has more at its end."""

    def __init__(
        self,
        store: Store,
        part: Part,
        kind: type[T],
        stored: type[ctypes.Structure] | None = None,
    ) -> None:
        self.part = part
        self._store = store
        self._kind = kind
        self._stored = stored or kind
        self._size = ctypes.sizeof(self._stored)

    @property
    def is_current(self) -> bool:
        """Whether the arena has entries with the fields that we know, where we know them."""
        return self._stored is self._kind

    def read(self, index: int) -> T:
        """An entry. Fields that its version does not have are zero."""
        return self.entry(self._store.read(self.part.at(index), self.part.entry_size))

    def read_many(self, first: int, count: int) -> list[T]:
        """Entries that follow each other, by one read."""
        step = self.part.entry_size
        data = self._store.read(self.part.at(first), count * step)
        return [self.entry(data[at : at + step]) for at in range(0, len(data), step)]

    def read_with(self, count: int, *fields: str) -> list[tuple[int, T]]:
        """Those of the first entries of which a word of these names is not 0, by one read, each
        with its index."""
        step = self.part.entry_size
        data = self._store.read(self.part.offset, count * step)
        words = memoryview(data).cast("Q")
        used: set[int] = set()
        for field in fields:
            column = words[getattr(self._stored, field).offset // 8 :: step // 8].tolist()
            used.update([index for index, word in enumerate(column) if word])
        return [
            (index, self.entry(data[index * step : (index + 1) * step])) for index in sorted(used)
        ]

    def indices_with(self, count: int, field: str, value: int) -> Iterator[int]:
        """The indices of those of the first entries that have this word, by few reads."""
        step, offset = self.part.entry_size, getattr(self._stored, field).offset
        for first in range(0, count, _AT_ONCE):
            size = min(_AT_ONCE, count - first) * step
            words = memoryview(self._store.read(self.part.at(first), size)).cast("Q")
            column = words[offset // 8 :: step // 8].tolist()
            yield from (index for index, word in enumerate(column, first) if word == value)

    def read_words(self, first: int, count: int, *fields: str) -> list[tuple[int, ...]]:
        """Some fields of entries that follow each other, numbers in their order, by one read."""
        if not self.is_current:
            entries = self.read_many(first, count)
            return [tuple(getattr(entry, field) for field in fields) for entry in entries]
        step = self.part.entry_size
        words = _words(self._kind, fields, step)
        return [*words.iter_unpack(self._store.read(self.part.at(first), count * step))]

    def entry(self, data: bytes) -> T:
        """The entry that these bytes are in the arena."""
        whole = data if len(data) >= self._size else data.ljust(self._size, b"\0")
        if self.is_current:  # all but version 4
            return self._kind.from_buffer_copy(whole)
        return converted(self._stored.from_buffer_copy(whole), self._kind)

    def write(self, index: int, entry: T) -> None:
        """A whole entry. A tail that we do not know stays as it is."""
        data = bytes(entry if self._stored is self._kind else converted(entry, self._stored))
        self._store.write(self.part.at(index), data[: self.part.entry_size])

    def write_many(self, first: int, entries: Sequence[T]) -> None:
        """Whole entries that follow each other, by one write where we know all of each."""
        if self._size < self.part.entry_size:
            for index, entry in enumerate(entries, first):
                self.write(index, entry)
            return
        stored = self._stored
        whole = (entry if stored is self._kind else converted(entry, stored) for entry in entries)
        data = b"".join(bytes(entry)[: self.part.entry_size] for entry in whole)
        self._store.write(self.part.at(first), data)

    def write_packed(self, first: int, entries: Sequence[bytes]) -> None:
        """The same of entries that are packed as we know them."""
        if self.is_current and self._size >= self.part.entry_size:
            size = self.part.entry_size
            data = b"".join(entry[:size] for entry in entries)
            self._store.write(self.part.at(first), data)
        else:
            self.write_many(first, [self._kind.from_buffer_copy(entry) for entry in entries])

    def write_field(self, index: int, field: str, data: bytes) -> None:
        """Bytes of an entry, from the place of a field on; nothing where the arena has none."""
        offset = getattr(self._stored, field).offset
        if offset + len(data) <= self.part.entry_size:
            self._store.write(self.part.at(index) + offset, data)

    def write_each(self, field: str, words: Sequence[tuple[int, bytes]]) -> None:
        """The same bytes of many entries. Between them is what others may write."""
        offset = getattr(self._stored, field).offset
        start, step = self.part.offset + offset, self.part.entry_size
        write = self._store.write
        for index, data in words:
            if offset + len(data) <= step:
                write(start + index * step, data)

    def write_fields(self, index: int, entry: T, first: str, last: str) -> None:
        """All fields of an entry from one to another, by one write."""
        data = bytes(entry if self._stored is self._kind else converted(entry, self._stored))
        start, end = getattr(self._stored, first).offset, getattr(self._stored, last)
        self._store.write(self.part.at(index) + start, data[start : end.offset + end.size])


@cache
def _words(kind: type[ctypes.Structure], fields: Sequence[str], size: int) -> struct.Struct:
    """How these fields stand in an entry of so many bytes."""
    layout, end = "<", 0
    for field in fields:
        place = getattr(kind, field)
        layout += f"{place.offset - end}x{_NUMBERS[place.size]}"
        end = place.offset + place.size
    return struct.Struct(f"{layout}{size - end}x")
