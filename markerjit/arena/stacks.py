"""What the runtime needs to walk stacks, and the stacks that it has seen: a piece of the memfd
behind the arena, which is mapped when it is first needed, and there until the process ends.

A directory says where code is, and which table of unwind rules it has (native/src/runtime/walk.c).
Another one is made when other code is mapped. Tables are kept by what is in them: an object that
comes and goes has its table there once. A stack that was seen is kept, and has a number. It can be
read when the process has ended, as everything in the memfd.

In the directories of an epoch each address is of one object. A stack has the number of its epoch,
so it also says which objects its frames are of.

What this does not do: say what the functions of frames are called (unwind/names.py).
"""

from __future__ import annotations

import bisect
import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import markerjit.abi as abi
from markerjit.abi import CodeEntry, Stacks, UnwindEntry
from markerjit.arena.hashes import image_id
from markerjit.arena.store import FileStore, MemoryStore
from markerjit.elf import MappedImage, Read
from markerjit.errors import MarkerError, MemoryFault, Refused
from markerjit.memory import Mapping
from markerjit.model import RemoteAddress
from markerjit.remote.native import package_file
from markerjit.tuples import NamedTuple
from markerjit.unwind.objects import LoadedCode, ProcessCode
from markerjit.unwind.walk import Stack, StackEnd

if TYPE_CHECKING:  # a look makes no system call in the target
    from markerjit.arena.arena import Arena
    from markerjit.arena.islands import Process

_NOTHING, _READ_WRITE = 0, 3
_MAP_SHARED = 1
_MADV_DONTDUMP = 16
_WORD = 8
_ALIGN = 64
_FIRST_NUMBER = 2
"""Below are the states of a place that is free, or claimed."""
_OFFSET_IN_HEADER = 0x28
"""Of a word in the header of an ELF file: where its section headers are, which another build has
elsewhere."""
_RECENT_SIZE = abi.STACKS_SIZE - abi.STACKS_RECENT
_MOST = (1 << 64) - 1
_MOST_EPOCH = (1 << 64 - abi.STACK_EPOCH) - 1
_END_OF_RULES = abi.STACKS_RECENT - abi.PAGE
"""A page stays free behind all tables: the runtime looks at a header before it knows more."""
_ENDS = {
    abi.END_OUTERMOST: StackEnd.OUTERMOST,
    abi.END_NO_TABLE: StackEnd.NO_TABLE,
    abi.END_DAMAGED: StackEnd.DAMAGED,
    abi.END_DEEPER: StackEnd.DEEPER,
    abi.END_ELSEWHERE: StackEnd.NO_TABLE,
}


class Identity(NamedTuple):
    """What an object in a process is known by.

    bias   its addresses are those of its file and this
    mark   an address
    value  the word there: of its build id, or where it has none, of its header
    """

    bias: int
    mark: int
    value: int


NO_OBJECT = Identity(0, 0, 0)
"""Of code that is of no object, or of one that is known by nothing."""


class Extent(NamedTuple):
    """Addresses of code, and the object whose code they are."""

    start: int
    stop: int
    object: Identity


class KeptStack(NamedTuple):
    """A stack as the process has kept it.

    known  of each frame: whether its object was that of the directory when the stack was walked
    epoch  of the directory
    """

    stack: Stack
    known: tuple[bool, ...]
    epoch: int


class Code(NamedTuple):
    """Addresses that can be executed, and the object whose code they are."""

    start: int
    stop: int
    loaded: LoadedCode | None


