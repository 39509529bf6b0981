"""Checks of the rooms that read ELF: a program's file, the same mapped, and note segments alone.

An input of `file` and `mapped` is a byte that chooses the program, two that say how much of its
file is cut off, and the bytes of its skeleton; one of `notes` is a byte for the program and a note
segment.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from markerjit.elf import FileImage, Image, MappedImage, Note, Segment, notes, rawnotes, read_notes
from markerjit.elf.format import parse_format
from markerjit.elf.image import MAX_NOTE_BYTES, MAX_SEGMENTS, PF_W, PF_X, PT_NOTE
from markerjit.errors import BadFile, BadNote, MemoryFault, Unsupported
from markerjit.model import RemoteAddress
from tests.fuzz.edits import Place
from tests.fuzz.harness import ACCEPTED, LINE, Harness, Seed
from tests.fuzz.objects import PROGRAMS, Skeleton, note_places, skeleton
from tests.fuzz.stores import SpannedMemory

_PAGE = 4096
_PREFIX = 3
_READ = 16  # segments that are read at their ends; an image may claim thousands
_LOADED_AT = 0x555555554000
_NOTED = ("truth_modes-jump", "truth_inline", "truth_modes-direct", "kvserver")


def _seeds() -> list[Seed]:
    seeds = []
    for index, program in enumerate(PROGRAMS):
        bones = skeleton(program)
        places = [Place(_PREFIX + at, width) for at, width in bones.places()]
        seeds.append(Seed(bytes([index, 0, 0]) + bones.body, [Place(1, 2), *places]))
    return seeds


def _taken_apart(data: bytes) -> tuple[Skeleton, int, bytes]:
    """The program's skeleton, the bytes cut off its file, and what its spans hold instead."""
    prefix = data[:_PREFIX].ljust(_PREFIX, b"\0")
    bones = skeleton(PROGRAMS[prefix[0] % len(PROGRAMS)])
    return bones, int.from_bytes(prefix[1:], "little"), data[_PREFIX:]


# ---- a file --------------------------------------------------------------------------------------


def check_file(data: bytes) -> str:
    """FileImage raises BadFile or Unsupported, and leaves no descriptor open."""
    bones, cut, body = _taken_apart(data)
    file = _scratch()
    os.ftruncate(file, 0)
    size = max(0, bones.size - cut)
    os.ftruncate(file, size)
    for offset, content in bones.rebuilt(body):
        os.pwrite(file, content[: max(0, size - offset)], offset)
    free = _lowest_free_descriptor()
    try:
        with FileImage(f"/proc/self/fd/{file}") as image:
            claimed = sum(segment.file_size for segment in image.note_segments())
            assert claimed <= size, "more notes than the file has bytes"
            outcome = _check_image(image)
            for segment in image.segments[:_READ]:
                _check_read(image, segment)
    except (BadFile, Unsupported) as error:
        outcome = _named(error)
    assert _lowest_free_descriptor() == free, "a descriptor is still open"
    return outcome


@cache
def _scratch() -> int:
    return os.memfd_create("fuzz")


def _lowest_free_descriptor() -> int:
    descriptor = os.dup(0)
    os.close(descriptor)
    return descriptor


def _check_read(image: FileImage, segment: Segment) -> None:
    """Exactly as many bytes as were asked for, or a fault; and a fault across a segment's end."""
    for address in (segment.address, segment.file_end - 1, segment.end - 8, segment.end - 4):
        try:
            assert len(image.read(address, 8)) == 8
        except MemoryFault:
            continue
        whole = [span for span in image.loaded() if address in span and address + 7 in span]
        assert whole, "a read across a segment's end"


# ---- a mapped object -----------------------------------------------------------------------------


def check_mapped(data: bytes) -> str:
    """MappedImage raises BadFile or Unsupported, and reads no more than what it was told of."""
    bones, cut, body = _taken_apart(data)
    memory, start = _loaded(bones, cut, body)
    try:
        image = MappedImage(memory.read, start, "object")
    except (BadFile, Unsupported) as error:
        assert memory.reads <= 2
        return _named(error)
    except MemoryFault as fault:
        assert fault.address == start, "only the first page may be missing"
        return _named(fault)
    outcome = _check_image(image)
    assert memory.read_bytes <= 4 * MAX_NOTE_BYTES
    return outcome


def _loaded(bones: Skeleton, cut: int, body: bytes) -> tuple[SpannedMemory, RemoteAddress]:
    """The program as the kernel maps it; `cut` bytes are gone from the end of its last segment."""
    first = bones.loads[0].address & -_PAGE
    bias = 0 if first else _LOADED_AT
    spans, contents = _layout(bones, body, bias)
    spans[-1] = range(spans[-1].start, max(spans[-1].start, spans[-1].stop - cut))
    return SpannedMemory(spans, contents), RemoteAddress(first + bias)


