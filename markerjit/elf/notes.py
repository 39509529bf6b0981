"""The notes by which markers describe themselves: the Python mirror of struct mj_note in abi.h.

A malformed note becomes a problem in the answer and does not hide the others: the search goes on at
the next bytes that look like a marker's note. A note is checked against the image (the site is
code, the slot is data, the text can be read). The bytes at the site are not checked here; the
package x86 knows them.

The texts, format and source file, are elsewhere in the image. They are read a page at a time,
because a system call for each of ten thousand notes would take longer than everything else.

A program may have a hundred thousand notes, most of which differ only in their addresses. So what
was decoded from some bytes is kept for the next note with the same bytes, and the next notes are
compared with the ones that are known before they are taken apart: some hundred at once, column by
column, and one by one where these differ in more. Notes that are alike are one value, with columns
of their addresses.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import chain, repeat
from operator import add, itemgetter

from markerjit.elf.format import parse_format
from markerjit.elf.image import PF_W, PF_X, Image, Segment
from markerjit.elf.rawnotes import iterate_notes, more_notes, parse_note
from markerjit.errors import BadNote, MemoryFault
from markerjit.model import CType, Kind, Signature, TypeClass
from markerjit.tuples import NamedTuple

OWNER = b"markerjit\0"
NOTE_TYPE = 1
VERSION = 2
OLDEST = 1
MAX_ARGS = 12
FLAG_INLINE = 1
FLAG_BLOCK = 2

# version, kind, argc, flags, size, reserved, site, body, end, slot, text, line, types
CONTENT = struct.Struct("<BBBBHHiiiiiI12s")
_ADDRESSES = struct.Struct("<iiiiiI")  # the same from site to line
SITE, BODY, END, SLOT, TEXT = 8, 12, 16, 20, 24
"""Offsets of the relative addresses; each is relative to its own place."""
_BEGIN = 12 + 12 + SITE
"""Bytes of a note before its addresses, where the alignment is four: header, owner, and more."""

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

_WORD = 4
_LINE = (_BEGIN + _ADDRESSES.size) // _WORD - 1
"""The word of a note that has its line."""
_LOT = 512
"""Notes that are read at once."""
_MOST_APART = 1 << 16
"""Bytes that their texts may take together, with what is between them."""
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

    `site`, `body`, `end` and `slot` are explained in abi.h; 0 where the kind has none. `preserving`
    is how the body calls the probe: by a preserving call, otherwise by an ordinary C call. Only the
    code that finds sites uses notes; everything above it uses the sites. The notes of a marker
    share its `signature`.
    """

    signature: Signature
    kind: Kind
    has_inline: bool
    file: str
    line: int
    site: int
    body: int
    end: int
    slot: int
    preserving: bool

    @property
    def name(self) -> str:
        """The marker's name."""
        return self.signature.name

    @property
    def format(self) -> str:
        """The marker's format."""
        return self.signature.format

    @property
    def args(self) -> tuple[CType, ...]:
        """The types of the marker's arguments."""
        return self.signature.args


class Columns(NamedTuple):
    """The parts of notes that differ where notes are alike, with the notes' own addresses: a list
    for each part, which has it of each note."""

    note: list[int]
    site: list[int]
    body: list[int]
    end: list[int]
    line: list[int]

    def part(self, indices: Sequence[int]) -> Columns:
        """The same of some of the notes, in their order."""
        return Columns(*([column[index] for index in indices] for column in self))


class AlikeNotes(NamedTuple):
    """Notes of a marker that are alike, but for their columns. The fields are those of `Note`.
    Notes of sentinels have the same body."""

    signature: Signature
    kind: Kind
    has_inline: bool
    file: str
    slot: int
    preserving: bool
    columns: Columns

    def notes(self) -> Iterator[tuple[int, Note]]:
        """The notes, each behind its address."""
        signature, kind, has_inline, file, slot, preserving, columns = self
        for at, site, body, end, line in zip(*columns, strict=True):
            yield (
                at,
                Note(signature, kind, has_inline, file, line, site, body, end, slot, preserving),
            )


def read_notes(image: Image) -> tuple[tuple[Note, ...], tuple[BadNote, ...]]:
    """The marker notes of an image, by their addresses, and the problems of those left out.

    Raises only what reading the image's memory raises once the process has ended.
    """
    alike, problems = read_alike(image)
    notes = sorted(chain.from_iterable(notes.notes() for notes in alike), key=itemgetter(0))
    return tuple(note for _, note in notes), problems


def read_alike(image: Image) -> tuple[tuple[AlikeNotes, ...], tuple[BadNote, ...]]:
    """The marker notes of an image, with those that are alike together."""
    reader = _Reader(image)
    for segment in image.note_segments():
        reader.read_segment(segment)
    return tuple(reader.alike), tuple(reader.problems)


