"""Real programs, cut down to what the decoders read of them, as inputs for fuzzing.

Of a program's file the decoders read the headers, the notes, and the texts that these point at. A
`Skeleton` holds these spans; an input is their bytes one after another, so that each byte that is
changed is one that is read. `rebuilt` puts an input's bytes back in their places, with zeros for
code and data.

What this does not do: move a span. A number that points elsewhere points at zeros.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import NamedTuple

from markerjit.elf import FileImage
from markerjit.elf.image import PT_LOAD, PT_NOTE, Segment
from markerjit.elf.notes import CONTENT, TEXT, read_notes
from markerjit.elf.rawnotes import parse_note
from tests.fuzz.edits import Place
from tests.support.programs import ROOT, make

PROGRAMS = ("truth_modes-jump", "truth_plugin.so", "truth_modes-immediate", "truth_static")
"""Position-independent, a shared object, with sites without a body, and at fixed addresses."""

_HEADER = 64
_PHDR = 56
_PAGE = 4096


class Skeleton(NamedTuple):
    """The spans of a program's file that matter, and what is loaded where.

    size      of the file, up to the end of what is loaded
    spans     (offset, bytes), by offset
    loads     the loaded segments
    """

    size: int
    spans: tuple[tuple[int, bytes], ...]
    loads: tuple[Segment, ...]

    @property
    def body(self) -> bytes:
        """What an input has for this program: all spans."""
        return b"".join(content for _, content in self.spans)

    def rebuilt(self, body: bytes) -> tuple[tuple[int, bytes], ...]:
        """(offset, bytes) for each span, filled from `body` as far as it goes."""
        spans, at = [], 0
        for offset, content in self.spans:
            spans.append((offset, body[at : at + len(content)]))
            at += len(content)
        return tuple(spans)

    def places(self) -> list[Place]:
        """Where numbers stand in `body`: of the headers and the notes."""
        places, at = [], 0
        for offset, content in self.spans:
            if offset == 0:
                places += [Place(at + 4, 1), Place(at + 5, 1), *_header_places(at, content)]
            elif any(offset == segment.offset for segment in self._notes()):
                places += note_places(content, at)
            at += len(content)
        return places

    def _notes(self) -> list[Segment]:
        return _segments(self.spans[0][1], PT_NOTE)


@cache
def skeleton(program: str) -> Skeleton:
    """The skeleton of a program in build/targets, which is built where it is not."""
    make(f"build/targets/{program}")
    path = ROOT / "build" / "targets" / program
    data = path.read_bytes()
    headers = data[: _HEADER + _PHDR * struct.unpack_from("<H", data, 56)[0]]
    loads = _segments(headers, PT_LOAD)
    spans = {0: len(headers)}
    for segment in _segments(headers, PT_NOTE):
        spans[segment.offset] = segment.file_size
    with FileImage(str(path)) as image:
        notes, problems = read_notes(image)
        assert not problems
        for text, size in {_text_of(image, segment) for segment in _marker_notes(image)}:
            spans[_offset(loads, text)] = size
    assert notes or "none" in program
    size = max(segment.offset + segment.file_size for segment in loads)
    filled = tuple((offset, data[offset : offset + spans[offset]]) for offset in sorted(spans))
    return Skeleton(size, filled, tuple(loads))


def note_places(segment: bytes, at: int, align: int = 4) -> list[Place]:
    """The numbers in a note segment that begins `at` bytes into an input."""
    places, start = [], 0
    while start + 12 <= len(segment):
        note, following = parse_note(segment, start, align)
        places += [Place(at + start + field, 4) for field in (0, 4, 8)]
        if note.owner == b"markerjit\0":
            content = at + note.content_start
            places += [Place(content + field, 1) for field in range(4)]
            places += [Place(content + 4, 2)]
            places += [Place(content + field, 4) for field in range(8, 32, 4)]
            places += [Place(content + field, 1) for field in range(32, 44)]
        start = following
    return places


def _header_places(at: int, content: bytes) -> list[Place]:
    fields = [(16, 2), (18, 2), (32, 8), (54, 2), (56, 2)]
    for header in range(_HEADER, len(content), _PHDR):
        fields += [(header, 4), (header + 4, 4)]
        fields += [(header + field, 8) for field in range(8, _PHDR, 8)]
    return [Place(at + offset, width) for offset, width in fields]


def _segments(headers: bytes, type_: int) -> list[Segment]:
    segments = map(Segment._make, struct.Struct("<IIQQQQQQ").iter_unpack(headers[_HEADER:]))
    return [segment for segment in segments if segment.type == type_]


def _marker_notes(image: FileImage) -> list[tuple[int, int]]:
    """Address and relative text address of each marker's note."""
    texts = []
    for segment in image.note_segments():
        data, start = image.read_note_segment(segment), 0
        while start + 12 <= len(data):
            note, start = parse_note(data, start, segment.align)
            if note.owner == b"markerjit\0":
                text = CONTENT.unpack_from(note.content)[10]
                texts.append((segment.address + note.content_start + TEXT, text))
    return texts


def _text_of(image: FileImage, note: tuple[int, int]) -> tuple[int, int]:
    """Where the format and the file of a note are, and their size with both NULs."""
    address = sum(note)
    (left,) = (span.stop - address for span in image.loaded() if address in span)
    data = image.read(address, min(left, 256))
    return address, data.index(b"\0", data.index(b"\0") + 1) + 1


def _offset(loads: list[Segment], address: int) -> int:
    (offset,) = (
        segment.offset + address - segment.address
        for segment in loads
        if segment.address <= address < segment.file_end
    )
    return offset
