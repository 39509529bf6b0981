"""The notes of a note segment, of any owner.

A note is a header of three words (sizes of the owner and of the content, and the type), the owner
with its NUL, and the content. Each part is padded to the alignment of the segment: four bytes, or
eight in .note.gnu.property. The gABI asks for eight in all 64-bit objects. Tool chains do not do
that; binutils, elfutils and the kernel use p_align.

Authority: gABI chapter 5, "Note Section"; binutils elf_parse_notes() for the alignment.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from markerjit.errors import BadNote
from markerjit.tuples import NamedTuple

_HEADER = struct.Struct("<III")


class RawNote(NamedTuple):
    """An undecoded note. `content_start` is an offset in the segment."""

    type: int
    owner: bytes
    content_start: int
    content: bytes


def iterate_notes(data: bytes, align: int) -> Iterator[RawNote]:
    """The notes in a segment's bytes. Raises BadNote at the first malformed one."""
    start = 0
    while more_notes(data, start):
        note, start = parse_note(data, start, align)
        yield note


def more_notes(data: bytes, start: int) -> bool:
    """Whether anything but padding follows `start`."""
    return len(data) - start >= _HEADER.size or any(data[start:])


def parse_note(data: bytes, start: int, align: int) -> tuple[RawNote, int]:
    """The note at `start`, and the offset of the next one.

    Raises BadNote where the note does not fit into the segment; the next one cannot be located
    then. A wrong size that fits is not detected.
    """
    end = len(data)
    if end - start < _HEADER.size:
        raise BadNote("is cut off in its header")
    owner_size, content_size, kind = _HEADER.unpack_from(data, start)
    owner_start = start + _HEADER.size
    owner_end = owner_start + owner_size
    align = 8 if align == 8 else 4
    content_start = _padded(owner_end, align)
    content_end = content_start + content_size
    # At the end of the segment, an empty content may lack the padding before it.
    if owner_end > end or (content_size and content_end > end):
        raise BadNote(
            f"is cut off or damaged: it claims an owner of {owner_size} and a content of "
            f"{content_size} bytes, {end - owner_start} are left"
        )
    owner = data[owner_start:owner_end]
    if b"\0" in owner.rstrip(b"\0"):  # Go ends its owner with two NULs
        raise BadNote("is damaged: its owner has a NUL in the middle")
    note = RawNote(kind, owner, content_start, data[content_start:content_end])
    return note, _padded(content_end, align)


def _padded(offset: int, align: int) -> int:
    return (offset + align - 1) & -align
