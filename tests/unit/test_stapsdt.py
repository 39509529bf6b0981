"""Notes of USDT probes, from files: those of Debian as readelf has them, and damaged ones."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from markerjit.elf import FileImage
from markerjit.elf.sections import read_sections
from markerjit.elf.stapsdt import SdtNotes, read_sdt_notes
from tests.support.usdt import DEBIAN, build, debian, readelf_probes

OWNER = b"stapsdt\0"


def notes_of(path: Path | str) -> SdtNotes:
    with FileImage(str(path)) as image:
        return read_sdt_notes(image)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    probes = [f'PROBE p{number}, "8@%rax", raised' for number in range(3)]
    return build(tmp_path_factory.mktemp("made"), probes)


@pytest.fixture
def damaged(made: Path, tmp_path: Path) -> Callable[[int, bytes], Path]:
    """The object with other bytes at a distance from its first note's header."""

    def write(at: int, content: bytes) -> Path:
        data = bytearray(made.read_bytes())
        start = data.index(OWNER) - 12
        data[start + at : start + at + len(content)] = content
        path = tmp_path / "damaged"
        path.write_bytes(data)
        return path

    return write


@pytest.mark.oracle
@pytest.mark.parametrize("path", DEBIAN)
def test_notes_of_debians_binaries_are_those_that_readelf_has(path: str) -> None:
    notes = notes_of(debian(path))

    assert notes.problems == ()
    assert [
        (note.provider, note.name, note.site, note.semaphore, note.operands) for note in notes.notes
    ] == readelf_probes(path)


def test_file_without_probes_has_none() -> None:
    notes = notes_of("/bin/true")

    assert (notes.notes, notes.problems) == ((), ())


def test_note_has_addresses_and_texts(made: Path) -> None:
    notes = notes_of(made)

    assert notes.problems == ()
    assert [(note.provider, note.name, note.operands) for note in notes.notes] == [
        ("made", f"p{number}", "8@%rax") for number in range(3)
    ]
    assert len({note.site for note in notes.notes}) == 3
    assert len({note.semaphore for note in notes.notes}) == 1


def test_addresses_of_a_prelinked_object_move_with_its_base(
    made: Path, damaged: Callable[[int, bytes], Path]
) -> None:
    """The first note says that it was written when all was 64 bytes before."""
    before = notes_of(made).notes[0]
    with FileImage(str(made)) as image:
        (base,) = [s.address for s in read_sections(image) if s.name == b".stapsdt.base"]

    path = damaged(20, struct.pack("<QQQ", before.site - 64, base - 64, before.semaphore - 64))

    assert notes_of(path).notes[0] == before


@pytest.mark.parametrize(
    ("at", "content", "reason"),
    [
        (20, struct.pack("<Q", 1 << 40), "says that its probe is at 0x10000000000"),
        (36, struct.pack("<Q", 1), "says that its semaphore is at 0x1, which is not data"),
        (44, b"\xff", "has a name that is none"),
        (44, b"\0", "has more than three texts"),
        (52, b"\x1b", "has operands that are not text"),
        (4, struct.pack("<I", 1 << 20), "is cut off or damaged"),
        (4, struct.pack("<I", 8), "has 8 bytes, too few for a probe"),
        (4, struct.pack("<I", 30), "has a text without an end"),
    ],
)
def test_note_that_lies_is_left_out_with_its_reason(
    damaged: Callable[[int, bytes], Path], at: int, content: bytes, reason: str
) -> None:
    notes = notes_of(damaged(at, content))

    assert [note.name for note in notes.notes][-2:] == ["p1", "p2"], "the others are found"
    assert len(notes.notes) == 2
    assert reason in str(notes.problems[0])


def test_note_with_addresses_of_32_bits_is_refused_with_its_reason(
    made: Path, damaged: Callable[[int, bytes], Path]
) -> None:
    site = notes_of(made).notes[0].site

    notes = notes_of(damaged(20, struct.pack("<IIIIII", site, 1, 1, 1, 1, 1)))

    assert "32 bits" in str(notes.problems[0])


def test_sections_that_are_cut_off_are_a_problem_and_no_error(made: Path, tmp_path: Path) -> None:
    data = made.read_bytes()
    path = tmp_path / "cut"
    path.write_bytes(data[: len(data) - 40])

    notes = notes_of(path)

    assert not notes.notes
    assert "section headers are cut off" in str(notes.problems[0])
