"""The bounds of an object's functions, from its unwind tables; they do not need symbols.

`.eh_frame_hdr` is a sorted table of all entries of `.eh_frame`, so numpy reads the bounds of a
large program in a few milliseconds. An entry need not be a function: compilers split cold parts
off, and give them an entry of their own. Such a part begins inside a frame, so its first row is not
that of a function's entry (CFA = rsp + 8). That finds most parts, and takes no function for one.

Authority: LSB 5.0, "Exception Frames"; DWARF 5, 6.4. Compilers for x86-64 write addresses as 32-bit
distances; an entry of another encoding is left out, as if there were none.
"""

from __future__ import annotations

import bisect
import struct
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from markerjit.elf.image import PT_LOAD, FileImage, Image
from markerjit.elf.sections import is_go
from markerjit.errors import MarkerError, MemoryFault
from markerjit.tuples import NamedTuple

PT_GNU_EH_FRAME = 0x6474E550
MAX_FUNCTIONS = 1 << 24

OF_GO = "has functions of Go, which are not supported: no unwind table has them, and stacks move"
"""What is said of a program of Go."""
OMITTED = 0xFF
"""The encoding of an absent pointer."""

_HEADER = struct.Struct("<B3siI")  # version, three encodings, .eh_frame, count
_VERSION = 1
_ENCODINGS = b"\x1b\x03\x3b"  # pcrel sdata4, udata4, datarel sdata4
_PCREL, _PCREL_SDATA4 = 0x10, 0x1B

_ENTRY_ROW = b"\x0c\x07\x08"  # DW_CFA_def_cfa: rsp + 8, with which the rows of a CIE begin
_DEF_CFA, _DEF_CFA_REGISTER, _DEF_CFA_OFFSET, _DEF_CFA_EXPRESSION = 0x0C, 0x0D, 0x0E, 0x0F
_NOP, _REMEMBER = 0x00, 0x0A
_USUAL = (1, 0x78, 16)  # 1, -8 as an SLEB128 that is read as an unsigned one, and rip
_OFFSET = 2  # the two high bits of DW_CFA_offset

Addresses = NDArray[np.int64]


class NoFunctions(MarkerError):
    """An object has no table of its functions, or one that cannot be read."""


class Cie(NamedTuple):
    """The properties that the entries of one CIE share.

    lsda      the encoding of their pointers to a table of exceptions; OMITTED for none
    rows      the instructions that come before theirs
    is_usual  distances count bytes of code, and words downwards
    """

    lsda: int
    rows: bytes
    is_usual: bool

    @property
    def is_plain(self) -> bool:
        """Whether their first row is that of a function's entry, if they do not change it."""
        return self.rows.startswith(_ENTRY_ROW)


_NO_CIE = Cie(OMITTED, b"", False)


