"""Islands: code of ours within reach of an object, where stubs and detours stand.

A jump with a displacement of 32 bits reaches 2 GiB. A program that is linked to run anywhere lies
at 0x55..., and the arena at 0x7f...; so bytes of the memfd are mapped near the object. They can be
executed there and not written; they are written through the memfd. They lie behind the arena in it,
where nothing is mapped in front of them: the arena's own code is as small as it ever was.
Recorders and units are called through a slot, by a whole address: they need no island and stand in
none.

    1  a place: every byte of the island within reach of every byte of the object's code, and out of
       the way of what grows: the heap above its end, stacks below their start
    2  the table says where it will be
    3  a borrowed thread maps it, only if the place is free still; then it is looked at

A controller that dies between 2 and 3 leaves an entry without a mapping, which is free for the
next one; one that dies behind 3 leaves an island that the next one uses. So nothing of it is for
repair. An island stays when its object is unloaded, and a fork's child has it too: a thread may be
in it.

What this does not do: say which code stands there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from markerjit.abi import ISLANDS_SIZE, PAGE, Geometry, IslandEntry
from markerjit.arena.code import write_code
from markerjit.arena.extents import Extent, gaps
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.arena.tables import Table
from markerjit.errors import Refused
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.tuples import NamedTuple

if TYPE_CHECKING:
    # A look at an arena makes no system call in the target.
    from markerjit.remote.calls import Call, Caller

SIZE = 16 * PAGE
"""Of a new island, at least."""
REACH = (1 << 31) - (1 << 16)
"""From any byte to any byte. A displacement counts from the end of its instruction, and a stub has
some of them."""
GUARD = 256 * PAGE
"""Bytes that stay free at both ends of a gap: stack_guard_gap of the kernel, mm/mmap.c."""
HEAP_ROOM = 1 << 30
"""Bytes above the end of the heap that are the heap's."""
STACK_ROOM = 64 << 20
"""Bytes below a stack that are the stack's: eight times what a stack usually may have."""
HIGHEST = (1 << 47) - PAGE
_LOWEST = 1 << 20
"""Above vm.mmap_min_addr, and above what a NULL pointer with a large index reaches."""

_PROT_READ, _PROT_EXEC = 1, 4
_MAP_SHARED, _MAP_FIXED_NOREPLACE = 1, 0x100000
_MADV_DONTDUMP = 16
_EEXIST = 17
_TRIES = 3
_ALIGN = 16


class Span(NamedTuple):
    """Addresses of the target from `start` up to `end`."""

    start: RemoteAddress
    end: RemoteAddress


class Island(NamedTuple):
    """An island: its place in the table, where it is, how much of it is used, and which bytes of
    the memfd it is."""

    number: int
    start: RemoteAddress
    size: int
    used: int
    offset: int

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.start + self.size

    @property
    def place(self) -> RemoteAddress:
        """Where its next code will stand."""
        return RemoteAddress(self.start + _aligned(self.used))


class Process(NamedTuple):
    """The facts of the target that are needed to make an island.

    maps        looks what is mapped now
    caller      makes system calls there
    descriptor  the number that the arena's memfd has in the target, None where it is closed
    heap        where the heap begins (start_brk)
    """

    maps: Callable[[], Sequence[Mapping]]
    caller: Caller
    descriptor: int | None
    heap: int


class Filling:
    """Code that an island gets by one write, `written` at the end. Its last byte is where the next
    code may stand."""

    def __init__(self, islands: Islands, island: Island) -> None:
        self._islands = islands
        self._island = island
        self._start, self._end = island.place, island.end
        self._code = bytearray()

    @property
    def room(self) -> int:
        """Bytes that are left."""
        return self._end - self.place

    @property
    def place(self) -> RemoteAddress:
        """Where the next code will stand."""
        return RemoteAddress(self._start + _aligned(len(self._code)))

    def add(self, code: bytes) -> None:
        """Have this code there. Raises ValueError without room."""
        if len(code) > self.room:
            raise ValueError(f"the island has no room for {len(code)} bytes")
        self._code += bytes(-len(self._code) % _ALIGN) + code

    def written(self) -> tuple[RemoteAddress, bytes]:
        """Write all of it: where it stands, and the code. Raises what `Islands.put` raises."""
        code = bytes(self._code)
        if code:
            self._islands.put(self._island, code)
        return self._island.place, code


