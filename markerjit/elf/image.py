"""ELF images of x86-64: program headers, load bias, note segments and build id.

`FileImage` reads a file, and `MappedImage` the same object where it is loaded. Both take the
addresses of the object file. Sections and symbols are not read: a stripped program has none, and
neither has an image in memory.

Authority: System V gABI, chapters 4 (ELF header) and 5 (program header, note section, program
loading); elf(5) for the names of the constants.
"""

from __future__ import annotations

import os
import stat
import struct
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from types import TracebackType
from typing import Self

from markerjit.elf.rawnotes import iterate_notes
from markerjit.errors import BadFile, BadNote, MarkerError, MemoryFault, Unsupported
from markerjit.model import RemoteAddress, new
from markerjit.tuples import NamedTuple

Read = Callable[[RemoteAddress, int], bytes]
"""Returns exactly `size` bytes at an address of the target, or raises MemoryFault."""

# More than any real object has, and few enough that a hostile one cannot keep us busy.
MAX_SEGMENTS = 4096
MAX_LOADED = 256
MAX_NOTE_BYTES = 64 << 20
MAX_ADDRESS = 1 << 56
"""All addresses of programs are below this, even with five levels of page tables."""

PT_LOAD = 1
PT_NOTE = 4
PF_X = 1
PF_W = 2

PAGE = 4096
_HEADS = 64
"""The number of objects whose headers are kept: the processes of a fleet have the same objects."""
_IDENT = struct.Struct("<4sBBB9x")  # magic, class, data, version
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SEGMENT = struct.Struct("<IIQQQQQQ")

_MAGIC = b"\x7fELF"
_CLASS_64 = 2
_LITTLE_ENDIAN = 1
_EM_X86_64 = 62
_ET_REL, _ET_EXEC, _ET_DYN, _ET_CORE = 1, 2, 3, 4
_NT_GNU_BUILD_ID = 3


class Segment(NamedTuple):
    """A program header, Elf64_Phdr, field by field. Addresses as the object file has them."""

    type: int
    flags: int
    offset: int
    address: int
    physical_address: int
    file_size: int
    memory_size: int
    align: int

    @property
    def file_end(self) -> int:
        """The address where the contents of the file end. Zeros follow, up to `memory_size`."""
        return self.address + self.file_size

    @property
    def end(self) -> int:
        return self.address + self.memory_size


class _Headers(NamedTuple):
    """The facts in the headers of an object.

    loads, notes   the segments that are loaded, and those of notes
    first_page     the address, in the object file, of the page at file offset 0; None where no
                   segment loads it
    is_page        the first page of the file has all headers, and all notes as they are loaded
    trouble        the claim in the headers that cannot be true
    """

    fixed_address: bool
    segments: tuple[Segment, ...]
    loads: tuple[Segment, ...]
    notes: tuple[Segment, ...]
    first_page: int | None
    is_page: bool
    trouble: str


class Image:
    """An executable or shared object for x86-64, in a file or in memory.

    name           for messages
    bias           the difference between an address of the target and that of the object file; 0
                   for a file
    segments       the program headers, in their order
    fixed_address  whether it can be loaded at the addresses of its file only
    """

    name: str
    bias: int
    segments: tuple[Segment, ...]
    fixed_address: bool

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes at an address of the object file, or MemoryFault."""
        raise NotImplementedError

    def loaded(self, flags: int = 0) -> list[range]:
        """The address ranges of the loaded segments that have all of these PF_* flags."""
        return [
            range(segment.address, segment.end)
            for segment in self._loads
            if segment.flags & flags == flags
        ]

    def note_segments(self) -> list[Segment]:
        """The PT_NOTE segments, at most MAX_NOTE_BYTES together."""
        return [*self._notes]

    def read_note_segment(self, segment: Segment) -> bytes:
        """A note segment's bytes. Raises BadNote where they cannot be read."""
        try:
            return self.read(segment.address, segment.file_size)
        except MemoryFault as fault:
            raise BadNote(f"{self.name}: its notes cannot be read: {fault}") from None

    def build_id(self) -> str | None:
        """The build id that the linker wrote, lower-case hexadecimal, or None."""
        for segment in self._notes:
            try:
                data = self.read_note_segment(segment)
                find = _build_id_in if len(data) <= PAGE else _build_id_in.__wrapped__
                build_id = find(data, segment.align)
            except BadNote:
                continue  # read_notes() reports it
            if build_id is not None:
                return build_id
        return None

    def _set_headers(self, head: bytes, read_at: Callable[[int, int], bytes]) -> None:
        """Read the headers. `head` is the start of the image; `read_at` reads at a file offset."""
        headers = _headers_in(head)
        if headers is None:  # they are elsewhere, or something is wrong with them
            headers = _read_headers(self.name, head, read_at)
        if headers.trouble:
            raise BadFile(f"{self.name}: it claims {headers.trouble}")
        self._take_headers(headers)

    def _take_headers(self, headers: _Headers) -> None:
        self._headers = headers
        self.segments, self.fixed_address = headers.segments, headers.fixed_address
        self._loads, self._notes = headers.loads, headers.notes

    @cached_property
    def _loads(self) -> tuple[Segment, ...]:
        """The PT_LOAD segments: of an image that has no headers, too."""
        return _of_type(self.segments, PT_LOAD)

    @cached_property
    def _notes(self) -> tuple[Segment, ...]:
        return _of_type(self.segments, PT_NOTE)