class Functions:
    """The functions of an object, and the parts split off them, sorted by address.

    starts, ends  their bounds, as addresses of the object file
    base, data    the segment that has `.eh_frame` in it
    """

    def __init__(self, image: Image) -> None:
        """Raises NoFunctions."""
        frame, pairs = _header(image)
        segment = next(
            (s for s in image.segments if s.type == PT_LOAD and s.address <= frame < s.file_end),
            None,
        )
        if segment is None:
            raise NoFunctions(f"{image.name}: its .eh_frame is not loaded")
        self.base = segment.address
        try:
            self.data = image.read(segment.address, segment.file_size)
        except MemoryFault as error:
            raise NoFunctions(f"{image.name}: its .eh_frame cannot be read: {error}") from None
        self._bytes = np.frombuffer(self.data, np.uint8)
        self._select(pairs[:, 0], pairs[:, 1] - self.base)
        if not len(self.starts):
            raise NoFunctions(f"{image.name}: its .eh_frame_hdr has no function")
        self._sorted = self.starts.tolist()  # lists, which make no numbers of numpy
        self._ends = self.ends.tolist()

    def __len__(self) -> int:
        return len(self._sorted)

    def index(self, address: int) -> int | None:
        """The place in the arrays of the function that holds the address."""
        index = bisect.bisect_right(self._sorted, address) - 1
        return index if index >= 0 and address < self._ends[index] else None

    def indices(self, addresses: Addresses) -> Addresses:
        """The same for many addresses; -1 where there is none."""
        indices = np.searchsorted(self.starts, addresses, "right") - 1
        return np.where(addresses < self.ends[indices], indices, -1)

    def between(self, low: int, high: int) -> tuple[int, int]:
        """The places in the arrays of the functions that have bytes in low..high: the first, and
        that behind the last one."""
        first = bisect.bisect_right(self._sorted, low) - 1
        if first < 0 or self._ends[first] <= low:
            first += 1
        return first, bisect.bisect_left(self._sorted, high)

    def bounds(self, index: int) -> tuple[int, int]:
        """The start and the end of the function at a place in the arrays."""
        return self._sorted[index], self._ends[index]

    def next_start(self, address: int) -> int:
        """The first start of a function at an address or behind it; the last end, where there is
        none."""
        index = bisect.bisect_left(self._sorted, address)
        return int(self._sorted[index] if index < len(self) else self._ends[-1])

    def at(self, address: int) -> range | None:
        """The bounds of the function that holds the address."""
        index = self.index(address)
        return None if index is None else range(self._sorted[index], self._ends[index])

    def with_exceptions(self) -> list[tuple[int, int, int]]:
        """Start, address of the pointer to the table of exceptions and encoding of that pointer,
        of each function that has such a table."""
        has = np.array([cie.lsda != OMITTED for cie in self._cies], bool)[self._which]
        return [
            (self._sorted[index], self.base + int(self._places[index]) + 17, cie.lsda)
            for index in np.flatnonzero(has)
            for cie in (self._cies[self._which[index]],)
        ]

    def rows(self, index: int) -> bytes | None:
        """The unwind rows of an entry, as instructions; None where they do not begin as usual."""
        try:
            cie, rows = self.rules(index)
        except (IndexError, ValueError):
            return None
        return rows if cie.is_plain else None

    def rules(self, index: int) -> tuple[Cie, bytes]:
        """The CIE of an entry, and its unwind rows as instructions. Raises IndexError and
        ValueError where they are damaged."""
        place = int(self._places[index])
        size, at = uleb(self.data, place + 16)
        end = place + 4 + int.from_bytes(self.data[place : place + 4], "little")
        return self._cies[self._which[index]], self.data[at + size : end]

    def _select(self, starts: Addresses, places: Addresses) -> None:
        """Keep the entries that lie in `.eh_frame` and agree with its table."""
        inside = (places >= 0) & (places + 24 <= len(self.data))
        starts, places = starts[inside], places[inside]
        kinds, which = np.unique(places + 4 - self._words(places + 4), return_inverse=True)
        cies = [_cie(self.data, int(at)) for at in kinds]
        usable = np.array([cie is not None for cie in cies], bool)[which]
        agrees = starts == self.base + places + 8 + self._words(places + 8)
        order = np.flatnonzero(usable & agrees)
        order = order[np.argsort(starts[order], kind="stable")]
        self._cies = [cie or _NO_CIE for cie in cies]
        self.starts, self._places, self._which = starts[order], places[order], which[order]
        self.ends = self.starts + (self._words(self._places + 12) & 0xFFFFFFFF)

    def _words(self, places: Addresses) -> Addresses:
        """The signed 32-bit numbers at these offsets, which need not be aligned."""
        words = np.zeros(len(places), np.uint32)
        for byte in range(4):
            words |= self._bytes[places + byte].astype(np.uint32) << np.uint32(8 * byte)
        return words.view(np.int32).astype(np.int64)

    @cached_property
    def parts(self) -> NDArray[np.bool_]:
        """Whether each entry is known to be a part, and so is not called."""
        last = len(self.data) - 1
        first = self._places + 17 + self._bytes[np.minimum(self._places + 16, last)]
        opcodes = self._bytes[np.minimum(first, last)]
        changes = (opcodes >> 6 == _OFFSET) | (
            (opcodes >= _REMEMBER) & (opcodes <= _DEF_CFA_EXPRESSION)
        )
        parts = np.zeros(len(self.starts), bool)
        for index in np.flatnonzero(changes).tolist():
            parts[index] = _begins_inside(self.rows(index) or b"")
        return parts


def _header(image: Image) -> tuple[int, NDArray[np.int64]]:
    """The address of `.eh_frame`, and of each entry the function's address and its own."""
    segment = next((s for s in image.segments if s.type == PT_GNU_EH_FRAME), None)
    if segment is None:
        if isinstance(image, FileImage) and is_go(image):
            raise NoFunctions(f"{image.name} {OF_GO}")
        raise NoFunctions(
            f"{image.name}: it has no .eh_frame_hdr, the table of its functions; a C program that "
            "is linked with -static has one with -Wl,--eh-frame-hdr"
        )
    if segment.file_size > _HEADER.size + 8 * MAX_FUNCTIONS:
        raise NoFunctions(f"{image.name}: its .eh_frame_hdr claims {segment.file_size} bytes")
    try:
        header = image.read(segment.address, segment.file_size)
        version, encodings, frame, count = _HEADER.unpack_from(header)
    except (MemoryFault, struct.error) as error:
        raise NoFunctions(f"{image.name}: its .eh_frame_hdr cannot be read: {error}") from None
    if version != _VERSION or encodings != _ENCODINGS:
        raise NoFunctions(f"{image.name}: its .eh_frame_hdr is of an unknown kind")
    if count > MAX_FUNCTIONS or _HEADER.size + 8 * count > len(header):
        raise NoFunctions(f"{image.name}: its .eh_frame_hdr is cut off")
    pairs = np.frombuffer(header, "<i4", 2 * count, _HEADER.size).reshape(-1, 2)
    return segment.address + 4 + frame, pairs.astype(np.int64) + segment.address


def _cie(data: bytes, at: int) -> Cie | None:
    """The CIE at an offset, or None where it is damaged or of another kind."""
    try:
        length, identity, version = struct.unpack_from("<IIB", data, at)
        end = at + 4 + length
        if at < 0 or identity or version not in (1, 3) or end > len(data):
            return None
        letters_end = data.index(b"\0", at + 9, end)
        letters, at = data[at + 9 : letters_end], letters_end + 1
        numbers = []
        for _ in range(3):  # alignment of code and of data, and the return address's register
            number, at = uleb(data, at)
            numbers.append(number)
        size, at = uleb(data, at) if letters[:1] == b"z" else (0, at)
        rows = data[at + size : end]
        encodings = {"R": 0, "L": OMITTED}
        for letter in letters.decode("latin-1")[1:]:
            if letter in "RL":
                encodings[letter] = data[at]
                at += 1
            elif letter == "P":
                at += 1 + _width(data[at])
            elif letter not in "SB":
                return None
    except (struct.error, ValueError, IndexError):
        return None
    if not letters.startswith(b"z") or encodings["R"] != _PCREL_SDATA4:
        return None
    return Cie(encodings["L"], rows, tuple(numbers) == _USUAL)


def _begins_inside(rows: bytes) -> bool:
    """Whether the row of the first instruction is not CFA = rsp + 8."""
    at = 0
    while at < len(rows) - 2:
        opcode = rows[at]
        if opcode in (_DEF_CFA_REGISTER, _DEF_CFA_EXPRESSION):
            return True
        if opcode == _DEF_CFA:
            return rows[at : at + 3] != _ENTRY_ROW
        if opcode == _DEF_CFA_OFFSET:
            return rows[at + 1] != _ENTRY_ROW[2]
        if opcode >> 6 == _OFFSET:
            at += 2
        elif opcode in (_NOP, _REMEMBER):
            at += 1
        else:
            return False  # an advance: the first row was that of the CIE
    return False


_WIDTHS = {0x0: 8, 0x2: 2, 0x3: 4, 0x4: 8, 0xA: 2, 0xB: 4, 0xC: 8}


def _width(encoding: int) -> int:
    """How many bytes a pointer of this encoding has. Raises ValueError for those of any length."""
    if encoding & 0xF not in _WIDTHS:
        raise ValueError(encoding)
    return _WIDTHS[encoding & 0xF]


def uleb(data: bytes, at: int) -> tuple[int, int]:
    """A ULEB128 number, and the offset behind it. Raises IndexError and ValueError."""
    value = 0
    for shift in range(0, 70, 7):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError("a number of more than 64 bits")


def encoded(data: bytes, at: int, encoding: int, here: int) -> tuple[int, int]:
    """A pointer of a DWARF encoding, and the offset behind it; 0 where there is none.

    `here` is the address of offset `at`. Raises IndexError and ValueError.
    """
    if encoding & 0xF0 not in (0, _PCREL):  # such as a pointer to the pointer
        raise ValueError(encoding)
    if encoding & 0xF == 1:
        value, after = uleb(data, at)
    else:
        after = at + _width(encoding)
        if after > len(data):
            raise IndexError(at)
        value = int.from_bytes(data[at:after], "little", signed=encoding & 8 != 0)
    if value and encoding & _PCREL:
        value += here
    return value, after
