"""The aggregates of an arena: tables of keys and words that the runtime counts up, for one reader.

An entry says where the memory of an aggregate is. Memory that no entry names is free. The ticket is
written last when an aggregate is made, and first when it ends. A thread of the target that comes
late finds another ticket and leaves the memory alone. A thread that has seen the ticket may still
be at work. So the memory of an ended aggregate belongs to its entry until all threads were stopped
once, and none of them is inside (native/src/runtime/aggregate.c): `reclaim`. That is done for many
of them together, or when there is no room for another one. When a marker of an ended one adds to
another, `part` looks before whether a thread is inside.

A reader that is killed leaves its entry: the next controller switches its markers off and frees it
(session/left_aggregates.py).

What this does not do: say what keys and words mean (events/aggregates.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import markerjit.abi as abi
from markerjit.abi import AGGREGATES, PAGE, AggregateEntry, Geometry, Part, page_up
from markerjit.arena.control import ControlBlock
from markerjit.arena.extents import Extent, gaps
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.arena.tables import Table
from markerjit.errors import Refused
from markerjit.proc.owner import Owner, from_entry, is_gone, ourselves
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    from markerjit.arena.blocks import Blocks

_WORD = 8
_TICKETS = (1 << 64) // AGGREGATES
_DIRECTORY = page_up(AGGREGATES * abi.AGGREGATE_SIZE)
ROOM_WITHOUT_KEY = 8
"""Numbers that all events share where there is no key. Threads that add the first events at the
same time may each assign a number."""


class Size(NamedTuple):
    """How large an aggregate is: words of a key, words that are counted up for each, and keys. Of
    pairs: `room` begins that wait at a time, with `held_words` behind the key of each, one set of
    `words`, and a list of `slow_room` pairs of `slow_words`; where they are divided, another set of
    words for each of `group_room` groups (a power of two) with keys of `group_words`. Of an
    allocator there are as many blocks (blocks.py)."""

    key_words: int
    words: int
    room: int
    held_words: int = 0
    slow_words: int = 0
    slow_room: int = 0
    group_words: int = 0
    group_room: int = 0

    @property
    def mask(self) -> int:
        """Places for keys, twice as many as there may be, less one."""
        return (1 << (2 * self.room - 1).bit_length()) - 1

    @property
    def place_words(self) -> int:
        """Words of a place for a key: its state, the key, and what is held."""
        return 1 + self.key_words + self.held_words

    @property
    def sets(self) -> int:
        """Sets of words."""
        return 1 + self.group_room if self.held_words else self.room

    @property
    def group_mask(self) -> int:
        """Places for the keys of groups, less one."""
        return 2 * self.group_room - 1 if self.group_room else 0

    @property
    def groups_at(self) -> int:
        """Bytes before the places for the keys of groups."""
        return (self.mask + 1) * _WORD * self.place_words

    @property
    def key_bytes(self) -> int:
        """Bytes of the places for keys, whole pages."""
        groups = 2 * self.group_room * _WORD * (1 + self.group_words)
        return page_up(self.groups_at + groups)

    @property
    def stride(self) -> int:
        """Bytes of the words of a ring, whole pages."""
        return page_up(_WORD * (abi.MISSED + self.words * self.sets))

    @property
    def slow_bytes(self) -> int:
        """Bytes of the list of slow pairs, or of blocks, whole pages."""
        return page_up(_WORD * self.slow_words * self.slow_room)


class Ticks(NamedTuple):
    """The clock of pairs: the nanoseconds of a tick times 2 ** 32, and the number of ticks after
    which a waiting begin may give its place to another begin."""

    tick_ns: int = 0
    forget: int = 0


NO_TICKS = Ticks()
"""The clock of an aggregate that needs none."""


class Aggregate(NamedTuple):
    """An aggregate that exists. `extent` is its memory, offsets; `keys`, `values` and `slow` are in
    it, and the values of the next ring `stride` bytes further."""

    ticket: int
    size: Size
    keys: int
    values: int
    stride: int
    slow: int
    extent: Extent
    owner: Owner

    @property
    def is_left(self) -> bool:
        """Whether its reader has ended."""
        return is_gone(self.owner)


class Words(NamedTuple):
    """A copy of an aggregate. `keys` are the keys with their numbers, in no order; a key may have
    more than one. `rings` are the words of each ring: first those of what was missed, then
    those of the numbers in use."""

    keys: Sequence[tuple[bytes, int]]
    rings: Sequence[bytes]


class Pairs(NamedTuple):
    """A copy of pairs: the words of each ring, how many begins wait, and the keys of groups with
    their numbers, as of Words. The words of pairs without a group are before those of the first
    one."""

    rings: Sequence[bytes]
    waiting: int
    keys: Sequence[tuple[bytes, int]] = ()


class Aggregates:
    """The aggregates of the arena of process `pid`. A caller that makes or frees one must hold the
    target's lock."""

    def __init__(
        self, pid: int, store: FileStore | MemoryStore, control: ControlBlock, geometry: Geometry
    ) -> None:
        self._pid = pid
        self._store = store
        self._control = control
        self._rings = geometry.rings
        part = geometry.aggregates
        is_there = part.entries * PAGE > _DIRECTORY
        entries = Part(part.offset, abi.AGGREGATE_SIZE, AGGREGATES if is_there else 0)
        self._table = Table(store, entries, AggregateEntry)
        self._memory = Extent(part.offset + _DIRECTORY, part.offset + part.size)

    def all(self) -> list[Aggregate]:
        """The aggregates that exist. Entries that make no sense are left out: the target can write
        there."""
        if not self._table.part.entries or not self._control.number("aggregates_made"):
            return []
        entries = self._table.read_with(AGGREGATES, "ticket")
        made = (self._checked(entry) for _, entry in entries)
        return [aggregate for aggregate in made if aggregate]

    def find(self, ticket: int) -> Aggregate | None:
        """The aggregate with this ticket; None where it is not there any more."""
        entry = self._table.read(ticket % AGGREGATES)
        return self._checked(entry) if ticket and entry.ticket == ticket else None

    def make(self, size: Size, ticks: Ticks = NO_TICKS) -> Aggregate:
        """A new aggregate, with us as its reader. Raises Refused where there is no room."""
        count = self._table.part.entries
        taken = dict(self._table.read_with(count, "ticket", "went"))
        index = next((at for at in range(count) if at not in taken), None)
        keys, stride = size.key_bytes, size.stride
        slow = keys + stride * self._rings
        needed = self._needed(size)
        gaps = self._gaps(taken.items())
        room = next((gap for gap in gaps if _size(gap) >= needed), None)
        if index is None or room is None:
            raise Refused(self._no_room(needed, size, full=index is None))
        extent = Extent(room.start, room.start + needed)
        self._clear(extent)
        # The target can write any number there: a ticket has to fit a word, and is never 0.
        made = (self._control.number("aggregates_made") + 1) % _TICKETS or 1
        self._control.write("aggregates_made", made)
        ticket = made * AGGREGATES + index
        aggregate = Aggregate(
            ticket, size, extent.start, extent.start + keys, stride, extent.start + slow, extent,
            ourselves(),
        )  # fmt: skip
        entry = AggregateEntry(
            key_words=size.key_words, mask=size.mask, room=size.room, words=size.words,
            keys=aggregate.keys, values=aggregate.values, stride=stride,
            owner=aggregate.owner.entry(), offset=extent.start, size=needed,
            held_words=size.held_words, slow_words=size.slow_words, slow_room=size.slow_room,
            slow=aggregate.slow, tick_ns=ticks.tick_ns, forget=ticks.forget,
            group_words=size.group_words, group_mask=size.group_mask,
        )  # fmt: skip
        self._table.write(index, entry)
        self._write(ticket, "ticket", ticket)
        return aggregate

    def _gaps(self, entries: Iterable[tuple[int, AggregateEntry]]) -> Iterator[Extent]:
        """The memory that belongs to no aggregate of these entries, not even to an ended one."""
        taken = [
            _extent(entry)
            for at, entry in entries
            if (self._checked(entry) if entry.ticket else _has_gone(at, entry))
        ]
        return gaps(self._memory, taken)

    def _needed(self, size: Size) -> int:
        return size.key_bytes + size.stride * self._rings + size.slow_bytes

    def free(self, ticket: int) -> None:
        """End an aggregate: nothing is added to it any more. Its pages are given back to the
        machine; its addresses can be used again only after `reclaim`."""
        aggregate = self.find(ticket)
        if aggregate:
            self._write(ticket, "went", ticket)
            self._write(ticket, "ticket", 0)
            self._store.release(aggregate.extent.start, _size(aggregate.extent))

    @property
    def ended(self) -> int:
        """How many have ended and have their memory still, which `reclaim` may free."""
        return sum(entry.lost != abi.MEMORY_LOST for entry in self._went())

    def reclaim(self, is_entered: Callable[[int], bool]) -> None:
        """Free the memory of ended aggregates. Since each of them ended, the caller has stopped all
        threads of the process for a moment. `is_entered` says whether a thread is in the memory of
        a ticket by locked instructions: then the memory is left for later."""
        for entry in self._went():
            is_left = entry.lost == abi.MEMORY_LEFT
            if is_left or (entry.lost != abi.MEMORY_LOST and not is_entered(int(entry.went))):
                self._write(int(entry.went), "went", 0)

    def has_gone(self, ticket: int) -> bool:
        """Whether the aggregate with this ticket has ended, and its memory is its own still."""
        if not ticket:
            return False
        entry = self._table.read(ticket % AGGREGATES)
        return bool(entry.went == ticket and not entry.ticket)

    def part(self, ticket: int, is_entered: Callable[[int], bool]) -> None:
        """Call this before a marker that added to this aggregate gets another one. If the old
        aggregate has ended and no thread is inside by locked instructions, its memory waits for
        nothing but a stop of all threads, and any marker may get another one. If a thread is
        inside, nothing will tell when it leaves, so the memory is never reused."""
        if self.has_gone(ticket):
            lost = abi.MEMORY_LOST if is_entered(ticket) else abi.MEMORY_LEFT
            self._table.write_field(ticket % AGGREGATES, "lost", lost.to_bytes(4, "little"))

    def _went(self) -> list[AggregateEntry]:
        """Entries whose memory may be in use, though they have no ticket."""
        if not self._table.part.entries or not self._control.number("aggregates_made"):
            return []
        entries = self._table.read_with(AGGREGATES, "went")
        return [entry for at, entry in entries if _has_gone(at, entry)]

    def _write(self, ticket: int, field: str, value: int) -> None:
        self._table.write_field(ticket % AGGREGATES, field, value.to_bytes(_WORD, "little"))

    def used(self, aggregate: Aggregate) -> int:
        """How many keys it has."""
        entry = self._table.read(aggregate.ticket % AGGREGATES)
        size = aggregate.size
        return min(int(entry.used), size.group_room if size.held_words else size.room)

    def copy(self, aggregate: Aggregate) -> Words:
        """All that is in it now. The keys are read after the numbers in use are known, so that a
        key which comes meanwhile is left for the next copy."""
        used = self.used(aggregate)
        rings = self._values(aggregate, used)
        size = aggregate.size
        return Words(self._keys(aggregate.keys, size.key_words, size.mask, used), rings)

    def copy_pairs(self, aggregate: Aggregate) -> Pairs:
        """All that is in an aggregate of pairs now."""
        places = aggregate.size.mask + 1
        states = memoryview(self._store.read(aggregate.keys, places * _WORD)).cast("Q")
        waiting = sum(state & abi.PLACE_STATE == abi.PLACE_FULL for state in states)
        size, used = aggregate.size, self.used(aggregate)
        rings = self._values(aggregate, 1 + used)
        if not size.group_room:
            return Pairs(rings, waiting)
        groups = aggregate.keys + size.groups_at
        return Pairs(rings, waiting, self._keys(groups, size.group_words, size.group_mask, used))

    def copy_blocks(self, aggregate: Aggregate) -> Blocks:
        """All that is in the aggregate of an allocator now."""
        from markerjit.arena.blocks import Blocks, blocks_in

        words = self.copy(aggregate)
        blocks, threads = blocks_in(self._store, aggregate.slow, aggregate.size.slow_room)
        entry = self._table.read(aggregate.ticket % AGGREGATES)
        return Blocks(words.keys, words.rings, blocks, threads, int(entry.most), int(entry.most_at))

    def has_room(self, size: Size) -> bool:
        """Whether there is room for such an aggregate now."""
        return self._needed(size) <= self._largest_gap()

    def _largest_gap(self) -> int:
        entries = self._table.read_with(self._table.part.entries, "ticket", "went")
        return max(map(_size, self._gaps(entries)), default=0)

    def most_blocks(self, size: Size, most: int) -> int:
        """The number of blocks that fit beside such an aggregate: a power of two, not over `most`;
        0 if there is no room."""
        rest = self._largest_gap() - self._needed(size)
        places = min(most, rest // (_WORD * max(size.slow_words, 1)))
        return 1 << places.bit_length() - 1 if places > 0 else 0

    def take_slow(self, aggregate: Aggregate, *, is_over: bool = False) -> list[bytes]:
        """The slow pairs that were not taken before, in their order, up to the first that is still
        being written. When all `is_over`, an unfinished pair is skipped. An entry that makes no
        sense is left out: the target can write there."""
        size = aggregate.size
        entry = self._table.read(aggregate.ticket % AGGREGATES)
        head, taken = int(entry.slow_head), int(entry.slow_read)
        if not size.slow_room or not 0 < head - taken <= size.slow_room:
            return []
        step = _WORD * size.slow_words
        rows: list[bytes] = []
        for number in range(taken, head):
            row = self._store.read(aggregate.slow + number % size.slow_room * step, step)
            if int.from_bytes(row[:_WORD], "little") == number + 1:
                rows.append(row)
            elif not is_over:
                head = number
                break
        self._write(aggregate.ticket, "slow_read", head)
        return rows

    def _values(self, aggregate: Aggregate, sets: int) -> list[bytes]:
        """The words of each ring: those of what was missed, and of so many keys."""
        size = _WORD * (abi.MISSED + aggregate.size.words * sets)
        return [
            self._store.read(aggregate.values + ring * aggregate.stride, size)
            for ring in range(self._rings)
        ]

    def _keys(self, places: int, words: int, mask: int, used: int) -> list[tuple[bytes, int]]:
        """The keys that are published, with their numbers, which are in use."""
        step = _WORD * (1 + words)
        table = self._store.read(places, (mask + 1) * step)
        states = memoryview(table).cast("I")[:: step // 4].tolist()
        return [
            (table[at * step + _WORD : (at + 1) * step], state - 2)
            for at, state in enumerate(states)
            if 0 <= state - 2 < used
        ]

    def _clear(self, extent: Extent) -> None:
        """Write zeros over what an earlier aggregate left."""
        if self._store.gives_back:
            self._store.read(extent.end - 1, 1)  # fails where the file ends before
            if not any(self._store.used(extent.start, _size(extent))):
                return
            self._store.release(extent.start, _size(extent))
        for at in range(extent.start, extent.end, 1 << 20):
            size = min(1 << 20, extent.end - at)
            if self._store.read(at, size) != bytes(size):  # at once, not each byte
                self._store.write(at, bytes(size))

    def _checked(self, entry: AggregateEntry) -> Aggregate | None:
        size = Size(
            int(entry.key_words), int(entry.words), int(entry.room), int(entry.held_words),
            int(entry.slow_words), int(entry.slow_room), int(entry.group_words),
            (int(entry.group_mask) + 1) // 2,
        )  # fmt: skip
        extent = _extent(entry)
        is_sound = (
            self._memory.start <= extent.start < extent.end <= self._memory.end
            and size.key_words <= abi.MAX_KEY_WORDS
            and entry.mask == size.mask
            and size.group_words <= abi.MAX_KEY_WORDS
            and entry.group_mask == size.group_mask
            and entry.keys == extent.start
            and extent.start <= entry.values <= extent.end
            and _WORD * (abi.MISSED + size.words * size.sets) <= entry.stride
            and entry.values + entry.stride * self._rings == entry.slow
            and entry.slow + size.slow_bytes == extent.end
            and size.key_bytes <= entry.values - entry.keys
        )
        if not is_sound:
            return None
        return Aggregate(
            int(entry.ticket), size, int(entry.keys), int(entry.values), int(entry.stride),
            int(entry.slow), extent, from_entry(entry.owner),
        )  # fmt: skip

    def _no_room(self, needed: int, size: Size, *, full: bool) -> str:
        if full:
            return f"process {self._pid} has {AGGREGATES} aggregates; end some of them"
        whole = _size(self._memory)
        what, option = ("begins", "--room") if size.held_words else ("keys", "--keys or --room")
        if size.group_room:
            what, option = f"begins and {size.group_room} keys", "--room or --keys"
        return (
            f"{size.room} {what} take {-(-needed >> 10)} KiB, and process {self._pid} has room for "
            f"{whole >> 10} KiB of aggregates; ask for fewer {what} ({option}), or end another one"
        )


def _has_gone(at: int, entry: AggregateEntry) -> bool:
    """Whether the entry at this place is of an aggregate that has ended, and has its memory."""
    return bool(entry.went % AGGREGATES == at and not entry.ticket)


def _extent(entry: AggregateEntry) -> Extent:
    """The memory that an entry names. The target can write anything there."""
    return Extent(int(entry.offset), int(entry.offset + entry.size))


def _size(extent: Extent) -> int:
    return extent.end - extent.start
