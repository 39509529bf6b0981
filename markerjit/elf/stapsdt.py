"""The notes of USDT probes, which sys/sdt.h of SystemTap writes: owner "stapsdt", type 3.

A note has three addresses (the no-op, the base, the semaphore) and three texts (provider, name and
operands). The section of the notes is not loaded, so they are read from a file. prelink moves an
object without changing its notes. Then the section .stapsdt.base has moved from the address that
each note remembers, and everything else has moved as far.

A note that lies is a problem in the answer and does not hide the others. The bytes at a site and
the operands are not looked at here.

Authority: https://sourceware.org/systemtap/wiki/UserSpaceProbeImplementation; sys/sdt.h.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from markerjit.elf.image import PF_W, PF_X, FileImage
from markerjit.elf.rawnotes import more_notes, parse_note
from markerjit.elf.sections import (
    SHT_NOTE,
    Section,
    Symbols,
    read_sections,
    section_bytes,
)
from markerjit.errors import BadFile, BadNote
from markerjit.tuples import NamedTuple

OWNER = b"stapsdt\0"
NOTE_TYPE = 3
MAX_PROBLEMS = 1000
MAX_NAME = 255
MAX_OPERANDS = 4096
"""Bytes of the text of all operands."""

_ADDRESSES = struct.Struct("<QQQ")
_NARROW = struct.Struct("<III")
_NAME = re.compile(r"[^\W\d][\w$.-]*")


class SdtNote(NamedTuple):
    """A probe's note, with addresses of the object file.

    site       of the no-op
    semaphore  of its count; 0 without one
    operands   as the compiler wrote them, with a space between two
    """

    provider: str
    name: str
    site: int
    semaphore: int
    operands: str


class SdtNotes(NamedTuple):
    """The notes of a file in their order, what is wrong with those left out, and the symbols that
    operands may name."""

    notes: tuple[SdtNote, ...]
    problems: tuple[BadNote | BadFile, ...]
    symbols: Symbols


def read_sdt_notes(image: FileImage) -> SdtNotes:
    """The notes of USDT probes in a file. Raises nothing: what cannot be read is a problem."""
    try:
        sections = read_sections(image)
    except BadFile as problem:
        return SdtNotes((), (problem,), Symbols(image, ()))
    reader = _Reader(image, sections)
    for section in sections:
        if section.type == SHT_NOTE and section.name == b".note.stapsdt":
            reader.read_section(section)
            break  # a linker makes one; thousands could claim the same bytes
    return SdtNotes(tuple(reader.notes), tuple(reader.problems), Symbols(image, sections))


class _Reader:
    def __init__(self, image: FileImage, sections: tuple[Section, ...]) -> None:
        self.notes: list[SdtNote] = []
        self.problems: list[BadNote | BadFile] = []
        self._image = image
        self._code = image.loaded(PF_X)
        self._data = image.loaded(PF_W)
        bases = [section.address for section in sections if section.name == b".stapsdt.base"]
        self._base = bases[0] if bases else None

    def read_section(self, section: Section) -> None:
        try:
            data = section_bytes(self._image, section)
        except BadFile as problem:
            self.problems.append(problem)
            return
        start = 0
        while more_notes(data, start) and len(self.problems) < MAX_PROBLEMS:
            try:
                raw, following = parse_note(data, start, section.align)
                if raw.owner == OWNER and raw.type == NOTE_TYPE:
                    self.notes.append(self._note(raw.content))
                start = following
            except BadNote as problem:
                of = f" ({problem.name})" if problem.name else ""
                where = f"{self._image.name}: the USDT note at {start:#x} of its section{of}"
                self.problems.append(BadNote(f"{where} {problem}", problem.name))
                # Its sizes may be damaged, so the next note is searched for.
                start = _find_note(data, start + 1)

    def _note(self, content: bytes) -> SdtNote:
        if len(content) < _ADDRESSES.size:
            raise BadNote(f"has {len(content)} bytes, too few for a probe")
        site, base, semaphore = _ADDRESSES.unpack_from(content)
        texts = content[_ADDRESSES.size :]
        moved = 0 if self._base is None or not base else self._base - base
        if not _inside(site + moved, self._code):
            narrow = _NARROW.unpack_from(content)[0]
            if narrow and _inside(narrow, self._code):
                raise BadNote(
                    "has addresses of 32 bits; markerjit is for 64-bit ones",
                    _probe(content[_NARROW.size :]),
                )
            raise BadNote(f"says that its probe is at {site:#x}, which is not code", _probe(texts))
        if semaphore and not (
            _inside(semaphore + moved, self._data) and _inside(semaphore + moved + 1, self._data)
        ):
            raise BadNote(
                f"says that its semaphore is at {semaphore:#x}, which is not data", _probe(texts)
            )
        provider, name, operands = _texts(texts)
        return SdtNote(provider, name, site + moved, semaphore and semaphore + moved, operands)


def _probe(texts: bytes) -> str:
    """The probe that these texts name; "" where they name none."""
    try:
        provider, name, _ = _texts(texts)
    except BadNote:
        return ""
    return f"{provider}:{name}"


def _texts(content: bytes) -> tuple[str, str, str]:
    """Provider, name and operands, each with a NUL behind it."""
    parts = content.split(b"\0")
    if len(parts) < 4:
        raise BadNote("has a text without an end")
    # A note may have a provider, a name and no operands at all; padding follows.
    if any(parts[3:]):
        raise BadNote("has more than three texts")
    provider, name = _name(parts[0]), _name(parts[1])
    if len(parts[2]) > MAX_OPERANDS:
        raise BadNote(f"has operands of {len(parts[2])} bytes")
    try:
        operands = parts[2].decode()
    except UnicodeDecodeError:
        operands = ""
    if not operands.isprintable() or bool(operands) != bool(parts[2]):
        raise BadNote("has operands that are not text")
    return provider, name, operands


def _name(text: bytes) -> str:
    try:
        name = text.decode()
    except UnicodeDecodeError:
        name = ""
    if len(text) > MAX_NAME or not _NAME.fullmatch(name):
        raise BadNote(f"has a name that is none: {text[:40]!r}")
    return name


def _inside(address: int, spans: list[range]) -> bool:
    return any(address in span for span in spans)


def _find_note(data: bytes, start: int) -> int:
    """The offset, from `start` on, where a probe's note may begin; the size of `data` if none."""
    for owner in _finds(data, OWNER, start + 12):
        header = owner - 12
        if header % 4 == 0 and data[header : header + 4] == len(OWNER).to_bytes(4, "little"):
            return header
    return len(data)


def _finds(data: bytes, what: bytes, start: int) -> Iterator[int]:
    at = data.find(what, start)
    while at >= 0:
        yield at
        at = data.find(what, at + 1)