class StackMemory:
    """The memory of stacks, in a store from this offset on. The caller of what writes must hold the
    target's lock."""

    def __init__(self, store: FileStore | MemoryStore, at: int) -> None:
        self._store = store
        self._at = at

    def begin(self) -> None:
        """Write the header, where nothing is yet."""
        header = Stacks(
            words_room=abi.STACK_WORDS, places_mask=abi.STACK_PLACES - 1,
            words_used=_FIRST_NUMBER, rules_used=abi.STACKS_RULES,
        )  # fmt: skip
        self._write(0, bytes(header))

    @property
    def lost(self) -> int:
        """How many stacks found no room, so that their events have none."""
        return int(self._header().lost)

    def is_current(self, maps: Sequence[Mapping]) -> bool:
        """Whether the directory is of this code."""
        header = self._header()
        return bool(header.directory) and header.seen == _seen(maps)

    def refresh(self, read: Read, maps: Sequence[Mapping]) -> None:
        """Have the directory of what is mapped now. Raises what `read` raises when the process
        ends."""
        code = ProcessCode(read, maps)
        entries = [self._entry(code, piece) for piece in _pieces(code)][: abi.MAX_CODES]
        self.enter(entries, _seen(maps))

    def enter(self, entries: Sequence[CodeEntry], seen: int) -> None:
        """Have a directory of these codes; `seen` is a number of what it is made of."""
        header = self._header()
        number = int(header.directory) + 1 & _MOST
        place = number % abi.DIRECTORIES
        epoch = self._epoch_of(header, {_extent(entry) for entry in entries})
        content = b"".join(map(bytes, entries))
        self._write(abi.STACKS_DIRECTORIES + place * abi.DIRECTORY_SIZE, content)
        self._write_word(Stacks.counts.offset + _WORD * place, len(entries))
        self._write_word(Stacks.epochs.offset + _WORD * place, epoch)
        self._write_word(Stacks.seen.offset, seen)
        # A recent rule has the lower bits of a directory's number, and may be written a little
        # later than that was in force: it is gone long before the bits come again.
        if number % abi.STACKS_RECENT_DIRECTORIES == 0:
            self._write(abi.STACKS_RECENT, bytes(_RECENT_SIZE))
        self._write_word(Stacks.directory.offset, number)  # last: from now on it is in force

    def extents(self) -> dict[int, set[Extent]]:
        """The code of the directories that are still there, by their epochs; not of the oldest one,
        in whose place another controller may write."""
        header = self._header()
        extents: dict[int, set[Extent]] = {}
        oldest = max(header.directory + 2 - abi.DIRECTORIES, 1)
        for number in range(oldest, header.directory + 1):
            place = number % abi.DIRECTORIES
            epoch = header.epochs[place] & _MOST_EPOCH
            extents.setdefault(epoch, set()).update(self._extents(header, place))
        return extents

    def stack(self, number: int) -> Stack | None:
        """The stack with this number; None where there is none."""
        kept = self.kept(number)
        return kept.stack if kept else None

    def kept(self, number: int) -> KeptStack | None:
        """The same with what is known of its objects. The process can write there, so nothing of
        it is believed but that they are numbers."""
        if not _FIRST_NUMBER <= number < abi.STACK_WORDS:
            return None
        (head,) = self._words(number, 1)
        count, end = head & abi.STACK_FRAMES, head >> abi.STACK_END & abi.STACK_FRAMES
        if not 1 <= count <= abi.MAX_STACK_DEPTH or end not in _ENDS:
            return None
        if number + 1 + count > abi.STACK_WORDS:
            return None
        frames = self._words(number + 1, count)
        addresses = tuple(frame & ~(abi.FRAME_EXACT | abi.FRAME_UNKNOWN) for frame in frames)
        exact = tuple(bool(frame & abi.FRAME_EXACT) for frame in frames)
        known = tuple(not frame & abi.FRAME_UNKNOWN for frame in frames)
        return KeptStack(Stack(addresses, exact, _ENDS[end]), known, head >> abi.STACK_EPOCH)

    def _epoch_of(self, header: Stacks, extents: set[Extent]) -> int:
        """The epoch of the next directory, of this code: another one where an object is where
        another one was, and where one that went is forgotten with the oldest directory."""
        if not header.directory:
            return 0
        epoch = int(header.epochs[header.directory % abi.DIRECTORIES]) & _MOST_EPOCH
        oldest = header.directory + 1 - abi.DIRECTORIES
        kept = [
            self._extents(header, number % abi.DIRECTORIES)
            for number in range(max(oldest, 1), header.directory + 1)
            if header.epochs[number % abi.DIRECTORIES] == epoch
        ]
        gone = set().union(*kept) - extents
        forgotten: set[Extent] = set()
        if oldest >= 1 and header.epochs[oldest % abi.DIRECTORIES] == epoch:
            forgotten = {each for each in kept[0].difference(*kept[1:], extents)
                         if each.object != NO_OBJECT}  # fmt: skip
        return epoch + 1 & _MOST_EPOCH if forgotten or _is_replaced(gone, extents) else epoch

    def _extents(self, header: Stacks, place: int) -> set[Extent]:
        """The code of the directory in a place."""
        count = min(int(header.counts[place]), abi.MAX_CODES)
        size = ctypes.sizeof(CodeEntry)
        at = self._at + abi.STACKS_DIRECTORIES + place * abi.DIRECTORY_SIZE
        content = self._store.read(at, count * size)
        entries = (CodeEntry.from_buffer_copy(content, at) for at in range(0, count * size, size))
        return {_extent(entry) for entry in entries}

    def _entry(self, code: ProcessCode, piece: Code) -> CodeEntry:
        entry = CodeEntry(piece.start, piece.stop)
        identity = identity_of(piece.loaded.image) if piece.loaded else NO_OBJECT
        table = code.table(piece.loaded) if piece.loaded and identity != NO_OBJECT else None
        entry.bias, entry.mark, entry.value = identity
        if table:
            entry.rules = self._place_of(table.content)
        return entry

    def _place_of(self, content: bytes) -> int:
        """Where a table is, which is put there if it is not there yet; 0 without room."""
        import hashlib

        word = hashlib.blake2b(content, digest_size=_WORD).digest()
        digest = int.from_bytes(word, "little") or 1
        number = self._known().get((digest, len(content)))
        if number is not None:
            return number
        used = int(self._header().rules_used)
        place = -(-used // _ALIGN) * _ALIGN
        count = len(self._known())
        is_sane = abi.STACKS_RULES <= used <= _END_OF_RULES
        if not is_sane or place + len(content) > _END_OF_RULES:
            return 0
        if count == abi.UNWINDS:
            return 0
        self._write(place, content)
        self._write_word(Stacks.rules_used.offset, place + len(content))
        entry = UnwindEntry(digest, place, len(content))
        self._write(abi.STACKS_TABLES + count * ctypes.sizeof(entry), bytes(entry))
        return place

    def _known(self) -> dict[tuple[int, int], int]:
        """Where tables are, by their digest and size."""
        size = abi.UNWINDS * ctypes.sizeof(UnwindEntry)
        content = self._store.read(self._at + abi.STACKS_TABLES, size)
        known = {}
        for digest, place, length in struct.iter_unpack("<3Q", content):
            if not digest:
                break
            if abi.STACKS_RULES <= place <= place + length <= _END_OF_RULES:
                known[digest, length] = place
        return known

    def _header(self) -> Stacks:
        return Stacks.from_buffer_copy(self._store.read(self._at, ctypes.sizeof(Stacks)))

    def _words(self, number: int, count: int) -> tuple[int, ...]:
        content = self._store.read(self._at + abi.STACKS_WORDS + _WORD * number, _WORD * count)
        return struct.unpack(f"<{count}Q", content)

    def _write(self, offset: int, content: bytes) -> None:
        self._store.write(self._at + offset, content)

    def _write_word(self, offset: int, value: int) -> None:
        self._write(offset, value.to_bytes(_WORD, "little"))


def stacks_of(arena: Arena) -> StackMemory | None:
    """The memory of stacks of an arena; None where it was not needed yet, and where we have no
    descriptor: it lies behind what the process has mapped as its arena."""
    at = arena.control.number("stacks_at") if arena.is_current else 0
    is_there = at >= arena.geometry.size and bool(arena.control.number("stacks"))
    has_file = isinstance(arena.store, FileStore)
    return StackMemory(arena.store, at) if is_there and has_file else None


def make_stacks(arena: Arena, process: Process) -> StackMemory:
    """The memory of stacks, made where it is not there. Raises Refused where it cannot be had, and
    what borrowing raises."""
    memory = stacks_of(arena)
    if memory:
        return memory
    with open(package_file("runtime.bin"), "rb") as file:
        if arena.facts.runtime_id != image_id(file.read()):
            raise Refused(
                f"the runtime in process {arena.pid} is that of another markerjit, which may walk "
                "no stacks; restart the process"
            )
    if process.descriptor is None or not isinstance(arena.store, FileStore):
        raise Refused(
            f"process {arena.pid} has closed its descriptor of the runtime's memory, so there can "
            "be no tables to walk its stacks by; restart the process"
        )
    at = arena.geometry.stacks_at
    arena.store.grow(at + abi.STACKS_SIZE)
    memory = StackMemory(arena.store, at)
    memory.begin()
    start = _map(arena, process, at)
    arena.control.write("stacks_at", at)
    arena.control.write("stacks", start)
    return memory


def _map(arena: Arena, process: Process, at: int) -> RemoteAddress:
    from markerjit.remote.calls import (
        SYS_MADVISE,
        SYS_MMAP,
        SYS_MPROTECT,
        SYS_MUNLOCK,
        SYS_MUNMAP,
        Call,
        CallFailed,
        Result,
    )

    size, descriptor = abi.STACKS_SIZE, process.descriptor or 0
    # A process that locks all its memory (mlockall) would get all of this at once.
    calls = [
        Call("mmap", SYS_MMAP, (0, size, _NOTHING, _MAP_SHARED, descriptor, at)),
        Call("munlock", SYS_MUNLOCK, (Result(0), size)),
        Call("mprotect", SYS_MPROTECT, (Result(0), size, _READ_WRITE)),
        Call("madvise", SYS_MADVISE, (Result(0), size, _MADV_DONTDUMP)),
    ]
    try:
        start = RemoteAddress(process.caller.run(calls)[0])
    except CallFailed as failed:
        if failed.results:
            process.caller.run([Call("munmap", SYS_MUNMAP, (failed.results[0], size))])
        raise Refused(
            f"process {arena.pid} has no room of {size >> 20} MiB of addresses for stacks: {failed}"
        ) from None
    # The number may have been given to another file since we looked; and a mapping that continues
    # the arena's would be taken for a part of it.
    inode = next((mapping.inode for mapping in process.maps() if mapping.start == arena.base), 0)
    is_ours = any(
        mapping.start == start and mapping.inode == inode and mapping.offset == at
        for mapping in process.maps()
    )
    if not is_ours or start - at == arena.base:
        process.caller.run([Call("munmap", SYS_MUNMAP, (start, size))])
        raise Refused(
            f"process {arena.pid} did not map the memory of stacks as it was asked to; try again",
            try_again=True,
        )
    return start


def _seen(maps: Sequence[Mapping]) -> int:
    """A number of what can be executed."""
    import hashlib

    code = [(mapping.start, mapping.end, mapping.inode, mapping.path)
            for mapping in maps if mapping.executable]  # fmt: skip
    digest = hashlib.blake2b(repr(code).encode(errors="surrogateescape"), digest_size=_WORD)
    return int.from_bytes(digest.digest(), "little")


def _pieces(code: ProcessCode) -> Iterator[Code]:
    """What can be executed, in the order of addresses, divided where an object's code begins or
    ends."""
    for mapping in code.executable:
        at = int(mapping.start)
        for loaded in code.codes:
            start, stop = max(loaded.start, at), min(loaded.stop, mapping.end)
            if start >= stop:
                continue
            if at < start:
                yield Code(at, start, None)
            yield Code(start, stop, loaded)
            at = stop
        if at < mapping.end:
            yield Code(at, int(mapping.end), None)


def _extent(entry: CodeEntry) -> Extent:
    return Extent(entry.start, entry.stop, Identity(entry.bias, entry.mark, entry.value))


def _is_replaced(gone: set[Extent], extents: set[Extent]) -> bool:
    """Whether code is where other code was, which is of another object."""
    if not gone:
        return False
    ordered = sorted(extents)
    for each in gone:
        for other in ordered[bisect.bisect_right(ordered, each.start, key=_stop) :]:
            if other.start >= each.stop:
                break
            if other.object != each.object:
                return True
    return False


def _stop(extent: Extent) -> int:
    return extent.stop


def identity_of(image: MappedImage) -> Identity:
    """What an object is known by; NO_OBJECT where neither its build id nor its header can be read
    in one page. Raises what reading raises when the process ends."""
    places = []
    build_id = image.build_id()
    if build_id:
        content = bytes.fromhex(build_id)
        for segment in image.note_segments():
            try:
                offset = image.read_note_segment(segment).find(content)
            except MarkerError:
                continue
            if offset >= 0:
                places += [segment.address + offset, segment.address + offset + _WORD // 2]
    else:
        places.append(image.first_page + _OFFSET_IN_HEADER)
    for place in places:
        address = place + image.bias
        if address % abi.PAGE <= abi.PAGE - _WORD:
            try:
                value = int.from_bytes(image.read(place, _WORD), "little")
            except MemoryFault:
                continue
            return Identity(image.bias & (1 << 64) - 1, address, value)
    return NO_OBJECT