class MappedImage(Image):
    """A loaded object, read through `read`.

    `start` is the address of its first mapping, that of file offset 0. Raises BadFile, Unsupported,
    and whatever `read` raises where the first page cannot be read.
    """

    def __init__(self, read: Read, start: RemoteAddress, name: str = "image in memory") -> None:
        self.name = name
        self._read = read
        self.head = head = read(start, PAGE)
        self._set_headers(head, lambda offset, size: read(RemoteAddress(start + offset), size))
        if self._headers.first_page is None:
            raise BadFile(f"{self.name}: no segment of it loads the start of the file")
        self.first_page = self._headers.first_page
        """The address, in the object file, of the page at file offset 0."""
        self.bias = start - self.first_page
        if self.fixed_address and self.bias:
            # The file is mapped as data; its segments are not at their addresses.
            raise BadFile(f"{name}: it is not loaded at {start:#x}, where its file is mapped")

    def read(self, address: int, size: int) -> bytes:
        return self._read(RemoteAddress(address + self.bias), size)

    @property
    def telling_page(self) -> bytes | None:
        """The first page, where all headers, and all notes that are loaded, are in it."""
        return self.head if self._headers.is_page else None

    def is_told_by(self, head: bytes) -> bool:
        """Whether an object that begins with this page has the same segments and build id, as far
        as these bytes tell: all headers, and all notes that are loaded, are in the page."""
        return self._headers.is_page and head == self.head

    def read_note_segment(self, segment: Segment) -> bytes:
        """A note segment's bytes, mostly of the page that was read."""
        if self._headers.is_page:
            return self.head[segment.offset : segment.offset + segment.file_size]
        return super().read_note_segment(segment)


class FileImage(Image):
    """An object in a file, open for as long as this object is.

    `size` is that of the file in bytes. It is read with pread and not mapped. A file that is
    truncated while we read then gives an error, where a mapping would give SIGBUS. `like` is an
    object that it may be: where it begins with the same page it `is_like` that one, with the same
    headers and build id, and is not parsed again. Raises BadFile, Unsupported.
    """

    bias = 0

    def __init__(self, path: str, like: MappedImage | None = None) -> None:
        self.name = path
        self._file, self.size = _open(path)
        try:
            self.head = self._head()
            self.is_like = like is not None and like.is_told_by(self.head)
            if like and self.is_like:
                self._take_headers(like._headers)
            else:
                self._set_headers(self.head, self.read_file)
            self._check_notes_are_in_file()
        except BaseException:
            self.close()
            raise

    def read(self, address: int, size: int) -> bytes:
        """Exactly `size` bytes, with zeros where a segment is larger in memory than in the file."""
        for segment in self._loads:
            if not segment.address <= address < segment.end:
                continue
            if address + size > segment.end:
                break
            from_file = max(0, min(size, segment.file_end - address))
            data = self.read_file(segment.offset + address - segment.address, from_file)
            return data + bytes(size - from_file)
        raise MemoryFault(address, size, "read", f"no segment of {self.name} holds it")

    def read_file(self, offset: int, size: int) -> bytes:
        """Exactly `size` bytes at an offset of the file, or MemoryFault."""
        data = b""
        if size <= self.size - offset:  # else pread asks for room for what is not there
            with suppress(OverflowError, OSError):
                data = os.pread(self._file, size, offset)
        if len(data) < size:
            raise MemoryFault(offset, size, "read", f"{self.name} ends before")
        return data

    def fileno(self) -> int:
        """The descriptor of the file, which stays this object's."""
        return self._file

    def close(self) -> None:
        """Close the file. May be called again."""
        if self._file >= 0:
            os.close(self._file)
        self._file = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _check_notes_are_in_file(self) -> None:
        """Raise BadFile where the notes are larger than the file.

        A small file may claim the same bytes many times, or the zeros behind a segment.
        """
        if sum(segment.file_size for segment in self._notes) > self.size:
            raise BadFile(f"{self.name}: it claims more notes than it has bytes")

    def _head(self) -> bytes:
        try:
            return os.pread(self._file, PAGE, 0)
        except OSError as error:
            raise BadFile(f"{self.name}: {error.strerror}") from None