def _layout(bones: Skeleton, body: bytes, bias: int) -> tuple[list[range], list[tuple[int, bytes]]]:
    """What is mapped, by whole pages, and the contents that are not zero."""
    spans = [
        range((load.address & -_PAGE) + bias, -(-load.end // _PAGE) * _PAGE + bias)
        for load in bones.loads
    ]
    contents = [
        (load.address + offset - load.offset + bias, content)
        for offset, content in bones.rebuilt(body)
        for load in bones.loads
        if load.offset <= offset < load.offset + load.file_size
    ]
    return spans, contents


# ---- note segments alone -------------------------------------------------------------------------


def check_notes(data: bytes) -> str:
    """read_notes raises nothing: what is wrong with a note is in its answer."""
    program = _NOTED[data[0] % len(_NOTED)] if data else _NOTED[0]
    return _check_image(_NoteImage(skeleton(program), data[1:]))


class _NoteImage(Image):
    """A program whose segment of markers' notes is another one, of any size."""

    def __init__(self, bones: Skeleton, segment: bytes) -> None:
        self.name = "object"
        self.bias = 0
        offset, _ = _marker_span(bones)
        here = next(
            load for load in bones.loads if load.offset <= offset < load.offset + load.file_size
        )
        address, size = here.address + offset - here.offset, len(segment)
        self.segments = (*bones.loads, Segment(PT_NOTE, 4, offset, address, 0, size, size, 4))
        spans, contents = _layout(bones, bones.body, 0)
        self.memory = SpannedMemory(spans, [*contents, (address, segment)])

    def read(self, address: int, size: int) -> bytes:
        return self.memory.read(RemoteAddress(address), size)


def _marker_span(bones: Skeleton) -> tuple[int, bytes]:
    """The note segment that has markers: its offset and its bytes."""
    return next(span for span in bones.spans if notes.OWNER in span[1])


def _note_seeds() -> list[Seed]:
    return [
        Seed(bytes([index]) + segment, note_places(segment, 1))
        for index, (_, segment) in enumerate(_marker_span(skeleton(name)) for name in _NOTED)
    ]


# ---- what every image has to keep to -------------------------------------------------------------


class _Steps:
    """How many notes were taken apart."""

    count = 0


@contextmanager
def _counted_steps() -> Iterator[_Steps]:
    """Count the calls of parse_note, as both of its users see it."""
    steps = _Steps()

    def counted(data: bytes, start: int, align: int) -> tuple[rawnotes.RawNote, int]:
        steps.count += 1
        note, following = _parse_note(data, start, align)
        sizes = struct.unpack_from("<II", data, start)
        assert (len(note.owner), len(note.content)) == sizes, "a note that is not all there"
        assert following >= start + 12, "no way forward"
        return note, following

    rawnotes.parse_note = notes.parse_note = counted
    try:
        yield steps
    finally:
        rawnotes.parse_note = notes.parse_note = _parse_note


_parse_note = rawnotes.parse_note


def _check_image(image: Image) -> str:
    """Notes, problems and build id; each note is of this image, and each problem is one line."""
    assert len(image.segments) <= MAX_SEGMENTS
    size = sum(segment.file_size for segment in image.note_segments())
    with _counted_steps() as steps:
        in_image, problems = read_notes(image)
        build_id = image.build_id()
    most = 2 * (size // 12 + len(image.segments)) + notes.MAX_PROBLEMS
    assert steps.count <= most, "more steps than there is room for notes"
    assert len(problems) <= notes.MAX_PROBLEMS + len(image.segments)
    for problem in problems:
        assert type(problem) is BadNote
        assert len(str(problem)) < LINE
        assert str(problem).isprintable()
    for note in in_image:
        _check_note(image, note)
    assert build_id is None or bytes.fromhex(build_id) is not None
    if not in_image:
        return "BadNote" if problems else "no markers"
    return "accepted in part" if problems else ACCEPTED


def _check_note(image: Image, note: Note) -> None:
    assert note.name.isprintable()
    assert 0 < len(note.name.encode()) <= notes.MAX_NAME
    assert len(note.args) <= notes.MAX_ARGS
    parse_format(note.format, note.args)
    code, data = image.loaded(PF_X), image.loaded(PF_W)
    assert any(note.site in span for span in code)
    assert any(note.end in span for span in code)
    assert not note.body or any(note.body in span for span in code)
    assert not note.slot or any(note.slot in span for span in data)


def _named(error: Exception) -> str:
    """The documented error's name; its message is one line."""
    assert str(error).isprintable()
    assert len(str(error)) < LINE
    return type(error).__name__


HARNESSES = (
    Harness("file", _seeds, check_file),
    Harness("mapped", _seeds, check_mapped),
    Harness("notes", _note_seeds, check_notes),
)