class _Description:
    """The facts of a note besides its addresses: name, kind, whether the body is inline, whether
    its call preserves registers, types; and the columns of its notes, by the rest of what they may
    share."""

    def __init__(
        self, name: str, kind: Kind, has_inline: bool, preserving: bool, args: tuple[CType, ...]
    ) -> None:
        self.name = name
        self.kind = kind
        self.has_inline = has_inline
        self.preserving = preserving
        self.columns: dict[tuple[tuple[str, str], int, int], Columns] = {}
        self._signatures: dict[str, Signature] = {}
        self._args = args

    def signature(self, format_: str) -> Signature:
        """The signature with a format. Raises BadNote where that cannot be parsed."""
        if format_ not in self._signatures:
            parse_format(format_, self._args)
            self._signatures[format_] = Signature(self.name, format_, self._args)
        return self._signatures[format_]


class _Layout(NamedTuple):
    """Of notes that begin with the same bytes, up to their addresses; and their descriptions by
    the bytes behind the addresses."""

    whole: struct.Struct
    descriptions: dict[bytes, _Description]


class _Reader:
    """Reads the notes of one image, segment by segment."""

    def __init__(self, image: Image) -> None:
        self.alike: list[AlikeNotes] = []
        self.problems: list[BadNote] = []
        self._image = image
        self._layouts: dict[bytes, _Layout] = {}

    # Most objects have no marker, and need nothing of this.

    @cached_property
    def _code(self) -> list[range]:
        return self._image.loaded(PF_X) or [range(0)]

    @cached_property
    def _data(self) -> list[range]:
        return self._image.loaded(PF_W) or [range(0)]

    @cached_property
    def _usual(self) -> tuple[int, int, int, int]:
        code, data = self._code[0], self._data[0]
        return code.start, code.stop, data.start, data.stop

    @cached_property
    def _texts(self) -> _Texts:
        return _Texts(self._image)

    def read_segment(self, segment: Segment) -> None:
        try:
            data = self._image.read_note_segment(segment)
        except BadNote as problem:
            self.problems.append(problem)
            return
        if OWNER not in data and _are_sound(data, segment.align):
            return  # those of others, as most objects have
        start = 0
        while more_notes(data, start) and len(self.problems) < MAX_PROBLEMS:
            try:
                raw, following = parse_note(data, start, segment.align)
                if raw.owner == OWNER and raw.type == NOTE_TYPE:
                    description = _describe(raw.content)
                    addresses = raw.content_start + SITE
                    self._add(
                        description, segment.address + addresses,
                        *_ADDRESSES.unpack_from(data, addresses),
                    )  # fmt: skip
                    if segment.align != 8:  # else the padding depends on where it starts
                        self._note_alike(description, data[start:following])
                        following = self._read_alike(data, following, segment.address)
                start = following
            except BadNote as problem:
                where = f"{self._image.name}: the note at {segment.address + start:#x}"
                self.problems.append(BadNote(f"{where} {problem}"))
                # Its sizes may be damaged, so the next note is searched for.
                start = _find_marker(data, start + 1)

    def _note_alike(self, description: _Description, note: bytes) -> None:
        """Notes with the same bytes, but for their addresses, have the same description."""
        begin, behind = note[:_BEGIN], note[_BEGIN + _ADDRESSES.size :]
        if begin not in self._layouts:
            whole = struct.Struct(f"<{_BEGIN}siiiiiI{len(behind)}s")
            self._layouts[begin] = _Layout(whole, {})
        self._layouts[begin].descriptions[behind] = description

    def _read_alike(self, data: bytes, start: int, base: int) -> int:
        """Read the notes from `start` on that equal earlier notes except in their addresses.
        Returns the start of the first note that does not, or that is bad."""
        while known := self._layouts.get(begin := data[start : start + _BEGIN]):
            layout, descriptions = known
            start = self._read_lots(data, start, base, begin, known)
            first, behind, description = start, b"", None
            whole = min(_LOT, (len(data) - start) // layout.size) * layout.size
            rest = memoryview(data)[start : start + whole]
            for head, site, body, end, slot, text, line, tail in layout.iter_unpack(rest):
                if head != begin:
                    break
                if tail != behind:
                    behind, description = tail, descriptions.get(tail)
                if description is None:
                    return start
                try:
                    at = base + start + _BEGIN
                    self._add(description, at, site, body, end, slot, text, line)
                except BadNote:
                    return start
                start += layout.size
            if start == first:
                break
        return start

    def _read_lots(self, data: bytes, start: int, base: int, begin: bytes, known: _Layout) -> int:
        """Read whole lots of notes from `start` on that differ only in the place of their code.
        Returns the start of the first lot that has to be read note by note."""
        layout, descriptions = known
        size, words = layout.size, layout.size // _WORD
        if size % _WORD:
            return start
        while start + _LOT * size <= len(data) and data.startswith(begin, start):
            lot = memoryview(data)[start : start + _LOT * size].cast("i")
            columns = [lot[at::words].tolist() for at in range(words)]
            addresses, lines = columns[_BEGIN // _WORD : _LINE], columns[_LINE]
            same = (*columns[: _BEGIN // _WORD], *columns[_LINE + 1 :])
            if any(column.count(column[0]) != _LOT for column in same) or min(lines) < 0:
                break
            description = descriptions.get(data[start + _BEGIN + _ADDRESSES.size : start + size])
            places = range(base + start + _BEGIN, base + start + _BEGIN + _LOT * size, size)
            if description is None or not self._add_lot(description, places, addresses, lines):
                break
            start += _LOT * size
        return start

    def _add_lot(
        self,
        description: _Description,
        places: Sequence[int],
        offsets: Sequence[Sequence[int]],
        lines: Sequence[int],
    ) -> bool:
        """As `_add` with each, where all are in the first segments of code and data and share their
        texts and their slot. Nothing is added where they do not, or one has something odd.
        `offsets` are columns of relative addresses, those of the sites first."""
        site_offsets, body_offsets, end_offsets, slot_offsets, text_offsets = offsets
        if description.kind is Kind.SENTINEL or not (all(body_offsets) and all(slot_offsets)):
            return False
        slots = {*map(add, slot_offsets, places)}
        if len(slots) > 1:
            return False
        texts = self._texts.shared({at + (TEXT - SITE) for at in map(add, text_offsets, places)})
        if texts is None:
            return False
        sites = [*map(add, site_offsets, places)]
        bodies = [at + (BODY - SITE) for at in map(add, body_offsets, places)]
        ends = [at + (END - SITE) for at in map(add, end_offsets, places)]
        slot = slots.pop() + (SLOT - SITE)
        code, code_end, written, written_end = self._usual
        addresses = (sites, bodies, ends)
        if not (
            code <= min(map(min, addresses))
            and max(map(max, addresses)) < code_end
            and written <= slot < written_end
        ):
            return False
        shared = texts, slot, 0
        columns = description.columns.get(shared)
        if columns is None:
            return False
        for column, values in zip(columns, (places, sites, bodies, ends, lines), strict=True):
            column += values
        return True

    def _add(
        self,
        description: _Description,
        at: int,
        site: int,
        body: int,
        end: int,
        slot: int,
        text: int,
        line: int,
    ) -> None:
        """Add the note whose relative addresses, which begin at `at`, are these. Raises BadNote,
        without the place."""
        texts = self._texts.pair(at + (TEXT - SITE) + text)
        site += at
        body = at + (BODY - SITE) + body if body else 0
        end += at + (END - SITE)
        slot = at + (SLOT - SITE) + slot if slot else 0
        code, code_end, written, written_end = self._usual
        if not (
            code <= site < code_end
            and code <= end < code_end
            and code <= body < code_end
            and written <= slot < written_end
        ):
            self._check_addresses(description, site, body, end, slot)
        shared = texts, slot, body if description.kind is Kind.SENTINEL else 0
        columns = description.columns.get(shared)
        if columns is None:
            columns = self._begin(description, texts, slot)
            description.columns[shared] = columns
        columns.note.append(at)
        columns.site.append(site)
        columns.body.append(body)
        columns.end.append(end)
        columns.line.append(line)

    def _begin(self, description: _Description, texts: tuple[str, str], slot: int) -> Columns:
        """The columns of the next notes of a description with these texts and this slot. Raises
        BadNote for a format that cannot be parsed."""
        format_, file = texts
        columns = Columns([], [], [], [], [])
        self.alike.append(
            AlikeNotes(
                description.signature(format_), description.kind, description.has_inline,
                file, slot, description.preserving, columns,
            )
        )  # fmt: skip
        return columns

    def _check_addresses(
        self, description: _Description, site: int, body: int, end: int, slot: int
    ) -> None:
        """Check the addresses of a note that are not in the first segments of code and data."""
        name, kind = description.name, description.kind
        if not (_inside(site, self._code) and _inside(end, self._code)):
            raise BadNote(f"of {name} has its site at {site:#x}, where no code is")
        if (body or kind not in _WITHOUT_BODY) and not _inside(body, self._code):
            raise BadNote(f"of {name} has its body at {body:#x}, where no code is")
        if (slot or kind not in _WITHOUT_SLOT) and not _inside(slot, self._data):
            raise BadNote(f"of {name} has its slot at {slot:#x}, where no data is")


class _Texts:
    """Reads pairs of strings from an image: each is format NUL file NUL."""

    def __init__(self, image: Image) -> None:
        self._image = image
        self._spans = image.loaded()
        self._blocks: dict[int, bytes] = {}
        self._block, self._block_start = b"", 0  # the last one that was read from
        self._last = b"\0\0"  # two strings with their NULs
        self._pairs: dict[int, tuple[str, str]] = {}
        self._decoded: dict[bytes, tuple[str, str]] = {}
        self._budget = MAX_TEXTS

    def pair(self, address: int) -> tuple[str, str]:
        """Format and file at `address`. Sites that the compiler duplicated share them."""
        pair = self._pairs.get(address)
        if pair is not None:
            return pair
        start = address - self._block_start
        # A compiler writes the same text for every site, one behind the other.
        if start < 0 or not self._block.startswith(self._last, start):
            self._last = self._two_strings(address)
        self._budget -= len(self._last) - 1
        if self._budget < 0:
            raise BadNote(f"is one too many: the texts take more than {MAX_TEXTS >> 20} MiB")
        pair = self._decoded.get(self._last)
        if pair is None:
            # A source file may have any encoding; decoding must not fail.
            parts = self._last.split(b"\0")
            format_, file = (part.decode(errors="backslashreplace") for part in parts[:2])
            pair = self._decoded[self._last] = (format_, file)
        self._pairs[address] = pair
        return pair

    def shared(self, addresses: Collection[int]) -> tuple[str, str] | None:
        """The format and file that stand at each of these addresses, where they are those that were
        read last, and all near each other; None where that cannot be seen at a glance."""
        first, size = min(addresses), len(self._last)
        end = max(addresses) + size
        if end - first > _MOST_APART or (size - 1) * len(addresses) > self._budget:
            return None
        content = self._content(first, end)
        if content is None:
            return None
        offsets = [address - first for address in addresses]
        if not all(map(content.startswith, repeat(self._last), offsets)):
            return None
        self._budget -= (size - 1) * len(addresses)
        return self._decoded.get(self._last)

    def _content(self, start: int, end: int) -> bytes | None:
        """The bytes from `start` to `end`; None where they are not in one segment, or cannot be
        read."""
        span = next((span for span in self._spans if start in span), range(0))
        if end > span.stop:
            return None
        try:
            return b"".join(
                self._rest_of_block(at, span)[: end - at]
                for at in (start, *range((start | _BLOCK - 1) + 1, end, _BLOCK))
            )
        except BadNote:
            return None

    def _two_strings(self, address: int) -> bytes:
        """The two strings, each with its NUL."""
        start = address - self._block_start
        if 0 <= start < len(self._block):
            middle = self._block.find(b"\0", start)
            end = self._block.find(b"\0", middle + 1) if middle >= 0 else -1
            if end >= 0:
                return self._block[start : end + 1]
        span = next((span for span in self._spans if address in span), None)
        if span is None:
            raise BadNote(f"has its text at {address:#x}, outside of the image")
        data = b""
        while len(data) < MAX_TEXT and address + len(data) in span:
            data += self._rest_of_block(address + len(data), span)
            parts = data[:MAX_TEXT].split(b"\0", 2)
            if len(parts) == 3:
                return b"%b\0%b\0" % tuple(parts[:2])
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


@lru_cache(maxsize=256)  # the processes of a fleet have the same libraries
def _are_sound(data: bytes, align: int) -> bool:
    """Whether none of the notes of a segment is malformed."""
    try:
        return all(iterate_notes(data, align))
    except BadNote:
        return False


def _describe(content: bytes) -> _Description:
    """The part of a note that has no addresses: name, kind, whether the body has an inline probe,
    whether its call preserves registers, types. Raises BadNote."""
    version = content[0] if content else 0
    if not OLDEST <= version <= VERSION:
        shown = content[0] if content else "none"
        raise BadNote(f"is of version {shown}; this markerjit reads versions {OLDEST} to {VERSION}")
    if len(content) < CONTENT.size:
        raise BadNote(f"has {len(content)} bytes, too few for a marker")
    _, kind_code, argc, flags, size, *_, types = CONTENT.unpack_from(content)
    name = _decode_name(content, size)
    kind = _decode_kind(kind_code)
    preserving = bool(flags & FLAG_BLOCK) and version > OLDEST
    has_inline = bool(flags & FLAG_INLINE)
    return _Description(name, kind, has_inline, preserving, _decode_types(types, argc))


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