def _open(path: str) -> tuple[int, int]:
    """The file's descriptor, and its size in bytes. O_NONBLOCK, so that a fifo is refused instead
    of waited for."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise BadFile(f"{path}: {reason}") from None
    about = os.fstat(file)
    if not stat.S_ISREG(about.st_mode):
        os.close(file)
        raise BadFile(f"{path}: it is not a regular file")
    return file, about.st_size


@lru_cache(_HEADS)
def _headers_in(head: bytes) -> _Headers | None:
    """The headers in the first page of an object; None where it has not all of them."""
    with suppress(MarkerError):
        return _read_headers("", head, lambda offset, size: b"")
    return None


def _read_headers(name: str, head: bytes, read_at: Callable[[int, int], bytes]) -> _Headers:
    """The headers of an object that begins with `head`. Raises BadFile, Unsupported."""
    kind, table_offset, entry_size, count = _parse_header(name, head)
    if count and entry_size != _SEGMENT.size:
        raise BadFile(f"{name}: its program headers are of {entry_size} bytes, not 56")
    if count > MAX_SEGMENTS:
        raise BadFile(f"{name}: it claims {count} program headers")
    size = count * _SEGMENT.size
    table = head[table_offset : table_offset + size]
    if len(table) < size:  # usually they follow the header and are in `head`
        with suppress(MemoryFault):
            table = read_at(table_offset, size)
    if len(table) < size:
        raise BadFile(f"{name}: its program headers are cut off")
    segments = tuple(new(Segment, fields) for fields in _SEGMENT.iter_unpack(table))
    loads, notes = _of_type(segments, PT_LOAD), _of_type(segments, PT_NOTE)
    first_page = next((load.address & -PAGE for load in loads if load.offset < PAGE), None)
    is_page = table_offset + size <= PAGE and all(
        note.offset + note.file_size <= PAGE
        and first_page is not None
        and note.address - first_page == note.offset
        for note in notes
    )
    trouble = _trouble(loads, notes)
    return _Headers(kind == _ET_EXEC, segments, loads, notes, first_page, is_page, trouble)


@lru_cache(_HEADS)
def _build_id_in(data: bytes, align: int) -> str | None:
    """The build id in the notes of a segment. Raises BadNote where one before it is malformed."""
    for note in iterate_notes(data, align):
        if note.owner == b"GNU\0" and note.type == _NT_GNU_BUILD_ID:
            return note.content.hex()
    return None


def _of_type(segments: tuple[Segment, ...], kind: int) -> tuple[Segment, ...]:
    return tuple(segment for segment in segments if segment.type == kind)


def _trouble(loads: Sequence[Segment], notes: Sequence[Segment]) -> str:
    """The part of an object's headers that cannot be true, as words for a message."""
    if len(loads) > MAX_LOADED:
        return f"{len(loads)} loaded segments"
    if any(segment.end > MAX_ADDRESS for segment in loads):
        return "addresses that no program has"
    if sum(segment.file_size for segment in notes) > MAX_NOTE_BYTES:
        return f"more than {MAX_NOTE_BYTES >> 20} MiB of notes"
    return ""


def _parse_header(name: str, head: bytes) -> tuple[int, int, int, int]:
    """Type, and offset, entry size and count of the program headers. Raises MarkerError."""
    if len(head) < _HEADER.size or not head.startswith(_MAGIC):
        raise BadFile(f"{name}: it is not an ELF file")
    _, width, order, _ = _IDENT.unpack_from(head)
    if width != _CLASS_64:
        raise Unsupported(f"{name}: it is a 32-bit object; markerjit is for 64-bit ones")
    (_, kind, machine, _, _, table, _, _, _, entry_size, count, *_) = _HEADER.unpack_from(head)
    if order != _LITTLE_ENDIAN or machine != _EM_X86_64:
        raise Unsupported(f"{name}: it is for another architecture; markerjit is for x86-64")
    if kind == _ET_REL:
        raise Unsupported(f"{name}: it is a relocatable object; link it first")
    if kind == _ET_CORE:
        raise Unsupported(f"{name}: it is a core file, not a program")
    if kind not in (_ET_EXEC, _ET_DYN):
        raise BadFile(f"{name}: it is an ELF file of unknown type {kind}")
    return kind, table, entry_size, count
