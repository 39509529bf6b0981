"""The table of patches: which bytes of code are ours to change, and how.

It is a hash table by address, in which the SIGTRAP handler looks too (trap.c). An entry says what
stands at a head while it is closed and while it is open, and where a breakpoint there leads; the
code says which of the two it is. Entries stay: a thread may be on its way here, and the child of a
fork shares the table and may still have the code. docs/decisions/0019-one-table-of-patches.md

A hundred thousand heads are written like one: the pages of the table that have them are read, and
written again where they were changed, pages that follow each other at once. The native part does it
for many (patch_copy.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from markerjit.abi import Geometry, Part, PatchEntry
from markerjit.arena.control import ControlBlock
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.arena.versions import CURRENT, Layout
from markerjit.errors import Refused
from markerjit.model import Mode, RemoteAddress, new
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:  # for many heads at once
    from markerjit.arena.patch_copy import PatchCopy

_PER_CHUNK = 64
_MOST_CHUNKS = 256
"""Chunks that are read or written at once."""
_MANY = 512
"""Heads, or addresses, that the native part puts into the table."""
_FURTHEST = 1 << 13
"""Entries that are looked at for one address: a hostile table has no free place."""
_MODES = tuple(Mode)
_NUMBERS = {mode: number for number, mode in enumerate(_MODES, 1)}
_ADDRESS = struct.Struct("<Q")
_WHOLE = struct.Struct("<QQQBBBBBBbx16s16s")
_BODY, _SLOT, _GONE, _SIZE, _PLANTED = (
    PatchEntry.body.offset,
    PatchEntry.slot.offset,
    PatchEntry.gone.offset,
    PatchEntry.size.offset,
    PatchEntry.planted.offset,
)


class PatchKind(IntEnum):
    """What an entry is of: MJ_PATCH_* of abi.h."""

    HEAD = 0
    SHORT = 1
    HOLE = 2


class Head(NamedTuple):
    """A head that a switch opens, or the hole of one.

    before, after  its bytes while it is closed, and while it is open
    body           where a thread goes on that comes to its breakpoint; 0: it is opened otherwise
    covers         bytes of the instructions that are lost with it; 0: those of it
    reach          the displacement of the short jump, where that opens it
    """

    address: RemoteAddress
    before: bytes
    after: bytes
    mode: Mode
    slot: RemoteAddress
    body: RemoteAddress
    kind: PatchKind = PatchKind.HEAD
    covers: int = 0
    reach: int = 0


class Patch(NamedTuple):
    """An entry of the table, as struct mj_patch has it (abi.h)."""

    address: int
    body: int
    slot: int
    gone: int
    mode: int
    size: int
    kind: int
    planted: int
    covers: int
    reach: int
    before: bytes
    after: bytes


def _patch_of(data: bytes) -> Patch:
    """The entry that these bytes are in an arena. Fields that its version does not have are 0."""
    return new(Patch, _WHOLE.unpack(data[: _WHOLE.size].ljust(_WHOLE.size, b"\0")))


class Patches:
    """The patches of an arena."""

    def __init__(
        self,
        pid: int,
        store: FileStore | MemoryStore,
        control: ControlBlock,
        layout: Layout,
        geometry: Geometry,
    ) -> None:
        self._pid = pid
        self._store = store
        self._control = control
        self._part = geometry.patches
        self._place = layout.patch_place
        self._keeps = layout is CURRENT
        self._pages: Pages | None = None
        self._seen = 0
        self._entered: Sequence[Head] = ()
        self._heads = self._heads_at = 0

    @property
    def changed(self) -> int:
        """Another number when the table was changed, by anybody: odd while it is written."""
        return self._control.number("patches_changed")

    @property
    def heads(self) -> int:
        """Another number when entries may have come, or say something else of their heads. Not for
        a breakpoint that we have planted or removed in one that is known. While the table is
        written, or after a controller has died in that, it is another one each time."""
        changed = self.changed
        if changed % 2 or changed != self._heads_at:
            self._heads, self._heads_at = self._heads + 1, changed
        return self._heads

    def look(self) -> Pages:
        """The table as it is at this moment, and a moment later: others may be changing it."""
        return Pages(self._store, self._part, self._place)

    def at(self, address: RemoteAddress) -> Patch | None:
        """The entry of an address."""
        return self.look().at(address)

    def have(self, heads: Sequence[Head]) -> bool:
        """Whether the table has all of these heads as they are, and says no more of any."""
        pages = self.look()
        starts = pages.starts([head.address for head in heads])
        for head, start in zip(heads, starts, strict=True):
            index, is_new = pages.find_from(start, head.address)
            expected = _packed(head, head.body)[: self._part.entry_size]
            if index is None or is_new or not pages.have(index, 0, expected):
                return False
        return True

    def entries(self, besides: Container[int] = ()) -> Iterator[Patch]:
        """All entries but for those of the addresses `besides`, in no order; none where the target
        has closed its descriptor of the arena: to look for them in its memory would fill that."""
        if self._control.now().patches_used:
            step, part = self._part.entry_size, self._part
            for start, end in self._store.used(part.offset, part.size):
                first, behind = (start - part.offset) // step, -(-(end - part.offset) // step)
                for index in range(first, behind, _PER_CHUNK):
                    count = min(_PER_CHUNK, behind - index)
                    data = self._store.read(part.at(index), count * step)
                    addresses = struct.iter_unpack(f"<Q{step - _ADDRESS.size}x", data)
                    for at, (address,) in zip(range(0, len(data), step), addresses, strict=True):
                        if address and address not in besides:
                            yield _patch_of(data[at : at + step])

    # ---- the caller must hold the lock ---------------------------------------------------------

    def put(self, heads: Sequence[Head]) -> None:
        """Have these heads in the table, before they are opened. The same heads are not looked at
        again while nothing else has changed the table.

        Raises Refused when the table is full, and for a breakpoint at an address from which one led
        elsewhere before. Nothing is written then.
        """
        pages = self._held()
        if heads is self._entered:
            self._pages = pages
            return
        self._entered = ()
        if self._is_native(len(heads)):
            self._put_many(heads)
            return
        used = before = int(self._control.now().patches_used)
        room = self._room
        shared: tuple[object, ...] = ()  # by most heads
        entry = expected = b""
        starts = pages.starts([head.address for head in heads])
        for head, start in zip(heads, starts, strict=True):
            index, is_new = pages.find_from(start, head.address)
            if head[1:] != shared:
                shared, entry = head[1:], _packed(head, head.body)[: self._part.entry_size]
                expected = entry[_SLOT:]
            if index is not None and not is_new:
                if head.body or not pages.have(index, _SLOT, expected):
                    self._renew(pages, index, head)
                continue
            used += 1
            if index is None or used > room:
                raise self._full()
            pages.add(index, head.address, entry)
        if used != before:
            self._control.write("patches_used", used)
        self._write(pages)
        self._pages = pages
        self._entered = heads

    @property
    def _room(self) -> int:
        return self._part.entries // 4 * 3

    def _is_native(self, count: int) -> bool:
        """Whether so many are put into the table by the native part, which knows our version, and a
        file."""
        is_ours = self._keeps and self._part.entry_size == _WHOLE.size
        return count >= _MANY and is_ours and isinstance(self._store, FileStore)

    def _copy(self) -> PatchCopy:
        from markerjit.arena.patch_copy import PatchCopy

        assert isinstance(self._store, FileStore)
        return PatchCopy(self._store, self._part)

    def _put_many(self, heads: Sequence[Head]) -> None:
        before = int(self._control.now().patches_used)
        with self._copy() as copy:
            used = copy.enter(_packed_all(heads), before, self._room)
            if not isinstance(used, int):
                raise self._full() if used.head is None else self._led_elsewhere(heads[used.head])
            if used != before:
                self._control.write("patches_used", used)
            self._write(copy)
        self._pages = self.look()
        self._entered = heads

    def _full(self) -> Refused:
        return Refused(f"the arena has room for {self._room} places that are switched")

    def _led_elsewhere(self, head: Head) -> Refused:
        return Refused(
            f"a breakpoint at {head.address:#x} led to code that process {self._pid} has "
            "unloaded since, and a child of it may still have that code; switch without "
            "breakpoints, or restart the process"
        )

    def have_planted(self, breakpoints: Sequence[tuple[RemoteAddress, RemoteAddress]]) -> bool:
        """Whether breakpoints of ours stand at these addresses, and lead to these bodies."""
        if not breakpoints:
            return True
        if self._is_native(len(breakpoints)):
            with self._copy() as copy:
                return copy.have_planted(breakpoints)
        pages = self._held()
        self._pages = pages  # nothing is changed in them
        return all(pages.has_planted(address, body) for address, body in breakpoints)

    def mark(
        self,
        planted: Sequence[RemoteAddress] = (),
        removed: Sequence[RemoteAddress] = (),
    ) -> None:
        """Write down at which addresses a breakpoint of ours stands, and at which none does: either
        with the journal open, or as it was just seen."""
        if not planted and not removed:
            return
        pages, before = self._held(), self.changed
        if self._is_native(len(planted) + len(removed)):
            with self._copy() as copy:
                for addresses, stands in ((planted, True), (removed, False)):
                    if addresses:
                        copy.mark(addresses, planted=stands)
                self._write(copy)
            self._pages = self.look()
        else:
            for addresses, stands in ((planted, True), (removed, False)):
                for address in addresses:
                    index, is_new = pages.find(address)
                    if index is not None and not is_new:
                        pages.set(index, _PLANTED, bytes([stands]))
            self._write(pages)
            self._pages = pages
        if self._heads_at == before:
            self._heads_at = self.changed

    def forget(self, addresses: Iterable[RemoteAddress]) -> None:
        """The code there is gone, and what comes in its place is not ours.

        In this process: the child of a fork shares the table and may still have the code. So the
        entry stays, and what it says of breakpoints holds for others only.
        """
        pages = self._held()
        self._entered = ()
        for address in addresses:
            index, is_new = pages.find(address)
            if index is not None and not is_new:
                pages.set(index, _GONE, b"\1")
                pages.set(index, _SIZE, b"\0")
                pages.set(index, _PLANTED, b"\0")
        self._write(pages)
        self._pages = pages

    def _renew(self, pages: Pages, index: int, head: Head) -> None:
        before = pages.packed(index)
        body, gone, planted = _of_breakpoint(before)
        if head.body and body not in (0, head.body):
            raise self._led_elsewhere(head)
        after = _packed(head, head.body or body, not head.body and gone, planted)[: len(before)]
        if after != before:
            pages.set(index, 0, after)

    def _held(self) -> Pages:
        """The pages that were read before, if the table has not changed since. A controller that
        changes it announces that first, and holds the lock, as we do now."""
        pages, changed = self._pages, self.changed
        if pages is None or not self._keeps or changed != self._seen:
            pages, self._seen = self.look(), changed
            self._entered = ()
        self._pages = None  # until it is written what is changed in them
        return pages

    def _write(self, pages: Pages | PatchCopy) -> None:
        """Write what is changed. A reader without the lock may see a part of it. The number says
        that there is more to come. [seqlock.rst in the kernel's Documentation/locking]"""
        if pages.is_changed:
            self._note_changed((self._seen + 1) | 1)
            pages.write()
            self._note_changed(self._seen + 1)

    def _note_changed(self, number: int) -> None:
        self._seen = number % (1 << 32)
        self._control.write("patches_changed", self._seen)


class Pages:
    """Pages of the table, read when they are needed and kept."""

    def __init__(
        self,
        store: FileStore | MemoryStore,
        part: Part,
        place: Callable[[int, int], int],
    ) -> None:
        self._store = store
        self._part = part
        self._place = place
        self._step = part.entry_size
        self._chunks: dict[int, bytearray] = {}
        self._addresses: dict[int, list[int]] = {}  # of the entries, by chunk, and a 0 behind them
        self._known: set[int] = set()  # all of them
        self._full: dict[int, int] = {}  # places in chunks: none is free between an index and that
        self._dirty: set[int] = set()
        self._new: list[tuple[int, int, int]] = []  # chunk, place in it, and address
        self._size = min(self._step, _WHOLE.size)
        self._layout = struct.Struct(f"<Q{self._step - _ADDRESS.size}x")
        self._mask = part.entries - 1
        self._tries = min(part.entries, _FURTHEST)

    @property
    def is_changed(self) -> bool:
        """Whether there is something to be written."""
        return bool(self._dirty or self._new)

    def find(self, address: int) -> tuple[int | None, bool]:
        """Where an address stands, or may be put: and whether that is new. None without a place."""
        return self.find_from(self._place(address, self._mask), address)

    def starts(self, addresses: Iterable[int]) -> list[int]:
        """Where the search for each address begins. That is read, what stands together at once."""
        place, mask = self._place, self._mask
        starts = [place(address, mask) for address in addresses]
        numbers = {start // _PER_CHUNK for start in starts}
        for first, count in _runs(numbers.difference(self._chunks)):
            self._read(first, count)
        return starts

    def find_from(self, index: int, address: int) -> tuple[int | None, bool]:
        """As `find`, from where the search begins."""
        tries, known, full = self._tries, self._known, self._full
        while tries > 0:
            number, first = divmod(index, _PER_CHUNK)
            addresses = self._addresses.get(number) or self._read(number)
            place = full[index] = addresses.index(0, full.get(index, first))
            is_new = address not in known or address not in addresses[first:place]
            if not is_new:
                place = addresses.index(address, first)
            away = place - first
            if away >= tries:
                break
            if place < len(addresses) - 1:
                return index + away, is_new
            tries -= away
            index = index + away & self._mask
        return None, False

    def at(self, address: int) -> Patch | None:
        """The entry of an address."""
        index, is_new = self.find(address)
        return None if index is None or is_new else self.entry(index)

    def have(self, index: int, place: int, data: bytes) -> bool:
        """Whether an entry has these bytes at this place."""
        chunk, offset = self._at(index)
        return chunk.startswith(data, offset + place)

    def entry(self, index: int) -> Patch:
        """An entry."""
        return _patch_of(self.packed(index))

    def packed(self, index: int) -> bytes:
        """The same, as it stands in the table."""
        chunk, offset = self._at(index)
        return bytes(chunk[offset : offset + self._step])

    def has_planted(self, address: RemoteAddress, body: RemoteAddress) -> bool:
        """Whether a breakpoint of ours stands there, and leads to this body. While a change is in
        the making the journal knows more."""
        index, is_new = self.find(address)
        if index is None or is_new:
            return False
        entered, gone, planted = _of_breakpoint(self.packed(index))
        return entered == body and bool(planted) and not gone

    def had(self, address: RemoteAddress, body: RemoteAddress) -> bool:
        """Whether a breakpoint of ours ever stood there, or was to, and led to this body."""
        entry = self.at(address)
        return bool(entry and entry.body == body)

    def add(self, index: int, address: int, entry: bytes) -> None:
        """A new entry, packed for any address. Its own is written last: the handler believes an
        entry that has one."""
        number, place = divmod(index, _PER_CHUNK)
        start = place * self._step
        chunk = self._chunks[number]  # `find` has read it
        chunk[start + _ADDRESS.size : start + self._size] = entry[_ADDRESS.size :]
        self._known.add(address)
        self._addresses[number][place] = address
        self._new.append((number, start, address))

    def set(self, index: int, place: int, data: bytes) -> None:
        """Bytes of an entry, which keeps its address; it is written only if they are others."""
        chunk, offset = self._at(index)
        start = offset + place
        end = start + len(data)
        if chunk[start:end] != data:
            chunk[start:end] = data
            self._dirty.add(index // _PER_CHUNK)

    def write(self) -> None:
        """All that was changed: new entries at first without their addresses."""
        put, chunks = _ADDRESS.pack_into, self._chunks
        self._dirty.update({number for number, _, _ in self._new})
        for number, place, _ in self._new:
            put(chunks[number], place, 0)
        self._write_runs(self._dirty)
        if self._new:
            for number, place, address in self._new:
                put(chunks[number], place, address)
            self._write_runs(self._dirty)
        self._dirty, self._new = set(), []

    def _write_runs(self, numbers: Iterable[int]) -> None:
        for first, count in _runs(numbers):
            run = (self._chunks[number] for number in range(first, first + count))
            self._store.write(self._part.at(first * _PER_CHUNK), b"".join(run))

    def _at(self, index: int) -> tuple[bytearray, int]:
        number = index // _PER_CHUNK
        if number not in self._chunks:
            self._read(number)
        return self._chunks[number], index % _PER_CHUNK * self._step

    def _read(self, first: int, count: int = 1) -> list[int]:
        """Read chunks. The result are the addresses of the first one's entries."""
        size = _PER_CHUNK * self._step
        begin = self._part.at(first * _PER_CHUNK)
        data = self._store.read(begin, min(count * size, self._part.end - begin))
        for number in range(first, first + count):
            chunk = data[(number - first) * size : (number - first + 1) * size]
            self._chunks[number] = bytearray(chunk)
            addresses = [address for (address,) in self._layout.iter_unpack(chunk)]
            self._known.update(addresses)
            self._addresses[number] = [*addresses, 0]
        return self._addresses[first]


def _runs(numbers: Iterable[int]) -> Iterator[tuple[int, int]]:
    """The first of numbers that follow each other, and how many they are; not too many of them."""
    first = count = 0
    for number in sorted(numbers):
        if count and (number != first + count or count == _MOST_CHUNKS):
            yield first, count
            count = 0
        if not count:
            first = number
        count += 1
    if count:
        yield first, count


def mode_of(entry: Patch) -> Mode | None:
    """How the head of an entry is opened; None for a way that we do not know."""
    return _MODES[entry.mode - 1] if 0 < entry.mode <= len(_MODES) else None


def _packed_all(heads: Sequence[Head]) -> bytearray:
    """All of them, one behind the other. Those that are alike are filled in by columns."""
    from array import array

    from markerjit.runs import Run, parts_of

    packed = bytearray()
    for part in parts_of(heads):
        if isinstance(part, Run):
            entries = bytearray(_packed(part.first, part.first.body)) * len(part)
            words = memoryview(entries).cast("Q")
            for field, place in (("address", 0), ("body", _BODY)):
                column = part.columns.get(Head._fields.index(field))
                if column is not None:
                    words[place // 8 :: _WHOLE.size // 8] = memoryview(array("Q", column))
            packed += entries
        else:
            packed += b"".join(_packed(head, head.body) for head in part)
    return packed


def _of_breakpoint(entry: bytes) -> tuple[int, int, int]:
    """The `body` of a packed entry, whether it is `gone`, and whether the breakpoint is
    `planted`."""
    return _ADDRESS.unpack_from(entry, _BODY)[0], entry[_GONE], entry[_PLANTED]


def _packed(head: Head, body: int, gone: int = 0, planted: int = 0) -> bytes:
    """struct mj_patch."""
    address, before, after, mode, slot, _, kind, covers, reach = head
    return _WHOLE.pack(
        address, body, slot, gone, _NUMBERS[mode], len(before), kind, planted, covers, reach,
        before, after,
    )  # fmt: skip