class Islands:
    """The islands of an arena that is mapped at `base`. The caller of what writes must hold the
    target's lock."""

    def __init__(
        self, pid: int, base: RemoteAddress, store: FileStore | MemoryStore, geometry: Geometry
    ) -> None:
        self._pid = pid
        self._base = base
        self._store = store
        self._table = Table(store, geometry.islands, IslandEntry)
        self._bytes = Extent(geometry.islands_at, geometry.islands_at + ISLANDS_SIZE)

    def entries(self) -> list[Island]:
        """All that the table has, mapped or not."""
        part = self._table.part
        entries = enumerate(self._table.read_many(0, part.entries) if part.entries else ())
        return [
            Island(
                number,
                RemoteAddress(entry.start),
                int(entry.size),
                int(entry.used),
                int(entry.offset),
            )
            for number, entry in entries
            if entry.size
        ]

    @property
    def room(self) -> int:
        """Bytes that more islands can have."""
        return sum(gap.end - gap.start for gap in self._gaps())

    def near(self, span: Span, size: int, process: Process, *, preferred: int = 0) -> Island:
        """An island with so many free bytes within reach of an object's code, made where there is
        none: with as many as are `preferred`, if they can be had.

        Raises Refused where there is no gap or no room, CallFailed, and what borrowing raises;
        nothing is mapped then.
        """
        maps = process.maps()
        for island in self.entries():
            room = island.size - island.used
            if room >= size and is_near(island, span) and self.is_mapped(island, maps):
                return island
        least = max(size, SIZE)
        if preferred > least:
            with suppress(Refused):
                return self._make(span, -(-preferred // PAGE) * PAGE, process)
        return self._make(span, -(-least // PAGE) * PAGE, process)

    def put(self, island: Island, code: bytes) -> RemoteAddress:
        """Write code into an island that has room for it: its address there. Raises what
        `Code.write` raises, and Refused without room."""
        at = island.place - island.start
        if at + len(code) > island.size:
            raise Refused(f"the island at {island.start:#x} has no room for {len(code)} bytes")
        write_code(self._pid, self._file(), island.offset + at, code)
        used = at + len(code)
        self._table.write_field(island.number, "used", used.to_bytes(8, "little"))
        return RemoteAddress(island.start + at)

    def is_mapped(self, island: Island, maps: Sequence[Mapping]) -> bool:
        """Whether the target has it where the table says, and as it was mapped."""
        return any(
            mapping.start == island.start and mapping.end >= island.end
            and mapping.offset == island.offset
            and mapping.executable and not mapping.writable and mapping.shared
            for mapping in self._pieces(maps)
        )  # fmt: skip

    def _make(self, span: Span, size: int, process: Process) -> Island:
        from markerjit.remote.calls import CallFailed

        if process.descriptor is None:
            raise self._closed()
        store = self._file()
        maps = process.maps()
        number = self._free_number(maps)
        offset = self._place(size)
        store.grow(offset + size)
        for _ in range(_TRIES):
            start = place_near(span, size, maps, process.heap)
            if start is None:
                raise Refused(
                    f"process {self._pid} has no gap of {size >> 10} KiB within 2 GiB of "
                    f"{span.start:#x}-{span.end:#x}"
                )
            island = Island(number, start, size, 0, offset)
            self._enter(island)
            try:
                self._map(island, process)
            except CallFailed as failed:
                self._forget(island)
                if failed.error != _EEXIST:
                    raise
            except Refused:
                self._forget(island)
                raise
            else:
                return island
            maps = process.maps()
        raise Refused(
            f"process {self._pid} keeps mapping memory near {span.start:#x}; try again",
            try_again=True,
        )

    def _map(self, island: Island, process: Process) -> None:
        """Step 3. Raises CallFailed and Refused: then nothing is mapped."""
        from markerjit.remote.calls import SYS_MADVISE, SYS_MMAP, Call, CallFailed, Result

        flags = _MAP_SHARED | _MAP_FIXED_NOREPLACE
        access, where = _PROT_READ | _PROT_EXEC, (island.start, island.size)
        descriptor = process.descriptor or 0
        # A core dump would have it twice.
        calls = [
            Call("mmap", SYS_MMAP, (*where, access, flags, descriptor, island.offset)),
            Call("madvise", SYS_MADVISE, (Result(0), island.size, _MADV_DONTDUMP)),
        ]
        try:
            mapped = process.caller.run(calls)[0]
        except CallFailed as failed:
            if failed.results:
                process.caller.run([_unmap(failed.results[0], island.size)])
            raise
        # Linux before 4.17 does not know the flag, and maps elsewhere what does not fit there. The
        # number may have been given to another file since we looked. And a mapping that continues
        # the arena's would be taken for a part of it.
        is_there = mapped == island.start and self.is_mapped(island, process.maps())
        if not is_there or mapped - island.offset == self._base:
            process.caller.run([_unmap(mapped, island.size)])
            raise Refused(
                f"process {self._pid} did not map the runtime's code at {island.start:#x} as it "
                "was asked to; try again",
                try_again=True,
            )

    def _enter(self, island: Island) -> None:
        """Step 2. The size last: it says that the entry is there."""
        entry = IslandEntry(island.start, 0, 0, island.offset)
        self._table.write(island.number, entry)
        self._table.write_field(island.number, "size", island.size.to_bytes(8, "little"))

    def _forget(self, island: Island) -> None:
        self._table.write_field(island.number, "size", bytes(8))

    def _free_number(self, maps: Sequence[Mapping]) -> int:
        """A place in the table. Where nothing was ever put, and nothing is mapped, a controller has
        died before step 3."""
        taken = set()
        for island in self.entries():
            if island.used or any(
                self._overlaps(mapping, island) for mapping in self._pieces(maps)
            ):
                taken.add(island.number)
            else:
                self._forget(island)
        free = next((n for n in range(self._table.part.entries) if n not in taken), None)
        if free is None:
            raise Refused(f"the arena has room for {self._table.part.entries} islands")
        return free

    def _place(self, size: int) -> int:
        """Bytes of the memfd that are no island's. The target can write anything into the table: an
        island that it has from elsewhere, and one that makes no sense, takes nothing."""
        for gap in self._gaps():
            if gap.end - gap.start >= size:
                return gap.start
        raise Refused(
            f"the runtime in process {self._pid} has no room for {size >> 10} KiB of code near an "
            "object; restart the process"
        )

    def _gaps(self) -> Iterator[Extent]:
        taken = (Extent(island.offset, island.offset + island.size) for island in self.entries())
        return gaps(self._bytes, taken)

    def _file(self) -> FileStore:
        """The memfd. Nothing else has what is behind the arena."""
        if not isinstance(self._store, FileStore):
            raise self._closed()
        return self._store

    def _closed(self) -> Refused:
        return Refused(
            f"process {self._pid} has closed its descriptor of the runtime's memory, so no code of "
            "ours can be mapped near its own; restart the process"
        )

    def _pieces(self, maps: Sequence[Mapping]) -> list[Mapping]:
        """The mappings of the arena's file."""
        inode = next((mapping.inode for mapping in maps if mapping.start == self._base), None)
        return [mapping for mapping in maps if mapping.inode == inode]

    @staticmethod
    def _overlaps(mapping: Mapping, island: Island) -> bool:
        return mapping.start < island.end and island.start < mapping.end


def _unmap(start: int, size: int) -> Call:
    from markerjit.remote.calls import SYS_MUNMAP, Call

    return Call("munmap", SYS_MUNMAP, (start, size))


def is_near(island: Island, span: Span) -> bool:
    """Whether a jump from any byte of one reaches any byte of the other."""
    return span.end - island.start <= REACH and island.end - span.start <= REACH


def place_near(span: Span, size: int, maps: Sequence[Mapping], heap: int) -> RemoteAddress | None:
    """Where an island would be nearest to an object's code, at a page; None without a gap."""
    lowest, highest = max(span.end - REACH, _LOWEST), min(span.start + REACH, HIGHEST)
    places = []
    for gap in _gaps(maps, heap):
        low, high = max(gap.start, lowest), min(gap.end, highest)
        low, last = -(-low // PAGE) * PAGE, (high - size) // PAGE * PAGE
        if low <= last:
            places.append(min(max((span.start - size) // PAGE * PAGE, low), last))
    return min(map(RemoteAddress, places), key=lambda at: abs(at - span.start), default=None)


def _gaps(maps: Sequence[Mapping], heap: int) -> Iterator[Extent]:
    """The unmapped extents, without the room into which their neighbours may grow."""
    pieces = sorted((mapping.start, mapping.end, mapping.path) for mapping in maps)
    at = 0
    if heap and not any(path == "[heap]" for _, _, path in pieces):
        pieces = sorted([*pieces, (RemoteAddress(heap), RemoteAddress(heap), "[heap]")])
    for start, end, path in pieces:
        room = STACK_ROOM if path == "[stack]" else GUARD
        yield Extent(at, start - room)
        at = max(at, end + (HEAP_ROOM if path == "[heap]" else GUARD))
    yield Extent(at, HIGHEST)


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN
