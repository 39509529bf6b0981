"""The notes by which markers describe themselves: the Python mirror of struct mj_note in abi.h.

A malformed note becomes a problem in the answer and does not hide the others: the search goes on at
the next bytes that look like a marker's note. A note is checked against the image (the site is
code, the slot is data, the text can be read). The bytes at the site are not checked here; the
package x86 knows them.

The texts, format and source file, are elsewhere in the image. They are read a page at a time,
because a system call for each of ten thousand notes would take longer than everything else.

A program may have a hundred thousand notes, most of which differ only in their addresses. So what
was decoded from some bytes is kept for the next note with the same bytes.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import NamedTuple

from markerjit.elf.format import parse_format
from markerjit.elf.image import PF_W, PF_X, Image, Segment
from markerjit.elf.rawnotes import more_notes, parse_note
from markerjit.errors import BadNote, MemoryFault
from markerjit.model import CType, Kind, Signature, TypeClass

OWNER = b"markerjit\0"
NOTE_TYPE = 1
VERSION = 1
MAX_ARGS = 12
FLAG_INLINE = 1

# version, kind, argc, flags, size, reserved, site, body, end, slot, text, line, types
CONTENT = struct.Struct("<BBBBHHiiiiiI12s")
_ADDRESSES = struct.Struct("<iiiiiI")  # the same from site to line
SITE, BODY, END, SLOT, TEXT = 8, 12, 16, 20, 24
"""Offsets of the relative addresses; each is relative to its own place."""
_TYPES = 32

MAX_NAME = 255
MAX_TEXT = 64 << 10
MAX_TEXTS = 64 << 20
MAX_PROBLEMS = 1000

KINDS = {
    1: Kind.JUMP,
    2: Kind.NOP,
    3: Kind.POINTER,
    4: Kind.SENTINEL,
    5: Kind.DIRECT,
    6: Kind.IMMEDIATE,
    7: Kind.SYMBOL,
}
"""The kinds by the numbers MJ_KIND_* of abi.h."""

_BLOCK = 4096
_MAX_BLOCKS = 1024
_WITHOUT_BODY = (Kind.IMMEDIATE, Kind.DIRECT)
_WITHOUT_SLOT = (Kind.DIRECT,)
_SIZES = {
    TypeClass.SIGNED: (1, 2, 4, 8),
    TypeClass.UNSIGNED: (1, 2, 4, 8),
    TypeClass.FLOAT: (4, 8),
    TypeClass.POINTER: (8,),
    TypeClass.CHARS: (8,),
    TypeClass.BOOL: (1,),
}


class Note(NamedTuple):
    """A decoded marker note, with addresses of the object file (before any load bias).

    `site`, `body`, `end` and `slot` are explained in abi.h; 0 where the kind has none. Only the
    code that finds sites uses notes; everything above it uses the sites.
    """

    name: str
    kind: Kind
    has_inline: bool
    format: str
    args: tuple[CType, ...]
    file: str
    line: int
    site: int
    body: int
    end: int
    slot: int

    @property
    def signature(self) -> Signature:
        """The marker's name, format and argument types."""
        return Signature(self.name, self.format, self.args)


def read_notes(image: Image) -> tuple[tuple[Note, ...], tuple[BadNote, ...]]:
    """The marker notes of an image, in its order, and the problems of those left out.

    Raises only what reading the image's memory raises once the process has ended.
    """
    reader = _Reader(image)
    for segment in image.note_segments():
        reader.read_segment(segment)
    return tuple(reader.notes), tuple(reader.problems)


_Description = tuple[str, Kind, bool, tuple[CType, ...]]


class _Reader:
    """Reads the notes of one image, segment by segment."""

    def __init__(self, image: Image) -> None:
        self.notes: list[Note] = []
        self.problems: list[BadNote] = []
        self._image = image
        self._code = image.loaded(PF_X) or [range(0)]
        self._data = image.loaded(PF_W) or [range(0)]
        self._texts = _Texts(image)
        self._descriptions: dict[bytes, _Description] = {}

    def read_segment(self, segment: Segment) -> None:
        try:
            data = self._image.read_note_segment(segment)
        except BadNote as problem:
            self.problems.append(problem)
            return
        start = 0
        head = b""  # of the marker's note before: its sizes, type and owner
        size = whole = 0  # of its content, and of the note
        while more_notes(data, start) and len(self.problems) < MAX_PROBLEMS:
            try:
                content_start = start + len(head)
                content = data[content_start : content_start + size]
                if head and data.startswith(head, start) and len(content) == size:
                    following = start + whole  # it is divided as that one was
                else:
                    raw, following = parse_note(data, start, segment.align)
                    if raw.owner != OWNER or raw.type != NOTE_TYPE:
                        start = following
                        continue
                    content, content_start = raw.content, raw.content_start
                    if segment.align != 8:  # else the padding depends on where it starts
                        head = data[start:content_start]
                        size, whole = len(content), following - start
                self.notes.append(self._decode(content, segment.address + content_start))
                start = following
            except BadNote as problem:
                where = f"{self._image.name}: the note at {segment.address + start:#x}"
                self.problems.append(BadNote(f"{where} {problem}"))
                # Its sizes may be damaged, so the next note is searched for.
                start = _find_marker(data, start + 1)

    def _decode(self, content: bytes, address: int) -> Note:
        """The note whose content is at `address`. Raises BadNote, without the place."""
        # What is not an address: the version and what follows it, the types and the name.
        constant = content[:SITE] + content[_TYPES:]
        description = self._descriptions.get(constant)
        if description is None:
            description = self._descriptions[constant] = _describe(content)
        name, kind, has_inline, args = description
        site, body, end, slot, text, line = _ADDRESSES.unpack_from(content, SITE)
        format_, file = self._texts.pair(address + TEXT + text)
        parse_format(format_, args)  # refuses the note where it cannot be parsed
        note = Note(
            name, kind, has_inline, format_, args, file, line,
            address + SITE + site,
            address + BODY + body if body else 0,
            address + END + end,
            address + SLOT + slot if slot else 0,
        )  # fmt: skip
        self._check_addresses(note)
        return note

    def _check_addresses(self, note: Note) -> None:
        code, data = self._code[0], self._data[0]
        if note.site in code and note.end in code and note.body in code and note.slot in data:
            return  # as usual
        has_body = note.body or note.kind not in _WITHOUT_BODY
        has_slot = note.slot or note.kind not in _WITHOUT_SLOT
        if not (_inside(note.site, self._code) and _inside(note.end, self._code)):
            raise BadNote(f"of {note.name} has its site at {note.site:#x}, where no code is")
        if has_body and not _inside(note.body, self._code):
            raise BadNote(f"of {note.name} has its body at {note.body:#x}, where no code is")
        if has_slot and not _inside(note.slot, self._data):
            raise BadNote(f"of {note.name} has its slot at {note.slot:#x}, where no data is")


class _Texts:
    """Reads pairs of strings from an image: each is format NUL file NUL."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._spans = image.loaded()
        self._blocks: dict[int, bytes] = {}
        self._block, self._block_start = b"", 0  # the last one that was read from
        self._pairs: dict[int, tuple[str, str]] = {}
        self._decoded: dict[bytes, tuple[str, str]] = {}
        self._budget = MAX_TEXTS

    def pair(self, address: int) -> tuple[str, str]:
        """Format and file at `address`. Sites that the compiler duplicated share them."""
        pair = self._pairs.get(address)
        if pair is None:
            strings = self._in_last_block(address) or self._two_strings(address)
            self._budget -= len(strings)
            if self._budget < 0:
                raise BadNote(f"is one too many: the texts take more than {MAX_TEXTS >> 20} MiB")
            pair = self._decoded.get(strings)  # a compiler writes the same text for every site
            if pair is None:
                # A source file may have any encoding; decoding must not fail.
                parts = strings.split(b"\0")
                format_, file = (part.decode(errors="backslashreplace") for part in parts)
                pair = self._decoded[strings] = (format_, file)
            self._pairs[address] = pair
        return pair

    def _in_last_block(self, address: int) -> bytes | None:
        """What `_two_strings` gives, where the last block has all of it."""
        start = address - self._block_start
        if not 0 <= start < len(self._block):
            return None
        middle = self._block.find(b"\0", start)
        end = self._block.find(b"\0", middle + 1)
        return self._block[start:end] if middle >= 0 and end >= 0 else None

    def _two_strings(self, address: int) -> bytes:
        """The two strings with the NUL between them."""
        span = next((span for span in self._spans if address in span), None)
        if span is None:
            raise BadNote(f"has its text at {address:#x}, outside of the image")
        found = b""
        while len(found) < MAX_TEXT and address + len(found) in span:
            found += self._rest_of_block(address + len(found), span)
            parts = found[:MAX_TEXT].split(b"\0", 2)
            if len(parts) == 3:
                return b"\0".join(parts[:2])
        raise BadNote(f"has a text without an end at {address:#x}")

    def _rest_of_block(self, address: int, span: range) -> bytes:
        """The bytes from `address` to the end of its block, or of its segment if that is first."""
        block = address & -_BLOCK
        start, end = max(block, span.start), min(block + _BLOCK, span.stop)
        content = self._blocks.get(start)
        if content is None:
            try:
                content = self._image.read(start, end - start)
            except MemoryFault as fault:
                raise BadNote(f"has a text that cannot be read: {fault}") from None
            if len(self._blocks) >= _MAX_BLOCKS:
                self._blocks.clear()
            self._blocks[start] = content
        self._block, self._block_start = content, start
        return content[address - start :]


def _describe(content: bytes) -> _Description:
    """The part of a note that has no addresses: name, kind, whether the body is inline, types."""
    if content[:1] != bytes([VERSION]):
        version = content[0] if content else "none"
        raise BadNote(f"is of version {version}; this markerjit reads version {VERSION}")
    if len(content) < CONTENT.size:
        raise BadNote(f"has {len(content)} bytes, too few for a marker")
    _, kind_code, argc, flags, size, *_, types = CONTENT.unpack_from(content)
    name = _decode_name(content, size)
    kind = _decode_kind(kind_code)
    return name, kind, bool(flags & FLAG_INLINE), _decode_types(types, argc)


def _decode_name(content: bytes, start: int) -> str:
    """The name, which is the content from `start` on; fields added later come before it."""
    name, nul, rest = content[start:].partition(b"\0")
    if start < CONTENT.size or not nul or rest:
        raise BadNote("does not end with a name")
    try:
        text = name.decode()
    except UnicodeDecodeError:
        text = ""
    # gcc and clang allow a dollar sign in an identifier.
    if len(name) > MAX_NAME or not text.replace("$", "_").isidentifier():
        raise BadNote(f"has a name that is not a C identifier: {name[:40]!r}")
    return text


def _decode_kind(code: int) -> Kind:
    kind = KINDS.get(code)
    if kind is None:
        raise BadNote(f"is of unknown kind {code}")
    return kind


@lru_cache(maxsize=1024)
def _decode_types(types: bytes, argc: int) -> tuple[CType, ...]:
    """The types of `argc` arguments, a byte each, and zeros for the rest."""
    if argc > MAX_ARGS or any(types[argc:]):
        raise BadNote(f"says {argc} arguments, and types for others")
    return tuple(map(_decode_type, types[:argc]))


def _decode_type(code: int) -> CType:
    """MJ_CLASS_* in the high nibble, log2 of the size in the low one."""
    type_class, size = code >> 4, 1 << (code & 15)
    if type_class not in _SIZES or size not in _SIZES[TypeClass(type_class)]:
        raise BadNote(f"has an argument of unknown type {code:#04x}")
    return CType(TypeClass(type_class), size)


def _inside(address: int, spans: list[range]) -> bool:
    return any(address in span for span in spans)


def _find_marker(data: bytes, start: int) -> int:
    """The offset, from `start` on, where a marker's note may begin; the size of `data` if none."""
    owner = data.find(OWNER, start + 12)
    while owner >= 0:
        header = owner - 12
        sizes_fit = data[header : header + 4] == len(OWNER).to_bytes(4, "little")
        if sizes_fit and header % 4 == 0:
            return header
        owner = data.find(OWNER, owner + 1)
    return len(data)
